//! Locks mutexes, even after a panic of a holder, and lets futures take turns. The crates of this
//! project share both, so that one panic does not make every later caller panic as well, and one
//! future that nobody polls does not stop all others.

use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::{AbortHandle, BoxFuture, Shared, WeakShared, abortable};

/// Locks a mutex, even one that a panic has poisoned.
///
/// Use `locked` only where a panic leaves the value usable: each change is a single step, or
/// the next holder checks the value.
pub fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs pieces of work one after the other.
///
/// A mutex of an async library gives its lock to one future, and the others wait until that future
/// is polled. A program may keep a future and not poll it, as `select!` does while a branch
/// awaits. So here every caller that waits also polls the work whose turn it is.
///
/// ```
/// # use std::future::pending;
/// use bigtable::sync::Turns;
/// # futures::executor::block_on(async {
/// let turns = Turns::default();
/// let (sender, receiver) = futures::channel::oneshot::channel();
/// let mut first = Box::pin(turns.run(receiver));
/// assert!(futures::poll!(&mut first).is_pending());
/// sender.send(1).unwrap();
/// // Nobody polls the first call, and the second one does not wait for that.
/// assert_eq!(turns.run(async { 2 }).await, 2);
/// assert_eq!(first.await, Ok(1));
/// # });
/// ```
#[derive(Debug, Default)]
pub struct Turns(Mutex<Option<WeakShared<Work>>>);

/// Ends work with its caller. Otherwise those who wait for it would go on with it.
struct Ends(AbortHandle);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Work that has begun. Its caller holds it, and so does everyone who waits for it.
type Work = BoxFuture<'static, ()>;

impl Turns {
    /// Waits for the work that has begun, then runs `work`.
    ///
    /// # Cancellation
    /// If the future is dropped before its turn, `work` never begins. If it is dropped later,
    /// `work` ends at its current await, and the next caller begins.
    ///
    /// # Panics
    /// If `work` panics. Other callers are not affected.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let (sender, receiver) = oneshot::channel();
        let (work, handle) = abortable(async move {
            // The caller may have dropped its end.
            drop(sender.send(AssertUnwindSafe(work).catch_unwind().await));
        });
        let mut work = Some(work.map(drop));
        let _ends = Ends(handle);
        while work.is_some() {
            self.turn(&mut work).await;
        }
        match receiver.await.expect("the work has ended, and has sent its result") {
            Ok(result) => result,
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Returns the work that is going on. If there is none, begins `work`, and takes it.
    fn turn(&self, work: &mut Option<impl Future<Output = ()> + Send + 'static>) -> Shared<Work> {
        let mut current = locked(&self.0);
        match current.as_ref().and_then(WeakShared::upgrade) {
            Some(turn) if turn.peek().is_none() => turn,
            _ => {
                let begun = work.take().expect("it has not begun").boxed().shared();
                *current = begun.downgrade();
                begun
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::panic::catch_unwind;
    use std::sync::Arc;

    use futures::executor::block_on;
    use futures::{join, poll};

    use super::*;

    #[test]
    fn callers_finish_work_that_nobody_polls_and_then_their_own() {
        block_on(async {
            let (turns, order) = (Turns::default(), Arc::new(Mutex::new(Vec::new())));
            let note = |name, after: Option<oneshot::Receiver<()>>| {
                let order = order.clone();
                turns.run(async move {
                    if let Some(after) = after {
                        after.await.unwrap();
                    }
                    locked(&order).push(name);
                })
            };
            let (sender, receiver) = oneshot::channel();
            let mut first = Box::pin(note("first", Some(receiver)));
            let mut second = Box::pin(note("second", None));
            let mut third = Box::pin(note("third", None));
            assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
            assert!(poll!(&mut third).is_pending());
            sender.send(()).unwrap();
            // Nobody polls the first one, and the second one never begins.
            drop(second);
            join!(third, note("fourth", None));
            assert_eq!(*locked(&order), ["first", "third", "fourth"]);
            first.await;
        });
    }

    #[test]
    fn work_ends_with_its_caller_and_the_next_begins() {
        block_on(async {
            let (turns, alive) = (Turns::default(), Arc::new(()));
            let begin = || {
                let alive = alive.clone();
                Box::pin(turns.run(async move {
                    pending::<()>().await;
                    drop(alive);
                }))
            };
            let mut alone = begin();
            assert!(poll!(&mut alone).is_pending() && Arc::strong_count(&alive) == 2);
            drop(alone);
            assert_eq!(Arc::strong_count(&alive), 1);
            let mut awaited = begin();
            assert!(poll!(&mut awaited).is_pending());
            join!(turns.run(async {}), async { drop(awaited) });
            assert_eq!(Arc::strong_count(&alive), 1);
        });
    }

    #[test]
    fn a_panic_reaches_its_own_caller_and_no_other() {
        let turns = Turns::default();
        let panics = turns.run(async { resume_unwind(Box::new("by test")) });
        let ended: Result<(), _> = catch_unwind(AssertUnwindSafe(|| block_on(panics)));
        assert_eq!(ended.unwrap_err().downcast_ref(), Some(&"by test"));
        assert_eq!(block_on(turns.run(async { 1 })), 1);
    }

    #[test]
    fn a_poisoned_mutex_can_be_locked() {
        let mutex = Mutex::new(1);
        let poison = catch_unwind(AssertUnwindSafe(|| {
            *locked(&mutex) = 2;
            let _held = locked(&mutex);
            resume_unwind(Box::new("poisons the mutex"));
        }));
        assert!(poison.is_err() && mutex.is_poisoned());
        assert_eq!(*locked(&mutex), 2);
    }
}
