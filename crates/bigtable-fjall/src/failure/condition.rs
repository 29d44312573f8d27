//! Whether the store takes writes, and who waits for that to change.
//!
//! Requests find out: one that is refused, or one that is admitted again. While writes are refused
//! none may come; so whoever wants to know when the store takes writes again asks the store to
//! look.

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
    /// It does.
    #[default]
    Writable,
    /// Its disk is too full for writes, which are refused with [`Full`](bigtable::Error::Full).
    /// Reads go on.
    Full {
        /// Free bytes of its file system.
        free: u64,
        /// Free bytes that it takes to write.
        wanted: u64,
    },
    /// Its disk fails, and writes are refused with [`Unavailable`](bigtable::Error::Unavailable).
    /// Reads go on. The store tries again by itself.
    Failing {
        /// What happened.
        why: String,
    },
    /// It answers nothing any more but [`Halted`](bigtable::Error::Halted): open it anew.
    Halted {
        /// What happened.
        why: String,
    },
}

impl Condition {
    /// Whether they differ in more than figures.
    fn is_other(&self, than: &Condition) -> bool {
        std::mem::discriminant(self) != std::mem::discriminant(than)
    }
}

/// The condition of a store, and those who wait for another one.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// As `state.condition`, to be looked at without the lock.
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

    /// A request was admitted: the usual case, which costs a look at an atomic.
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
            // A waiter may have gone: then nobody hears of it.
            let _ = waiting.send(());
        }
    }

    pub(crate) fn get(&self) -> Condition {
        self.state().condition.clone()
    }

    /// Waits for another condition than this one.
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
            // The sender is kept until the condition is another one.
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
