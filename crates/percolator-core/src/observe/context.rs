//! The state that the workers of one `observe` share: their observers, the times of scans, and
//! error reports.

use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bigtable::RowRange;
use bigtable::sync::locked;
use futures::future::{BoxFuture, Either, select};

use crate::bell::Bell;
use crate::mutants::{self, off};
use crate::observe::crew::Crew;
use crate::observe::failures::Failures;
use crate::observe::hints::Queue;
use crate::observe::observer::{Registration, Runner};
use crate::observe::options::WorkerOptions;
use crate::observe::resting::Elsewhere;
use crate::observe::window::WINDOW_MAX;
use crate::outage::{Ended, Outage};
use crate::records::column::{Cell, Table};
use crate::records::schema::Observed;
use crate::shared::Shared;
use crate::{Column, Error, InvalidKind, Result, Runtime};

/// The tablets of each scanned table, by its name, and until when the list is used.
pub(super) type Tablets = BTreeMap<String, (Duration, Vec<RowRange>)>;

/// The ranges of each table, by its name, that busy workers have not scanned yet in this
/// round.
pub(super) type Unwalked = BTreeMap<String, VecDeque<RowRange>>;

/// The observers of each column, by table. Nested, so that a lookup need not copy the table's
/// name.
type Observers = BTreeMap<String, BTreeMap<Column, Arc<[Arc<Registration>]>>>;

/// A worker's timer, with the time of the scan that it waits for. The worker keeps it from one
/// pause to the next, because a timer costs more to set than to look at.
pub(super) type Alarm = Option<(Duration, BoxFuture<'static, ()>)>;

/// The state that the workers of one `observe` share.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) hints: Arc<Queue>,
    pub(super) shared: Arc<Shared>,
    pub(super) options: WorkerOptions,
    pub(super) failures: Arc<Failures>,
    pub(super) elsewhere: Elsewhere,
    pub(super) observers: Observers,
    /// The tables to scan, with their observed columns. Columns of batching observers are left
    /// out: these scan for themselves.
    scanned: Vec<(Table, Vec<Column>)>,
    pub(super) crew: Arc<Crew>,
    pub(super) delayed: AtomicUsize,
    scans: Mutex<Scans>,
    tablets: Mutex<Tablets>,
    unwalked: Mutex<Unwalked>,
    /// Rung when a scan finds something after a long pause, so that all workers wake up.
    pub(super) stirred: Bell,
    /// Rung when the oracle has issued timestamps, so that batches look for changes.
    pub(super) moved: Bell,
    /// The failures outside of observers.
    outage: Mutex<Outage>,
    /// Whether the last visit to a cell failed because of the store or the oracle.
    visits_fail: AtomicBool,
}

/// When the next scan is due. The first worker that comes after `next` takes it for all of
/// them.
#[derive(Debug)]
pub(super) struct Scans {
    pub(super) next: Duration,
    pause: Duration,
}

impl Context {
    pub(super) async fn new(
        shared: &Arc<Shared>,
        registrations: Vec<Registration>,
        options: WorkerOptions,
        crew: Arc<Crew>,
    ) -> Result<Self> {
        let mut observers: BTreeMap<(String, Column), Vec<Arc<Registration>>> = BTreeMap::new();
        let mut scanned: BTreeMap<String, Vec<Column>> = BTreeMap::new();
        for registration in registrations {
            let Observed { table, column, .. } = registration.observed.clone();
            if let Runner::Each(_) = registration.runner {
                let columns = scanned.entry(table.clone()).or_default();
                if !columns.contains(&column) {
                    columns.push(column.clone());
                }
            }
            observers.entry((table, column)).or_default().push(Arc::new(registration));
        }
        for (table, _) in observers.keys() {
            shared.table(table).await?;
        }
        let mut tables = Vec::new();
        for (name, columns) in scanned {
            tables.push((shared.table(&name).await?, columns));
        }
        let is_batched = |r: &Arc<Registration>| matches!(r.runner, Runner::Batch(..));
        let (batched, each): (Vec<_>, Vec<_>) =
            observers.iter().partition(|(_, of)| of.iter().any(is_batched));
        // The observers of a column run one after the other.
        let runs_max = |of: &[Arc<Registration>]| {
            of.iter().map(|r| r.runs_max.unwrap_or(options.runs_max)).min().unwrap_or(usize::MAX)
        };
        let each = each.into_iter().map(|(column, of)| (column.clone(), runs_max(of))).collect();
        let batched = batched.into_iter().map(|(column, _)| column.clone());
        let running = observers.values().flatten().map(|r| r.observed.clone()).collect();
        let mut by_table = Observers::new();
        for ((table, column), of) in &observers {
            by_table.entry(table.clone()).or_default().insert(column.clone(), of.as_slice().into());
        }
        let running_max = options.threads.max(1);
        let shares_syncs = shared.services().store.shares_syncs();
        let window_max = if shares_syncs { running_max * WINDOW_MAX } else { running_max };
        let at_once = (running_max, window_max);
        let hints = shared.hints().begin(each, batched, running, &crew, at_once);
        let scan_period = options.scan_period;
        let context = Context {
            hints,
            shared: shared.clone(),
            options,
            failures: shared.failures().begin(),
            elsewhere: Elsewhere::default(),
            observers: by_table,
            scanned: tables,
            crew,
            delayed: AtomicUsize::new(0),
            scans: Mutex::new(Scans { next: shared.runtime().now(), pause: scan_period }),
            tablets: Mutex::default(),
            unwalked: Mutex::default(),
            stirred: Bell::default(),
            moved: Bell::default(),
            outage: Mutex::default(),
            visits_fail: AtomicBool::new(false),
        };
        context.check_batched_columns()?;
        Ok(context)
    }

