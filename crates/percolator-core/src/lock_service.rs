//! The lock service: liveness tokens and advisory row locks (paper sections 2.2 and 2.4).
//!
//! Safety never depends on it. A token that is gone makes its owner *suspect*, and the row
//! transaction on the primary lock decides; two holders of one advisory lock only waste work.

mod claim;
mod held;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::lock::Incarnation;
use crate::{Result, Runtime};

pub use table::TableLocks;

/// Who is alive, and who works on which row.
///
/// [`ProcessLocks`] is the one for a single process, [`TableLocks`] the one for several.
#[async_trait]
pub trait LockService: Send + Sync + Debug {
    /// Declares a client alive. Its token vanishes when its process dies.
    ///
    /// # Errors
    /// When the service cannot be reached.
    async fn register(&self, owner: Incarnation) -> Result<()>;

    /// Gives up a client's token, and the advisory locks it holds.
    fn unregister(&self, owner: Incarnation);

    /// Whether a client's token is there. An answer may be out of date by the time it arrives.
    ///
    /// # Errors
    /// When the service cannot be reached.
    async fn is_alive(&self, owner: Incarnation) -> Result<bool>;

    /// Tries to take the advisory lock `name` for at most `lifetime`. Whoever holds it already is
    /// refused like any other: the workers of one client exclude one another too.
    ///
    /// # Errors
    /// When the service cannot be reached.
    async fn try_lock(&self, name: &[u8], owner: Incarnation, lifetime: Duration) -> Result<bool>;

    /// Gives up an advisory lock, if `owner` still holds it.
    fn unlock(&self, name: &[u8], owner: Incarnation);
}

/// The lock service of a single process: maps in memory. What dies with the process is gone, so
/// after a restart every older client is known to be dead.
///
/// ```
/// # percolator_core::doc_test(|client| async move {
/// use percolator_core::{Incarnation, LockService, ProcessLocks};
/// let locks = ProcessLocks::new(client.runtime().clone());
/// let (a, b) = (Incarnation(1), Incarnation(2));
/// locks.register(a).await?;
/// assert!(locks.is_alive(a).await? && !locks.is_alive(b).await?);
/// let minute = std::time::Duration::from_secs(60);
/// assert!(locks.try_lock(b"row", a, minute).await?);
/// assert!(!locks.try_lock(b"row", b, minute).await?);
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
    /// Holder and expiry of each advisory lock. Bounded by the number of workers: each holds one.
    locks: BTreeMap<Vec<u8>, (Incarnation, Duration)>,
}

impl ProcessLocks {
    /// An empty lock service.
    pub fn new(runtime: Arc<dyn Runtime>) -> Self {
        ProcessLocks { runtime, state: Mutex::default() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        state.locks.retain(|_, (holder, _)| *holder != owner);
    }

    async fn is_alive(&self, owner: Incarnation) -> Result<bool> {
        Ok(self.state().tokens.contains(&owner))
    }

    async fn try_lock(&self, name: &[u8], owner: Incarnation, lifetime: Duration) -> Result<bool> {
        let now = self.runtime.now();
        let mut state = self.state();
        match state.locks.get(name) {
            Some((_, expiry)) if *expiry > now => Ok(false),
            _ => {
                state.locks.insert(name.to_vec(), (owner, now + lifetime));
                Ok(true)
            }
        }
    }

    fn unlock(&self, name: &[u8], owner: Incarnation) {
        let mut state = self.state();
        if state.locks.get(name).is_some_and(|(holder, _)| *holder == owner) {
            state.locks.remove(name);
        }
    }
}
