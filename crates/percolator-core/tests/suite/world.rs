//! Provides the world of the tests: one store, one oracle, one lock service, and processes
//! that may crash.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigtable::{Selection, Store, TimeRange, Timestamp};
use futures::future::{AbortHandle, Abortable, BoxFuture};
use percolator_core::testing::VirtualRuntime;
use percolator_core::{
    Bytes, Change, Client, Column, Error, Incarnation, LockService, Observer, Options, Oracle,
    ProcessLocks, Result, RowKey, Runtime, Services, Table, Transaction, WindowOracle,
};

use crate::faults::{DATA, FaultyStore, LOCK, NOTIFY, NOTIFY_TABLE, ROLLBACK, WRITE};
use crate::stores::{STORMS, limited, store};

pub(crate) const BAL: Column = Column::literal("bal");
pub(crate) const A: Column = Column::literal("f:a");
pub(crate) const B: Column = Column::literal("f:b");

/// A world without clients yet.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) runtime: VirtualRuntime,
    pub(crate) store: Arc<FaultyStore>,
    pub(crate) oracle: Arc<dyn Oracle>,
    pub(crate) locks: Arc<ProcessLocks>,
}

/// Runs a test in a world whose random numbers follow from `seed`.
pub(crate) fn run_seed<T>(seed: u64, test: impl AsyncFnOnce(World) -> T) -> T {
    run_over(store(true), seed, test)
}

/// Runs a test twice: with notifications in the rows that they are about, and with
/// notifications in tables of their own.
pub(crate) fn run_both(test: impl AsyncFn(World)) {
    run_both_seed(1, test);
}

/// [`run_both`], in worlds whose random numbers follow from `seed`.
pub(crate) fn run_both_seed(seed: u64, test: impl AsyncFn(World)) {
    run_over(store(true), seed, &test);
    run_over(store(false), seed, &test);
}

/// Number of seeds where the store in memory runs `most`: at most as many as of storms.
pub(crate) fn seeds(most: u64) -> u64 {
    most.min(STORMS)
}

/// Runs a test in a world with notifications in tables of their own.
pub(crate) fn run_apart(test: impl AsyncFnOnce(World)) {
    run_over(store(false), 1, test);
}

/// Runs a test over a store that accepts only requests of a limited size.
pub(crate) fn run_limited<T>(test: impl AsyncFnOnce(World) -> T) -> T {
    run_over(limited(false), 1, test)
}

/// Works like [`run_both`], over stores that accept only requests of a limited size.
pub(crate) fn run_both_limited(test: impl AsyncFn(World)) {
    run_over(limited(true), 1, &test);
    run_over(limited(false), 1, &test);
}

/// Runs a test over a store in memory, whatever store the other tests run on.
pub(crate) fn run_in_process<T>(test: impl AsyncFnOnce(World) -> T) -> T {
    run_over(Arc::new(bigtable::MemoryStore::new()), 1, test)
}

/// Runs a test over a store that drops superseded versions as soon as it may.
pub(crate) fn run_dropping<T>(test: impl AsyncFnOnce(World) -> T) -> T {
    run_over(Arc::new(bigtable::MemoryStore::new().dropping_superseded()), 1, test)
}

/// Runs a test over this store.
pub(crate) fn run_on<T>(store: Arc<dyn Store>, test: impl AsyncFnOnce(World) -> T) -> T {
    run_over(store, 1, test)
}

/// Runs a test over a store without a floor, whose requests live for at most `life`.
pub(crate) fn run_unfenced<T>(life: Duration, test: impl AsyncFnOnce(World) -> T) -> T {
    run_over(Arc::new(bigtable::MemoryStore::new().without_floors(life)), 1, test)
}

/// Switches off the defence that the environment variable names, if it is set.
pub(crate) fn switch_off_named_mutant() {
    #[cfg(mutants)]
    if let Ok(name) = std::env::var("PERCOLATOR_MUTANT") {
        assert!(percolator_core::mutants::switch_off(&name), "no mutant {name}");
    }
}

