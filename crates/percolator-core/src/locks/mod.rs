//! Defines the lock service: liveness tokens and advisory row locks (paper sections 2.2 and
//! 2.4).
//!
//! Safety never depends on it. A missing token only makes its owner *suspect*; the row
//! transaction on the primary lock decides. Two holders of one advisory lock only do work
//! twice.

mod claim;
mod held;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bigtable::sync::locked;

use crate::mutants::{self, off};
use crate::records::lock::Incarnation;
use crate::{Result, Runtime};

pub use table::TableLocks;

/// Records which clients are alive, and which client works on which row.
///
/// [`ProcessLocks`] is the one for a single process, [`TableLocks`] the one for several.
#[async_trait]
pub trait LockService: Send + Sync + Debug {
    /// Declares a client alive. Its token vanishes when its process dies.
    ///
    /// # Errors
    /// Fails if the service cannot be reached.
    async fn register(&self, owner: Incarnation) -> Result<()>;

    /// Gives up a client's token, and the advisory locks that the client holds.
    fn unregister(&self, owner: Incarnation);

    /// Whether a client's token exists. An answer may be out of date by the time it arrives.
    ///
    /// # Errors
    /// Fails if the service cannot be reached.
    async fn is_alive(&self, owner: Incarnation) -> Result<bool>;

    /// Tries to take the advisory lock `name` for at most `lifetime`. The present holder is
    /// refused like any other caller, because the workers of one client exclude one another
    /// too.
    ///
    /// # Errors
    /// Fails if the service cannot be reached.
    async fn try_lock(&self, name: &[u8], holder: Holder, lifetime: Duration) -> Result<bool>;

    /// Extends the advisory lock `name` by another `lifetime` if `holder` still holds it.
    /// Returns whether it does. A lock that another holder has taken over stays as it is.
    ///
    /// # Errors
    /// Fails if the service cannot be reached. The lock may have been renewed then.
    async fn renew(&self, name: &[u8], holder: Holder, lifetime: Duration) -> Result<bool>;

    /// Gives up an advisory lock if `holder` still holds it.
    fn unlock(&self, name: &[u8], holder: Holder);
}

/// The holder of an advisory lock: one piece of work of one client. A worker whose lock ran
/// out can neither renew nor give up the lock that another worker of the same client has taken
/// since.
///
/// See [`ProcessLocks`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder {
    /// The client.
    pub owner: Incarnation,
    /// The number of the piece of work. A client uses each number once.
    pub work: u64,
}

/// The lock service of a single process, in memory. Tokens and locks vanish with the process,
/// so after a restart all older clients count as dead.
///
/// ```
/// # use percolator_core::face as percolator;
/// # percolator_core::doc_test(|client| async move {
/// use percolator::admin::Incarnation;
/// use percolator::cluster::{Holder, LockService, ProcessLocks};
/// let locks = ProcessLocks::new(client.runtime().clone());
/// let (a, b) = (Incarnation(1), Incarnation(2));
/// locks.register(a).await?;
/// assert!(locks.is_alive(a).await? && !locks.is_alive(b).await?);
/// let minute = std::time::Duration::from_secs(60);
/// let (a, b) = (Holder { owner: a, work: 1 }, Holder { owner: b, work: 1 });
/// assert!(locks.try_lock(b"row", a, minute).await?);
/// assert!(!locks.try_lock(b"row", b, minute).await?);
/// assert!(locks.renew(b"row", a, minute).await?);
/// # Ok(()) });
/// ```
#[derive(Debug)]
pub struct ProcessLocks {
    runtime: Arc<dyn Runtime>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    tokens: BTreeSet<Incarnation>,
    /// Holder and expiry of each advisory lock. Bounded by the number of workers, because each
    /// holds one.
    locks: BTreeMap<Vec<u8>, (Holder, Duration)>,
}

impl ProcessLocks {
    /// An empty lock service.
    pub fn new(runtime: Arc<dyn Runtime>) -> Self {
        ProcessLocks { runtime, state: Mutex::default() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        locked(&self.state)
    }
}

#[async_trait]
impl LockService for ProcessLocks {
    async fn register(&self, owner: Incarnation) -> Result<()> {
        self.state().tokens.insert(owner);
        Ok(())
    }

    fn unregister(&self, owner: Incarnation) {
        let mut state = self.state();
        state.tokens.remove(&owner);
        state.locks.retain(|_, (holder, _)| holder.owner != owner);
    }

    async fn is_alive(&self, owner: Incarnation) -> Result<bool> {
        Ok(self.state().tokens.contains(&owner))
    }

    async fn try_lock(&self, name: &[u8], holder: Holder, lifetime: Duration) -> Result<bool> {
        let now = self.runtime.now();
        let mut state = self.state();
        match state.locks.get(name) {
            Some((_, expiry)) if *expiry > now => Ok(false),
            _ => {
                state.locks.insert(name.to_vec(), (holder, now + lifetime));
                Ok(true)
            }
        }
    }

    async fn renew(&self, name: &[u8], holder: Holder, lifetime: Duration) -> Result<bool> {
        let until = self.runtime.now() + lifetime;
        let mut state = self.state();
        let lock = state.locks.get_mut(name);
        let own = lock.filter(|(now, _)| *now == holder || off(mutants::RENEWS_WHAT_IS_TAKEN));
        Ok(own.map(|lock| *lock = (holder, until)).is_some())
    }

    fn unlock(&self, name: &[u8], holder: Holder) {
        let mut state = self.state();
        if state.locks.get(name).is_some_and(|(now, _)| *now == holder) {
            state.locks.remove(name);
        }
    }
}
