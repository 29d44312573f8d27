//! Stores the observer schema: which columns are observed, by which observers, and how (paper
//! section 2.4).
//!
//! The schema is versioned and shared by all clients. A writer leaves notifications on the
//! columns that its version names. Every timestamp reply carries the version in force, so a
//! writer learns of a newer version before it commits (H59).

use std::collections::BTreeMap;

use bigtable::{ConditionalMutation, Mutation, Probe, RowKey, Selection, Syncing};
use bigtable::{TimeRange, Timestamp};
use bytes::{BufMut, Bytes, BytesMut};

use crate::records::branch;
use crate::records::codec::{Reader, put_bytes16};
use crate::records::layout::SYSTEM;
use crate::{Column, Error, InvalidKind, Result};

const ROW: &str = "observers";
const QUALIFIER: &str = "schema";
const SWEPT: u8 = 2;
const PAUSED: u8 = 4;

/// How a column is observed.
///
/// ```
/// # use percolator_core::face as percolator;
/// assert_ne!(percolator::observe::Strength::Strong, percolator::observe::Strength::Weak);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// The observer runs after a write of the column. It acknowledges the change in its own
    /// transaction, so at most one of its runs commits for each change.
    Strong,
    /// The column carries only notifications ([`notify`](crate::Transaction::notify)) and no
    /// data. Its observer may run more than once for a change, and never conflicts over the
    /// notification.
    Weak,
}

/// One observer of one column, as the schema records it.
///
/// ```
/// # percolator_core::doc_test(|client| async move {
/// assert!(client.observers().await?.is_empty());
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Observed {
    /// The table.
    pub table: String,
    /// The observed column.
    pub column: Column,
    /// The observer's name.
    pub observer: String,
    /// How it observes.
    pub strength: Strength,
}

/// The state of an observer in the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ObserverState {
    /// Whether the sweep for changes that the observer has missed is done.
    pub(crate) swept: bool,
    /// Whether the observer must not run until it is resumed.
    pub(crate) paused: bool,
}

/// A version of the schema.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    pub(crate) version: u64,
    pub(crate) entries: BTreeMap<Observed, ObserverState>,
}

impl Schema {
    /// How the column is observed, if it is.
    pub(crate) fn strength(&self, table: &str, column: &Column) -> Option<Strength> {
        self.of(table, column).next().map(|entry| entry.strength)
    }

    /// The observers of a column.
    pub(crate) fn of<'a>(
        &'a self,
        table: &'a str,
        column: &'a Column,
    ) -> impl Iterator<Item = &'a Observed> + 'a {
        self.entries.keys().filter(move |e| e.column == *column && e.table == table)
    }

    /// Whether an observer must not run. All weak observers of a column share one
    /// notification, so they are paused together.
    pub(crate) fn is_paused(&self, observed: &Observed) -> bool {
        let with_it = |e: &Observed| {
            e.column == observed.column
                && e.table == observed.table
                && (e.observer == observed.observer || e.strength == Strength::Weak)
        };
        self.entries.iter().any(|(entry, state)| state.paused && with_it(entry))
    }

    /// Whether any observer is paused.
    pub(crate) fn pauses(&self) -> bool {
        self.entries.values().any(|state| state.paused)
    }

    /// The next version, with these observers in it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the column would be both strong and weak.
    pub(crate) fn with(&self, added: &[Observed]) -> Result<Schema> {
        let mut entries = self.entries.clone();
        for entry in added {
            let clash = |e: &&Observed| {
                e.table == entry.table && e.column == entry.column && e.strength != entry.strength
            };
            if let Some(other) = entries.keys().find(clash) {
                return Err(Error::invalid(
                    InvalidKind::Observer,
                    format!(
                        "observers {} and {} want {}/{} to be both strong and weak: a notify-only \
                     column carries no data; use two columns",
                        other.observer, entry.observer, entry.table, entry.column
                    ),
                ));
            }
            // A weak observer has nothing to catch up with: notifications carry no data.
            let swept = entry.strength == Strength::Weak;
            entries.entry(entry.clone()).or_insert(ObserverState { swept, paused: false });
        }
        Ok(Schema { version: self.version + 1, entries })
    }

    fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u64(self.version);
        out.put_u32(u32::try_from(self.entries.len()).expect("observers are registered by hand"));
        for (Observed { table, column, observer, strength }, state) in &self.entries {
            let weak = u8::from(*strength == Strength::Weak);
            let swept = if state.swept { SWEPT } else { 0 };
            out.put_u8(weak | swept | if state.paused { PAUSED } else { 0 });
            put_bytes16(&mut out, table.as_bytes());
            put_bytes16(&mut out, column.as_bytes());
            put_bytes16(&mut out, observer.as_bytes());
        }
        out.freeze()
    }

    fn decode(value: &Bytes) -> Result<Self> {
        let mut reader = Reader::new(value);
        let mut parse = || {
            let version = reader.u64()?;
            let count = reader.u32()?;
            let mut entries = BTreeMap::new();
            for _ in 0..count {
                let flags = reader.u8()?;
                let strength = match flags & !(SWEPT | PAUSED) {
                    0 => Strength::Strong,
                    1 => Strength::Weak,
                    _ => return None,
                };
                let table = reader.string16()?;
                let column = Column::from_stored(reader.bytes16()?);
                let observer = reader.string16()?;
                let entry = Observed { table, column, observer, strength };
                let (swept, paused) = (flags & SWEPT != 0, flags & PAUSED != 0);
                entries.insert(entry, ObserverState { swept, paused });
            }
            Some(Schema { version, entries })
        };
        parse().ok_or_else(|| Error::Corrupt { record: "observer schema", bytes: value.clone() })
    }

    /// The stored schema, or version zero if the store has none.
    pub(crate) async fn read(table: &dyn bigtable::Table) -> Result<Self> {
        let select = Selection::default().column(SYSTEM, QUALIFIER, TimeRange::ALL, 1);
        let row = table.read_row(&RowKey::from(ROW), &select).await?;
        match row.newest(&SYSTEM, QUALIFIER.as_bytes()) {
            Some(cell) => Schema::decode(&cell.value),
            None => Ok(Schema::default()),
        }
    }

    /// Stores this schema in place of version `old`. Returns `false` if another client was
    /// faster.
    pub(crate) async fn replace(&self, table: &dyn bigtable::Table, old: &Schema) -> Result<bool> {
        let probe = Probe::new(SYSTEM, QUALIFIER, TimeRange::ALL);
        let write = vec![Mutation::set(SYSTEM, QUALIFIER, Timestamp::ZERO, self.encode())];
        let request =
            ConditionalMutation { sync: Syncing::Always, ..ConditionalMutation::new(ROW) };
        let version = old.version.to_be_bytes().to_vec();
        let old = (old.version > 0).then(|| version.into());
        Ok(branch::replace(table, request, probe, old, write).await?)
    }
}
