//! Workers: the tasks of this process that run observers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::{Shared, join_all, select};

use crate::column::{Cell, Table};
use crate::observe::find::Places;
use crate::observe::handle::Visit;
use crate::observe::set_aside::Failures;
use crate::observer::{Registration, Runner};
use crate::schema::Observed;
use crate::{Client, Column, Error, Result, Runtime};

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
    /// How many cells are handled at once.
    pub threads: usize,
    /// How often each worker scans for notifications although hints keep it busy, and the first pause
    /// when it finds nothing.
    pub scan_period: Duration,
    /// The longest pause between two scans of an idle worker.
    pub idle_max: Duration,
    /// How long an advisory row lock lasts at most.
    pub row_lock_lifetime: Duration,
    /// How long a failed observer waits before its second attempt; doubled each time.
    pub failure_delay: Duration,
    /// The longest such wait.
    pub failure_delay_max: Duration,
    /// After how many failures a notification is set aside.
    pub failures_max: u32,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        WorkerOptions {
            threads: 4,
            scan_period: Duration::from_millis(500),
            idle_max: Duration::from_secs(2),
            row_lock_lifetime: Duration::from_secs(30),
            failure_delay: Duration::from_millis(100),
            failure_delay_max: Duration::from_secs(60),
            failures_max: 6,
        }
    }
}

/// The running workers of a client. Dropping them stops them too, without waiting.
///
/// See [`Observer`](crate::Observer) for an example.
#[derive(Debug)]
pub struct Workers {
    context: Arc<Context>,
    /// Dropped to wake every worker that sleeps.
    stop: Option<oneshot::Sender<()>>,
    ended: Vec<oneshot::Receiver<()>>,
}

/// What the workers of a process share.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) client: Client,
    pub(super) options: WorkerOptions,
    pub(super) failures: Failures,
    observers: BTreeMap<(String, Column), Vec<Arc<Registration>>>,
    /// The tables to scan, with their observed columns; batching observers scan for themselves.
    scanned: Vec<(Table, Vec<Column>)>,
    stopping: AtomicBool,
    /// Completes when the workers are to stop.
    stopped: Shared<oneshot::Receiver<()>>,
    delayed: AtomicUsize,
}

impl Client {
    /// Registers observers in the store's schema and starts workers that run them. Observers that are
    /// new to the schema also run for what was written before.
    ///
    /// # Errors
    /// [`Error::Invalid`] for two observers of one name on one column, or a column that is to be both
    /// strong and weak; those of store and oracle.
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
        self.register(&wanted).await?;
        let (stop, stopped) = oneshot::channel();
        let context = Context::new(self, registrations, options, stopped.shared()).await?;
        let context = Arc::new(context);
        self.hints().want(true);
        let mut ended = Vec::new();
        for _ in 0..context.options.threads.max(1) {
            let context = context.clone();
            ended.push(self.start(context.work_loop()));
        }
        for registration in context.observers.values().flatten() {
            if let Runner::Batch(..) = registration.runner {
                let context = context.clone();
                ended.push(self.start(context.batch_loop(registration.clone())));
            }
        }
        Ok(Workers { context, stop: Some(stop), ended })
    }

    fn start(&self, task: impl Future<Output = ()> + Send + 'static) -> oneshot::Receiver<()> {
        let (end, ended) = oneshot::channel();
        self.runtime().spawn(Box::pin(async move {
            task.await;
            // Nobody may be waiting any more.
            let _ = end.send(());
        }));
        ended
    }
}

impl Workers {
    /// Stops the workers and waits until each has finished the cell it is at. What is still dirty
    /// stays so in the store, for the next worker.
    pub async fn stop(mut self) {
        let ended = std::mem::take(&mut self.ended);
        drop(self);
        join_all(ended).await;
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.context.stopping.store(true, Ordering::SeqCst);
        self.context.client.hints().want(false);
        self.stop.take();
    }
}

