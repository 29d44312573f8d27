//! A client: what every transaction of one process shares.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use bigtable::sync::locked;
use bigtable::{Store, Timestamp};

use crate::close::Closing;
use crate::gc::Collection;
use crate::mutants::{self, off};
use crate::observe::admit::Admission;
use crate::observe::hints::Hints;
use crate::observe::placement::{Placement, notify_table_name};
use crate::records::format;
use crate::records::layout::{SYSTEM_TABLE, notify_schema, system_schema, table_schema};
use crate::records::schema::{Observed, Schema};
use crate::resolve::suspects::Suspects;
use crate::resolve::verdicts::Verdicts;
use crate::stats::{Counters, Stats};
use crate::txn::finish::Background;
use crate::txn::read_ahead::{Cache, Predictor};
use crate::{Error, Holder, Incarnation, LockService, Options, Oracle, Result, Runtime, Snapshot};
use crate::{Table, Transaction};

/// A client of one store: begins transactions, reads the past, runs observers. Cloning is cheap;
/// all clones are one client, with one liveness token. The token goes with the last clone.
///
/// ```
/// # percolator_core::doc_test(|client| async move {
/// use percolator_core::Column;
/// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
/// let mut tx = client.begin().await?;
/// tx.set(&accounts, "Bob", &bal, "$10")?;
/// tx.commit().await?;
/// let tx = client.begin().await?;
/// assert_eq!(tx.get(&accounts, "Bob", &bal).await?.as_deref(), Some(&b"$10"[..]));
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

/// A client that may be gone: it is not kept open for this.
///
/// ```
/// # percolator_core::doc_test(|client| async move {
/// assert_eq!(client.downgrade().upgrade().unwrap().incarnation(), client.incarnation());
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
pub struct WeakClient(Weak<Inner>);

impl WeakClient {
    /// The client, if any handle of it is left.
    pub fn upgrade(&self) -> Option<Client> {
        Some(Client { inner: self.0.upgrade()? })
    }
}

#[derive(Debug)]
struct Inner {
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
    collection: Collection,
    /// How many callers wait for idleness.
    awaited: AtomicUsize,
    /// How many pieces of work have asked for an advisory lock.
    works: AtomicU64,
    admission: Admission,
    closing: Closing,
    counters: Counters,
    background: Arc<Background>,
    predictor: Arc<Predictor>,
}

/// Somebody waits for idleness as long as this lives.
pub(crate) struct Awaited<'a>(&'a AtomicUsize);

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a client stands on.
///
/// ```
/// # percolator_core::doc_test(|client| async move {
/// let services = client.services().clone();
/// let second = percolator_core::Client::open(services, Default::default()).await?;
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

impl Drop for Inner {
    fn drop(&mut self) {
        self.services.locks.unregister(self.incarnation);
    }
}

impl Client {
    /// Opens a client under a fresh incarnation and registers its liveness token.
    ///
    /// # Errors
    /// [`Error::Store`] when the store holds data of a newer format, [`Error::Invalid`] when it has
    /// no floor and its requests may live too long, and those of store and services.
    pub async fn open(services: Services, options: Options) -> Result<Self> {
        let incarnation = fresh_incarnation(&*services.runtime);
        let life = services.store.request_life_max();
        Client::check_life(life)?;
        let system = services.store.open_table(SYSTEM_TABLE, &system_schema()).await?;
        let placement = format::check(&*system, Placement::of(&*services.store)).await?;
        let schema = Schema::read(&*system).await?;
        // Last: nobody would give the token up if something failed after it.
        services.locks.register(incarnation).await?;
        let collection = Collection::new(&services.runtime, life);
        let inner = Inner {
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
            collection,
            awaited: AtomicUsize::new(0),
            works: AtomicU64::new(0),
            admission: Admission::default(),
            closing: Closing::default(),
            counters: Counters::default(),
            background: Arc::default(),
            predictor: Arc::default(),
        };
        let client = Client { inner: Arc::new(inner) };
        if let Some(life) = life {
            client.tell_life(life).await?;
            client.keep_held(life);
        }
        Ok(client)
    }

