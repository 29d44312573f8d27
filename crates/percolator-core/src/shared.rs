//! Holds the state that the handles, transactions and workers of one client share. It consists
//! of services, options, caches and counters, and the state that each module keeps between
//! calls.
//!
//! This file knows no step of the protocol. The steps are functions over [`Shared`] in their
//! own modules; [`Client`](crate::Client) is the public face above them.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigtable::sync::locked;
use bigtable::{Limits, RowKey, Store};

use crate::account::Account;
use crate::closing::Closing;
use crate::gc::collection::Collection;
use crate::observe::admission::Admission;
use crate::observe::failures::FailureLists;
use crate::observe::hints::{Hint, Hints};
use crate::records::layout::{notify_schema, table_schema};
use crate::records::placement::{Placement, notify_table_name};
use crate::records::schema::{Observed, Schema};
use crate::resolve::suspects::Suspects;
use crate::resolve::verdicts::Verdicts;
use crate::stats::Counters;
use crate::trace::queue::Trace;
use crate::txn::finish::Background;
use crate::txn::lock_waits::LockWaits;
use crate::txn::open_readers::OpenReaders;
use crate::txn::predictor::{Cache, Predictor};
use crate::watch::watcher::Watcher;
use crate::watch::{Access, Event};
use crate::{
    Error, Holder, Incarnation, InvalidKind, LockService, Options, Oracle, Result, Runtime, Table,
};

/// A page counts as one read for each of this many rows.
const ROWS_OF_A_TURN: usize = 8;

/// The state of one client.
#[derive(Debug)]
pub(crate) struct Shared {
    services: Services,
    options: Options,
    incarnation: Incarnation,
    system: Arc<dyn bigtable::Table>,
    placement: Placement,
    tables: Mutex<BTreeMap<String, Table>>,
    schema: Mutex<Arc<Schema>>,
    verdicts: Verdicts,
    suspects: Suspects,
    hints: Hints,
    failures: FailureLists,
    collection: Collection,
    /// How many callers wait for idleness now.
    awaited: AtomicUsize,
    /// How many advisory-lock holders were named so far.
    works: AtomicU64,
    /// The names of the row locks of rows that a worker began to visit without a lock in the store.
    unlocked: Mutex<BTreeSet<Vec<u8>>>,
    admission: Admission,
    closing: Closing,
    counters: Counters,
    background: Arc<Background>,
    predictor: Arc<Predictor>,
    watcher: Option<Watcher>,
    account: Account,
    lock_waits: LockWaits,
    /// `None` if nothing is traced.
    trace: Option<Arc<Trace>>,
}

/// A caller waits for idleness as long as this value lives.
pub(crate) struct Awaited<'a>(&'a AtomicUsize);

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The services that a client uses.
///
/// ```
/// # use percolator_core::face as percolator;
/// # percolator_core::doc_test(|client| async move {
/// let services = client.services().clone();
/// let second = percolator::Client::open(services, Default::default()).await?;
/// assert_ne!(second.incarnation(), client.incarnation());
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
pub struct Services {
    /// Where the data is.
    pub store: Arc<dyn Store>,
    /// Where timestamps come from.
    pub oracle: Arc<dyn Oracle>,
    /// Where liveness tokens and advisory locks are.
    pub locks: Arc<dyn LockService>,
    /// Time, tasks, randomness.
    pub runtime: Arc<dyn Runtime>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.services.locks.unregister(self.incarnation);
        // So that the task that writes it ends.
        if let Some(trace) = &self.trace {
            trace.wake();
        }
    }
}

impl Shared {
    /// The state of a client that has done nothing yet.
    pub(crate) fn new(
        services: Services,
        options: Options,
        incarnation: Incarnation,
        system: Arc<dyn bigtable::Table>,
        placement: Placement,
        schema: Schema,
    ) -> Self {
        let collection = Collection::new(&services.runtime, services.store.request_life_max());
        let watcher = options.watch.clone().map(Watcher::new);
        let trace = options.trace.is_on().then(|| Arc::new(Trace::new(options.trace)));
        Shared {
            services,
            options,
            incarnation,
            system,
            placement,
            tables: Mutex::default(),
            schema: Mutex::new(Arc::new(schema)),
            verdicts: Verdicts::default(),
            suspects: Suspects::default(),
            hints: Hints::default(),
            failures: FailureLists::default(),
            collection,
            awaited: AtomicUsize::new(0),
            works: AtomicU64::new(0),
            unlocked: Mutex::default(),
            admission: Admission::default(),
            closing: Closing::default(),
            counters: Counters::default(),
            background: Arc::default(),
            predictor: Arc::default(),
            watcher,
            account: Account::default(),
            lock_waits: LockWaits::default(),
            trace,
        }
    }

