//! Runs pieces of work one after the other, each of them polled by everyone who waits for it.

use std::future::{Future, poll_fn};
use std::mem::take;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::BoxFuture;

use super::locked;

/// Runs pieces of work one after the other.
///
/// A mutex of an async library gives its lock to one future, and the others wait until that future
/// is polled. A program may keep a future and not poll it, as `select!` does while a branch
/// awaits. So here every caller that waits also polls the work whose turn it is.
///
/// ```
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
pub struct Turns(Mutex<Weak<Turn>>);

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
        let mut work = Some(async move {
            // The caller may have dropped its end.
            drop(sender.send(AssertUnwindSafe(work).catch_unwind().await));
        });
        while work.is_some() {
            let turn = self.turn(&mut work);
            let own = work.is_none().then(|| Ends(turn.clone()));
            poll_fn(|cx| turn.poll(cx)).await;
            drop(own);
        }
        match receiver.await.expect("the work has ended, and has sent its result") {
            Ok(result) => result,
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Returns the work that is going on. If there is none, begins `work`, and takes it.
    fn turn(&self, work: &mut Option<impl Future<Output = ()> + Send + 'static>) -> Arc<Turn> {
        let mut current = locked(&self.0);
        if let Some(turn) = current.upgrade().filter(|turn| !locked(&turn.0).has_ended) {
            return turn;
        }
        let work = work.take().expect("it has not begun").boxed();
        let begun = Arc::new(Turn(Mutex::new(State { work: Some(work), ..State::default() })));
        *current = Arc::downgrade(&begun);
        begun
    }
}

/// Work that has begun. Its caller has it, and so has everyone who waits for it.
struct Turn(Mutex<State>);

#[derive(Default)]
struct State {
    /// The work. `None` while somebody polls or drops it, and once it has ended.
    work: Option<BoxFuture<'static, ()>>,
    /// Whether the caller has dropped the work.
    dropped: bool,
    has_ended: bool,
    /// Wakes everyone who waits for the end.
    waiting: Vec<Waker>,
    /// Whether the work woke while somebody polled it.
    again: bool,
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turn").finish_non_exhaustive()
    }
}

impl Turn {
    /// Polls the work, unless somebody else does.
    fn poll(self: &Arc<Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut work = {
            let mut state = locked(&self.0);
            if state.has_ended {
                return Poll::Ready(());
            }
            if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                state.waiting.push(cx.waker().clone());
            }
            let Some(work) = state.work.take() else { return Poll::Pending };
            work
        };
        let waker = Waker::from(self.clone());
        let polled = work.poll_unpin(&mut Context::from_waker(&waker));
        let mut state = locked(&self.0);
        if polled.is_ready() || state.dropped {
            drop(state);
            self.end(work);
            return Poll::Ready(());
        }
        state.work = Some(work);
        // Those whom the work woke have found it taken. Nobody may wake them again.
        let wake = if take(&mut state.again) { take(&mut state.waiting) } else { Vec::new() };
        drop(state);
        wake.into_iter().for_each(Waker::wake);
        Poll::Pending
    }

    /// Drops the work, and only then lets the next work begin.
    fn end(&self, work: BoxFuture<'static, ()>) {
        drop(work);
        let waiting = {
            let mut state = locked(&self.0);
            state.has_ended = true;
            take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Wake for Turn {
    fn wake(self: Arc<Self>) {
        let waiting = {
            let mut state = locked(&self.0);
            state.again = state.work.is_none();
            take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Ends work with its caller. Otherwise those who wait for it would go on with it.
struct Ends(Arc<Turn>);

impl Drop for Ends {
    fn drop(&mut self) {
        let work = {
            let mut state = locked(&self.0.0);
            state.dropped = true;
            state.work.take()
        };
        // If somebody polls the work at this moment, it ends after that.
        if let Some(work) = work {
            self.0.end(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::executor::block_on;
    use futures::{join, poll};

    use super::*;

    #[test]
    fn h77_callers_finish_work_that_nobody_polls_and_then_their_own() {
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
        block_on(async {
            let turns = Turns::default();
            let (sender, receiver) = oneshot::channel::<()>();
            let mut panics = Box::pin(turns.run(async {
                receiver.await.unwrap();
                resume_unwind(Box::new("by test"))
            }));
            assert!(poll!(&mut panics).is_pending());
            sender.send(()).unwrap();
            // The second caller polls the work that panics.
            assert_eq!(turns.run(async { 1 }).await, 1);
            let ended: Result<(), _> = AssertUnwindSafe(panics).catch_unwind().await;
            assert_eq!(ended.unwrap_err().downcast_ref(), Some(&"by test"));
        });
    }

    /// Counts how often it wakes.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The next work must not begin while another thread still polls the work that was dropped.
    /// Here the work drops its own call.
    #[test]
    fn work_that_is_dropped_while_it_is_polled_ends_before_the_next_begins() {
        type Call = Pin<Box<dyn Future<Output = ()> + Send>>;
        let turns: &Turns = Box::leak(Box::default());
        let first: Arc<Mutex<Option<Call>>> = Arc::default();
        let (own, mut polls) = (first.clone(), 0);
        let work = turns.run(poll_fn(move |_| {
            polls += 1;
            if polls == 2 {
                drop(locked(&own).take());
                let mut next = Box::pin(turns.run(async {}));
                let mut nobody = Context::from_waker(Waker::noop());
                assert!(next.poll_unpin(&mut nobody).is_pending(), "it overlaps");
            }
            Poll::Pending
        }));
        let mut nobody = Context::from_waker(Waker::noop());
        let mut work: Call = Box::pin(work);
        assert!(work.poll_unpin(&mut nobody).is_pending());
        *locked(&first) = Some(work);
        // The second caller polls the work of the first.
        let mut second = Box::pin(turns.run(async { 2 }));
        assert_eq!(second.poll_unpin(&mut nobody), Poll::Ready(2));
    }

    /// Another thread may poll its call while the first polls the work, and the first may never
    /// poll again. Here the work polls the other call.
    #[test]
    fn a_caller_that_comes_while_another_polls_is_woken() {
        type Call = Pin<Box<dyn Future<Output = i32> + Send>>;
        let turns: &Turns = Box::leak(Box::default());
        let second: Arc<Mutex<Option<Call>>> = Arc::default();
        let woken = Arc::<Count>::default();
        let (other, waker) = (second.clone(), Waker::from(woken.clone()));
        let count = woken.clone();
        let mut first = Box::pin(turns.run(poll_fn(move |cx| {
            let Some(call) = &mut *locked(&other) else { return Poll::Ready(()) };
            // The work wakes before the other call comes.
            cx.waker().wake_by_ref();
            assert!(call.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
            assert_eq!(count.0.load(Ordering::SeqCst), 0);
            Poll::Pending
        })));
        *locked(&second) = Some(Box::pin(turns.run(async { 2 })));
        let mut nobody = Context::from_waker(Waker::noop());
        assert!(first.poll_unpin(&mut nobody).is_pending());
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        let mut call = locked(&second).take().unwrap();
        assert_eq!(call.poll_unpin(&mut nobody), Poll::Ready(2));
    }
}
