//! The snapshot that all readers share until the next batch.
//!
//! Taking it costs a counter, where opening one costs several locks of the engine. Normally the
//! first reader opens the snapshot. The committer opens it beforehand if there were reads recently
//! or if the batch will be synced: no snapshot can be opened while a batch is being written.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, TryLockError};

use fjall::Database;

use crate::failure::fault::Fault;
use crate::mutants::{self, off};
use crate::read::published::{Batches, OpenBatch, Published};

/// After so many batches without a reader a run of mutations opens no snapshots.
const UNREAD_MAX: u64 = 64;
/// Why these locks are never poisoned.
const NO_PANIC: &str = "nothing panics while it holds this lock";

/// The state of an engine that readers see, batch after batch.
#[derive(Debug)]
pub(crate) struct Snapshots {
    /// The state after the last batch, if anybody has asked for it.
    shared: RwLock<Option<Arc<Published>>>,
    /// Batches since anybody has asked for it.
    unread: AtomicU64,
    batches: Batches,
    /// Held while the engine is given a batch.
    writing: Mutex<()>,
}

/// A batch that is being written; the lock goes after the batch has ended.
pub(crate) struct Writing<'a> {
    _batch: OpenBatch<'a>,
    _lock: MutexGuard<'a, ()>,
}

impl Default for Snapshots {
    fn default() -> Self {
        Snapshots {
            shared: RwLock::default(),
            unread: AtomicU64::new(UNREAD_MAX),
            batches: Batches::default(),
            writing: Mutex::default(),
        }
    }
}

impl Snapshots {
    /// How many batches have ended.
    pub(crate) fn batches(&self) -> u64 {
        self.batches.ended()
    }

    /// Begins a batch. To be called under the commit lock, before the engine is given the batch.
    ///
    /// # Errors
    /// If a commit has panicked.
    pub(crate) fn begin(&self, db: &Database) -> fjall::Result<Writing<'_>> {
        let lock = self.writing.lock().map_err(|_| fjall::Error::Poisoned)?;
        Ok(Writing { _batch: self.batches.begin(db), _lock: lock })
    }

    /// The state after the last published batch, for a reader.
    pub(crate) fn get(&self, db: &Database) -> Result<Arc<Published>, Fault> {
        if self.unread.load(Ordering::Relaxed) != 0 {
            self.unread.store(0, Ordering::Relaxed);
        }
        loop {
            if let Some(snapshot) = self.open(db) {
                return Ok(snapshot);
            }
            // A batch is being written, or was a moment ago. Before a long one a snapshot is kept,
            // so this one is short. A reader that gets this lock meets no batch; unless a commit
            // has panicked and left a part.
            match self.writing.try_lock() {
                Ok(_nothing_is_written) => {
                    return Ok(self.open(db).ok_or(fjall::Error::Poisoned)?);
                }
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
                Err(TryLockError::Poisoned(_)) => return Err(fjall::Error::Poisoned.into()),
            }
        }
    }

    fn open(&self, db: &Database) -> Option<Arc<Published>> {
        if let Some(snapshot) = &*self.shared.read().expect(NO_PANIC) {
            return Some(snapshot.clone());
        }
        // A batch published meanwhile is in it, or takes it away again.
        let mut shared = self.shared.write().expect(NO_PANIC);
        if shared.is_none() {
            *shared = self.batches.open(db).map(Arc::new);
        }
        shared.clone()
    }

    /// Opens the snapshot before a batch, if there were reads recently or the batch is `long`: no
    /// reader shall have to wait for its end to see the state before it. To be called under the
    /// commit lock.
    pub(crate) fn keep(&self, db: &Database, long: bool) {
        if self.unread.fetch_add(1, Ordering::Relaxed) < UNREAD_MAX || long {
            self.open(db);
        }
    }

    /// Has readers take a new snapshot, once a batch is published.
    pub(crate) fn forget(&self) {
        if off(mutants::STALE_SNAPSHOT) {
            return;
        }
        let old = self.shared.write().expect(NO_PANIC).take();
        // Closing a snapshot may clean up after many others: not while readers wait for the lock.
        drop(old);
    }
}
