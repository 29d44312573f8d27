//! Implements the Percolator paper (OSDI 2010): transactions with snapshot isolation, and
//! durable observers, over a store with single-row atomicity.
//!
//! ```text
//!   Transaction  get, scan, set, delete, notify, commit      begin -- Oracle: s
//!       |  plan      the writes by row, and the primary
//!       |  prewrite  lock every row; conflicts abort          Figure 6, Prewrite
//!       |  commit    c, the primary's row, the others         Figure 6, Commit
//!       |  one_step  the same in one step, where store and oracle are in this process
//!       '- resolve   locks of others: forward or back         section 2.2
//!   Observer     register, find, handle                       section 2.4
//!   Collector    safe point, sweep, collect                   garbage; not in the paper
//! ```
//!
//! This crate has no clock, no threads, no randomness and no runtime of its own: they come in
//! through [`Runtime`]. The data comes in through [`bigtable::Store`], timestamps through
//! [`Oracle`], liveness through [`LockService`]. Applications use the crate `percolator`,
//! which puts these together.
//!
//! Only the oracle creates timestamps; this crate never computes one.
//!
//! The **safe point** is the timestamp below which garbage collection may drop versions. A
//! store that can compare timestamps keeps it as its **floor**, and refuses reads and commits
//! of transactions below it. A **probe** asks whether a row has a cell in some columns and
//! times; the condition of a mutation is a list of probes.

mod account;
mod bell;
mod client;
mod close;
mod closing;
mod error;
#[doc(hidden)]
pub mod face;
mod gc;
pub mod hazards;
mod locks;
#[doc(hidden)]
pub mod mutants;
mod observe;
mod options;
mod oracle;
mod outage;
mod records;
mod resolve;
mod runtime;
mod shared;
mod stats;
mod status;
mod trace;
mod txn;
mod watch;

#[doc(hidden)]
pub mod testing;

pub use async_trait::async_trait;
pub use bigtable::{RowKey, RowRange, Timestamp};
pub use bytes::Bytes;

pub use account::ProcessInfo;
pub use client::{Client, WeakClient};
pub use close::CloseReport;
pub use error::{AbortReason, Conflict, Error, InvalidKind, Result};
pub use gc::background::{Collector, GcOptions};
pub use gc::report::{GcCounts, GcReport, GcStatus, LastRound, OldestReader};
pub use gc::samples::Age;
pub use locks::{Holder, LockService, ProcessLocks, TableLocks};
pub use observe::change::Change;
pub use observe::failures::Failing;
pub use observe::idle::{Backlog, IdleReport};
pub use observe::observer::{Batch, BatchObserver, Observer, Registration};
pub use observe::options::WorkerOptions;
pub use observe::set_aside::SetAside;
pub use observe::workers::Workers;
pub use options::{CommitPath, Options, ROW_KEY_BYTES_MAX, Secondaries};
pub use options::{TRANSACTION_BYTES_MAX, TRANSACTION_CELLS_MAX};
pub use oracle::{Oracle, OracleNode, OracleOptions, OracleRole, Stamp, StampRange};
pub use oracle::{TIMESTAMPS_MAX, WindowOracle};
pub use records::column::{COLUMN_BYTES_MAX, CellName, Column, Table};
pub use records::layout::{LOCKS_MAX, NOTIFICATIONS_MAX, SYSTEM_TABLE};
pub use records::layout::{notify_schema, table_schema, upkeep_tables};
pub use records::lock::Incarnation;
pub use records::schema::{Observed, Strength};
pub use records::value::Value;
pub use resolve::explain::{CellState, Explained, Explanation, FirstStep, Meaning};
pub use resolve::explain::{ReadOutcome, ReaderView};
pub use resolve::inspect::{Moment, TableSize, WriteView};
pub use resolve::on_request::LockEnd;
pub use resolve::view::{LockFate, LockView};
pub use runtime::{Runtime, fresh_incarnation};
pub use shared::Services;
pub use stats::Stats;
pub use status::Status;
#[doc(hidden)]
pub use testing::doc_test;
pub use trace::record::{TraceCause, TraceRecord};
pub use trace::sampling::Sampling;
pub use trace::why::{Side, Why, WhyEdge, WhyLine, WhyNode, WhyWrite};
pub use txn::commit::{Prewritten, PrimaryCommitted};
pub use txn::lock_waits::LockWaiter;
pub use txn::scan::{Scan, ScannedRow};
pub use txn::snapshot::Snapshot;
pub use txn::transact::{Attempt, Receipt};
pub use txn::transaction::Transaction;
pub use watch::{Access, CellRef, Event, RunEnd, Spans, TransactionInfo, Watch, Written};
