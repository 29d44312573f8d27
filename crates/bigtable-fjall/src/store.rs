//! Implements the store: it opens, closes and drops tables, keeps the floor, and commits
//! changes of several rows.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bigtable::{CommitRows, Error, Result, RowsOutcome, Store, StoreId, Table, TableSchema};
use bigtable::{Timestamp, check_table_name};

use crate::commit::admission;
use crate::commit::begin::{Tried, begin_rows, of_rows, try_rows};
use crate::commit::puts::Puts;
use crate::commit::room::Use;
use crate::commit::write::{sync_journal, write_batch};
use crate::directory::Directory;
use crate::engine::Engine;
use crate::failure::condition::Condition;
use crate::failure::fault::{self, Fault};
use crate::failure::reopen::Running;
use crate::failure::tail;
use crate::opening::{self, Recovery, open_files, open_table};
use crate::options::{Durability, Options};
use crate::table::FjallTable;
use crate::upkeep::drop::drop_table;
use crate::waits::may_wait;

/// A store in a directory of the local file system.
///
/// Only one process at a time can have the directory open. The store is closed when the store
/// and all of its tables are dropped, or with [`close`](FjallStore::close).
///
/// ```
/// use bigtable::{Error, Layout, LocalityGroup, Store, TableSchema};
/// use bigtable_fjall::{FjallStore, Options};
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path().join("accounts");
/// # futures::executor::block_on(async {
/// let store = FjallStore::open(&dir, Options::default())?;
/// let schema = TableSchema { groups: vec![LocalityGroup::on_disk("data", Layout::Versions)] };
/// store.open_table("accounts", &schema).await?;
/// drop(store);
///
/// let store = FjallStore::open(&dir, Options::default())?;
/// assert_eq!(store.table_names().await?, ["accounts"]);
/// # Ok::<(), bigtable::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct FjallStore {
    pub(crate) running: Arc<Running>,
}

