//! What the clients of a run saw, in the order in which it happened: the checkers' input.
//!
//! A version of a cell is identified by the start timestamp of the transaction that wrote it, which
//! travels in the value, so that a checker needs no value but this.

use std::time::Duration;

use bigtable::Timestamp;

/// A cell, by small numbers that order as its names do: table, then row, then column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    /// Which table.
    pub table: u8,
    /// Which row of the table.
    pub row: u16,
    /// Which column of the row.
    pub column: u8,
}

/// One step of a transaction, in program order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// A read, and whose version it returned; `None` if the cell was absent.
    Read {
        /// The cell.
        cell: Cell,
        /// Start timestamp of the version's writer.
        writer: Option<Timestamp>,
    },
    /// A scan of one column over rows `from..to` of a table.
    Scan {
        /// The first cell of the range; its column is the one that was scanned.
        from: Cell,
        /// The row behind the last.
        to: u16,
        /// At most so many rows.
        limit: usize,
        /// What was returned, in order.
        found: Vec<(Cell, Timestamp)>,
    },
    /// A buffered write; with `delete` it removes the cell.
    Write {
        /// The cell.
        cell: Cell,
        /// Whether the cell is removed.
        delete: bool,
    },
}

/// How a transaction ended, as its client was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With a commit timestamp.
    Committed(Timestamp),
    /// Certainly without effect; also the end of one that wrote nothing.
    Aborted,
    /// The client was not told, or did not live to be told.
    Unknown,
}

/// One transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Txn {
    /// Its start timestamp.
    pub start_ts: Timestamp,
    /// Virtual time at which `begin` was called.
    pub begin_call: Duration,
    /// Virtual time at which `begin` returned.
    pub begin_return: Duration,
    /// Virtual time at which `commit` returned; `None` if it did not.
    pub commit_return: Option<Duration>,
    /// The steps, in program order.
    pub ops: Vec<Op>,
    /// How it ended.
    pub outcome: Outcome,
}

/// A write record that was seen in the store: the cell committed `start_ts` at `commit_ts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    /// The cell.
    pub cell: Cell,
    /// Commit timestamp: the record's own time.
    pub commit_ts: Timestamp,
    /// Start timestamp that the record points at.
    pub start_ts: Timestamp,
    /// Whether it is a delete.
    pub delete: bool,
}

/// A run of an observer on a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Which observer.
    pub observer: u8,
    /// The observed cell.
    pub cell: Cell,
    /// Start timestamp of the run's transaction.
    pub start_ts: Timestamp,
}

/// What a run left: the transactions, and the store as it was when every lock had been resolved.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// All transactions that got a start timestamp, those of observers too.
    pub txns: Vec<Txn>,
    /// Every write record that the store ever held, in the order in which it was given them, so
    /// that garbage collection hides none.
    pub records: Vec<Record>,
    /// Every tomb that the store ever held: (cell, start timestamp).
    pub tombs: Vec<(Cell, Timestamp)>,
    /// Locks that are left at the end, when nothing runs any more: (cell, start timestamp).
    pub locks: Vec<(Cell, Timestamp)>,
    /// Notifications that are left at the end.
    pub notifications: Vec<(Cell, Timestamp)>,
    /// Runs of strong observers whose transaction the store shows as committed, in order of
    /// `start_ts`.
    pub runs: Vec<Run>,
    /// Which (observer, cell) pairs are observed, with the observer's last acknowledgement at the
    /// end, if any.
    pub observed: Vec<(u8, Cell, Option<Timestamp>)>,
    /// Every timestamp the oracle handed out, with the virtual times of call and return.
    pub stamps: Vec<(Timestamp, Duration, Duration)>,
    /// Reads of the past without a transaction: a timestamp that was issued for something else, and
    /// what was read at it. They are free of the order in real time.
    pub views: Vec<(Timestamp, Vec<Op>)>,
    /// Records that garbage collection has dropped: (cell, start timestamp).
    pub collected: Vec<(Cell, Timestamp)>,
    /// Locks that the store let a transaction place in a cell that held its record or tomb, or had
    /// held it until garbage collection: (cell, start timestamp). Not so where the store has no
    /// floor and collection had taken both: such a lock counts for nothing there.
    pub locked_again: Vec<(Cell, Timestamp)>,
    /// Records that came again after garbage collection had dropped them: (cell, start timestamp).
    pub revived: Vec<(Cell, Timestamp)>,
    /// Since when each observer is in the schema: how many of `records`, in their order, the store
    /// had been given when it stored the first schema that names it.
    pub registered: Vec<(u8, usize)>,
}

/// What a checker found wrong: the property, and the facts in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The property's name, such as `"snapshot read"`.
    pub property: &'static str,
    /// What was seen, and what should have been.
    pub facts: String,
}
