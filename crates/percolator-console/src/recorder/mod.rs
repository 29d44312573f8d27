//! Counts and keeps the events of a client, for the console and `/metrics`.
//!
//! The recorder is a [`Watch`]: give it to [`Options::watch`](percolator::Options::watch) when
//! you open the database. It keeps everything in memory, bounded, and starts empty with the
//! process.

mod clock;
mod contention;
mod graph;
mod histogram;
mod keys;
mod names;
mod recent;
mod requests;
pub(crate) mod series;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use percolator::admin::GcCounts;
use percolator::store::Store;
use percolator::transaction::CommitPath;
use percolator::watch::{Access, CellRef, Event, RunEnd, Spans, TransactionInfo, Watch, Written};
use percolator::{AbortReason, Change, Error, Timestamp};

use crate::cells::Place;

pub(crate) use clock::{Age, Clock};
pub(crate) use contention::{Clash, Contention, Heat};
pub(crate) use graph::Graph;
pub(crate) use histogram::{Counts, Histogram};
pub(crate) use keys::{Keys, MINUTES_MAX, Map, MapRow, Metric};
pub(crate) use names::{ByName, Names, UNNAMED};
pub(crate) use recent::{Ended, Recent};
pub(crate) use requests::Requests;

/// The list of recent transactions keeps one of this many ordinary commits.
const KEPT_ONE_OF: u64 = 16;
/// One access of so many is reported.
const ACCESSES_OF_A_SAMPLE: u64 = 64;

/// Counts, durations and recent events of one client, for [`Console`](crate::Console) and
/// `/metrics`.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use percolator::store::MemoryStore;
/// use percolator::{Column, Options, Percolator};
/// use percolator_console::Recorder;
/// use std::sync::Arc;
///
/// let recorder = Arc::new(Recorder::new());
/// let options = Options { watch: Some(recorder.clone()), ..Options::default() };
/// let db = Percolator::over(Arc::new(MemoryStore::new()), options).await?;
/// let (accounts, bal) = (db.table("accounts").await?, Column::literal("bal"));
/// db.transact(async |mut tx| tx.set(&accounts, "Bob", &bal, "$10")).await?;
/// assert_eq!(recorder.committed(), 1);
/// # Ok::<(), percolator::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Default)]
pub struct Recorder {
    pub(crate) names: Names,
    pub(crate) observers: Names,
    pub(crate) commit: Histogram,
    pub(crate) prewrite: Histogram,
    pub(crate) total: Histogram,
    /// The time from the commit of a change until its observer has committed.
    pub(crate) delay: Histogram,
    pub(crate) counters: Counters,
    pub(crate) recent: Recent,
    pub(crate) contention: Contention,
    pub(crate) graph: Graph,
    pub(crate) clock: Clock,
    pub(crate) keys: Keys,
    pub(crate) requests: Arc<Requests>,
    pub(crate) collected: Collected,
}

/// Plain counts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) one_step: AtomicU64,
    pub(crate) two_phases: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    pub(crate) aborted: AtomicU64,
    pub(crate) unknown: AtomicU64,
    pub(crate) locks_found: AtomicU64,
    pub(crate) lock_wait_us: AtomicU64,
    pub(crate) rolled_forward: AtomicU64,
    pub(crate) rolled_back: AtomicU64,
    pub(crate) runs: AtomicU64,
    pub(crate) run_failures: AtomicU64,
    pub(crate) run_conflicts: AtomicU64,
    pub(crate) set_aside: AtomicU64,
    pub(crate) gc_rounds: AtomicU64,
}

