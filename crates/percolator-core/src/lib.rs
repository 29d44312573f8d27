//! The Percolator paper (OSDI 2010): transactions with snapshot isolation, and durable observers,
//! over a store with single-row atomicity.
//!
//! ```text
//!   Transaction  get, scan, set, delete, notify, commit      begin -- Oracle: s
//!       |  plan      the writes by row, and the primary
//!       |  prewrite  lock every row; conflicts abort          Figure 6, Prewrite
//!       |  commit    c, the primary's row, the others         Figure 6, Commit
//!       |  commit_rows  the same in one step, where store and oracle are in this process
//!       '- resolve   locks of others: forward or back         section 2.2
//!   Observer     register, find, handle                       section 2.4
//!   Collector    safe point, sweep, collect                   garbage; not in the paper
//! ```
//!
//! This crate has no clock, no threads, no randomness and no runtime of its own: they come in through
//! [`Runtime`], the data through [`bigtable::Store`], timestamps through [`Oracle`], liveness through
//! [`LockService`]. Applications use the crate `percolator`, which puts these together.
//!
//! Not here: timestamps computed by anyone but the oracle.

mod abort;
mod admit;
mod bell;
mod buffer;
mod client;
mod close;
mod codec;
mod column;
mod commit;
mod commit_rows;
mod error;
mod finish;
mod format;
mod gc;
mod get;
mod heartbeat;
mod hints;
mod inspect;
mod layout;
mod limits;
mod lock;
mod lock_service;
#[doc(hidden)]
pub mod mutants;
mod observe;
mod observer;
mod options;
mod oracle;
mod plan;
mod prewrite;
mod read_ahead;
mod resolve;
mod rows;
mod runtime;
mod scan;
mod schema;
mod snapshot;
mod stats;
mod suspects;
mod transact;
mod transaction;
mod verdicts;
mod write;

#[doc(hidden)]
pub mod testing;

pub use async_trait::async_trait;
pub use bigtable::{RowKey, RowRange, Timestamp};
pub use bytes::Bytes;

pub use client::{Client, Services, WeakClient, fresh_incarnation};
pub use close::CloseReport;
pub use column::{COLUMN_BYTES_MAX, CellName, Column, Table};
pub use commit::{Prewritten, PrimaryCommitted};
pub use error::{AbortReason, Conflict, Error, Result};
pub use gc::{Collector, GcCounts, GcOptions, GcReport, GcStatus, LastRound, OldestReader};
pub use inspect::{LockFate, LockView, Moment, WriteView};
pub use layout::{LOCKS_MAX, NOTIFICATIONS_MAX, SYSTEM_TABLE};
pub use layout::{notify_schema, table_schema, upkeep_tables};
pub use lock::Incarnation;
pub use lock_service::{Holder, LockService, ProcessLocks, TableLocks};
pub use observe::{Backlog, IdleReport, SetAside, WorkerOptions, Workers};
pub use observer::{Batch, BatchObserver, Change, Observer, Registration};
pub use options::{CommitPath, Options, ROW_KEY_BYTES_MAX, Secondaries};
pub use options::{TRANSACTION_BYTES_MAX, TRANSACTION_CELLS_MAX};
pub use oracle::{Oracle, OracleNode, OracleOptions, OracleRole, Stamp, StampRange};
pub use oracle::{TIMESTAMPS_MAX, WindowOracle};
pub use runtime::Runtime;
pub use scan::{Scan, ScannedRow};
pub use schema::{Observed, Strength};
pub use snapshot::Snapshot;
pub use stats::Stats;
#[doc(hidden)]
pub use testing::doc_test;
pub use transact::Attempt;
pub use transaction::Transaction;
