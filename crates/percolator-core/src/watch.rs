//! Defines the events that a program can watch: what a client's transactions, observers,
//! resolvers and collector have just done.
//!
//! The only hook is [`Options::watch`](crate::Options::watch), which is off by default. The
//! core calls a watcher after the fact and holds no mutex during the call, so a watcher can
//! change no outcome. The core catches panics. It counts calls that panic or take longer than
//! a second, and does not call the watcher again after the third. It cannot end a call that
//! never returns: such a call blocks its task.
//!
//! A client without watcher and trace reads no time for events, and allocates nothing for
//! them.

pub(crate) mod watcher;

use std::fmt;
use std::time::Duration;

use crate::observe::change::Change;
use crate::options::CommitPath;
use crate::records::column::Cell;
use crate::txn::row_plan::RowPlan;
use crate::{Column, Error, GcReport, Incarnation, LockFate, RowKey, Timestamp};

/// Code that a client calls after each event.
///
/// A client calls its watcher on the task that caused the event, and goes on when the call
/// returns. A watcher must return at once: it must not wait, do input or output, or call the
/// client. After the third call that panics or takes longer than a second, the watcher is not
/// called again. [`Stats::watcher_failures`](crate::Stats::watcher_failures) counts such
/// calls. Several calls may run at the same time.
///
/// ```
/// # use percolator_core::face as percolator;
/// # use percolator_core::testing::{VirtualRuntime, client};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// use percolator::watch::{Event, Watch};
/// use percolator::{Column, Options};
///
/// /// Counts the transfers.
/// #[derive(Debug, Default)]
/// struct Transfers(AtomicUsize);
///
/// impl Watch for Transfers {
///     fn on_event(&self, event: &Event<'_>) {
///         if let Event::Committed { tx, .. } = event
///             && tx.name == Some("transfer")
///         {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
///
/// # let runtime = VirtualRuntime::new(1);
/// # runtime.block_on(async {
/// let transfers = Arc::new(Transfers::default());
/// let options = Options { watch: Some(transfers.clone()), ..Options::default() };
/// # let db = client(&runtime, options).await?;
/// let (accounts, bal) = (db.table("accounts").await?, Column::literal("bal"));
/// let set = async |mut tx: percolator::Attempt| tx.set(&accounts, "Bob", &bal, "$3");
/// db.named("transfer").transact(set).await?;
/// assert_eq!(transfers.0.load(Ordering::Relaxed), 1);
/// # Ok::<(), percolator::Error>(()) }).unwrap();
/// ```
pub trait Watch: Send + Sync + fmt::Debug {
    /// Takes note of an event.
    fn on_event(&self, event: &Event<'_>);
}

/// A cell, named by table, row and column.
///
/// See [`Event::LockFound`], and [`Written::cells`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellRef<'a> {
    /// The table's name.
    pub table: &'a str,
    /// The row.
    pub row: &'a RowKey,
    /// The column.
    pub column: &'a Column,
}

impl<'a> From<&'a Cell> for CellRef<'a> {
    fn from(cell: &'a Cell) -> Self {
        CellRef { table: cell.table.name(), row: &cell.row, column: &cell.column }
    }
}

/// An event of a client.
///
/// See [`Watch`] for an example.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A transaction that wrote or notified something has committed: its commit point has
    /// passed. After a two-phase commit its secondaries may still be locked.
    Committed {
        /// The transaction.
        tx: TransactionInfo<'a>,
        /// The timestamp from which its writes are visible.
        commit_ts: Timestamp,
        /// Whether it committed in one step or in two phases. A transaction that only notifies
        /// reports `TwoPhases`.
        path: CommitPath,
        /// How long it took.
        spans: Spans,
        /// The cells that it wrote.
        written: Written<'a>,
    },
    /// A commit has failed: the transaction was aborted, or its outcome is unknown.
    Ended {
        /// The transaction.
        tx: TransactionInfo<'a>,
        /// Why: [`Error::Aborted`] or [`Error::Unknown`]. For a transaction that only
        /// notifies, the failure of the store or the oracle.
        why: &'a Error,
        /// How long it took.
        spans: Spans,
    },
    /// A read, a commit, a worker or a collector has found a lock of another transaction. A
    /// client that waits for a lock finds it several times.
    LockFound {
        /// The locked cell.
        cell: CellRef<'a>,
        /// The start timestamp of the transaction that holds it.
        lock_ts: Timestamp,
        /// The client that placed it.
        owner: Incarnation,
        /// How long the finder has waited so far: zero the first time.
        waited: Duration,
        /// The lock's fate, which may not have been decided yet.
        fate: LockFate,
    },
    /// This client has rolled locks of one transaction in one row forward (`commit_ts`) or back
    /// (`None`).
    Resolved {
        /// The transaction whose locks they were.
        start_ts: Timestamp,
        /// When it committed, if it did.
        commit_ts: Option<Timestamp>,
        /// How many locks.
        cells: usize,
    },
    /// An observer has run.
    Ran {
        /// The observer.
        observer: &'a str,
        /// The changes that the observer was given: several if it is a batching observer,
        /// otherwise one.
        changes: &'a [Change],
        /// Older changes of the same cells that the run handled with them: the index in `changes`,
        /// and the commit timestamp. Where notifications lie apart, older ones are not known.
        earlier: &'a [(usize, Timestamp)],
        /// How long the run took, its commit included.
        took: Duration,
        /// How it ended.
        end: RunEnd<'a>,
    },
    /// An observer has given up on a change.
    SetAside {
        /// The observer.
        observer: &'a str,
        /// The cell whose change it is.
        cell: CellRef<'a>,
        /// How often it ran.
        attempts: u32,
        /// The last error.
        error: &'a str,
    },
    /// A round of garbage collection that read all tables has ended.
    Collected {
        /// The counts of the round.
        report: &'a GcReport,
        /// How long it took.
        took: Duration,
    },
    /// One access of 64, chosen evenly. The samples show which rows carry the load.
    Sampled {
        /// The table.
        table: &'a str,
        /// The row.
        row: &'a RowKey,
        /// The kind of access.
        access: Access,
    },
}

