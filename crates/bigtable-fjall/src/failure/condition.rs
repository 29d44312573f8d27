//! Tracks whether the store takes writes, and wakes the callers that wait for a change.
//!
//! Requests discover a change: the first request that is refused, or the first that is
//! admitted again. While writes are refused there may be no requests. So a caller that wants
//! to know when writes resume must make the store look at the disk.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use bigtable::sync::locked;
use futures::channel::oneshot;

/// Whether a store takes writes.
///
/// ```
/// use bigtable_fjall::{Condition, FjallStore, Options};
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path().join("data");
/// let store = FjallStore::open(&dir, Options::default())?;
/// assert_eq!(store.condition(), Condition::Writable);
/// # Ok::<(), bigtable::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Condition {
    /// The store takes writes.
    #[default]
    Writable,
    /// The store's disk is too full for writes, which fail with
    /// [`Full`](bigtable::Error::Full). Reads continue.
    Full {
        /// Free bytes of the store's file system.
        free: u64,
        /// Free bytes that are needed before writes are accepted.
        wanted: u64,
    },
    /// The store's disk fails, and writes fail with
    /// [`Unavailable`](bigtable::Error::Unavailable). Reads continue. The store retries by
    /// itself.
    Failing {
        /// The failure, in words.
        why: String,
    },
    /// The store answers every request with [`Halted`](bigtable::Error::Halted). Open it
    /// again.
    Halted {
        /// The failure, in words.
        why: String,
    },
}

impl Condition {
    /// Whether the two differ in more than their numbers.
    fn is_other(&self, than: &Condition) -> bool {
        std::mem::discriminant(self) != std::mem::discriminant(than)
    }
}

/// The condition of a store, and the callers that wait for another one.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// Whether `state.condition` is `Writable`, so that requests can check it without the
    /// lock.
    writable: Writable,
    state: Mutex<State>,
}

#[derive(Debug)]
struct Writable(AtomicBool);

impl Default for Writable {
    fn default() -> Self {
        Writable(AtomicBool::new(true))
    }
}

#[derive(Debug, Default)]
struct State {
    condition: Condition,
    waiting: Vec<oneshot::Sender<()>>,
}

impl Watched {
    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Notes that a request was admitted. The usual case costs one read of an atomic.
    pub(crate) fn is_writable(&self) {
        if !self.writable.0.load(Ordering::Relaxed) {
            self.set(Condition::Writable);
        }
    }

    pub(crate) fn set(&self, condition: Condition) {
        let mut state = self.state();
        self.writable.0.store(condition == Condition::Writable, Ordering::Relaxed);
        let is_other = condition.is_other(&state.condition);
        state.condition = condition;
        let woken = if is_other { std::mem::take(&mut state.waiting) } else { Vec::new() };
        drop(state);
        for waiting in woken {
            // The waiter may have gone; then there is no one to wake.
            let _ = waiting.send(());
        }
    }

    pub(crate) fn get(&self) -> Condition {
        self.state().condition.clone()
    }

    /// Waits until the condition differs from `known`.
    pub(crate) async fn other_than(&self, known: &Condition) -> Condition {
        loop {
            let waiting = {
                let mut state = self.state();
                if state.condition.is_other(known) {
                    return state.condition.clone();
                }
                let (wake, waiting) = oneshot::channel();
                state.waiting.push(wake);
                waiting
            };
            // The sender is kept until the condition changes.
            let _ = waiting.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn who_waits_learns_of_another_condition_and_not_of_other_figures() {
        let watched = Watched::default();
        let full = |free| Condition::Full { free, wanted: 9 };
        let known = Condition::Writable;
        let mut waiting = Box::pin(watched.other_than(&known));
        assert_eq!((&mut waiting).now_or_never(), None);
        watched.is_writable();
        assert_eq!((&mut waiting).now_or_never(), None);
        watched.set(full(1));
        assert_eq!(waiting.now_or_never(), Some(full(1)));
        let known = full(1);
        let mut waiting = Box::pin(watched.other_than(&known));
        watched.set(full(2));
        assert_eq!((&mut waiting).now_or_never(), None);
        assert_eq!(watched.get(), full(2));
        watched.is_writable();
        assert_eq!(waiting.now_or_never(), Some(Condition::Writable));
    }
}
