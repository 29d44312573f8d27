//! Opens the engine anew in place after a failure, while callers keep their handles.
//!
//! ```text
//!   FjallStore, FjallTable    for ever             name, schema, and a slot
//!        | read lock of the slot, for one request
//!   Engine, TableInfo         one generation       everything that holds files of fjall
//! ```
//!
//! A handle reaches the engine through its [`Slot`]. Each slot has a lock of its own. Requests
//! hold it for reading; only the thread that opens the engine anew takes it for writing. So a
//! request pays for one uncontended lock. The thread with the write lock knows that no request
//! is inside the engine. Callers that wait for a reply hold no lock.
//!
//! Two failures make this necessary:
//!
//! * **A batch could not be written or synced.** A part of it may be in the journal. From then
//!   on every request, reads included, first makes the store cut the journal (`tail.rs`) and
//!   open the engine anew. Then the batch is certainly not applied, now or after any crash,
//!   and its callers get an error that says so.
//! * **The engine has stopped by itself**, because it could not write a buffer out, or could
//!   not merge. No request is in doubt: reads continue. The next write that the disk has room
//!   for opens the engine anew.
//!
//! If the engine fails again soon, writes are refused for longer each time. Reads continue
//! meanwhile.
//!
//! If the journal cannot be cut, or the engine cannot be opened, the content of the disk is
//! unknown. From then on the store answers every request with [`Error::Halted`], until a
//! process opens it again.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bigtable::sync::locked;
use bigtable::{Error, Result, StoreId, TableSchema};
use futures::channel::oneshot;

use crate::commit::committer::spawn_committer;
use crate::engine::Engine;
use crate::failure::condition::{Condition, Watched};
use crate::failure::fault;
use crate::failure::successor::{Described, close, find_tail, report_failure};
use crate::layout::table_info::TableInfo;
use crate::opening::Recovery;
use crate::options::Options;
use crate::upkeep::reclaim::Reclaiming;
use crate::waits::may_wait;

/// The most attempts of a request that finds the engine failed.
const TRIES_MAX: usize = 8;
/// The pause before writes resume, if the engine was opened anew twice within [`CALM`].
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
const CALM: Duration = Duration::from_secs(600);

/// An open engine, and the part of it that one handle needs.
pub(crate) struct Opened<T> {
    pub(crate) engine: Arc<Engine>,
    pub(crate) part: T,
}

/// The place where a handle finds the engine. Empty once the engine cannot be opened any more.
pub(crate) struct Slot<T>(RwLock<Option<Opened<T>>>);

impl<T> Slot<T> {
    pub(crate) fn new(engine: Arc<Engine>, part: T) -> Self {
        Slot(RwLock::new(Some(Opened { engine, part })))
    }

    fn read(&self) -> RwLockReadGuard<'_, Option<Opened<T>>> {
        // Poison can be ignored: readers do not poison the lock, and the one writer never
        // panics between two states.
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Empties the slot, and returns its content.
    fn take(&self) -> Option<Opened<T>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, engine: Arc<Engine>, part: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Opened { engine, part });
    }
}

/// The parts of a table that all generations of the engine share.
pub(crate) struct TableSlot {
    pub(crate) name: String,
    pub(crate) schema: TableSchema,
    pub(crate) open: Slot<Arc<TableInfo>>,
}

/// An open store with its committer thread.
pub(crate) struct Running {
    pub(crate) open: Slot<()>,
    pub(crate) tables: Mutex<Vec<Weak<TableSlot>>>,
    committer: Mutex<Option<JoinHandle<()>>>,
    pub(crate) reclaiming: Reclaiming,
    pub(crate) id: StoreId,
    pub(crate) condition: Arc<Watched>,
    keeper: Mutex<Keeper>,
    pub(crate) path: PathBuf,
    pub(crate) options: Options,
    /// The report on the bytes that the opening of the store cut off the journal. Later
    /// openings of the engine do not change it.
    pub(crate) recovery: Option<Recovery>,
    /// Whether the machine was restarted since the store left changes unsynced.
    pub(crate) restarted: bool,
}

