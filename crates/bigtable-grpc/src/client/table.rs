//! Implements [`Table`]: the rows of a table behind the API.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use bigtable::sync::locked;
use bigtable::{ConditionalMutation, Error, Page, PageLimit, RequestSize, Result, Row, RowKey};
use bigtable::{RowMutation, RowRange, Selection, Syncing, Table};
use tonic::Code;

use super::batch;
use super::filter;
use super::read::{Of, Read, is_short};
use super::retry::{Attempts, repeat};
use super::status::{is_broken, of_mutation, of_read};
use super::wire::{GrpcTable, LIMITS, Part, wire_mutations, wire_range};
use crate::proto::data::{MutateRowRequest, RowFilter, RowSet, SampleRowKeysRequest};
use crate::syncing;

/// Most sampled keys for a table's tablets.
const TABLETS_MAX: usize = 1_000_000;

#[async_trait]
impl Table for GrpcTable {
    fn name(&self) -> &str {
        &self.name
    }

    async fn read_row(&self, row: &RowKey, select: &Selection) -> Result<Row> {
        row.check()?;
        select.check(&self.schema)?;
        let Some(reading) = filter::of_selection(select) else {
            return Ok(Row::new(row.clone(), Vec::new()));
        };
        let filter = reading.filter.clone();
        let found = match &self.gathers.reads {
            Some(gather) => {
                let read = Read { of: Of::Row(row.clone()), filter };
                let found = gather.send(self, read).await?.rows.pop();
                found.unwrap_or_else(|| Row::new(row.clone(), Vec::new()))
            }
            None => self.row(row, filter).await?,
        };
        Ok(reading.pick(select, found))
    }

    async fn read_rows(&self, rows: &[RowKey], select: &Selection) -> Result<Vec<Row>> {
        if let [row] = rows {
            // It may go together with the reads of others.
            return Ok(vec![self.read_row(row, select).await?]);
        }
        rows.iter().try_for_each(RowKey::check)?;
        select.check(&self.schema)?;
        let nothing = |row: &RowKey| Row::new(row.clone(), Vec::new());
        let Some(reading) = filter::of_selection(select) else {
            return Ok(rows.iter().map(nothing).collect());
        };
        let mut found =
            self.rows(rows, &reading.filter).await.map_err(|status| of_read(&status))?;
        // The first result of each row, for rows that were requested more than once.
        let mut taken: BTreeMap<&RowKey, usize> = BTreeMap::new();
        let mut results: Vec<Row> = Vec::with_capacity(rows.len());
        for row in rows {
            let again = *taken.entry(row).or_insert(results.len());
            results.push(match (results.get(again), found.remove(row)) {
                (Some(same), _) => same.clone(),
                (None, Some(found)) => reading.pick(select, found),
                (None, None) => nothing(row),
            });
        }
        Ok(results)
    }

    async fn scan(&self, range: &RowRange, select: &Selection, limit: PageLimit) -> Result<Page> {
        select.check(&self.schema)?;
        let nothing = Page { rows: Vec::new(), resume: None };
        let Some(reading) = filter::of_selection(select) else { return Ok(nothing) };
        let range = &range.clipped();
        // To the API an empty key is no bound. Here it is a key below all rows.
        let ends_at_once = matches!(&range.end, Bound::Included(end) | Bound::Excluded(end) if end.as_bytes().is_empty());
        if range.is_empty() || ends_at_once {
            return Ok(nothing);
        }
        let gather = self.gathers.reads.as_ref().filter(|_| self.limits.reads_max.is_some());
        let mut page = match gather.filter(|_| is_short(range, limit)) {
            Some(gather) => {
                let of = Of::Page(range.clone(), limit);
                gather.send(self, Read { of, filter: reading.filter.clone() }).await?
            }
            None => self.page(range, &reading.filter, limit).await?,
        };
        page.rows = page.rows.into_iter().map(|row| reading.pick(select, row)).collect();
        page.rows.retain(|row| !row.cells.is_empty());
        Ok(page)
    }

