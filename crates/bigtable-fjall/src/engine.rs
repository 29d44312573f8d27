//! Holds the state of an open store, which its tables and its committer share, and takes its
//! locks.
//!
//! The functions that use this state are in the folders beside this file: `commit`, `read`,
//! `layout`, `opening`, `failure`, `upkeep` and `backup`.

use std::cell::Cell;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use bigtable::sync::locked;
use bigtable::{Error, Result, Syncing, Timestamp};
use fjall::{Database, Keyspace};

use crate::commit::calm::Calm;
use crate::commit::pending::Pending;
use crate::commit::queue::Queue;
use crate::commit::recent::Recent;
use crate::commit::room::{Disk, Room};
use crate::directory::Directory;
use crate::failure::condition::Watched;
use crate::failure::fault::{self, Fault};
use crate::layout::catalog::Catalog;
use crate::layout::group::Group;
use crate::layout::memory::Memory;
use crate::layout::table_info::TableInfo;
use crate::options::{Durability, Options};
use crate::read::seen::Seen;
use crate::read::snapshots::Snapshots;
use crate::upkeep::freeing::Freeing;
use crate::upkeep::journals::Journals;
use crate::upkeep::merges::Merges;
use crate::waits::may_wait;

/// The reason why these locks are never poisoned.
/// The time for which other threads may take the commit lock.
const LED_BY_OTHERS: Duration = Duration::from_millis(1);
const NO_PANIC: &str = "nothing panics while it holds this lock";

/// An open store. Dropping it closes its journals (`upkeep/closing.rs`).
pub(crate) struct Engine {
    /// Frees sealed write buffers, and deletes files that merges have replaced. The first field, so
    /// that its thread ends before the engine is closed.
    pub(crate) freeing: Freeing,
    /// The store's directory, for error messages.
    pub(crate) path: PathBuf,
    pub(crate) options: Options,
    pub(crate) db: Database,
    pub(crate) catalog: Catalog,
    pub(crate) memory: RwLock<Memory>,
    /// Newest versions that are kept in memory, so that nothing reads them from disk.
    pub(crate) recent: Mutex<Recent>,
    /// The state that readers see.
    pub(crate) snapshots: Snapshots,
    /// Packs that the last scan of old versions has read.
    seen: Mutex<Option<Seen>>,
    floor: AtomicU64,
    /// The file system of the store's directory.
    pub(crate) disk: Disk,
    pub(crate) merges: Arc<Merges>,
    /// Whether the store takes writes; callers can wait for changes of it.
    pub(crate) condition: Arc<Watched>,
    /// The number of times that the store was opened anew in place (`failure/reopen.rs`).
    pub(crate) generation: u64,
    /// Whether the engine is being closed. Backups of it then end.
    pub(crate) closing: AtomicBool,
    /// Whether closing the engine also writes its buffers out (`upkeep/closing.rs`).
    pub(crate) write_out_at_end: AtomicBool,
    /// The failure after which the engine answers nothing; empty while it answers.
    failed: OnceLock<Failure>,
    /// The reason why the engine takes no writes, if it was found between two batches.
    stopped: OnceLock<String>,
    /// The commit lock: only its holder may change the store.
    pub(crate) lead: Mutex<Lead>,
    /// Whether an unsynced batch takes only a short time.
    pub(crate) calm: Calm,
    pub(crate) queue: Queue<Task>,
    pub(crate) pending: Pending,
    /// The tables that have been opened. The holder of the commit lock adds to them.
    pub(crate) tables: RwLock<Vec<Arc<TableInfo>>>,
    /// The journals of the engine. Only the holder of the commit lock uses them.
    journals: Mutex<Journals>,
    /// The last field, so that it is dropped last: the directory stays locked until the
    /// engine's files are closed, whichever thread closes them.
    pub(crate) directory: Arc<Directory>,
}

/// Work for the committer thread besides requests.
pub(crate) type Task = Box<dyn FnOnce(&Engine) + Send>;

/// The reason why an engine answers nothing any more.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// A batch was not written, or not synced. A part of it may be in the journal.
    Write(String, io::ErrorKind),
    /// A commit panicked, so the in-memory maps may differ from the data on disk.
    Panic(Error),
}

/// The open files of a store.
pub(crate) struct OpenFiles {
    pub(crate) path: PathBuf,
    pub(crate) options: Options,
    pub(crate) db: Database,
    pub(crate) catalog: Catalog,
    pub(crate) journals: Journals,
    pub(crate) disk: Disk,
    pub(crate) merges: Arc<Merges>,
}

/// State that only the holder of the commit lock may touch.
#[derive(Debug, Default)]
pub(crate) struct Lead {
    /// The groups that have been opened.
    pub(crate) groups: Vec<Arc<Group>>,
    /// Next free table id. Ids are never reused while the store is open, not even those of dropped
    /// tables.
    pub(crate) ids_from: u32,
    /// Bytes that batches have put into write buffers since the last look for full buffers.
    pub(crate) unlooked: Cell<u64>,
    /// Bytes that batches have put into write buffers between the last early sync of the journal
    /// and the last look (`upkeep/full.rs`).
    pub(crate) unsynced: Cell<u64>,
    /// Whether work that may take long is left to the committer thread.
    pub(crate) left: Cell<bool>,
    /// The number of the last batch that rewrote the history of a column (`read/seen.rs`).
    pub(crate) rewritten: Cell<u64>,
    pub(crate) room: Room,
}

impl Lead {
    /// The keyspaces of the groups that have been opened.
    pub(crate) fn keyspaces(&self) -> impl Iterator<Item = &Keyspace> {
        self.groups.iter().flat_map(|group| group.keyspaces())
    }
}

