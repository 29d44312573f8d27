//! Reads several rows by one request.

use std::collections::BTreeMap;

use bigtable::{PageLimit, Row, RowKey};
use tonic::Status;

use super::retry::Attempts;
use super::status::is_broken;
use super::wire::{GrpcTable, Part};
use crate::proto::data::{RowFilter, RowSet};

/// Most bytes of keys in one request: half of the API's bound.
const KEYS_BYTES_MAX: usize = 256 * 1024;

impl GrpcTable {
    /// Reads rows, and returns those in which the filter leaves cells.
    pub(super) async fn rows(
        &self,
        keys: &[RowKey],
        filter: &RowFilter,
    ) -> Result<BTreeMap<RowKey, Row>, Status> {
        let mut keys: Vec<&RowKey> = keys.iter().collect();
        keys.sort();
        keys.dedup();
        let mut found = BTreeMap::new();
        let mut left = &keys[..];
        while !left.is_empty() {
            let (some, rest) = left.split_at(fitting(left));
            self.some_rows(some, filter, &mut found).await?;
            left = rest;
        }
        Ok(found)
    }

    /// Reads sorted rows. If the stream breaks off, it is resumed after the last row that
    /// arrived.
    async fn some_rows(
        &self,
        mut left: &[&RowKey],
        filter: &RowFilter,
        found: &mut BTreeMap<RowKey, Row>,
    ) -> Result<(), Status> {
        let mut attempts = Attempts::default();
        loop {
            let mut part = Part::default();
            let row_keys = left.iter().map(|key| key.to_bytes()).collect();
            let rows = RowSet { row_keys, row_ranges: Vec::new() };
            let limit = PageLimit { rows_max: left.len(), bytes_max: usize::MAX };
            let outcome = self.read(rows, filter.clone(), limit, &mut part).await;
            let Err(status) = outcome else {
                found.extend(part.rows.into_iter().map(|row| (row.key.clone(), row)));
                return Ok(());
            };
            // A server that breaks the rules of the stream may also have left out rows, so
            // nothing is skipped.
            if !is_broken(&status) {
                let last = part.rows.last().map(|row| row.key.clone()).max(part.scanned.take());
                if let Some(last) = last {
                    left = &left[left.partition_point(|key| **key <= last)..];
                    attempts = Attempts::default();
                }
                found.extend(part.rows.into_iter().map(|row| (row.key.clone(), row)));
            }
            if left.is_empty() {
                return Ok(());
            }
            if !attempts.again(&status).await {
                return Err(status);
            }
        }
    }
}

/// Number of keys that go into one request; at least one.
fn fitting(keys: &[&RowKey]) -> usize {
    let mut bytes = 0;
    let fits = |key: &&&RowKey| {
        bytes += key.as_bytes().len();
        bytes <= KEYS_BYTES_MAX
    };
    keys.iter().take_while(fits).count().max(1)
}
