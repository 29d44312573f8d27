//! Workers: the tasks of this process that run observers.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bigtable::sync::locked;
use futures::future::select;

use crate::bell::Bell;
use crate::observe::crew::Crew;
use crate::observe::elsewhere::Elsewhere;
use crate::observe::find::{Places, Tablets, Unwalked};
use crate::observe::handle::Visit;
use crate::observe::hints::{Hint, Queue};
use crate::observe::observer::{Registration, Runner};
use crate::observe::set_aside::Failures;
use crate::records::column::{COLUMN_BYTES_MAX, Cell, Table};
use crate::records::schema::Observed;
use crate::{Client, Column, Error, Result, Runtime};

/// How often a failure of the machinery is told at most.
const REPORT_EVERY: Duration = Duration::from_secs(5);
/// How long until a hint is followed again whose row another worker was at.
const MET_DELAY: Duration = Duration::from_millis(1);
/// The same where notifications lie apart: there each visit is a request to another row of the
/// store, and an observer's run takes tens of milliseconds.
const MET_DELAY_APART: Duration = Duration::from_millis(10);
/// How many cells may wait for a delayed visit; those beyond are left to the scan.
const DELAYED_MAX: usize = 10_000;

/// How the workers of a process behave.
///
/// ```
/// let options = percolator_core::WorkerOptions { threads: 8, ..Default::default() };
/// assert!(options.scan_period < options.idle_max);
/// ```
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// How many cells are handled at once: 4 by default.
    pub threads: usize,
    /// How many cells of one column are handled at once; no fewer than `threads` by default. With
    /// less, the observers of one column leave threads to all others, however slow they are. See
    /// also
    /// [`Registration::runs_max`].
    pub runs_max: usize,
    /// How often the workers together scan for notifications although hints keep them busy, and the
    /// first pause when they find nothing.
    pub scan_period: Duration,
    /// The longest pause between two scans when there is nothing to do: the workers of a process
    /// share them.
    pub idle_max: Duration,
    /// How long a worker's advisory lock on a row lasts without being renewed: 30 s by default. A
    /// worker renews the lock while its observers run. If the worker hangs, others go on with the
    /// row after this time.
    pub row_lock_lifetime: Duration,
    /// For how long a worker renews that lock: 10 min by default. An observer that runs for longer
    /// than this and the lock's lifetime together runs a second time, beside itself. It **may run
    /// twice, and commits once**: whatever it does outside of its transaction, such as a call of
    /// another service, must bear being done twice.
    pub run_max: Duration,
    /// How long a failed observer waits before its second attempt; doubled each time.
    pub failure_delay: Duration,
    /// The longest such wait.
    pub failure_delay_max: Duration,
    /// After how many failures a notification is set aside.
    pub failures_max: u32,
    /// Whether a scanner that meets another worker at a row jumps to a random place, as it should;
    /// otherwise it goes on to the next row. There to be compared with: scanners then clump (paper
    /// section 2.4).
    pub jump: bool,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        WorkerOptions {
            threads: 4,
            runs_max: usize::MAX,
            scan_period: Duration::from_millis(500),
            idle_max: Duration::from_secs(2),
            row_lock_lifetime: Duration::from_secs(30),
            run_max: Duration::from_secs(600),
            failure_delay: Duration::from_millis(100),
            failure_delay_max: Duration::from_secs(60),
            failures_max: 6,
            jump: true,
        }
    }
}

/// The running workers of a client. Dropping them stops them too, without waiting.
///
/// See [`Observer`](crate::Observer) for an example.
#[must_use = "dropping the workers stops them"]
#[derive(Debug)]
pub struct Workers {
    context: Arc<Context>,
}

/// The observers of each column, by table: to be looked up without a copy of the table's name.
type Observers = BTreeMap<String, BTreeMap<Column, Arc<[Arc<Registration>]>>>;

