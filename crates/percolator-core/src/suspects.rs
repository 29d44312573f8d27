//! Who may be dead: locks watched on this client's own monotonic clock.
//!
//! A lock's wall time is never compared with this machine's wall clock. An owner becomes suspect when
//! the *same* lock, wall time included, has been seen for longer than its lifetime on the observer's
//! monotonic clock; so a clock that is an hour off neither kills the living nor keeps the dead (H18).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bigtable::Timestamp;

/// How many locks a client watches; the one watched for the shortest time is forgotten first.
const WATCHED_MAX: usize = 16 * 1024;
/// No lifetime is believed beyond this, whatever the lock says.
const LIFETIME_MAX: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(crate) struct Suspects {
    watched: Mutex<BTreeMap<(Timestamp, bool), Watched>>,
}

#[derive(Debug)]
struct Watched {
    wall_ms: u64,
    since: Duration,
}

impl Suspects {
    /// Whether the lock of `start_ts` has now stayed unchanged for longer than its lifetime.
    /// `primary` keeps the watch on the primary lock apart from that on a secondary one.
    pub(crate) fn expired(
        &self,
        start_ts: Timestamp,
        primary: bool,
        lock: &crate::lock::Lock,
        now: Duration,
    ) -> bool {
        let lifetime = Duration::from_millis(u64::from(lock.lifetime_ms)).min(LIFETIME_MAX);
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.len() >= WATCHED_MAX && !watched.contains_key(&(start_ts, primary)) {
            let youngest = watched.iter().max_by_key(|(_, w)| w.since).map(|(key, _)| *key);
            youngest.map(|key| watched.remove(&key));
        }
        let fresh = || Watched { wall_ms: lock.wall_ms, since: now };
        let entry = watched.entry((start_ts, primary)).or_insert_with(fresh);
        if entry.wall_ms != lock.wall_ms {
            *entry = fresh();
        }
        now.saturating_sub(entry.since) > lifetime
    }

    /// Forgets a transaction that is decided.
    pub(crate) fn forget(&self, start_ts: Timestamp) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.remove(&(start_ts, true));
        watched.remove(&(start_ts, false));
    }
}