    /// # Errors
    /// [`Error::Closed`] once the client has been closed.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closing.is_closed() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Lets other tasks run if it is their turn. Call it once for each read, and once for each
    /// page with the number of its rows.
    pub(crate) async fn take_turn(&self, rows: usize) {
        let mut turns = 1 + rows / ROWS_OF_A_TURN;
        poll_fn(|context| self.runtime().poll_turns(&mut turns, context)).await;
    }

    /// The longest life of a request, if the store has no floor; otherwise `None`.
    pub(crate) fn unfenced(&self) -> Option<Duration> {
        self.services.store.request_life_max()
    }

    /// The largest requests that the store accepts.
    pub(crate) fn limits(&self) -> Limits {
        self.services.store.limits()
    }

    /// The timestamps at which this client has transactions or snapshots open.
    pub(crate) fn readers(&self) -> &Arc<OpenReaders> {
        &self.collection.readers
    }

    /// Opens a table, and creates it if it does not exist.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a malformed name; those of the store.
    pub(crate) async fn table(&self, name: &str) -> Result<Table> {
        if let Some(table) = self.tables().get(name) {
            return Ok(table.clone());
        }
        self.check_open()?;
        if name.starts_with("percolator.") {
            return Err(Error::invalid(
                InvalidKind::Table,
                format!("table name {name:?}: names that begin with `percolator.` are reserved"),
            ));
        }
        let notify = match self.placement {
            Placement::InRow => None,
            Placement::Apart => Some(notify_table_name(name)),
        };
        // Both names are checked before either table is created.
        for name in [Some(name), notify.as_deref()].into_iter().flatten() {
            bigtable::check_table_name(name).map_err(malformed)?;
        }
        let store = self.services().store.open_table(name, &table_schema()).await;
        let store = store.map_err(malformed)?;
        let apart = match notify {
            None => None,
            Some(name) => {
                let opened = self.services().store.open_table(&name, &notify_schema()).await;
                Some(opened.map_err(malformed)?)
            }
        };
        let table = Table::new(name, &self.services().store, store, apart);
        Ok(self.tables().entry(name.to_owned()).or_insert(table).clone())
    }

