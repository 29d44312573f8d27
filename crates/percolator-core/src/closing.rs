//! The workers and collectors of a client: all of them end before the client is closed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use bigtable::sync::locked;

use crate::gc::slot::{self, Slot};
use crate::observe::crew::Crew;
use crate::{Error, Result};

/// The workers and collectors of a client.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    /// Nothing begins any more.
    closed: AtomicBool,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// Workers and collectors are not started any more.
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

    /// From now on everything that begins fails.
    pub(crate) fn set_closed(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Lets no workers and collectors start any more. Returns the workers that are there.
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

    /// Notes workers that are about to start.
    pub(crate) fn add_crew(&self, crew: &Arc<Crew>) -> Result<()> {
        let mut open = self.open();
        if open.closing {
            return Err(Error::Closed);
        }
        open.crews.retain(|crew| crew.strong_count() > 0);
        open.crews.push(Arc::downgrade(crew));
        Ok(())
    }

    /// Notes a collector; one of a client that is being closed ends at once.
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