impl Context {
    async fn new(
        client: &Client,
        registrations: Vec<Registration>,
        options: WorkerOptions,
        stopped: Shared<oneshot::Receiver<()>>,
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
        for (table, column) in observers.keys() {
            client.table(table).await?;
            let batched = |r: &Arc<Registration>| matches!(r.runner, Runner::Batch(..));
            let of = &observers[&(table.clone(), column.clone())];
            if of.len() > 1 && of.iter().any(batched) {
                return Err(Error::Invalid(format!(
                    "{table}/{column} has a batching observer and another one: give each a column \
                     of its own"
                )));
            }
        }
        let mut tables = Vec::new();
        for (name, columns) in scanned {
            tables.push((client.table(&name).await?, columns));
        }
        Ok(Context {
            client: client.clone(),
            options,
            failures: Failures::default(),
            observers,
            scanned: tables,
            stopping: AtomicBool::new(false),
            stopped,
            delayed: AtomicUsize::new(0),
        })
    }

    /// Takes hints, and scans when there are none or the time for it has come.
    async fn work_loop(self: Arc<Self>) {
        let mut places = Places::default();
        let mut idle = self.options.scan_period;
        let mut next_scan = self.runtime().now();
        while !self.is_stopping() {
            if self.runtime().now() >= next_scan {
                let found = match self.pass(&mut places).await {
                    Ok(found) => found,
                    Err(error) => {
                        self.report(&error);
                        false
                    }
                };
                idle = match found {
                    true => self.options.scan_period,
                    false => (idle * 2).min(self.options.idle_max),
                };
                next_scan = self.runtime().now() + idle;
            }
            match self.client.hints().pop() {
                Some(cell) => {
                    idle = self.options.scan_period;
                    next_scan = next_scan.min(self.runtime().now() + idle);
                    self.follow(cell).await;
                }
                None => {
                    let pause = next_scan.saturating_sub(self.runtime().now());
                    self.pause(pause).await;
                }
            }
        }
    }

    /// Follows a hint.
    async fn follow(self: &Arc<Self>, cell: Cell) {
        match self.visit(&cell).await {
            Ok(Visit::Done) => {}
            // Whoever is at the row may have begun before this change.
            Ok(Visit::Met) => self.again(cell, Duration::from_millis(1)),
            Ok(Visit::Later(delay)) => self.again(cell, delay),
            Err(error) => {
                self.report(&error);
                self.again(cell, self.options.scan_period);
            }
        }
    }

    /// Hints at a cell again after a while.
    fn again(self: &Arc<Self>, cell: Cell, delay: Duration) {
        if self.delayed.fetch_add(1, Ordering::Relaxed) >= DELAYED_MAX {
            self.delayed.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let context = self.clone();
        let sleep = self.runtime().sleep(delay);
        self.runtime().spawn(Box::pin(async move {
            sleep.await;
            context.delayed.fetch_sub(1, Ordering::Relaxed);
            context.client.hints().push(cell);
        }));
    }

    /// Waits for a hint, for this long, or for the end of the workers, whichever comes first.
    async fn pause(&self, longest: Duration) {
        let arrival = std::pin::pin!(self.client.hints().arrival());
        select(arrival, std::pin::pin!(self.rest(longest))).await;
    }

    /// Waits for this long, or for the end of the workers.
    pub(super) async fn rest(&self, longest: Duration) {
        select(self.stopped.clone(), self.runtime().sleep(longest)).await;
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(super) fn runtime(&self) -> &Arc<dyn Runtime> {
        self.client.runtime()
    }

    /// A random number below `n`, which must not be zero.
    pub(super) fn random_below(&self, n: usize) -> usize {
        (self.runtime().random() % n as u64) as usize
    }

    /// This process's observers of a cell's column, if any, and unless they are batched.
    pub(super) fn observers_of(&self, cell: &Cell) -> Option<Vec<Arc<Registration>>> {
        let key = (cell.table.name().to_owned(), cell.column.clone());
        let of = self.observers.get(&key)?;
        let each = |r: &Arc<Registration>| matches!(r.runner, Runner::Each(_));
        of.iter().all(each).then(|| of.clone())
    }

    pub(super) fn scanned_tables(&self) -> Vec<(Table, Vec<Column>)> {
        self.scanned.clone()
    }

    /// A failure of the machinery, not of an observer: it is tried again.
    pub(super) fn report(&self, error: &Error) {
        tracing::warn!(target: "percolator::worker", event = "worker_error", %error);
    }
}

fn check(entry: &Observed) -> Result<()> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if entry.observer.is_empty() || !entry.observer.bytes().all(plain) {
        return Err(Error::Invalid(format!(
            "observer name {:?}: use the form [-_.a-zA-Z0-9]+",
            entry.observer
        )));
    }
    Ok(())
}
