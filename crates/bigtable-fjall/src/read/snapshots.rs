//! Keeps the snapshot that all readers share until the next batch.
//!
//! Sharing costs one atomic counter; opening a snapshot takes several locks of the engine. The
//! first reader that finds too little in memory (`cached.rs`) opens the snapshot. While a batch is
//! being written, a reader may have to wait for its end. So the committer opens the snapshot before
//! a batch that may take long.

use std::sync::{Arc, Mutex, MutexGuard, RwLock, TryLockError};

use fjall::Database;

use crate::failure::fault::Fault;
use crate::mutants::{self, off};
use crate::read::published::{Batches, OpenBatch, Published};

/// The reason why these locks are never poisoned.
const NO_PANIC: &str = "nothing panics while it holds this lock";

/// The state of an engine that readers see, batch after batch.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    /// The state after the last batch, if it was opened.
    shared: RwLock<Option<Arc<Published>>>,
    batches: Batches,
    /// Held while a batch is given to the engine.
    writing: Mutex<()>,
}

/// A batch that is being written. The lock is released after the batch has ended.
pub(crate) struct Writing<'a> {
    _batch: OpenBatch<'a>,
    _lock: MutexGuard<'a, ()>,
}

impl Snapshots {
    /// The number of ended batches.
    pub(crate) fn batches(&self) -> u64 {
        self.batches.ended()
    }

    /// Begins a batch. The caller holds the commit lock and has not given the batch to the
    /// engine yet.
    ///
    /// # Errors
    /// `Poisoned` if a commit has panicked.
    pub(crate) fn begin(&self, db: &Database) -> fjall::Result<Writing<'_>> {
        let lock = self.writing.lock().map_err(|_| fjall::Error::Poisoned)?;
        Ok(Writing { _batch: self.batches.begin(db), _lock: lock })
    }

    /// Whether the snapshot is open.
    #[cfg(test)]
    pub(crate) fn is_open(&self) -> bool {
        self.shared.read().expect(NO_PANIC).is_some()
    }

    /// The state after the last published batch, for a reader.
    pub(crate) fn get(&self, db: &Database) -> Result<Arc<Published>, Fault> {
        loop {
            if let Some(snapshot) = self.open(db) {
                return Ok(snapshot);
            }
            // A batch is being written, or was a moment ago. This batch is short, because
            // `keep` opens a snapshot before each long one. A reader that gets this lock finds
            // no batch in progress, unless a commit panicked and left a part of one.
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
        // A batch that is published from here on is in the snapshot, or `forget` drops the
        // snapshot.
        let mut shared = self.shared.write().expect(NO_PANIC);
        if shared.is_none() {
            *shared = self.batches.open(db).map(Arc::new);
        }
        shared.clone()
    }

    /// Opens the snapshot before a batch that may take long, so that no reader waits for its end.
    /// The caller holds the commit lock.
    pub(crate) fn keep(&self, db: &Database) {
        self.open(db);
    }

    /// Drops the shared snapshot after a batch is published, so that readers take a new one.
    pub(crate) fn forget(&self) {
        if off(mutants::STALE_SNAPSHOT) {
            return;
        }
        let old = self.shared.write().expect(NO_PANIC).take();
        // Drop it without the lock: closing a snapshot may clean up after many others.
        drop(old);
    }
}