/// What the workers of a process share.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) hints: Arc<Queue>,
    pub(super) client: Client,
    pub(super) options: WorkerOptions,
    pub(super) failures: Failures,
    pub(super) elsewhere: Elsewhere,
    observers: Observers,
    /// The tables to scan, with their observed columns; batching observers scan for themselves.
    scanned: Vec<(Table, Vec<Column>)>,
    pub(super) crew: Arc<Crew>,
    delayed: AtomicUsize,
    scans: Mutex<Scans>,
    tablets: Mutex<Tablets>,
    unwalked: Mutex<Unwalked>,
    /// Rung when a scan has found something after a long pause, so that all workers scan.
    stirred: Bell,
    reports: Mutex<Reports>,
}

/// When the workers scan next: the one that comes first then, for all of them.
#[derive(Debug)]
struct Scans {
    next: Duration,
    pause: Duration,
}

/// What was told of the machinery's failures.
#[derive(Debug, Default)]
struct Reports {
    /// When the next one may be told.
    not_before: Duration,
    /// How many were not, since the last one.
    untold: u64,
}

impl Client {
    /// Registers observers in the store's schema and starts workers that run them. Observers that
    /// are new to the schema also run for what was written before.
    ///
    /// # Errors
    /// [`Error::Invalid`] for two observers of one name on one column, or a column that is to be
    /// both strong and weak; those of store and oracle.
    ///
    /// # Cancellation
    /// If the future is dropped, no worker starts. The schema may name the observers already; call
    /// it again, or [`retire_observer`](Client::retire_observer) for each of them.
    pub async fn observe(
        &self,
        registrations: Vec<Registration>,
        options: WorkerOptions,
    ) -> Result<Workers> {
        let wanted: Vec<Observed> = registrations.iter().map(|r| r.observed.clone()).collect();
        for (i, entry) in wanted.iter().enumerate() {
            check(entry)?;
            if wanted[..i].contains(entry) {
                return Err(Error::Invalid(format!(
                    "observer {} is registered twice for {}/{}: give each its own name",
                    entry.observer, entry.table, entry.column
                )));
            }
        }
        let crew = Arc::new(Crew::default());
        self.closing().add_crew(&crew)?;
        // Before anything is stored: a mistake leaves no trace in the schema.
        let context = Context::new(self, registrations, options, crew.clone()).await?;
        let context = Arc::new(context);
        self.register(&wanted).await?;
        context.check_batched_columns()?;
        context.warn_of_missing();
        let runtime = &**self.runtime();
        for _ in 0..context.options.threads.max(1) {
            crew.start(runtime, context.clone().work_loop());
        }
        for registration in
            context.observers.values().flat_map(BTreeMap::values).flat_map(|of| &**of)
        {
            if let Runner::Batch(..) = registration.runner {
                crew.start(runtime, context.clone().batch_loop(registration.clone()));
            }
        }
        Ok(Workers { context })
    }
}

impl Workers {
    /// Stops the workers and waits until each has finished the cell it is at, however long its
    /// observers take. What is still dirty stays so in the store, for the next worker.
    pub async fn stop(self) {
        self.context.crew.stop_within(&**self.context.runtime(), None).await;
    }

    /// Stops the workers, and waits for so long until each has finished the cell it is at. Abandons
    /// what then goes on, and returns how many workers were still at a cell or at a batch.
    /// Observers can
    /// [ask](crate::Transaction::is_stopping) whether they should come to an end.
    ///
    /// An abandoned run is dropped where it awaits something. Nothing of its transaction takes
    /// effect, unless it was committing: a commit that has begun is finished in the background. Its
    /// advisory row lock is given up at once, and the change stays notified: the next worker
    /// handles it. A run that blocks its thread cannot be dropped. It goes on until it awaits
    /// something, and is waited for during one more second.
    ///
    /// ```
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator_core::*;
    /// use std::time::Duration;
    /// struct Hangs;
    /// #[async_trait]
    /// impl Observer for Hangs {
    ///     async fn observe(&self, _: &mut Transaction, _: &Change) -> Result<()> {
    ///         std::future::pending().await
    ///     }
    /// }
    ///
    /// const TEXT: Column = Column::literal("doc:text");
    /// let hangs = Registration::strong("hangs", "docs", TEXT, Hangs);
    /// let workers = client.observe(vec![hangs], WorkerOptions::default()).await?;
    /// let docs = client.table("docs").await?;
    /// client.transact(async |mut tx| tx.set(&docs, "a", &TEXT, "to be or not")).await?;
    /// client.runtime().sleep(Duration::from_secs(1)).await;
    /// assert_eq!(workers.stop_within(Duration::from_secs(10)).await, 1);
    /// assert_eq!(client.backlog().await?[0].cells, 1);
    /// # Ok(()) });
    /// ```
    pub async fn stop_within(self, longest: Duration) -> usize {
        self.context.crew.stop_within(&**self.context.runtime(), Some(longest)).await
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.context.crew.stop();
    }
}