fn run_over<T>(store: Arc<dyn Store>, seed: u64, test: impl AsyncFnOnce(World) -> T) -> T {
    switch_off_named_mutant();
    let runtime = VirtualRuntime::new(seed);
    runtime.clone().block_on(async move { test(World::open(runtime, store).await).await })
}

/// Runs a test.
pub(crate) fn run<T>(test: impl AsyncFnOnce(World) -> T) -> T {
    run_seed(1, test)
}

/// A client with a runtime of its own, whose tasks end when it crashes.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) client: Client,
    runtime: Arc<ProcessRuntime>,
    locks: Arc<ProcessLocks>,
}

#[derive(Debug)]
struct ProcessRuntime {
    inner: VirtualRuntime,
    tasks: Mutex<Vec<AbortHandle>>,
    crashed: AtomicBool,
    wall_offset_ms: i64,
    /// The wall clock never shows the same time twice, so that no test relies on it.
    looks: AtomicU64,
}

impl Runtime for ProcessRuntime {
    fn now(&self) -> Duration {
        self.inner.now()
    }

    fn wall_ms(&self) -> u64 {
        let looks = self.looks.fetch_add(1, Ordering::Relaxed);
        self.inner.wall_ms().saturating_add_signed(self.wall_offset_ms) + looks
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let (mut asleep, mut is_over) = (self.inner.sleep(duration), false);
        Box::pin(poll_fn(move |cx| {
            assert!(!is_over, "a sleep that is over is polled again");
            let polled = asleep.as_mut().poll(cx);
            is_over = polled.is_ready();
            polled
        }))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        // A dead process begins nothing, not even work that its dropped tasks hand over.
        if self.crashed.load(Ordering::Relaxed) {
            return;
        }
        let (handle, registration) = AbortHandle::new_pair();
        let mut tasks = self.tasks.lock().unwrap();
        tasks.retain(|task| !task.is_aborted());
        tasks.push(handle);
        let task = Abortable::new(task, registration);
        self.inner.spawn(Box::pin(async move {
            let _ = task.await;
        }));
    }

    fn random(&self) -> u64 {
        self.inner.random()
    }
}

impl Process {
    /// Runs a task that ends with the process.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(Box::pin(task));
    }

    /// Ends every task of the process where it stands. Its token vanishes.
    pub(crate) fn crash(&self) {
        self.runtime.crashed.store(true, Ordering::Relaxed);
        for task in self.runtime.tasks.lock().unwrap().drain(..) {
            task.abort();
        }
        self.locks.unregister(self.client.incarnation());
    }
}

impl World {
    /// A world over an empty store.
    pub(crate) async fn open(runtime: VirtualRuntime, store: Arc<dyn Store>) -> Self {
        let store = Arc::new(FaultyStore::new(&runtime, store));
        let oracle = Arc::new(WindowOracle::open(&*store, Incarnation(1)).await.unwrap());
        let locks = Arc::new(ProcessLocks::new(Arc::new(runtime.clone())));
        World { runtime, store, oracle, locks }
    }