/// A transaction, as an event names it.
///
/// See [`Watch`] for an example.
#[derive(Debug, Clone, Copy)]
pub struct TransactionInfo<'a> {
    /// The name that [`Client::named`](crate::Client::named) gave it. For an observer's run,
    /// the name of the observer.
    pub name: Option<&'a str>,
    /// Its start timestamp.
    pub start_ts: Timestamp,
    /// If an observer runs in it, the changes that the observer handles.
    pub causes: &'a [Change],
    /// Older changes of the same cells that it handles with them: the index in `causes`, and the
    /// commit timestamp. See [`Event::Ran`].
    pub earlier: &'a [(usize, Timestamp)],
}

/// How long the parts of a transaction took. The rest of `total` is the time of its closure.
///
/// See [`Event::Committed`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spans {
    /// From `begin`, the wait for a timestamp included, until the commit point or the failure.
    pub total: Duration,
    /// The prewrite; zero for a one-step commit.
    pub prewrite: Duration,
    /// From the end of the prewrite until the commit point or the failure. For a one-step
    /// commit, from the beginning of the commit.
    pub commit: Duration,
}

/// How an observer's run ended.
///
/// See [`Event::Ran`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum RunEnd<'a> {
    /// It committed.
    Committed {
        /// The start timestamp of its transaction.
        start_ts: Timestamp,
        /// Its commit timestamp, or its start timestamp if it wrote nothing.
        commit_ts: Timestamp,
    },
    /// It conflicted with another transaction, a lock or the safe point, and will run again.
    Conflicted,
    /// It failed. It will run again after a pause, or the change is set aside.
    Failed {
        /// How often it has failed on this change. Zero if it was given several changes: those
        /// are given to it again one by one.
        attempts: u32,
        /// Why.
        error: &'a Error,
    },
    /// The store, the oracle or the target that the observer feeds is out of reach, or the
    /// outcome is unknown. It will run again, and the failure does not count against the
    /// change.
    Interrupted {
        /// Why.
        error: &'a Error,
    },
}

/// The kind of an access to a row.
///
/// See [`Event::Sampled`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// It was read.
    Read,
    /// It was written.
    Write,
}

/// The cells that a transaction has written.
///
/// See [`Event::Committed`].
#[derive(Clone, Copy)]
pub struct Written<'a> {
    pub(crate) rows: &'a [RowPlan],
    pub(crate) notified: &'a [Cell],
}

impl<'a> Written<'a> {
    /// The cells that have a new value or were deleted, without acknowledgements of observers.
    pub fn cells(&self) -> impl Iterator<Item = CellRef<'a>> + use<'a> {
        self.rows.iter().flat_map(|row| {
            let cells = row.cells.iter().filter(|cell| !cell.column.is_ack());
            cells.map(|cell| CellRef {
                table: row.table.name(),
                row: &row.row,
                column: &cell.column,
            })
        })
    }

    /// The cells that have a weak notification and nothing else.
    pub fn notified(&self) -> impl Iterator<Item = CellRef<'a>> + use<'a> {
        self.notified.iter().map(CellRef::from)
    }
}

impl fmt::Debug for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.cells()).entries(self.notified()).finish()
    }
}