    pub(super) fn scans(&self) -> MutexGuard<'_, Scans> {
        locked(&self.scans)
    }

    pub(super) fn known_tablets(&self) -> MutexGuard<'_, Tablets> {
        locked(&self.tablets)
    }

    pub(super) fn unwalked(&self) -> MutexGuard<'_, Unwalked> {
        locked(&self.unwalked)
    }

    /// Takes the scan if it is due. Returns `false` to all other workers.
    pub(super) fn takes_scan(&self) -> bool {
        let now = self.runtime().now();
        let mut scans = self.scans();
        let takes = now >= scans.next;
        if takes {
            // If the scan takes longer than this, another worker begins the next one beside
            // it.
            scans.next = now + scans.pause;
        }
        takes
    }

    /// Sets the time of the next scan: soon if this one has found something, and otherwise
    /// after twice the last pause.
    pub(super) fn scanned(&self, found: bool) {
        let now = self.runtime().now();
        let mut scans = self.scans();
        scans.pause = if found {
            self.options.scan_period
        } else {
            (scans.pause * 2).min(self.options.idle_max)
        };
        scans.next = now + scans.pause;
    }

    /// Notes that there is work: shortens a long pause between scans, and wakes all workers.
    pub(super) fn stir(&self) {
        let period = self.options.scan_period;
        let mut scans = self.scans();
        if scans.pause > period {
            scans.pause = period;
            scans.next = scans.next.min(self.runtime().now() + period);
            drop(scans);
            self.stirred.ring();
        }
    }

    /// Has an idle worker scan at once, and batches look for changes. The pauses stay long, unless
    /// there is something to find.
    pub(super) fn look_now(&self) {
        let mut scans = self.scans();
        let is_idle = scans.pause > self.options.scan_period;
        if is_idle {
            scans.next = scans.next.min(self.runtime().now());
        }
        drop(scans);
        if is_idle && !self.scanned.is_empty() {
            self.stirred.ring();
        }
        self.moved.ring();
    }

    /// Waits until there is a hint or other work. The wait also ends when the next scan is due, or
    /// when the workers are asked to stop.
    pub(super) async fn pause(&self, alarm: &mut Alarm, stirred: u64) {
        let next = self.scans().next;
        let left = || next.saturating_sub(self.runtime().now());
        let kept = alarm.take().filter(|(at, _)| *at == next);
        let (_, timer) = alarm.insert(kept.unwrap_or_else(|| (next, self.runtime().sleep(left()))));
        let arrival = pin!(self.hints.arrival());
        let stirred = pin!(self.stirred.after(stirred));
        let stopping = pin!(self.crew.stopping());
        let work = select(select(arrival, stirred), stopping);
        if let Either::Right(_) = select(work, timer).await {
            *alarm = None;
        }
    }

    /// Waits until there may be a hint to take, or until the workers are asked to stop.
    pub(super) async fn hints_arrive(&self) {
        select(pin!(self.hints.arrival()), pin!(self.crew.stopping())).await;
    }

    /// Waits until `longest` has passed, or until the workers are asked to stop.
    pub(super) async fn rest(&self, longest: Duration) {
        select(pin!(self.crew.stopping()), self.runtime().sleep(longest)).await;
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.crew.is_stopping()
    }

    /// Whether observers run while the commits of others wait for the disk.
    pub(super) fn shares_syncs(&self) -> bool {
        self.shared.services().store.shares_syncs()
    }

    pub(super) fn runtime(&self) -> &Arc<dyn Runtime> {
        self.shared.runtime()
    }

    /// A random number below `n`, which must not be zero.
    pub(super) fn random_below(&self, n: usize) -> usize {
        (self.runtime().random() % n as u64) as usize
    }

    /// These workers' observers of a cell's column. `None` if there are none, or if they are
    /// batched.
    pub(super) fn observers_of(&self, cell: &Cell) -> Option<Arc<[Arc<Registration>]>> {
        let of = self.own_of(cell.table.name(), &cell.column)?;
        let each = |r: &Arc<Registration>| matches!(r.runner, Runner::Each(_));
        of.iter().all(each).then(|| of.clone())
    }

    fn own_of(&self, table: &str, column: &Column) -> Option<&Arc<[Arc<Registration>]>> {
        self.observers.get(table)?.get(column)
    }

    /// Whether these workers run an observer of the column.
    pub(super) fn has_column(&self, table: &str, column: &Column) -> bool {
        self.own_of(table, column).is_some()
    }

    /// Whether these workers run every observer that the schema names for the column. Only
    /// then may they clear a notification without asking for the others' acknowledgements
    /// (H53). The client's schema is at least as new as that of any transaction that it has
    /// begun.
    pub(super) fn runs_all_of(&self, table: &Table, column: &Column) -> bool {
        let own = self.own_of(table.name(), column);
        self.are_all_of(table.name(), column, own.map_or(&[], |own| &**own))
    }

    fn are_all_of(&self, table: &str, column: &Column, own: &[Arc<Registration>]) -> bool {
        let runs = |entry: &Observed| own.iter().any(|r| r.observed.observer == entry.observer);
        self.shared.known_schema().of(table, column).all(runs)
    }

    /// Refuses a batching observer that shares its column with another one. Weak observers
    /// leave no acknowledgements, so neither would know which changes the other has handled.
    pub(super) fn check_batched_columns(&self) -> Result<()> {
        let each = |(table, of)| std::iter::repeat(table).zip(of);
        for (table, (column, own)) in self.observers.iter().flat_map(each) {
            let batched = own.iter().any(|r| matches!(r.runner, Runner::Batch(..)));
            if batched && (own.len() > 1 || !self.are_all_of(table, column, own)) {
                return Err(Error::invalid(
                    InvalidKind::Observer,
                    format!(
                        "{table}/{column} has a batching observer and another one: give each a column \
                     of its own, or retire the one that is no longer used"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// The tables to scan, without columns whose observers here are all paused.
    pub(super) fn scanned_tables(&self) -> Vec<(Table, Vec<Column>)> {
        let mut scanned = self.scanned.clone();
        if self.shared.known_schema().pauses() {
            for (table, columns) in &mut scanned {
                let runs = |column: &Column| {
                    let own = self.own_of(table.name(), column);
                    own.is_some_and(|own| !self.are_paused(own))
                };
                columns.retain(runs);
            }
            scanned.retain(|(_, columns)| !columns.is_empty());
        }
        scanned
    }

    /// Whether an observer is paused, as far as this client knows. A pause that ended or began
    /// before a transaction's timestamp is known once that transaction has begun.
    pub(super) fn is_paused(&self, observed: &Observed) -> bool {
        self.shared.is_known_as_paused(observed) && !off(mutants::PAUSED_RUNS)
    }

    /// Whether these observers are all paused.
    pub(super) fn are_paused(&self, observers: &[Arc<Registration>]) -> bool {
        observers.iter().all(|registration| self.is_paused(&registration.observed))
    }

    /// Logs a failure of the store or the oracle, not of an observer. The work is tried again.
    pub(super) fn report(&self, error: &Error) {
        let now = self.runtime().now();
        if let Some(unlogged) = locked(&self.outage).failed(now) {
            tracing::warn!(
                target: "percolator::worker", event = "worker_error", %error, unlogged,
                "a worker got an error of the store or the oracle, and tries again"
            );
        }
    }

    /// Whether a scan may leave a cell to the workers that follow hints. These would repeat visits
    /// that fail, and a scan ends at the first one.
    pub(super) fn may_leave_to_hints(&self) -> bool {
        self.shares_syncs() && !self.visits_fail.load(Ordering::Relaxed)
    }

    /// Notes how a visit to a cell has ended.
    pub(super) fn visited(&self, well: bool) {
        if self.visits_fail.load(Ordering::Relaxed) == well {
            self.visits_fail.store(!well, Ordering::Relaxed);
        }
    }

    /// Logs the end of an outage after a scan without an error.
    pub(super) fn well(&self) {
        let ended = locked(&self.outage).succeeded(|| self.runtime().now());
        if let Some(Ended { lasted, failed }) = ended {
            tracing::info!(
                target: "percolator::worker", event = "well_again", failed,
                "well again after {lasted:.1?}: the worker scans without errors"
            );
        }
    }
}
