//! Tracks the running backups. Before the engine is closed, they are ended, and their end is
//! awaited.
//!
//! A backup holds files that the engine has already dropped. They must be removed before
//! another engine is opened, because that engine may give their names to other files.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use bigtable::sync::locked;

/// The backups of a store that run at the moment.
#[derive(Debug, Default)]
pub(crate) struct Backups {
    count: Mutex<usize>,
    ended: Condvar,
    stopping: AtomicBool,
}

impl Backups {
    /// Notes that a backup has begun.
    pub(super) fn enter(self: &Arc<Self>) -> Entered {
        *locked(&self.count) += 1;
        Entered(self.clone())
    }

    /// Ends all backups, and waits for their end. Call this when no backup can begin.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        let mut count = locked(&self.count);
        while *count > 0 {
            count = self.ended.wait(count).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        self.stopping.store(false, Ordering::SeqCst);
    }
}

/// Counts a backup as running until this is dropped.
#[derive(Debug)]
pub(super) struct Entered(Arc<Backups>);

impl Entered {
    /// Whether the backup is to end.
    pub(super) fn is_stopping(&self) -> bool {
        self.0.stopping.load(Ordering::SeqCst)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        *locked(&self.0.count) -= 1;
        self.0.ended.notify_all();
    }
}