impl Context {
    async fn new(
        client: &Client,
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
            client.table(table).await?;
        }
        let mut tables = Vec::new();
        for (name, columns) in scanned {
            tables.push((client.table(&name).await?, columns));
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
        let hints = client.hints().begin(each, batched, running, &crew);
        let scan_period = options.scan_period;
        let context = Context {
            hints,
            client: client.clone(),
            options,
            failures: Failures::default(),
            elsewhere: Elsewhere::default(),
            observers: by_table,
            scanned: tables,
            crew,
            delayed: AtomicUsize::new(0),
            scans: Mutex::new(Scans { next: client.runtime().now(), pause: scan_period }),
            tablets: Mutex::default(),
            unwalked: Mutex::default(),
            stirred: Bell::default(),
            reports: Mutex::default(),
        };
        context.check_batched_columns()?;
        Ok(context)
    }

    /// Takes hints, and scans when there are none or the time for it has come.
    async fn work_loop(self: Arc<Self>) {
        let mut places = Places::default();
        while !self.is_stopping() {
            let stirred = self.stirred.rung();
            if self.takes_scan() {
                let found = match self.pass(&mut places).await {
                    Ok(found) => found,
                    Err(error) => {
                        self.report(&error);
                        false
                    }
                };
                self.scanned(found);
            }
            match self.hints.pop() {
                Some((hint, _run)) => {
                    self.stir();
                    self.follow(hint).await;
                }
                None => {
                    let next = self.scans().next;
                    self.pause(next.saturating_sub(self.runtime().now()), stirred).await;
                }
            }
        }
    }