    /// The names of the store's tables, sorted, without Percolator's own.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) async fn table_names(&self) -> Result<Vec<String>> {
        let mut names = self.services().store.table_names().await?;
        names.retain(|name| !name.starts_with("percolator."));
        Ok(names)
    }

    /// The name of this life of this client.
    pub(crate) fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The services that the client uses.
    pub(crate) fn services(&self) -> &Services {
        &self.services
    }

    /// The timestamp oracle.
    pub(crate) fn oracle(&self) -> &dyn Oracle {
        &*self.services.oracle
    }

    /// The runtime.
    pub(crate) fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.services.runtime
    }

    /// The options.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn locks(&self) -> &dyn LockService {
        &*self.services.locks
    }

    /// The name under which the next piece of work holds an advisory lock. It contains the
    /// client's incarnation, so that the lock ends with the client's token.
    pub(crate) fn next_holder(&self) -> Holder {
        let work = self.works.fetch_add(1, Ordering::Relaxed);
        Holder { owner: self.incarnation(), work }
    }

    pub(crate) fn system(&self) -> &dyn bigtable::Table {
        &*self.system
    }

    pub(crate) fn verdicts(&self) -> &Verdicts {
        &self.verdicts
    }

    pub(crate) fn suspects(&self) -> &Suspects {
        &self.suspects
    }

    /// Records that a caller waits for idleness. Batching observers then run at once instead
    /// of waiting for more changes.
    pub(crate) fn awaited(&self) -> Awaited<'_> {
        self.awaited.fetch_add(1, Ordering::Relaxed);
        self.hints().collected.ring();
        Awaited(&self.awaited)
    }

    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn unlocked(&self) -> std::sync::MutexGuard<'_, BTreeSet<Vec<u8>>> {
        locked(&self.unlocked)
    }

    pub(crate) fn collection(&self) -> &Collection {
        &self.collection
    }

    /// The cache of reads for a new transaction.
    pub(crate) fn cache(&self) -> Cache {
        if self.options().read_ahead { Cache::new(&self.predictor) } else { Cache::default() }
    }

    pub(crate) fn hints(&self) -> &Hints {
        &self.hints
    }

    /// Tells the workers of this client about a dirty cell.
    pub(crate) fn hint(&self, hint: &Hint) {
        match self.hints.push(hint) {
            0 => {}
            dropped => self.counters.hints_dropped.add(dropped),
        }
    }

    pub(crate) fn failures(&self) -> &FailureLists {
        &self.failures
    }

    pub(crate) fn admission(&self) -> &Admission {
        &self.admission
    }

    pub(crate) fn closing(&self) -> &Closing {
        &self.closing
    }

    pub(crate) fn background(&self) -> &Arc<Background> {
        &self.background
    }

    /// The description of the client's process.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// The locks that the client waits for.
    pub(crate) fn lock_waits(&self) -> &LockWaits {
        &self.lock_waits
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The watcher, if there is one that is still called.
    pub(crate) fn watcher(&self) -> Option<&Watcher> {
        self.watcher.as_ref().filter(|watcher| watcher.is_on())
    }

    /// The trace of this client, if it keeps one.
    pub(crate) fn trace(&self) -> Option<&Arc<Trace>> {
        self.trace.as_ref()
    }

    /// Whether events are wanted: by a watcher, or for the trace.
    pub(crate) fn is_watched(&self) -> bool {
        self.trace.is_some() || self.watcher().is_some()
    }

    /// Calls the watcher after an event, if there is one, and notes the event for the trace, if
    /// there is one. The caller must hold no mutex.
    pub(crate) fn emit<'e>(&self, event: impl FnOnce() -> Event<'e>) {
        let watcher = self.watcher();
        if watcher.is_none() && self.trace.is_none() {
            return;
        }
        let event = event();
        if let Some(trace) = &self.trace
            && !trace.note(&**self.runtime(), self.incarnation, &event)
        {
            self.counters.trace_dropped.bump();
        }
        if let Some(watcher) = watcher
            && !watcher.call(&**self.runtime(), &event)
        {
            self.counters.watcher_failures.bump();
        }
    }

    /// Emits a sample of accesses to `rows` rows. `at` returns table and key of a row by its
    /// index.
    pub(crate) fn sample<'e>(
        &self,
        access: Access,
        rows: usize,
        at: impl Fn(usize) -> (&'e str, &'e RowKey),
    ) {
        let Some(watcher) = self.watcher() else { return };
        for (table, row) in watcher.sampled(rows).map(at) {
            self.emit(|| Event::Sampled { table, row, access });
        }
    }

    /// The schema that was in force when a timestamp with this version was issued, or a newer
    /// one.
    pub(crate) async fn schema(&self, version: u64) -> Result<Arc<Schema>> {
        let known = self.known_schema();
        if known.version >= version {
            return Ok(known);
        }
        self.learn_schema().await
    }

    /// Reads the schema from the store. Returns it, or a newer one if this client knows one.
    pub(crate) async fn learn_schema(&self) -> Result<Arc<Schema>> {
        let read = Arc::new(Schema::read(self.system()).await?);
        let mut schema = locked(&self.schema);
        if read.version > schema.version {
            *schema = read;
        }
        Ok(schema.clone())
    }

    /// The schema as this client knows it, without a request.
    pub(crate) fn known_schema(&self) -> Arc<Schema> {
        locked(&self.schema).clone()
    }

    /// Whether an observer is paused, as far as this client knows.
    pub(crate) fn is_known_as_paused(&self, observed: &Observed) -> bool {
        locked(&self.schema).is_paused(observed)
    }

    fn tables(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Table>> {
        locked(&self.tables)
    }
}

/// Turns a malformed table name into [`Error::Invalid`], because it is the caller's mistake.
fn malformed(error: bigtable::Error) -> Error {
    match error {
        bigtable::Error::InvalidRequest(what) => Error::invalid(InvalidKind::Table, what),
        error => Error::Store(error),
    }
}
