//! Defines the checkers' input: what the clients of a run saw, in the order in which it happened.
//!
//! A version of a cell is identified by the start timestamp of the transaction that wrote it.
//! The value carries this timestamp, so a checker needs nothing else of the value.

use std::collections::BTreeSet;
use std::time::Duration;

use bigtable::Timestamp;

use crate::names::ACK;
use crate::write_record::Header;

/// A cell, by small numbers that sort as its names do: table, then row, then column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    /// The number of the table.
    pub table: u8,
    /// The number of the row in the table.
    pub row: u16,
    /// The number of the column in the row.
    pub column: u8,
}

/// One step of a transaction, in program order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// A read, with the writer of the version that it returned.
    Read {
        /// The cell.
        cell: Cell,
        /// Start timestamp of the version's writer; `None` if the cell was absent.
        writer: Option<Timestamp>,
    },
    /// A scan of one column over rows `from..to` of a table.
    Scan {
        /// The first cell of the range, in the scanned column.
        from: Cell,
        /// The row after the last.
        to: u16,
        /// The maximum number of rows.
        limit: usize,
        /// The cells that the scan returned with their writers, in order.
        found: Vec<(Cell, Timestamp)>,
    },
    /// A buffered write.
    Write {
        /// The cell.
        cell: Cell,
        /// Whether the cell is removed.
        delete: bool,
    },
}

/// How a transaction ended, as far as its client knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With a commit timestamp.
    Committed(Timestamp),
    /// Certainly without effect; also the end of a transaction that wrote nothing.
    Aborted,
    /// The client received no definite outcome, or died before it did.
    Unknown,
}

/// One transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Txn {
    /// Its start timestamp.
    pub start_ts: Timestamp,
    /// Virtual time of the call of `begin`.
    pub begin_call: Duration,
    /// Virtual time of the return of `begin`.
    pub begin_return: Duration,
    /// Virtual time of the return of `commit`; `None` if it did not return.
    pub commit_return: Option<Duration>,
    /// The steps, in program order.
    pub ops: Vec<Op>,
    /// The outcome.
    pub outcome: Outcome,
}

/// A write record that was seen in the store: the cell's version `start_ts`, committed at
/// `commit_ts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    /// The cell.
    pub cell: Cell,
    /// Commit timestamp, which is the record's own time.
    pub commit_ts: Timestamp,
    /// Start timestamp that the record points at.
    pub start_ts: Timestamp,
    /// Whether it is a delete.
    pub delete: bool,
}

impl Record {
    /// Decodes a write record: the start timestamp that it points at, then its flags.
    pub(crate) fn decode(cell: Cell, commit_ts: Timestamp, value: &[u8]) -> Option<Record> {
        let Header { start_ts, delete, .. } = Header::of(value)?;
        Some(Record { cell, commit_ts, start_ts, delete })
    }
}

/// A run of an observer on a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The number of the observer.
    pub observer: u8,
    /// The observed cell.
    pub cell: Cell,
    /// Start timestamp of the run's transaction.
    pub start_ts: Timestamp,
}

/// The result of a run: its transactions, and the store's contents after every lock was resolved.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// All transactions that received a start timestamp, those of observers included.
    pub txns: Vec<Txn>,
    /// Every write record that the store ever held, in the order of writing, so that garbage
    /// collection hides none.
    pub records: Vec<Record>,
    /// Every tomb that the store ever held: (cell, start timestamp).
    pub tombs: Vec<(Cell, Timestamp)>,
    /// Locks that are left at the end, when no process runs any more: (cell, start timestamp).
    pub locks: Vec<(Cell, Timestamp)>,
    /// Notifications that are left at the end.
    pub notifications: Vec<(Cell, Timestamp)>,
    /// Runs of strong observers whose transaction committed, as the store shows, in order of
    /// `start_ts`.
    pub runs: Vec<Run>,
    /// The observed (observer, cell) pairs, each with the observer's last acknowledgement at
    /// the end, if any.
    pub observed: Vec<(u8, Cell, Option<Timestamp>)>,
    /// Every timestamp that the oracle handed out, with the virtual times of call and return.
    pub stamps: Vec<(Timestamp, Duration, Duration)>,
    /// Reads of the past without a transaction: the timestamp, which was issued for another
    /// purpose, and the steps. The order in real time does not bind them.
    pub views: Vec<(Timestamp, Vec<Op>)>,
    /// Records that garbage collection dropped: (cell, start timestamp).
    pub collected: Vec<(Cell, Timestamp)>,
    /// Locks that the store accepted in a cell although it held, or had held, the record or tomb
    /// of the same transaction: (cell, start timestamp). If the store has no floor, a lock does
    /// not count once collection has dropped that record or tomb. Such a lock has no effect there.
    pub locked_again: Vec<(Cell, Timestamp)>,
    /// Records that appeared again after garbage collection had dropped them: (cell, start
    /// timestamp).
    pub revived: Vec<(Cell, Timestamp)>,
    /// Each observer, with the number of `records` that were written before the store received
    /// the first schema that names the observer.
    pub registered: Vec<(u8, usize)>,
}

/// A defect that a checker found: the property, and the facts in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The property's name, such as `"snapshot read"`.
    pub property: &'static str,
    /// The observed facts, and what would have been correct.
    pub facts: String,
}

/// Returns the cells that these observers observe, each with the observer's newest
/// acknowledgement. An observer is given with its table and column.
pub(crate) fn observed<'a>(
    records: &[Record],
    observers: impl IntoIterator<Item = &'a (u8, (u8, u8))>,
) -> Vec<(u8, Cell, Option<Timestamp>)> {
    let mut all = Vec::new();
    for (observer, column) in observers {
        let cells = records.iter().map(|record| record.cell);
        let cells: BTreeSet<Cell> = cells.filter(|c| (c.table, c.column) == *column).collect();
        for cell in cells {
            let ack = Cell { column: ACK + observer, ..cell };
            let acks = records.iter().filter(|record| record.cell == ack);
            let newest = acks.max_by_key(|record| record.commit_ts);
            all.push((*observer, cell, newest.map(|record| record.start_ts)));
        }
    }
    all
}
