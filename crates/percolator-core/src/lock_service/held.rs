//! The advisory locks that a process has in the store, or asks the store for.
//!
//! A lock that was given up stays in the store for a moment. A worker that has handled one column of a row has often
//! made another one dirty: then its process has the lock again without a request.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::claim::Claim;
use crate::lock::Incarnation;

/// How long a lock stays in the store after it was given up.
pub(super) const LINGERS: Duration = Duration::from_millis(50);

/// The advisory locks of a process, by name. Bounded by the number of workers, each of which holds one, and by how
/// many were given up just now.
#[derive(Debug, Default)]
pub(super) struct HeldLocks(Mutex<BTreeMap<Vec<u8>, Held>>);

#[derive(Debug, Clone, Copy)]
struct Held {
    claim: Claim,
    since: Duration,
    lifetime: Duration,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The store is being asked.
    Asked,
    /// Somebody works under it.
    Used,
    /// Nobody has worked under it since then.
    GivenUp { at: Duration },
}

/// The answer to a worker of this process that wants a lock.
pub(super) enum Asked<'a> {
    Answered(bool),
    /// The store has to be asked.
    Unknown(Asking<'a>),
}

/// A question to the store. If it is dropped without an answer, the lock is not had.
pub(super) struct Asking<'a> {
    locks: &'a HeldLocks,
    name: &'a [u8],
    claim: Claim,
}

impl HeldLocks {
    fn locks(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a lock that was given up here a moment ago, refuses one that is used here, and otherwise notes that the
    /// store is being asked.
    pub(super) fn ask<'a>(
        &'a self,
        name: &'a [u8],
        claim: Claim,
        lifetime: Duration,
        now: Duration,
    ) -> Asked<'a> {
        let mut locks = self.locks();
        if let Some(lock) = locks.get_mut(name) {
            let age = now.saturating_sub(lock.since);
            match lock.stage {
                Stage::GivenUp { .. } if lock.claim.owner == claim.owner => {
                    // Others have seen its claim for so long. An older one is replaced in the store.
                    if age < lock.lifetime / 4 {
                        lock.stage = Stage::Used;
                        return Asked::Answered(true);
                    }
                }
                // It has run out for others, too.
                _ if age >= lock.lifetime => {}
                _ => return Asked::Answered(false),
            }
        }
        let lock = Held { claim, since: now, lifetime, stage: Stage::Asked };
        locks.insert(name.to_vec(), lock);
        Asked::Unknown(Asking { locks: self, name, claim })
    }

    /// Gives a lock up, if `owner` uses it. Returns its claim.
    pub(super) fn give_up(&self, name: &[u8], owner: Incarnation, now: Duration) -> Option<Claim> {
        let mut locks = self.locks();
        let lock = locks.get_mut(name)?;
        let uses = lock.claim.owner == owner && lock.stage == Stage::Used;
        uses.then(|| {
            lock.stage = Stage::GivenUp { at: now };
            lock.claim
        })
    }

    /// Forgets a lock that was given up at that moment, and was not used again since; returns whether it has. No clock
    /// says so: one that runs slower than the timer would leave the lock here for ever.
    pub(super) fn forget(&self, name: &[u8], claim: Claim, given_up: Duration) -> bool {
        let mut locks = self.locks();
        let stage = Stage::GivenUp { at: given_up };
        let forgets =
            locks.get(name).is_some_and(|lock| lock.claim == claim && lock.stage == stage);
        if forgets {
            locks.remove(name);
        }
        forgets
    }

    /// Forgets all locks of an owner, and returns their names and claims.
    pub(super) fn forget_all_of(&self, owner: Incarnation) -> Vec<(Vec<u8>, Claim)> {
        let mut forgotten = Vec::new();
        self.locks().retain(|name, lock| {
            let other = lock.claim.owner != owner;
            if !other {
                forgotten.push((name.clone(), lock.claim));
            }
            other
        });
        forgotten
    }
}

impl Asking<'_> {
    /// The store has given the lock.
    pub(super) fn has_it(self) {
        if let Some(lock) = self.locks.locks().get_mut(self.name)
            && lock.claim == self.claim
        {
            lock.stage = Stage::Used;
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut locks = self.locks.locks();
        let is_it = |lock: &Held| lock.claim == self.claim && lock.stage == Stage::Asked;
        if locks.get(self.name).is_some_and(is_it) {
            locks.remove(self.name);
        }
    }
}