impl Engine {
    pub(crate) fn new(
        files: OpenFiles,
        directory: Arc<Directory>,
    ) -> std::result::Result<Self, Fault> {
        let OpenFiles { path, options, db, catalog, journals, disk, merges } = files;
        let floor = catalog.floor()?;
        Ok(Engine {
            path,
            memory: RwLock::default(),
            recent: Mutex::new(Recent::new(options.recent_bytes)),
            snapshots: Snapshots::default(),
            seen: Mutex::default(),
            floor: AtomicU64::new(floor.as_u64()),
            disk,
            merges,
            condition: Arc::default(),
            generation: 0,
            closing: AtomicBool::new(false),
            write_out_at_end: AtomicBool::new(false),
            failed: OnceLock::new(),
            stopped: OnceLock::new(),
            lead: Mutex::default(),
            calm: Calm::default(),
            freeing: Freeing::default(),
            queue: Queue::new(options.group_rows_max),
            options,
            pending: Pending::default(),
            tables: RwLock::default(),
            catalog,
            db,
            journals: Mutex::new(journals),
            directory,
        })
    }

    pub(crate) fn journals(&self) -> MutexGuard<'_, Journals> {
        self.journals.lock().expect(NO_PANIC)
    }

    pub(crate) fn floor(&self) -> Timestamp {
        Timestamp::new(self.floor.load(Ordering::SeqCst)).unwrap_or(Timestamp::MAX)
    }

    pub(crate) fn set_floor(&self, floor: Timestamp) {
        self.floor.store(floor.as_u64(), Ordering::SeqCst);
    }

    /// Refuses a read or a mutation whose bound `above` is below the floor. A read calls this
    /// after it has taken its snapshot. A mutation calls this under the commit lock.
    pub(crate) fn check_floor(&self, above: Option<Timestamp>) -> Result<()> {
        let Some(asked) = above else { return Ok(()) };
        let floor = self.floor();
        if asked < floor { Err(Error::TooOld { asked, floor }) } else { Ok(()) }
    }

    pub(crate) fn sync(&self) -> bool {
        self.options.durability == Durability::Sync
    }

    /// Whether a change is synced before it is acknowledged.
    pub(crate) fn syncs(&self, asked: Syncing) -> bool {
        match asked {
            Syncing::AsStore => self.sync(),
            Syncing::Always => true,
            Syncing::MayBeLost => false,
        }
    }

    /// Waits for the commit lock.
    pub(crate) fn wait_to_lead(&self) -> Result<MutexGuard<'_, Lead>> {
        may_wait("the commit lock");
        let lead = self.lead.lock().map_err(|_| self.broken())?;
        self.check_usable()?;
        Ok(lead)
    }

    /// Lets committers that wait for the commit lock take it. A thread that takes it again and
    /// again calls this in between. The lock is not fair: otherwise a committer would hardly ever
    /// get it.
    pub(crate) fn let_others_lead(&self) {
        may_wait("other committers");
        std::thread::sleep(LED_BY_OTHERS);
    }

    /// The error after a commit has panicked: the maps may differ from the keyspaces.
    pub(crate) fn broken(&self) -> Error {
        self.check_usable().err().unwrap_or_else(fault::too_late)
    }

    /// Returns an error once a write has failed, or once a commit has panicked on any thread.
    pub(crate) fn check_usable(&self) -> Result<()> {
        if self.lead.is_poisoned() {
            let problem = "a commit panicked, so the store no longer knows its contents in memory";
            let remedy = "open the store again, and report the message of the panic";
            self.fail(Failure::Panic(fault::files(&self.path, problem, remedy)));
        }
        match self.failed.get() {
            None => Ok(()),
            Some(Failure::Write(..)) => Err(fault::untried()),
            Some(Failure::Panic(error)) => Err(error.clone()),
        }
    }

    /// The failure after which the engine answers nothing, if there is one.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.failed.get()
    }

    /// The reason why the engine takes no writes, if there is one.
    pub(crate) fn stopped(&self) -> Option<&str> {
        self.stopped.get().map(String::as_str)
    }

    /// Stops all answers until the store is opened anew in place.
    pub(crate) fn fail(&self, failure: Failure) {
        let _ = self.failed.set(failure);
    }

    /// Stops all writes until the store is opened anew in place. Everything written before is
    /// readable.
    pub(crate) fn stop(&self, error: &fjall::Error) {
        let _ = self.stopped.set(fault::engine(&self.path, "writing", error).to_string());
    }

    pub(crate) fn read_error(&self, fault: &Fault) -> Error {
        fault.at(&self.path, "reading")
    }

    pub(crate) fn memory(&self) -> RwLockReadGuard<'_, Memory> {
        self.memory.read().expect(NO_PANIC)
    }

    /// Keeps what a scan of old versions has read, in place of what an earlier one has.
    pub(crate) fn keep_seen(&self, seen: Seen) {
        *locked(&self.seen) = Some(seen);
    }

    /// Takes what the last scan of old versions has read, if it was a scan of this table.
    pub(crate) fn take_seen(&self, table: u32) -> Option<Seen> {
        locked(&self.seen).take_if(|seen| seen.table == table)
    }

    /// The caller holds the commit lock.
    pub(crate) fn memory_mut(&self) -> RwLockWriteGuard<'_, Memory> {
        self.memory.write().expect(NO_PANIC)
    }

    /// An open table by its name.
    pub(crate) fn table_named(&self, name: &str) -> Result<Arc<TableInfo>> {
        let tables = self.tables.read().expect(NO_PANIC);
        let found = tables.iter().find(|table| table.name == name);
        found.cloned().ok_or_else(|| Error::invalid(format!("table {name} is not open")))
    }
}