impl FjallStore {
    /// Opens the store in `dir`, and creates the directory and the store if they do not exist.
    /// This blocks for a time that grows with the length of the journal. In an async program,
    /// call it where blocking is allowed.
    ///
    /// # Errors
    /// [`Error::InUse`] if another process has the directory open. [`Error::Files`] in the
    /// following cases; the error says what to do:
    /// * The directory holds something other than a store.
    /// * The store is of another format, or damaged. Opening a damaged store changes nothing
    ///   in its directory.
    /// * The directory cannot be read or written.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<FjallStore> {
        let dir = dir.as_ref();
        let mut directory = Directory::open(dir)?;
        may_wait("opening the store");
        let engine_dir = directory.engine();
        let prepared = if directory.is_complete() {
            Some(opening::look(dir, &engine_dir, directory.has_inventory())?)
        } else {
            None
        };
        let restarted = prepared.as_ref().is_some_and(|prepared| prepared.restarted);
        let recovery = prepared.as_ref().and_then(|prepared| prepared.recovery.clone());
        let cleaning =
            |e: std::io::Error| fault::io(dir, "removing files that a crash left behind", &e);
        tail::remove_leftovers(&engine_dir).map_err(cleaning)?;
        let opened = open_files(dir, options, &directory, prepared)?;
        directory.complete()?;
        let reading = |fault: Fault| fault.at(dir, "reading the catalog");
        let engine = Engine::new(opened, Arc::new(directory)).map_err(reading)?;
        Ok(FjallStore { running: Arc::new(Running::start(engine, recovery, restarted)?) })
    }

    /// Closes the store under all of its handles, after the requests in flight are done. From
    /// then on every request fails with [`Error::Files`]. The directory may then be opened
    /// again, in this or another process. Closing a closed store does nothing.
    ///
    /// The store writes its buffers out, unless they are small. For large buffers this takes
    /// seconds, 60 at most. The next opening then has no journal to read. A store that is
    /// dropped without `close` loses nothing, but leaves its journal to the next opening.
    ///
    /// The store also waits until the files that merges have replaced are deleted. A drop waits
    /// for that, too.
    ///
    /// This blocks for as long as the disk takes. In an async program, call it where blocking
    /// is allowed.
    ///
    /// ```
    /// use bigtable::Store;
    /// use bigtable_fjall::{FjallStore, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path().join("data");
    /// # futures::executor::block_on(async {
    /// let store = FjallStore::open(&dir, Options::default())?;
    /// store.close()?;
    /// assert!(store.table_names().await.is_err());
    /// FjallStore::open(&dir, Options::default())?;
    /// # Ok::<(), bigtable::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::Halted`] if a request does not end. The directory then stays locked until the
    /// request ends.
    pub fn close(&self) -> Result<()> {
        self.running.close()
    }

    /// Whether the machine was restarted since the store last left changes unsynced. Then some
    /// changes that were acknowledged under
    /// [`Syncing::MayBeLost`](bigtable::Syncing::MayBeLost) may be gone. Every opening reports
    /// this until [`acknowledge_restart`](FjallStore::acknowledge_restart) is called.
    pub fn restarted(&self) -> bool {
        self.running.restarted
    }

    /// Confirms that [`Syncing::SILENCE`](bigtable::Syncing::SILENCE) has passed since the
    /// store was opened. The next opening then reports only a later restart of the machine.
    /// This blocks for a sync of the directory.
    ///
    /// # Errors
    /// [`Error::Files`] if the file `RESTARTED` cannot be removed. The next opening then
    /// reports the restart again.
    pub fn acknowledge_restart(&self) -> Result<()> {
        let path = &self.running.path;
        let removed = opening::acknowledge_restart(path);
        removed.map_err(|e| fault::io(path, "recording that the machine restarted", &e))
    }

    /// Like [`Store::open_table`], but returns the table with its full interface.
    ///
    /// # Errors
    /// The errors of [`Store::open_table`].
    pub async fn open_fjall_table(&self, name: &str, schema: &TableSchema) -> Result<FjallTable> {
        check_table_name(name)?;
        schema.check()?;
        let running = &self.running;
        loop {
            let (name, schema) = (name.to_owned(), schema.clone());
            let opened = running.on_committer(move |engine| {
                Ok((engine.generation, open_table(engine, &name, &schema)?))
            });
            let (generation, info) = opened.await?;
            let slot = running.with(&running.open, |engine, ()| {
                // The slot must belong to the engine that opened the table. If the engine was
                // replaced meanwhile, open the table again.
                let same = engine.generation == generation;
                Ok(same.then(|| running.slot(engine, info.clone())))
            })?;
            if let Some(slot) = slot {
                return Ok(FjallTable { store: running.clone(), slot });
            }
        }
    }

    /// Removes a table with all its cells, if it exists. The table must have been opened since
    /// the store was opened. Handles of the table fail from then on. A crash may leave some of
    /// the cells; then call this again.
    ///
    /// This blocks for a time that grows with the size of the table.
    ///
    /// # Errors
    /// `InvalidRequest` if the table exists but was not opened. `Unknown` if part of it may
    /// still exist. Otherwise the errors of any mutation.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.running.with(&self.running.open, |engine, ()| drop_table(engine, name))
    }

    /// The schema that a table was created with. Its in-memory groups have no bounds, because
    /// bounds are not stored.
    pub(crate) fn stored_schema(&self, name: &str) -> Result<TableSchema> {
        self.running.with(&self.running.open, |engine, ()| {
            let _lead = engine.wait_to_lead()?;
            let schema = engine.catalog.schema(name).map_err(|fault| engine.read_error(&fault))?;
            schema.ok_or_else(|| Error::invalid(format!("there is no table {name}")))
        })
    }

    /// The report on the bytes that this opening cut off the end of the journal, if it cut
    /// any. The file `RECOVERIES` in the store's directory keeps the reports of earlier
    /// openings.
    pub fn recovery(&self) -> Option<&Recovery> {
        self.running.recovery.as_ref()
    }

    /// The options with which the store was opened.
    pub fn options(&self) -> &Options {
        &self.running.options
    }

    /// The store's directory.
    pub fn directory(&self) -> &Path {
        &self.running.path
    }

    /// Whether the store takes writes. This looks at the free space of the disk.
    pub fn condition(&self) -> Condition {
        // The result is ignored here, because `try_growth` also stores it in the condition.
        let _ = self.running.with(&self.running.open, |engine, ()| admission::try_growth(engine));
        self.running.condition.get()
    }

    /// Waits until the store's condition differs from `known`. Requests discover changes of
    /// the condition. While there are no requests, only calls of
    /// [`condition`](FjallStore::condition) do.
    pub async fn other_condition_than(&self, known: &Condition) -> Condition {
        self.running.condition.other_than(known).await
    }
}