    /// Opens a table, creating it if it is not there.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a malformed name; those of the store.
    pub async fn table(&self, name: &str) -> Result<Table> {
        if let Some(table) = self.tables().get(name) {
            return Ok(table.clone());
        }
        self.check_open()?;
        if name.starts_with("percolator.") {
            return Err(Error::Invalid(format!(
                "table name {name:?}: names that begin with `percolator.` are reserved"
            )));
        }
        let store = self.services().store.open_table(name, &table_schema()).await;
        let store = store.map_err(malformed)?;
        let apart = match self.inner.placement {
            Placement::InRow => None,
            Placement::Apart => {
                let name = notify_table_name(name);
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
    /// Those of the store.
    pub async fn table_names(&self) -> Result<Vec<String>> {
        let mut names = self.services().store.table_names().await?;
        names.retain(|name| !name.starts_with("percolator."));
        Ok(names)
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// [`Error::Oracle`] when no timestamp can be had; those of the store when observers were
    /// registered meanwhile and the schema cannot be read.
    pub async fn begin(&self) -> Result<Transaction> {
        self.take_turn(0).await;
        self.check_open()?;
        let starting = self.readers().starting();
        let mut stamp = self.oracle().timestamp().await?;
        if off(mutants::STALE_BEGIN) {
            // As if it had been asked for ahead, when the transaction before this one began.
            stamp = match mutants::ask_ahead(self.incarnation(), stamp) {
                Some(stale) => stale,
                None => self.oracle().timestamp().await?,
            };
        }
        let open = starting.moved_to(stamp.timestamp);
        // Costs nothing unless observers were registered meanwhile; `notify` must know of them.
        self.schema(stamp.schema_version).await?;
        self.counters().begun.bump();
        Ok(Transaction::new(self.clone(), stamp, open))
    }

    /// A read-only view of the data as it was at `ts`.
    ///
    /// # Errors
    /// [`Error::NotIssued`] above the latest timestamp, [`Error::TooOld`] below the safe point.
    pub async fn snapshot_at(&self, ts: Timestamp) -> Result<Snapshot> {
        self.check_open()?;
        let latest = self.oracle().peek().await?;
        if ts > latest && !off(mutants::FUTURE_IS_READ) {
            return Err(Error::NotIssued { asked: ts, latest });
        }
        // Before the floor is looked at: a round that begins after that will see it.
        let open = self.readers().at(ts);
        if self.unfenced().is_some() {
            self.hold_past(ts).await?;
            return Ok(Snapshot::new(self.clone(), ts, open));
        }
        let floor = self.services().store.floor();
        if ts < floor {
            return Err(Error::TooOld { asked: ts, floor });
        }
        Ok(Snapshot::new(self.clone(), ts, open))
    }

    /// A read-only view of the data as of the latest timestamp issued; issues none itself.
    ///
    /// # Errors
    /// [`Error::Oracle`] when the oracle cannot be reached.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        self.check_open()?;
        let starting = self.readers().starting();
        let latest = self.oracle().peek().await?;
        Ok(Snapshot::new(self.clone(), latest, starting.moved_to(latest)))
    }

    /// Returns once no power cut can take back a commit that any client was told of before this
    /// call. A store that syncs each commit has nothing to do. A server behind a network syncs as
    /// it was started to; it cannot be asked for more.
    ///
    /// A program that can repeat its work, such as a bulk load, opens its database with less
    /// durability, and calls this before it says that it is done.
    ///
    /// ```
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator_core::Column;
    /// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
    /// client.transact(async |mut tx| tx.set(&accounts, "Bob", &bal, "$10")).await?;
    /// client.sync().await?;
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// [`Error::Store`] when the store cannot write; what was committed is still there unless the
    /// machine stops, and the next call tries again.
    ///
    /// # Cancellation
    /// The sync goes on, and nothing else depends on it.
    pub async fn sync(&self) -> Result<()> {
        self.check_open()?;
        Ok(self.services().store.sync().await?)
    }

    /// What this client has done so far.
    pub fn stats(&self) -> Stats {
        self.counters().read()
    }

    /// The registered observers of the whole store.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn observers(&self) -> Result<Vec<Observed>> {
        Ok(Schema::read(self.system()).await?.entries.into_keys().collect())
    }

    /// This client, for a task that must not keep it alive.
    pub fn downgrade(&self) -> WeakClient {
        WeakClient(Arc::downgrade(&self.inner))
    }

    /// The name of this life of this client.
    pub fn incarnation(&self) -> Incarnation {
        self.inner.incarnation
    }

    /// What the client stands on.
    pub fn services(&self) -> &Services {
        &self.inner.services
    }

    /// The timestamp oracle.
    pub fn oracle(&self) -> &dyn Oracle {
        &*self.inner.services.oracle
    }

    /// The runtime.
    pub fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.inner.services.runtime
    }

    /// The options.
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    pub(crate) fn locks(&self) -> &dyn LockService {
        &*self.inner.services.locks
    }

    /// The name under which the next piece of work holds an advisory lock. It is the client's, so
    /// that the lock goes with the client's token.
    pub(crate) fn next_holder(&self) -> Holder {
        let work = self.inner.works.fetch_add(1, Ordering::Relaxed);
        Holder { owner: self.incarnation(), work }
    }

    pub(crate) fn system(&self) -> &dyn bigtable::Table {
        &*self.inner.system
    }

    pub(crate) fn verdicts(&self) -> &Verdicts {
        &self.inner.verdicts
    }

    pub(crate) fn suspects(&self) -> &Suspects {
        &self.inner.suspects
    }

    /// Notes that somebody waits for idleness, so that batches do not rest meanwhile.
    pub(crate) fn awaited(&self) -> Awaited<'_> {
        self.inner.awaited.fetch_add(1, Ordering::Relaxed);
        self.hints().collected.ring();
        Awaited(&self.inner.awaited)
    }

