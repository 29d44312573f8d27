//! Arranges the public items as the crate `percolator` shows them. Names that nearly every
//! program needs are at the top; each other purpose has a module.

pub use crate::{
    AbortReason, Attempt, Bytes, Change, Client, Column, Conflict, Error, InvalidKind, Observer,
    Options, Receipt, Registration, Result, RowKey, RowRange, Scan, ScannedRow, Snapshot, Table,
    Timestamp, Transaction, Value, WorkerOptions, Workers,
};

/// Maintenance of a database: garbage collection, locks, counters, the history of a cell.
pub mod admin {
    pub use crate::{
        Age, CellName, CellState, CloseReport, Collector, Explained, Explanation, FirstStep,
        GcCounts, GcOptions, GcReport, GcStatus, Incarnation, LastRound, LockEnd, LockFate,
        LockView, LockWaiter, Meaning, Moment, OldestReader, ProcessInfo, ReadOutcome, ReaderView,
        Side, Stats, Status, TableSize, TraceCause, TraceRecord, WeakClient, Why, WhyEdge, WhyLine,
        WhyNode, WhyWrite, WriteView,
    };
}

/// Oracles and locks, which several processes need to work on one store.
pub mod cluster {
    pub use crate::{
        Holder, LockService, Oracle, OracleNode, OracleOptions, OracleRole, ProcessLocks, Stamp,
        StampRange, TIMESTAMPS_MAX, TableLocks, WindowOracle,
    };
}

/// Batching observers, changes that wait for observers, and changes that were set aside.
pub mod observe {
    pub use crate::{
        Backlog, Batch, BatchObserver, Failing, IdleReport, Observed, SetAside, Strength,
    };
}

/// Time, tasks and randomness, which a database receives from its program.
pub mod runtime {
    pub use crate::{Runtime, Services};
}

/// The store under a database: the crate `bigtable`, and the tables that Percolator keeps there.
pub mod store {
    pub use bigtable::*;

    pub use crate::{
        LOCKS_MAX, NOTIFICATIONS_MAX, SYSTEM_TABLE, async_trait, notify_schema, table_schema,
        upkeep_tables,
    };
}

/// Events, for a program that watches what a database does.
pub mod watch {
    pub use crate::{
        Access, CellRef, Event, RunEnd, Sampling, Spans, TransactionInfo, Watch, Written,
    };
}

/// A transaction's two phases one by one, its options and its limits.
pub mod transaction {
    pub use crate::{
        COLUMN_BYTES_MAX, CommitPath, Prewritten, PrimaryCommitted, ROW_KEY_BYTES_MAX, Secondaries,
        TRANSACTION_BYTES_MAX, TRANSACTION_CELLS_MAX,
    };
}