    pub(crate) async fn process(&self, options: Options, wall_offset_ms: i64) -> Process {
        let runtime = Arc::new(ProcessRuntime {
            inner: self.runtime.clone(),
            tasks: Mutex::default(),
            crashed: AtomicBool::new(false),
            wall_offset_ms,
            looks: AtomicU64::new(0),
        });
        let services = Services {
            store: self.store.clone(),
            oracle: self.oracle.clone(),
            locks: self.locks.clone(),
            runtime: runtime.clone(),
        };
        loop {
            match Client::open(services.clone(), options.clone()).await {
                Ok(client) => return Process { client, runtime, locks: self.locks.clone() },
                Err(Error::Store(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(crate) async fn client(&self) -> Client {
        self.client_with(Options::default()).await
    }

    pub(crate) async fn client_with(&self, options: Options) -> Client {
        self.process(options, 0).await.client
    }

    pub(crate) async fn sleep_ms(&self, ms: u64) {
        self.runtime.sleep(Duration::from_millis(ms)).await;
    }

    /// Takes a client's liveness token away, as its death would.
    pub(crate) fn declare_dead(&self, client: &Client) {
        self.locks.unregister(client.incarnation());
    }

    /// Starts a future beside the test. The returned handle gives its result.
    pub(crate) fn beside<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> futures::channel::oneshot::Receiver<T> {
        let (done, result) = futures::channel::oneshot::channel();
        self.runtime.spawn(Box::pin(async move {
            let _ = done.send(future.await);
        }));
        result
    }

    /// The versions that the store holds of a column in one of Percolator's families, newest first.
    pub(crate) async fn raw(
        &self,
        table: &Table,
        row: &str,
        family: bigtable::Family,
        column: &Column,
    ) -> Vec<Timestamp> {
        let apart = self.is_apart(&family);
        let raw = self.raw_table_of(table, &family).await;
        let select =
            Selection::default().column(family, column.to_bytes(), TimeRange::ALL, u32::MAX);
        let page = raw.scan(&bigtable::RowRange::all(), &select, Default::default()).await.unwrap();
        assert!(page.resume.is_none());
        let is = |found: &&bigtable::Row| found.key.as_bytes()[apart.into()..] == *row.as_bytes();
        let row = page.rows.iter().find(is);
        row.map_or(Vec::new(), |row| row.cells.iter().map(|cell| cell.timestamp).collect())
    }

    /// The store's table without faults in between.
    pub(crate) async fn raw_table(&self, table: &Table) -> Arc<dyn bigtable::Table> {
        let inner = &self.store.inner;
        inner.open_table(table.name(), &percolator_core::table_schema()).await.unwrap()
    }

    /// The store's table in which a family of a table lies.
    pub(crate) async fn raw_table_of(
        &self,
        table: &Table,
        family: &bigtable::Family,
    ) -> Arc<dyn bigtable::Table> {
        if !self.is_apart(family) {
            return self.raw_table(table).await;
        }
        let (name, schema) =
            ([NOTIFY_TABLE, table.name()].concat(), percolator_core::notify_schema());
        self.store.inner.open_table(&name, &schema).await.unwrap()
    }

    /// Whether a family lies in a table of its own.
    pub(crate) fn is_apart(&self, family: &bigtable::Family) -> bool {
        !self.store.inner.locality_groups() && ["notify", "failed"].contains(&family.as_str())
    }

    /// Checks the invariants of every cell:
    /// * one record for each start timestamp;
    /// * never a lock or a tomb beside a record of the same transaction;
    /// * data for each pointer.
    pub(crate) async fn audit(&self, table: &Table) {
        let raw = self.raw_table(table).await;
        let mut select = Selection::default();
        for family in [DATA, LOCK, WRITE, ROLLBACK] {
            select = select.family(family, TimeRange::ALL, u32::MAX);
        }
        let mut left = Some(bigtable::RowRange::all());
        while let Some(range) = left {
            let page = raw.scan(&range, &select, Default::default()).await.unwrap();
            page.rows.iter().for_each(audit_row);
            left = page.resume;
        }
    }

    /// How many cells one of Percolator's families holds in a table.
    pub(crate) async fn cells(&self, table: &Table, family: bigtable::Family) -> usize {
        let raw = self.raw_table_of(table, &family).await;
        let select = Selection::default().family(family, TimeRange::ALL, u32::MAX);
        let (mut left, mut cells) = (Some(bigtable::RowRange::all()), 0);
        while let Some(range) = left {
            let page = raw.scan(&range, &select, Default::default()).await.unwrap();
            cells += page.rows.iter().map(|row| row.cells.len()).sum::<usize>();
            left = page.resume;
        }
        cells
    }

    pub(crate) async fn notified(&self, table: &Table, row: &str, column: &Column) -> usize {
        self.raw(table, row, NOTIFY, column).await.len()
    }
}

fn audit_row(row: &bigtable::Row) {
    const SHORT_VALUE: u8 = 2;
    const DELETE: u8 = 1;
    let columns: std::collections::BTreeSet<_> = row.cells.iter().map(|c| &c.qualifier).collect();
    for column in columns {
        let mut pointers = std::collections::BTreeSet::new();
        for write in row.versions(&WRITE, column) {
            let start: [u8; 8] = write.value[..8].try_into().unwrap();
            let start = Timestamp::new(u64::from_be_bytes(start)).unwrap();
            let name = format!("{} {column:?} {start:?}", row.key);
            assert!(pointers.insert(start), "H20: two records of {name}");
            let at = |family| row.versions(&family, column).iter().any(|c| c.timestamp == start);
            assert!(!at(LOCK), "H20: lock and record of {name}");
            assert!(!at(ROLLBACK), "tomb and record of {name}");
            assert!(write.timestamp > start, "commit before start of {name}");
            if write.value[8] & (SHORT_VALUE | DELETE) == 0 {
                assert!(at(DATA), "no data for {name}");
            }
        }
    }
}

/// An observer made of a closure.
pub(crate) struct Do<F>(F);

/// Makes an observer of a closure.
pub(crate) fn observer<F>(run: F) -> Do<F>
where
    F: for<'a> Fn(&'a mut Transaction, &'a Change) -> BoxFuture<'a, Result<()>>
        + Send
        + Sync
        + 'static,
{
    Do(run)
}

impl<F> Observer for Do<F>
where
    F: for<'a> Fn(&'a mut Transaction, &'a Change) -> BoxFuture<'a, Result<()>>
        + Send
        + Sync
        + 'static,
{
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> Result<()> {
        (self.0)(tx, change).await
    }
}

/// An observer that adds one to a counter cell of the changed row.
pub(crate) fn counting(counter: Column) -> impl Observer {
    observer(move |tx, change| {
        let counter = counter.clone();
        Box::pin(async move { add(tx, &change.table, &change.row, &counter, 1).await })
    })
}

/// Adds to a number in a cell.
pub(crate) async fn add(
    tx: &mut Transaction,
    table: &Table,
    row: impl Into<RowKey>,
    column: &Column,
    by: i64,
) -> Result<()> {
    let row = row.into();
    let old = number(tx.get(table, row.clone(), column).await?);
    tx.set(table, row, column, (old + by).to_string())
}

/// The number in a cell; zero if there is none.
pub(crate) fn number(value: Option<Bytes>) -> i64 {
    value.map_or(0, |value| std::str::from_utf8(&value).unwrap().parse().unwrap())
}

/// Sets cells of one column in one transaction.
pub(crate) async fn set(client: &Client, table: &Table, cells: &[(&str, &str)]) -> Timestamp {
    let mut tx = client.begin().await.unwrap();
    for (row, value) in cells {
        tx.set(table, *row, &BAL, value.to_string()).unwrap();
    }
    tx.commit().await.unwrap()
}

/// A transaction that has set cells of one column and not committed yet.
pub(crate) async fn writing(client: &Client, table: &Table, cells: &[(&str, &str)]) -> Transaction {
    let mut tx = client.begin().await.unwrap();
    for (row, value) in cells {
        tx.set(table, *row, &BAL, value.to_string()).unwrap();
    }
    tx
}

/// Reads a cell in a transaction of its own.
pub(crate) async fn get(client: &Client, table: &Table, row: &str) -> Option<String> {
    get_column(client, table, row, &BAL).await
}

/// Reads a cell in a transaction of its own.
pub(crate) async fn get_column(
    client: &Client,
    table: &Table,
    row: &str,
    column: &Column,
) -> Option<String> {
    let value = client.begin().await.unwrap().get(table, row, column).await.unwrap();
    value.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

/// Whether a commit was reported as certainly aborted.
pub(crate) fn is_aborted<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Aborted { .. }))
}