    pub(crate) fn is_awaited(&self) -> bool {
        self.inner.awaited.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn collection(&self) -> &Collection {
        &self.inner.collection
    }

    /// What a transaction keeps of its reads.
    pub(crate) fn cache(&self) -> Cache {
        if self.options().read_ahead { Cache::new(&self.inner.predictor) } else { Cache::default() }
    }

    pub(crate) fn hints(&self) -> &Hints {
        &self.inner.hints
    }

    pub(crate) fn admission(&self) -> &Admission {
        &self.inner.admission
    }

    pub(crate) fn closing(&self) -> &Closing {
        &self.inner.closing
    }

    pub(crate) fn background(&self) -> &Arc<Background> {
        &self.inner.background
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.inner.counters
    }

    /// The schema that was in force when a timestamp with this version was issued, or a newer one.
    pub(crate) async fn schema(&self, version: u64) -> Result<Arc<Schema>> {
        let known = self.known_schema();
        if known.version >= version {
            return Ok(known);
        }
        self.learn_schema().await
    }

    /// The schema as it is in the store, or a newer one.
    pub(crate) async fn learn_schema(&self) -> Result<Arc<Schema>> {
        let read = Arc::new(Schema::read(self.system()).await?);
        let mut schema = locked(&self.inner.schema);
        if read.version > schema.version {
            *schema = read;
        }
        Ok(schema.clone())
    }

    /// The schema this client knows without asking.
    pub(crate) fn known_schema(&self) -> Arc<Schema> {
        locked(&self.inner.schema).clone()
    }

    fn tables(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Table>> {
        locked(&self.inner.tables)
    }
}

/// What is wrong with a table's name is the caller's mistake.
fn malformed(error: bigtable::Error) -> Error {
    match error {
        bigtable::Error::InvalidRequest(what) => Error::Invalid(what),
        error => Error::Store(error),
    }
}

/// A name for a new life of a client (H17).
pub fn fresh_incarnation(runtime: &dyn Runtime) -> Incarnation {
    Incarnation(u128::from(runtime.random()) << 64 | u128::from(runtime.random()))
}
