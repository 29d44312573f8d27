//! Reads a store directly, past the client: its records, tombs, locks and notifications. It
//! also audits them by themselves.
//!
//! It decodes records with code of the simulation, so that a mistake in the client's decoding
//! shows.

use std::collections::BTreeSet;

use bigtable::{
    Family, PageLimit, Result, RowKey, RowRange, Selection, Store, TimeRange, Timestamp,
};
use bytes::Bytes;

use super::findings::report;
use super::property;
use crate::history::Finding;
use crate::names::NOTIFY_TABLE;
use crate::write_record::{HEADER_BYTES, Header};

/// The family of long values.
pub const DATA: Family = Family::from_static("data");
/// The family of locks.
pub const LOCK: Family = Family::from_static("lock");
/// The family of write records.
pub const WRITE: Family = Family::from_static("write");
/// The family of tombs.
pub const ROLLBACK: Family = Family::from_static("rollback");
/// The family of notifications.
pub const NOTIFY: Family = Family::from_static("notify");

const FAMILIES: [Family; 5] = [NOTIFY, DATA, LOCK, WRITE, ROLLBACK];

/// A cell of the application, by its names in the store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RawCell {
    /// The table.
    pub table: String,
    /// The row.
    pub row: RowKey,
    /// The column.
    pub column: Bytes,
}

/// A write record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RawRecord {
    /// The cell.
    pub cell: RawCell,
    /// The commit timestamp.
    pub commit_ts: Timestamp,
    /// The start timestamp that it points at.
    pub start_ts: Timestamp,
    /// Whether it is a delete.
    pub delete: bool,
    /// The value, from the record or from `data`; `None` for a delete or if it is missing.
    pub value: Option<Bytes>,
}

/// The contents of a store's transaction tables.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Dump {
    /// Its write records, in order.
    pub records: Vec<RawRecord>,
    /// Its tombs.
    pub tombs: Vec<(RawCell, Timestamp)>,
    /// Its locks, with their bytes.
    pub locks: Vec<(RawCell, Timestamp, Bytes)>,
    /// Its notifications.
    pub notifications: Vec<(RawCell, Timestamp)>,
}

impl Dump {
    /// Reads a whole store, without Percolator's own tables.
    ///
    /// # Errors
    /// Returns the store's errors, and `InvalidRequest` for a record that does not decode.
    pub async fn of(store: &dyn Store) -> Result<Self> {
        let mut dump = Dump::default();
        for name in store.table_names().await? {
            // A separate table of notifications: its keys have one byte before the key of the
            // notified row.
            let of = name.strip_prefix(NOTIFY_TABLE);
            if of.is_none() && name.starts_with("percolator.") {
                continue;
            }
            let (schema, families) = match (of, store.locality_groups()) {
                (Some(_), _) => (percolator_core::notify_schema(), &FAMILIES[..1]),
                (None, true) => (percolator_core::table_schema(), &FAMILIES[..]),
                (None, false) => (percolator_core::table_schema(), &FAMILIES[1..]),
            };
            let table = store.open_table(&name, &schema).await?;
            let mut select = Selection::default();
            for family in families {
                select = select.family(family.clone(), TimeRange::ALL, u32::MAX);
            }
            let mut left = Some(RowRange::all());
            while let Some(range) = left {
                let page = table.scan(&range, &select, PageLimit::default()).await?;
                for row in &page.rows {
                    let key = row.key.as_bytes().get(of.is_some().into()..).unwrap_or_default();
                    dump.add(of.unwrap_or(&name), &key.into(), row)?;
                }
                left = page.resume;
            }
        }
        Ok(dump)
    }

    fn add(&mut self, table: &str, key: &RowKey, row: &bigtable::Row) -> Result<()> {
        for found in &row.cells {
            let column = found.qualifier.clone();
            let cell = RawCell { table: table.to_owned(), row: key.clone(), column };
            let at = found.timestamp;
            if found.family == WRITE {
                self.records.push(record(cell, row, found)?);
            } else if found.family == LOCK {
                self.locks.push((cell, at, found.value.clone()));
            } else if found.family == ROLLBACK {
                self.tombs.push((cell, at));
            } else if found.family == NOTIFY {
                self.notifications.push((cell, at));
            }
        }
        Ok(())
    }

    /// Returns the newest committed value of a cell; `None` when it has none or was deleted.
    pub fn newest(&self, cell: &RawCell) -> Option<&Bytes> {
        let of = self.records.iter().filter(|record| record.cell == *cell);
        of.max_by_key(|record| record.commit_ts)?.value.as_ref()
    }

    /// Checks the conditions that every store must fulfil at any moment (P5):
    ///
    /// * one record for each start timestamp in a cell,
    /// * no lock or tomb beside a record,
    /// * a value for each record that needs one.
    pub fn audit(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let locks: BTreeSet<_> = self.locks.iter().map(|(cell, s, _)| (cell, s)).collect();
        let tombs: BTreeSet<_> = self.tombs.iter().map(|(_, s)| s).collect();
        let mut pointers = BTreeSet::new();
        for record in &self.records {
            let RawRecord { cell, commit_ts, start_ts, delete, value } = record;
            let what = format!("{cell:?}, written by {start_ts}, committed at {commit_ts}");
            if !pointers.insert((cell, start_ts)) {
                report(&mut findings, property::ONE_COMMIT, format!("two records of {what}"));
            }
            if locks.contains(&(cell, start_ts)) {
                report(&mut findings, property::TOMB_OR_RECORD, format!("a lock beside {what}"));
            }
            if tombs.contains(start_ts) {
                report(&mut findings, property::TOMB_OR_RECORD, format!("a tomb and {what}"));
            }
            if !delete && value.is_none() {
                report(&mut findings, property::DATA, format!("no value for {what}"));
            }
        }
        findings
    }
}

fn record(cell: RawCell, row: &bigtable::Row, found: &bigtable::Cell) -> Result<RawRecord> {
    let Some(Header { start_ts, delete, short_value }) = Header::of(&found.value) else {
        return Err(bigtable::Error::invalid(format!("a damaged write record of {cell:?}")));
    };
    let long = || {
        let versions = row.versions(&DATA, &cell.column);
        versions.iter().find(|data| data.timestamp == start_ts).map(|data| data.value.clone())
    };
    let value = match (delete, short_value) {
        (true, _) => None,
        (false, true) => Some(found.value.slice(HEADER_BYTES..)),
        (false, false) => long(),
    };
    Ok(RawRecord { cell, commit_ts: found.timestamp, start_ts, delete, value })
}