/// The state of reopening. Its lock lets one thread at a time open the engine anew.
#[derive(Debug, Default)]
struct Keeper {
    generation: u64,
    last: Option<Instant>,
    pause: Duration,
    halted: Option<Error>,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("path", &self.path).field("options", &self.options).finish()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        may_wait("closing the store");
        self.reclaiming.stop();
        let Some(Opened { engine, .. }) = self.open.take() else { return };
        engine.queue.close();
        drop(engine);
        // The committer thread itself may drop the last handle, in a request whose caller has
        // gone. It then closes the engine when it ends, and must not join itself.
        let own = |thread: &JoinHandle<()>| thread.thread().id() == std::thread::current().id();
        let committer = self.committer.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(committer) = committer.filter(|thread| !own(thread)) {
            // A panic of the committer was already reported to its callers.
            let _ = committer.join();
        }
    }
}

impl Running {
    pub(crate) fn start(
        engine: Engine,
        recovery: Option<Recovery>,
        restarted: bool,
    ) -> Result<Self> {
        let engine = Arc::new(engine);
        Ok(Running {
            committer: Mutex::new(Some(spawn_committer(&engine)?)),
            tables: Mutex::default(),
            reclaiming: Reclaiming::default(),
            id: engine.directory.id,
            condition: engine.condition.clone(),
            keeper: Mutex::default(),
            path: engine.path.clone(),
            options: engine.options.clone(),
            recovery,
            restarted,
            open: Slot::new(engine, ()),
        })
    }

    /// Creates the slot for a handle of a table.
    pub(crate) fn slot(&self, engine: &Arc<Engine>, info: Arc<TableInfo>) -> Arc<TableSlot> {
        let (name, schema) = (info.name.clone(), info.schema.clone());
        let slot = Arc::new(TableSlot { name, schema, open: Slot::new(engine.clone(), info) });
        let mut tables = locked(&self.tables);
        tables.retain(|table| table.strong_count() > 0);
        tables.push(Arc::downgrade(&slot));
        slot
    }

    /// Runs `work` with the engine behind a slot. If the engine has failed, `work` changed
    /// nothing; the engine is opened anew, and `work` runs again.
    pub(crate) fn with<T, R>(
        &self,
        slot: &Slot<T>,
        mut work: impl FnMut(&Arc<Engine>, &T) -> Result<R>,
    ) -> Result<R> {
        let mut tries = 1;
        loop {
            let (generation, result) = {
                let mut open = slot.read();
                if open.is_none() {
                    drop(open);
                    self.wait_for_engine()?;
                    open = slot.read();
                }
                match open.as_ref() {
                    Some(Opened { engine, part }) => (engine.generation, work(engine, part)),
                    // The engine has failed again, and is opened anew once more.
                    None if tries < TRIES_MAX => {
                        tries += 1;
                        continue;
                    }
                    None => return Err(fault::reopened()),
                }
            };
            match self.answer(generation, result) {
                Err(error) if fault::is_reopened(&error) && tries < TRIES_MAX => tries += 1,
                result => return result,
            }
        }
    }