    async fn mutate_row(&self, request: RowMutation) -> Result<()> {
        request.check(&self.schema)?;
        let sync = request.sync;
        let row = RequestSize::of_row(request.row.as_bytes());
        LIMITS.check(request.mutations.iter().fold(row, RequestSize::and))?;
        let mutations = wire_mutations(&request.mutations);
        if mutations.is_empty() {
            return Ok(());
        }
        let request = MutateRowRequest {
            table_name: self.path.clone(),
            app_profile_id: self.app_profile.clone(),
            row_key: request.row.to_bytes(),
            mutations,
            ..MutateRowRequest::default()
        };
        // These mutations name their times, so applying one twice is harmless and they may be
        // repeated. Once an attempt may have been applied, no later answer proves that none
        // was.
        let unknown = Mutex::new(None);
        let answer = repeat(self.channels.deadline(), || async {
            let mut request = self.channels.request(&self.routing, request.clone());
            syncing::put(&mut request, sync);
            let answer = self.channels.data().mutate_row(request).await;
            if let Err(status) = &answer
                && let error @ Error::Unknown { .. } = of_mutation(status)
            {
                *locked(&unknown) = Some(error);
            }
            answer
        });
        match answer.await {
            Ok(_) => Ok(()),
            Err(status) => {
                let unknown = unknown.into_inner().unwrap_or_else(PoisonError::into_inner);
                Err(unknown.unwrap_or_else(|| of_mutation(&status)))
            }
        }
    }

    async fn check_and_mutate_row(&self, request: ConditionalMutation) -> Result<bool> {
        match &self.gathers.mutations {
            // A mutation that may be lost goes alone, because the others of its request may not
            // be.
            Some(gather) if request.sync != Syncing::MayBeLost => gather.send(self, request).await,
            _ => self.send_one(request).await,
        }
    }

    async fn check_and_mutate_rows(&self, requests: Vec<ConditionalMutation>) -> Vec<Result<bool>> {
        if let Some(gather) = &self.gathers.mutations {
            return gather.send_all(self, requests).await;
        }
        let mut results = Vec::with_capacity(requests.len());
        results.resize_with(requests.len(), || Err(batch::unanswered()));
        let requests = requests.into_iter().map(|request| (self.clone(), request)).collect();
        batch::send(requests, |place, result| results[place] = result).await;
        results
    }

    async fn tablets(&self) -> Result<Vec<RowRange>> {
        let answer = repeat(self.channels.deadline(), || async {
            let request = SampleRowKeysRequest {
                table_name: self.path.clone(),
                app_profile_id: self.app_profile.clone(),
                ..SampleRowKeysRequest::default()
            };
            let request = self.channels.request(&self.routing, request);
            let mut stream = self.channels.data().sample_row_keys(request).await?.into_inner();
            let mut keys = Vec::new();
            while let Some(sample) = stream.message().await? {
                if keys.len() < TABLETS_MAX && !sample.row_key.is_empty() {
                    keys.push(RowKey::from(sample.row_key));
                }
            }
            Ok(keys)
        });
        let mut keys = answer.await.map_err(|status| match status.code() {
            Code::NotFound => of_read(&status),
            _ => Error::Unavailable { why: status.to_string() },
        })?;
        keys.sort();
        keys.dedup();
        let mut start = Bound::Unbounded;
        let mut tablets = Vec::with_capacity(keys.len() + 1);
        for key in keys {
            let next = Bound::Included(key.clone());
            let end = Bound::Excluded(key);
            tablets.push(RowRange { start: std::mem::replace(&mut start, next), end });
        }
        tablets.push(RowRange { start, end: Bound::Unbounded });
        Ok(tablets)
    }
}

impl GrpcTable {
    /// Reads one page of a range that is not empty.
    pub(super) async fn page(
        &self,
        range: &RowRange,
        filter: &RowFilter,
        limit: PageLimit,
    ) -> Result<Page> {
        let mut left = range.clone();
        let mut attempts = Attempts::default();
        loop {
            let mut part = Part::default();
            let rows = RowSet { row_keys: Vec::new(), row_ranges: vec![wire_range(&left)] };
            let outcome = self.read(rows, filter.clone(), limit, &mut part).await;
            let last = part.rows.last().map(|row| row.key.clone()).max(part.scanned.take());
            match outcome {
                Ok(()) if !part.full => return Ok(Page { rows: part.rows, resume: None }),
                // A server that breaks the rules of the stream may also have left out rows. So
                // the client drops what arrived, and reads the same range again.
                Err(status) if part.rows.is_empty() || is_broken(&status) => {
                    if let Some(last) = last.filter(|_| part.rows.is_empty()) {
                        left = left.after(last);
                    }
                    if !attempts.again(&status).await {
                        return Err(of_read(&status));
                    }
                }
                // The rows that arrived are a page; the next page holds the rest.
                Ok(()) | Err(_) => {
                    let rest = last.map(|last| left.after(last));
                    let resume = rest.filter(|rest| !rest.is_empty());
                    return Ok(Page { rows: part.rows, resume });
                }
            }
        }
    }
}
