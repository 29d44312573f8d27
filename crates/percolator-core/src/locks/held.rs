//! The advisory locks that a process has in the store, or asks the store for.
//!
//! A lock that was given up stays in the store for a moment. A worker that has handled one column
//! of a row has often made another one dirty: then its process has the lock again without a
//! request.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use bigtable::sync::locked;

use super::Holder;
use super::claim::Claim;
use crate::records::lock::Incarnation;

/// How long a lock stays in the store after it was given up.
pub(super) const LINGERS: Duration = Duration::from_millis(50);
/// Most renewals of one lock in a row that may stay without a reply. Beyond, the lock is left to
/// run out.
const UNANSWERED_MAX: usize = 8;

/// The advisory locks of a process, by name. Bounded by the number of workers, each of which holds
/// one, and by how many were given up just now.
#[derive(Debug, Default)]
pub(super) struct HeldLocks(Mutex<BTreeMap<Vec<u8>, Held>>);

#[derive(Debug)]
struct Held {
    holder: Holder,
    /// The claim that was in the store for certain.
    claim: Claim,
    /// Later ones, whose requests got no reply: one of them may be there instead.
    unanswered: Vec<Claim>,
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
    holder: Holder,
}

impl Held {
    /// What the store may hold of the lock.
    fn claims(&self) -> Vec<Claim> {
        let mut claims = vec![self.claim];
        claims.extend(&self.unanswered);
        claims
    }
}

impl HeldLocks {
    fn locks(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, Held>> {
        locked(&self.0)
    }

    /// Takes a lock that was given up here a moment ago, refuses one that is used here, and
    /// otherwise notes that the store is being asked.
    pub(super) fn ask<'a>(
        &'a self,
        name: &'a [u8],
        holder: Holder,
        claim: Claim,
        lifetime: Duration,
        now: Duration,
    ) -> Asked<'a> {
        let mut locks = self.locks();
        if let Some(lock) = locks.get_mut(name) {
            let age = now.saturating_sub(lock.since);
            match lock.stage {
                Stage::GivenUp { .. } if lock.claim.owner == claim.owner => {
                    // Others have seen its claim for so long. An older one is replaced in the
                    // store.
                    if age < lock.lifetime / 4 {
                        (lock.stage, lock.holder) = (Stage::Used, holder);
                        return Asked::Answered(true);
                    }
                }
                // It has run out for others, too.
                _ if age >= lock.lifetime => {}
                _ => return Asked::Answered(false),
            }
        }
        let unanswered = Vec::new();
        let lock = Held { holder, claim, unanswered, since: now, lifetime, stage: Stage::Asked };
        locks.insert(name.to_vec(), lock);
        Asked::Unknown(Asking { locks: self, name, holder })
    }

    /// Notes that `new` is about to be written over a lock that `holder` uses. Returns what the
    /// store may hold of the lock; nothing if the lock is not to be renewed.
    pub(super) fn begin_renewal(&self, name: &[u8], holder: Holder, new: Claim) -> Vec<Claim> {
        let mut locks = self.locks();
        let uses = |lock: &&mut Held| lock.holder == holder && lock.stage == Stage::Used;
        let Some(lock) = locks.get_mut(name).filter(uses) else { return Vec::new() };
        if lock.unanswered.len() >= UNANSWERED_MAX {
            return Vec::new();
        }
        let claims = lock.claims();
        lock.unanswered.push(new);
        claims
    }

    /// The store has the claim, as others have seen it since `since` at the earliest.
    pub(super) fn renewed(&self, name: &[u8], holder: Holder, claim: Claim, since: Duration) {
        if let Some(lock) = self.locks().get_mut(name)
            && lock.holder == holder
        {
            (lock.claim, lock.since) = (claim, since);
            lock.unanswered.clear();
        }
    }

    /// The lock is another's.
    pub(super) fn lose(&self, name: &[u8], holder: Holder) {
        let mut locks = self.locks();
        let uses = |lock: &Held| lock.holder == holder && lock.stage == Stage::Used;
        if locks.get(name).is_some_and(uses) {
            locks.remove(name);
        }
    }

    /// Gives a lock up, if `holder` uses it; returns whether it does.
    pub(super) fn give_up(&self, name: &[u8], holder: Holder, now: Duration) -> bool {
        let mut locks = self.locks();
        let uses = |lock: &&mut Held| lock.holder == holder && lock.stage == Stage::Used;
        let lock = locks.get_mut(name).filter(uses);
        lock.map(|lock| lock.stage = Stage::GivenUp { at: now }).is_some()
    }

    /// Forgets a lock that `holder` gave up at that moment, and that was not used again since;
    /// returns what the store may hold of it. No clock says so: one that runs slower than the timer
    /// would leave the lock here for ever.
    pub(super) fn forget(&self, name: &[u8], holder: Holder, given_up: Duration) -> Vec<Claim> {
        let mut locks = self.locks();
        let stage = Stage::GivenUp { at: given_up };
        match locks.get(name) {
            Some(lock) if lock.holder == holder && lock.stage == stage => {}
            _ => return Vec::new(),
        }
        locks.remove(name).map_or_else(Vec::new, |lock| lock.claims())
    }

    /// Forgets all locks of an owner, and returns their names and claims.
    pub(super) fn forget_all_of(&self, owner: Incarnation) -> Vec<(Vec<u8>, Claim)> {
        let mut forgotten = Vec::new();
        self.locks().retain(|name, lock| {
            let other = lock.claim.owner != owner;
            if !other {
                forgotten.extend(lock.claims().into_iter().map(|claim| (name.clone(), claim)));
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
            && lock.holder == self.holder
        {
            lock.stage = Stage::Used;
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut locks = self.locks.locks();
        let is_it = |lock: &Held| lock.holder == self.holder && lock.stage == Stage::Asked;
        if locks.get(self.name).is_some_and(is_it) {
            locks.remove(self.name);
        }
    }
}