    /// Like [`with`](Running::with), for work that may take long: it runs on the committer
    /// thread.
    pub(crate) async fn on_committer<R: Send + 'static>(
        &self,
        work: impl Fn(&Engine) -> Result<R> + Send + Sync + 'static,
    ) -> Result<R> {
        let work = Arc::new(work);
        let mut tries = 1;
        loop {
            let (done, reply) = oneshot::channel();
            let (work, mut done) = (work.clone(), Some(done));
            let generation = self.with(&self.open, |engine, ()| {
                engine.check_usable()?;
                let (work, done) = (work.clone(), done.take().ok_or_else(fault::reopened)?);
                engine.queue.push_task(Box::new(move |engine| {
                    // An error here means that the caller no longer waits.
                    let _ = done.send(work(engine));
                }))?;
                Ok(engine.generation)
            })?;
            // The reply is cancelled if the engine was closed with its queue.
            let result = reply.await.unwrap_or_else(|_| Err(fault::reopened()));
            match self.answer(generation, result) {
                Err(error) if fault::is_reopened(&error) && tries < TRIES_MAX => tries += 1,
                result => return result,
            }
        }
    }

    /// Returns the result of a request to the engine of this generation. If that engine
    /// failed, opens the engine anew first.
    ///
    /// # Errors
    /// The errors of the request. `Unavailable` if the request was not applied because of the
    /// failure. `Unknown` or `Halted` if the engine cannot be opened any more.
    pub(crate) fn answer<R>(&self, generation: u64, result: Result<R>) -> Result<R> {
        match result {
            Err(error) if fault::is_undecided(&error) => match self.reopen(generation, true) {
                Ok(()) => Err(fault::reopened()),
                // The batch may exist when a process opens the store again.
                Err(halted) => Err(Error::Unknown { why: halted.to_string() }),
            },
            Err(error) if fault::is_untried(&error) => {
                self.reopen(generation, true)?;
                Err(fault::reopened())
            }
            Err(error) if fault::is_stopped(&error) => {
                self.reopen(generation, false)?;
                Err(fault::reopened())
            }
            Err(error) if fault::is_too_late(&error) => {
                // The engine is being closed, either forever or to be opened anew.
                self.wait_for_engine()?;
                Err(error)
            }
            result => result,
        }
    }

    /// Waits while another thread opens the engine anew.
    pub(crate) fn wait_for_engine(&self) -> Result<()> {
        let keeper = locked(&self.keeper);
        keeper.halted.clone().map_or(Ok(()), Err)
    }

    fn halt_error(&self, problem: &str) -> Error {
        Error::Halted { dir: self.path.clone(), problem: problem.to_owned() }
    }

    /// Closes the engine under all handles, after the requests in flight are done.
    pub(crate) fn close(&self) -> Result<()> {
        may_wait("closing the store");
        let mut keeper = locked(&self.keeper);
        let Some(Opened { engine, .. }) = self.open.take() else { return Ok(()) };
        keeper.halted = Some(fault::closed(&self.path));
        engine.write_out_at_end.store(true, Ordering::Relaxed);
        engine.closing.store(true, Ordering::SeqCst);
        engine.queue.close();
        self.reclaiming.stop();
        let committer = locked(&self.committer).take();
        if let Some(committer) = committer {
            // A panic of the committer was already reported to its callers.
            let _ = committer.join();
        }
        self.tables().iter().for_each(|table| drop(table.open.take()));
        close(engine).map(drop).map_err(|problem| self.halt_error(&problem))
    }

    /// Opens the engine anew, unless another thread has done so.
    fn reopen(&self, generation: u64, must: bool) -> Result<()> {
        let mut keeper = locked(&self.keeper);
        if let Some(halted) = &keeper.halted {
            return Err(halted.clone());
        }
        if keeper.generation != generation {
            return Ok(());
        }
        if !must && let Some(error) = keeper.too_soon() {
            return Err(error);
        }
        match self.replace(&mut keeper, must) {
            Ok(()) => Ok(()),
            Err(Replace::NotNow(error)) => Err(error),
            Err(Replace::Never(problem)) => {
                let halted = self.halt_error(&problem);
                keeper.halted = Some(halted.clone());
                self.tables().iter().for_each(|table| drop(table.open.take()));
                if let Some(open) = self.open.take() {
                    open.engine.queue.close();
                }
                tracing::error!(
                    target: "percolator::store", event = "halted", dir = %self.path.display(), problem,
                    "the store has halted and answers no more requests: check the disk, then open \
                     the store again"
                );
                self.condition.set(Condition::Halted { why: problem });
                Err(halted)
            }
        }
    }

    /// Takes the engine from all handles, cuts the journal, opens the engine, and gives it
    /// back to the handles.
    fn replace(&self, keeper: &mut Keeper, must: bool) -> std::result::Result<(), Replace> {
        let (began, tail) = (Instant::now(), {
            let open = self.open.read();
            let Some(Opened { engine, .. }) = &*open else {
                return Err(Replace::Never("the store is closed".to_owned()));
            };
            report_failure(engine);
            let tail = find_tail(engine).and_then(|tail| tail.prepare().map(|()| tail));
            match tail {
                Ok(tail) => {
                    engine.closing.store(true, Ordering::SeqCst);
                    engine.queue.close();
                    tail
                }
                Err(error) if must || is_damage(&error) => {
                    return Err(Replace::Never(never(&error)));
                }
                Err(error) => {
                    keeper.pause_longer();
                    let why = format!("the journal cannot be copied yet: {error}");
                    return Err(Replace::NotNow(Error::Unavailable { why }));
                }
            }
        });
        let way = tail.way();
        // Take it from the store first, so that no table is opened and no space is given back
        // meanwhile.
        let Some(Opened { engine, .. }) = self.open.take() else {
            return Err(Replace::Never("the store is closed".to_owned()));
        };
        self.reclaiming.stop();
        let committer = locked(&self.committer).take();
        if let Some(committer) = committer {
            // A panic of the committer was already reported to its callers.
            let _ = committer.join();
        }
        let tables = self.tables();
        // The open tables by name. Below, the tables of all handles, which include dropped ones.
        let named: Vec<_> = {
            let named = engine.tables.read().unwrap_or_else(PoisonError::into_inner);
            named.iter().map(|info| Described::of(info)).collect()
        };
        let of_handles: Vec<_> = tables
            .iter()
            .filter_map(|table| table.open.take().map(|open| Described::of(&open.part)))
            .collect();
        let closed = close(engine).map_err(Replace::Never)?;
        tail.cut().map_err(|error| Replace::Never(never(&error)))?;
        keeper.pause_longer();
        let opened = closed.open(&named, &of_handles, keeper.not_before());
        let (engine, infos) = opened.map_err(|error| Replace::Never(error.to_string()))?;
        let thread = spawn_committer(&engine).map_err(|error| Replace::Never(error.to_string()))?;
        *locked(&self.committer) = Some(thread);
        keeper.generation = engine.generation;
        for (table, info) in tables.iter().zip(infos) {
            table.open.put(engine.clone(), info);
        }
        self.open.put(engine, ());
        tracing::warn!(
            target: "percolator::store", event = "reopened", dir = %self.path.display(), journal = ?way,
            took = ?began.elapsed(),
            "the store has cut its journal and reopened its engine: no acknowledged write is lost"
        );
        Ok(())
    }

    /// The tables that have a handle.
    fn tables(&self) -> Vec<Arc<TableSlot>> {
        let mut tables = locked(&self.tables);
        tables.retain(|table| table.strong_count() > 0);
        tables.iter().filter_map(Weak::upgrade).collect()
    }
}

/// The reason why an engine was not opened anew.
enum Replace {
    /// The engine is still in use, unchanged.
    NotNow(Error),
    Never(String),
}

fn never(error: &io::Error) -> String {
    format!("the disk failed, and then the journal could not be cut: {error}")
}

/// Whether the journal differs from what was written. Then a retry cannot help.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::NotFound)
}

impl Keeper {
    fn too_soon(&self) -> Option<Error> {
        let left = self.not_before()?.checked_duration_since(Instant::now())?;
        Some(fault::failing(left))
    }

    /// The time when writes resume.
    fn not_before(&self) -> Option<Instant> {
        self.last.map(|last| last + self.pause)
    }

    /// Lengthens the pause, which depends on how often the engine was opened anew recently.
    fn pause_longer(&mut self) {
        let calm = self.last.is_none_or(|last| last.elapsed() > CALM);
        self.pause =
            if calm { Duration::ZERO } else { (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX) };
        self.last = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests;
