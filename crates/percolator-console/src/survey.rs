//! Looks through the store for facts that no counter holds: backlog, locks, garbage.
//!
//! A look costs more the more there is to see. So a request is answered at once, from the last
//! look. If that look is older than [`FRESH`], the request starts a new one in the background.
//! Without requests there are no looks. No look takes a timestamp, because a new timestamp would
//! keep `wait` from ending.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use percolator::Percolator;
use percolator::admin::{GcStatus, LockView};
use percolator::observe::{Backlog, SetAside};
use percolator::store::sync::locked;

/// How old a look may be before a new one begins. A look that took long is used for ten times
/// that long, so that looks never take more than a tenth of a core.
const FRESH: Duration = Duration::from_secs(1);
/// How long a look may take.
const LOOK_MAX: Duration = Duration::from_secs(60);
/// The most locks that a look keeps.
const LOCKS_MAX: usize = 1_000;
/// About how many notifications of a table a look counts.
const NOTIFICATIONS_MAX: usize = 50_000;

/// The last look, and whether another one is in progress.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    last: Option<Arc<Look>>,
    looking: bool,
}

/// A look that has ended.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) begun: Instant,
    pub(crate) took: Duration,
    pub(crate) found: Result<Found, String>,
}

/// The findings of a look.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) backlog: Vec<Backlog>,
    pub(crate) set_aside: Vec<SetAside>,
    /// At most [`LOCKS_MAX`], the oldest first.
    pub(crate) locks: Vec<LockView>,
    pub(crate) gc: GcStatus,
}

impl Survey {
    /// Returns the last look, and begins another one if that is due.
    pub(crate) fn last(
        self: &Arc<Self>,
        db: &Percolator,
        retention: Duration,
    ) -> Option<Arc<Look>> {
        let (last, due) = {
            let mut inner = locked(&self.inner);
            let last = inner.last.clone();
            let fresh = |look: &Arc<Look>| {
                // After a failure the next look comes soon.
                let factor = if look.found.is_ok() { 10 } else { 0 };
                look.begun.elapsed() < look.took + FRESH.max(look.took.saturating_mul(factor))
            };
            let due = !inner.looking && !last.as_ref().is_some_and(fresh);
            inner.looking |= due;
            (last, due)
        };
        if due {
            let (survey, db) = (self.clone(), db.clone());
            tokio::spawn(async move {
                let begun = Instant::now();
                let found = match tokio::time::timeout(LOOK_MAX, look(&db, retention)).await {
                    Ok(found) => found.map_err(|error| error.to_string()),
                    Err(_) => {
                        Err(format!("reading the store took longer than {} s", LOOK_MAX.as_secs()))
                    }
                };
                let look = Look { begun, took: begun.elapsed(), found };
                let mut inner = locked(&survey.inner);
                inner.last = Some(Arc::new(look));
                inner.looking = false;
            });
        }
        last
    }
}

async fn look(db: &Percolator, retention: Duration) -> percolator::Result<Found> {
    Ok(Found {
        backlog: db.backlog_within(NOTIFICATIONS_MAX).await?,
        set_aside: db.set_aside().await?,
        locks: db.held_locks(LOCKS_MAX).await?,
        gc: db.gc_status(retention).await?,
    })
}