#[async_trait]
impl Store for FjallStore {
    async fn open_table(&self, name: &str, schema: &TableSchema) -> Result<Arc<dyn Table>> {
        Ok(Arc::new(self.open_fjall_table(name, schema).await?))
    }

    async fn table_names(&self) -> Result<Vec<String>> {
        let names = |engine: &Engine| {
            let _lead = engine.wait_to_lead()?;
            engine.catalog.table_names().map_err(|fault| engine.read_error(&fault))
        };
        self.running.on_committer(names).await
    }

    fn floor(&self) -> Timestamp {
        let floor = self.running.with(&self.running.open, |engine, ()| Ok(engine.floor()));
        // The value does not matter: a halted store answers no reads.
        floor.unwrap_or(Timestamp::ZERO)
    }

    async fn raise_floor(&self, floor: Timestamp) -> Result<()> {
        let raise = move |engine: &Engine| {
            let lead = engine.wait_to_lead()?;
            if floor > engine.floor() {
                admission::look_at_disk(engine, &lead);
                admission::admit(engine, &lead, Use::Upkeep, 0)?;
                let mut puts = Puts::default();
                engine.catalog.put_floor(&mut puts, floor);
                write_batch(engine, puts.into(), true)?;
                engine.set_floor(floor);
            }
            Ok(())
        };
        self.running.on_committer(raise).await
    }

    async fn sync(&self) -> Result<()> {
        self.running.on_committer(sync_journal).await
    }

    async fn reclaim(&self) -> Result<()> {
        let running = &self.running;
        let reply = running.with(&running.open, |engine, ()| running.reclaiming.start(engine))?;
        // The reply is dropped without a value only while the store closes.
        reply.await.unwrap_or(Ok(()))
    }

    fn commits_rows(&self) -> bool {
        true
    }

    fn shares_syncs(&self) -> bool {
        let options = &self.running.options;
        options.durability == Durability::Sync && options.group_rows_max > 1
    }

    async fn commit_rows(&self, request: CommitRows) -> Result<RowsOutcome> {
        let mut request = Some(request);
        let mut of = 0;
        let begun = self.running.with(&self.running.open, |engine, ()| {
            of = engine.generation;
            let request = request.take().ok_or_else(fault::reopened)?;
            begin_rows(engine, request)
        })?;
        self.running.answer(of, begun.outcome().await).and_then(of_rows)
    }

    fn try_commit_rows(
        &self,
        request: CommitRows,
    ) -> std::result::Result<Result<RowsOutcome>, CommitRows> {
        let (mut request, mut of) = (Some(request), 0);
        let tried = self.running.with(&self.running.open, |engine, ()| {
            of = engine.generation;
            let request = request.take().ok_or_else(fault::reopened)?;
            try_rows(engine, request)
        });
        match tried {
            Ok(Tried::NotNow(request)) => Err(request),
            Ok(Tried::Done(outcome)) => Ok(self.running.answer(of, outcome).and_then(of_rows)),
            Err(error) => Ok(Err(error)),
        }
    }

    fn id(&self) -> Option<StoreId> {
        Some(self.running.id)
    }

    fn pressure(&self) -> f64 {
        let pressure = |engine: &Arc<Engine>, (): &()| Ok(engine.memory().pressure());
        self.running.with(&self.running.open, pressure).unwrap_or(0.0)
    }
}
