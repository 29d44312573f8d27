//! Finds owners that may be dead, by watching their locks on this client's own monotonic
//! clock.
//!
//! A lock's wall time is never compared with this machine's wall clock. An owner becomes
//! suspect once this client has seen the *same* lock, wall time included, for longer than the
//! lock's lifetime. So a clock that is an hour off neither makes live owners suspect nor keeps
//! the locks of dead ones (H18).

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use bigtable::Timestamp;
use bigtable::sync::locked;

use crate::options::believed_lifetime;

/// How many locks a client watches. If there are more, it forgets the locks that it has not
/// found for a while. Their transactions have ended, or no operation waits for them.
const WATCHED_MAX: usize = 16 * 1024;
/// A lock that was not found for this long is forgotten first.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct Suspects {
    watched: Mutex<BTreeMap<(Timestamp, bool), Watched>>,
}

#[derive(Debug)]
struct Watched {
    wall_ms: u64,
    since: Duration,
    met: Duration,
}

impl Suspects {
    /// Whether the lock of `start_ts` has by now stayed unchanged for longer than its
    /// lifetime. `primary` says which lock is watched: the primary and a secondary have
    /// separate watches.
    pub(crate) fn expired(
        &self,
        start_ts: Timestamp,
        primary: bool,
        lock: &crate::records::lock::Lock,
        now: Duration,
    ) -> bool {
        let mut watched = locked(&self.watched);
        if watched.len() >= WATCHED_MAX && !watched.contains_key(&(start_ts, primary)) {
            make_room(&mut watched, now);
        }
        let fresh = || Watched { wall_ms: lock.wall_ms, since: now, met: now };
        let entry = watched.entry((start_ts, primary)).or_insert_with(fresh);
        if entry.wall_ms != lock.wall_ms {
            *entry = fresh();
        }
        entry.met = now;
        now.saturating_sub(entry.since) > believed_lifetime(lock.lifetime_ms)
    }

    /// Forgets a transaction that is decided.
    pub(crate) fn forget(&self, start_ts: Timestamp) {
        let mut watched = locked(&self.watched);
        watched.remove(&(start_ts, true));
        watched.remove(&(start_ts, false));
    }
}

/// Forgets the locks that were not found for a while. If all were found lately, forgets the
/// youngest watch, so that the older ones can still expire.
fn make_room(watched: &mut BTreeMap<(Timestamp, bool), Watched>, now: Duration) {
    watched.retain(|_, lock| now.saturating_sub(lock.met) <= FORGOTTEN_AFTER);
    if watched.len() >= WATCHED_MAX {
        let youngest = watched.iter().max_by_key(|(_, lock)| lock.since).map(|(key, _)| *key);
        youngest.map(|key| watched.remove(&key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Incarnation;
    use crate::records::lock::{Intent, Kind, Lock};

    fn lock() -> Lock {
        Lock {
            primary: None,
            owner: Incarnation(1),
            wall_ms: 7,
            lifetime_ms: 1000,
            intent: Intent { kind: Kind::Put, notify: false, short_value: None },
        }
    }

    /// Transactions that ended by themselves must not crowd out those that never end (H03).
    #[test]
    fn watches_of_the_past_do_not_keep_new_ones_from_expiring() {
        let (suspects, lock) = (Suspects::default(), lock());
        let ts = |n: usize| Timestamp::new(n as u64).expect("below 2^53");
        for n in 0..WATCHED_MAX {
            assert!(!suspects.expired(ts(n), true, &lock, Duration::ZERO));
        }
        let (a, b) = (ts(WATCHED_MAX), ts(WATCHED_MAX + 1));
        for second in 40..42 {
            let now = Duration::from_secs(second);
            assert!(!suspects.expired(a, true, &lock, now));
            assert!(!suspects.expired(b, true, &lock, now));
        }
        let now = Duration::from_millis(41_001);
        assert!(suspects.expired(a, true, &lock, now) && suspects.expired(b, true, &lock, now));
    }
}