    fn scans(&self) -> MutexGuard<'_, Scans> {
        locked(&self.scans)
    }

    pub(super) fn known_tablets(&self) -> MutexGuard<'_, Tablets> {
        locked(&self.tablets)
    }

    pub(super) fn unwalked(&self) -> MutexGuard<'_, Unwalked> {
        locked(&self.unwalked)
    }

    /// Whether it is time for a scan, and no other worker begins it.
    fn takes_scan(&self) -> bool {
        let now = self.runtime().now();
        let mut scans = self.scans();
        let takes = now >= scans.next;
        if takes {
            // If the scan takes longer, another worker begins the next one beside it.
            scans.next = now + scans.pause;
        }
        takes
    }

    /// After a scan: the next one comes soon if it has found something, and later than the last if
    /// not.
    fn scanned(&self, found: bool) {
        let now = self.runtime().now();
        let mut scans = self.scans();
        scans.pause = if found {
            self.options.scan_period
        } else {
            (scans.pause * 2).min(self.options.idle_max)
        };
        scans.next = now + scans.pause;
    }

    /// There is something to do: scans are not far apart any more, and all workers are awake.
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

    /// Follows a hint.
    async fn follow(self: &Arc<Self>, hint: Hint) {
        match self.visit(&hint.cell, hint.at).await {
            Ok(Visit::Done) => {}
            // The worker at the row may have begun before this change.
            Ok(Visit::Met) => {
                let apart = hint.cell.table.notifies_apart();
                self.again(hint, if apart { MET_DELAY_APART } else { MET_DELAY });
            }
            Ok(Visit::Later(delay)) => self.again(hint, delay),
            Err(error) => {
                self.report(&error);
                self.again(hint, self.options.scan_period);
            }
        }
    }

    /// Hints at a cell again after a while.
    fn again(self: &Arc<Self>, hint: Hint, delay: Duration) {
        if self.delayed.fetch_add(1, Ordering::Relaxed) >= DELAYED_MAX {
            self.delayed.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let context = self.clone();
        self.runtime().spawn(Box::pin(async move {
            // Not beyond the end of the workers: it holds the client, and with it the store.
            context.rest(delay).await;
            context.delayed.fetch_sub(1, Ordering::Relaxed);
            // Others may have handled it, or set it aside: this time the notification is read.
            context.hints.push(&Hint { at: None, ..hint });
        }));
    }

    /// Waits for a hint, for something to do, for this long, or for the end of the workers,
    /// whichever comes first.
    async fn pause(&self, longest: Duration, stirred: u64) {
        let arrival = pin!(self.hints.arrival());
        let stirred = pin!(self.stirred.after(stirred));
        select(select(arrival, stirred), pin!(self.rest(longest))).await;
    }

    /// Waits for this long, or for the end of the workers.
    pub(super) async fn rest(&self, longest: Duration) {
        select(pin!(self.crew.stopping()), self.runtime().sleep(longest)).await;
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.crew.is_stopping()
    }

    pub(super) fn runtime(&self) -> &Arc<dyn Runtime> {
        self.client.runtime()
    }

    /// A random number below `n`, which must not be zero.
    pub(super) fn random_below(&self, n: usize) -> usize {
        (self.runtime().random() % n as u64) as usize
    }

    /// This process's observers of a cell's column, if any, and unless they are batched.
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

    /// Whether this process runs every observer that the schema names for the column; only then may
    /// it take notifications away (H53). The client knows a schema at least as new as that of any
    /// transaction it has begun.
    pub(super) fn runs_all_of(&self, table: &Table, column: &Column) -> bool {
        let own = self.own_of(table.name(), column);
        self.are_all_of(table.name(), column, own.map_or(&[], |own| &**own))
    }

    fn are_all_of(&self, table: &str, column: &Column, own: &[Arc<Registration>]) -> bool {
        let runs = |entry: &Observed| own.iter().any(|r| r.observed.observer == entry.observer);
        self.client.known_schema().of(table, column).all(runs)
    }

    /// A batching observer and another one cannot share a column: neither would know what the other
    /// has handled.
    fn check_batched_columns(&self) -> Result<()> {
        let each = |(table, of)| std::iter::repeat(table).zip(of);
        for (table, (column, own)) in self.observers.iter().flat_map(each) {
            let batched = own.iter().any(|r| matches!(r.runner, Runner::Batch(..)));
            if batched && (own.len() > 1 || !self.are_all_of(table, column, own)) {
                return Err(Error::Invalid(format!(
                    "{table}/{column} has a batching observer and another one: give each a column \
                     of its own, or retire the one that is no longer used"
                )));
            }
        }
        Ok(())
    }

    pub(super) fn scanned_tables(&self) -> Vec<(Table, Vec<Column>)> {
        self.scanned.clone()
    }

    /// A failure of the machinery, not of an observer: it is tried again. Told once in a while: a
    /// store that is away fails every look for work.
    pub(super) fn report(&self, error: &Error) {
        let now = self.runtime().now();
        let mut reports = locked(&self.reports);
        if now < reports.not_before {
            reports.untold += 1;
            return;
        }
        let untold = std::mem::take(&mut reports.untold);
        reports.not_before = now + REPORT_EVERY;
        tracing::warn!(target: "percolator::worker", event = "worker_error", %error, untold);
    }
}

/// Whether an observer can be recorded under its name.
pub(super) fn check(entry: &Observed) -> Result<()> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if entry.observer.is_empty() || !entry.observer.bytes().all(plain) {
        return Err(Error::Invalid(format!(
            "observer name {:?}: use the form [-_.a-zA-Z0-9]+",
            entry.observer
        )));
    }
    let ack = entry.column.ack_of(&entry.observer);
    if ack.as_bytes().len() > COLUMN_BYTES_MAX {
        return Err(Error::Invalid(format!(
            "the names of observer and column are too long together: {} bytes, at most {}",
            entry.observer.len() + entry.column.as_bytes().len(),
            COLUMN_BYTES_MAX + entry.observer.len() + entry.column.as_bytes().len()
                - ack.as_bytes().len()
        )));
    }
    Ok(())
}
