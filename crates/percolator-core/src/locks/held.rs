//! Keeps the advisory locks that this process holds in the store, or is requesting from it.
//!
//! A lock that was given up stays in the store for a moment. A worker that has handled one
//! column of a row has often made another column of that row dirty. The process then takes the
//! lock again without a request.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use bigtable::sync::locked;

use super::Holder;
use super::claim::Claim;
use crate::records::lock::Incarnation;

/// How long a lock stays in the store after it was given up.
pub(super) const LINGERS: Duration = Duration::from_millis(50);
/// How many renewals of one lock may stay without a reply, one after the other. After that the
/// lock is no longer renewed and runs out.
const UNANSWERED_MAX: usize = 8;

/// The advisory locks of a process, by name. Their number is bounded by the workers, each of
/// which holds one, and by the locks that were given up within the last moments.
#[derive(Debug, Default)]
pub(super) struct HeldLocks(Mutex<BTreeMap<Vec<u8>, Held>>);

#[derive(Debug)]
struct Held {
    holder: Holder,
    /// The last claim that the store has confirmed.
    claim: Claim,
    /// Later claims whose requests got no reply. The store may hold one of them instead of
    /// `claim`.
    unanswered: Vec<Claim>,
    since: Duration,
    lifetime: Duration,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A request to the store is in flight.
    Asked,
    /// A worker holds the lock.
    Used,
    /// No worker has held the lock since `at`.
    GivenUp { at: Duration },
}

/// The answer to a worker of this process that wants a lock.
pub(super) enum Asked<'a> {
    Answered(bool),
    /// The caller must ask the store.
    Unknown(Asking<'a>),
}

/// A request to the store for a lock. If it is dropped without an answer, this process does
/// not hold the lock.
pub(super) struct Asking<'a> {
    locks: &'a HeldLocks,
    name: &'a [u8],
    holder: Holder,
}

impl Held {
    /// All claims that the store may hold for this lock.
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

    /// Takes a lock that this process gave up a moment ago, and refuses a lock that this
    /// process uses. In all other cases, records that the store is being asked.
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
                    // Other processes have watched this claim since it was written. An older
                    // claim must be replaced in the store.
                    if age < lock.lifetime / 4 {
                        (lock.stage, lock.holder) = (Stage::Used, holder);
                        return Asked::Answered(true);
                    }
                }
                // The lock has run out for other processes, too.
                _ if age >= lock.lifetime => {}
                _ => return Asked::Answered(false),
            }
        }
        let unanswered = Vec::new();
        let lock = Held { holder, claim, unanswered, since: now, lifetime, stage: Stage::Asked };
        locks.insert(name.to_vec(), lock);
        Asked::Unknown(Asking { locks: self, name, holder })
    }

    /// Records that `new` is about to be written over a lock that `holder` uses. Returns the
    /// claims that the store may hold for the lock; none if the lock must not be renewed.
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

    /// Records that the store holds the claim. Other processes have watched it since `since`
    /// at the earliest.
    pub(super) fn renewed(&self, name: &[u8], holder: Holder, claim: Claim, since: Duration) {
        if let Some(lock) = self.locks().get_mut(name)
            && lock.holder == holder
        {
            (lock.claim, lock.since) = (claim, since);
            lock.unanswered.clear();
        }
    }

    /// Removes a lock that another process has taken.
    pub(super) fn lose(&self, name: &[u8], holder: Holder) {
        let mut locks = self.locks();
        let uses = |lock: &Held| lock.holder == holder && lock.stage == Stage::Used;
        if locks.get(name).is_some_and(uses) {
            locks.remove(name);
        }
    }

    /// Gives a lock up if `holder` uses it. Returns whether it did.
    pub(super) fn give_up(&self, name: &[u8], holder: Holder, now: Duration) -> bool {
        let mut locks = self.locks();
        let uses = |lock: &&mut Held| lock.holder == holder && lock.stage == Stage::Used;
        let lock = locks.get_mut(name).filter(uses);
        lock.map(|lock| lock.stage = Stage::GivenUp { at: now }).is_some()
    }

    /// Removes a lock that `holder` gave up at that moment, if no worker has used it since.
    /// Returns the claims that the store may hold for it. The moment is compared for equality,
    /// and no clock is read: a clock that runs slower than the timer would keep the lock here
    /// forever.
    pub(super) fn forget(&self, name: &[u8], holder: Holder, given_up: Duration) -> Vec<Claim> {
        let mut locks = self.locks();
        let stage = Stage::GivenUp { at: given_up };
        match locks.get(name) {
            Some(lock) if lock.holder == holder && lock.stage == stage => {}
            _ => return Vec::new(),
        }
        locks.remove(name).map_or_else(Vec::new, |lock| lock.claims())
    }

    /// Removes all locks of an owner, and returns their names and claims.
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
    /// Records that the store has granted the lock.
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