/// Sums of garbage collection, by kind.
#[derive(Debug, Default)]
pub(crate) struct Collected(Mutex<BTreeMap<&'static str, u64>>);

impl Collected {
    fn add(&self, counts: &GcCounts) {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, n) in counts.entries() {
            *sums.entry(kind).or_default() += n;
        }
    }

    /// Returns all sums.
    pub(crate) fn sums(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn bump(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, Ordering::Relaxed)
}

pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Counters {
    pub(crate) fn committed(&self) -> u64 {
        read(&self.one_step) + read(&self.two_phases)
    }
}

impl Recorder {
    /// Makes an empty recorder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns how many transactions that wrote something have committed.
    pub fn committed(&self) -> u64 {
        self.counters.committed()
    }

    /// Wraps a store, so that this recorder counts its requests by method and result, and their
    /// durations. `/metrics` shows them as `percolator_store_requests_total` and
    /// `percolator_store_request_seconds`. A request that its caller drops does not count.
    ///
    /// Wrap a store that lies behind a network. A store in this process answers most requests
    /// within microseconds, of which the counts would take a share.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// use percolator::store::MemoryStore;
    /// use percolator::{Options, Percolator};
    /// use percolator_console::Recorder;
    /// use std::sync::Arc;
    ///
    /// let recorder = Arc::new(Recorder::new());
    /// let store = recorder.count_requests(Arc::new(MemoryStore::new()));
    /// let options = Options { watch: Some(recorder), ..Options::default() };
    /// let db = Percolator::over(store, options).await?;
    /// # Ok::<(), percolator::Error>(()) }).unwrap();
    /// ```
    pub fn count_requests(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        requests::counted(store, self.requests.clone())
    }

    fn on_committed(
        &self,
        tx: &TransactionInfo<'_>,
        commit_ts: Timestamp,
        path: CommitPath,
        spans: Spans,
        written: Written<'_>,
    ) {
        let one_step = path == CommitPath::OneStep;
        let counters = &self.counters;
        bump(if one_step { &counters.one_step } else { &counters.two_phases });
        self.total.record(spans.total);
        self.commit.record(spans.commit);
        if !one_step {
            self.prewrite.record(spans.prewrite);
        }
        self.clock.note(commit_ts);
        let name = self.names.of(tx.name.unwrap_or(UNNAMED));
        let nth = bump(&name.committed);
        name.duration.record(spans.total);
        if let (Some(observer), false) = (tx.name, tx.causes.is_empty()) {
            let cells = written.cells().chain(written.notified());
            let cells = cells.map(|cell| (cell.table, cell.column.as_bytes()));
            self.graph.wrote(observer, cells);
        }
        let slow = self.recent.is_slow(spans.total);
        if slow || nth.is_multiple_of(KEPT_ONE_OF) {
            let mut cells = written.cells();
            let first = cells.next().map(place);
            let ended = Ended {
                commit_ts: Some(commit_ts),
                one_step,
                cells: usize::from(first.is_some()) + cells.count(),
                first,
                ..self.ended(tx, &name, spans)
            };
            if slow {
                self.recent.slow(ended.clone());
            }
            if nth.is_multiple_of(KEPT_ONE_OF) {
                self.recent.committed(ended);
            }
        }
    }

    /// Returns the facts that all ended transactions have, whatever their end.
    fn ended(&self, tx: &TransactionInfo<'_>, name: &ByName, spans: Spans) -> Ended {
        let cause = tx.causes.first();
        Ended {
            name: name.name.clone(),
            start_ts: tx.start_ts,
            commit_ts: None,
            one_step: false,
            total: spans.total,
            prewrite: spans.prewrite,
            commit: spans.commit,
            cells: 0,
            first: None,
            cause: cause.map(|c| Place::new(c.table.name(), &c.row, &c.column)),
            error: None,
            wall_ms: wall_ms(),
        }
    }

    fn on_ended(&self, tx: &TransactionInfo<'_>, why: &Error, spans: Spans) {
        let name = self.names.of(tx.name.unwrap_or(UNNAMED));
        let outcome = match why {
            Error::Unknown { .. } => &self.counters.unknown,
            _ => &self.counters.aborted,
        };
        bump(outcome);
        bump(&name.failed);
        if let Error::Aborted { reason: AbortReason::Conflict(conflict), .. } = why {
            bump(&self.counters.conflicts);
            bump(&name.conflicts);
            let cell = &conflict.cell;
            self.keys.offer(Metric::Conflict, &cell.table, &cell.row, 1);
            self.contention.conflict(Clash {
                cell: Place::new(&cell.table, &cell.row, &cell.column),
                loser: name.name.clone(),
                loser_start_ts: tx.start_ts,
                winner_start_ts: conflict.winner_start_ts,
                wall_ms: wall_ms(),
            });
        }
        let error = Some(why.to_string());
        self.recent.failed(Ended { error, ..self.ended(tx, &name, spans) });
    }

    fn on_lock(&self, cell: CellRef<'_>, lock_ts: Timestamp, waited: Duration) {
        if waited.is_zero() {
            bump(&self.counters.locks_found);
            self.keys.offer(Metric::Wait, cell.table, cell.row, 1);
        }
        let longer = self.contention.wait(place(cell), lock_ts, waited);
        let us = u64::try_from(longer.as_micros()).unwrap_or(u64::MAX);
        self.counters.lock_wait_us.fetch_add(us, Ordering::Relaxed);
    }

    fn on_run(&self, observer: &str, changes: &[Change], took: Duration, end: RunEnd<'_>) {
        let of = self.observers.of(observer);
        match end {
            RunEnd::Committed { commit_ts, .. } => {
                bump(&self.counters.runs);
                bump(&of.committed);
                of.duration.record(took);
                self.clock.note(commit_ts);
                for change in changes {
                    if let Some(Age { seconds, at_least: false }) = self.clock.age(change.commit_ts)
                    {
                        let delay = Duration::from_secs_f64(seconds);
                        self.delay.record(delay);
                        of.delay.record(delay);
                    }
                }
            }
            RunEnd::Conflicted => {
                bump(&self.counters.run_conflicts);
                bump(&of.conflicts);
            }
            RunEnd::Failed { .. } => {
                bump(&self.counters.run_failures);
                bump(&of.failed);
            }
            // The store or the oracle cannot be reached, which says nothing about the observer.
            _ => {}
        }
        of.busy.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl Watch for Recorder {
    fn on_event(&self, event: &Event<'_>) {
        match event {
            Event::Committed { tx, commit_ts, path, spans, written } => {
                self.on_committed(tx, *commit_ts, *path, *spans, *written);
            }
            Event::Ended { tx, why, spans } => self.on_ended(tx, why, *spans),
            Event::LockFound { cell, lock_ts, waited, .. } => {
                self.on_lock(*cell, *lock_ts, *waited);
            }
            Event::Resolved { commit_ts, cells, .. } => {
                let counter = match commit_ts {
                    Some(_) => &self.counters.rolled_forward,
                    None => &self.counters.rolled_back,
                };
                counter.fetch_add(*cells as u64, Ordering::Relaxed);
            }
            Event::Ran { observer, changes, took, end, .. } => {
                self.on_run(observer, changes, *took, *end);
            }
            Event::SetAside { .. } => {
                bump(&self.counters.set_aside);
            }
            Event::Collected { report, .. } => {
                bump(&self.counters.gc_rounds);
                self.collected.add(&report.counts);
            }
            Event::Sampled { table, row, access } => {
                let metric = if *access == Access::Read { Metric::Read } else { Metric::Write };
                self.keys.offer(metric, table, row, ACCESSES_OF_A_SAMPLE);
            }
            _ => {}
        }
    }
}

fn place(cell: CellRef<'_>) -> Place {
    Place::new(cell.table, cell.row, cell.column)
}

/// Milliseconds since 1970.
pub(crate) fn wall_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
