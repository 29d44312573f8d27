//! Keeps track of the workers and collectors of a client, so that closing the client can end
//! all of them.
//!
//! Once closing has begun, none of them starts any more. So [`close`](crate::close::close)
//! misses none.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use bigtable::sync::locked;

use crate::gc::slot::{self, Slot};
use crate::observe::crew::Crew;
use crate::{Error, Result};

/// The workers and collectors of a client.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    /// Whether the client is closed: every new operation fails.
    closed: AtomicBool,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// Whether closing has begun: workers and collectors no longer start.
    closing: bool,
    crews: Vec<Weak<Crew>>,
    collectors: Vec<Weak<Slot>>,
}

impl Closing {
    fn open(&self) -> MutexGuard<'_, Open> {
        locked(&self.open)
    }

    /// Whether the client was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Makes everything that begins from now on fail.
    pub(crate) fn set_closed(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Prevents workers and collectors from starting. Returns the workers that are running.
    pub(crate) fn begin(&self) -> Vec<Arc<Crew>> {
        let mut open = self.open();
        open.closing = true;
        open.crews.iter().filter_map(Weak::upgrade).collect()
    }

    /// Ends the collectors where they are.
    pub(crate) fn end_collectors(&self) {
        let collectors = std::mem::take(&mut self.open().collectors);
        collectors.iter().filter_map(Weak::upgrade).for_each(|slot| slot::end(&slot));
    }

    /// Records workers that are about to start.
    pub(crate) fn add_crew(&self, crew: &Arc<Crew>) -> Result<()> {
        let mut open = self.open();
        if open.closing {
            return Err(Error::Closed);
        }
        open.crews.retain(|crew| crew.strong_count() > 0);
        open.crews.push(Arc::downgrade(crew));
        Ok(())
    }

    /// Records a collector. If the client is being closed, the collector ends at once.
    pub(crate) fn add_collector(&self, collector: &Arc<Slot>) {
        let mut open = self.open();
        if open.closing {
            drop(open);
            return slot::end(collector);
        }
        open.collectors.retain(|collector| collector.strong_count() > 0);
        open.collectors.push(Arc::downgrade(collector));
    }
}
