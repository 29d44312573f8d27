//! Holds the work of a commit, which its caller polls, and which a task may take over.
//!
//! A caller may keep the future and not poll it, as `select!` does while a branch awaits. Work that
//! has waited for a while therefore goes on in a task. The caller then only waits for the result.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bigtable::sync::locked;
use futures::future::BoxFuture;

use crate::Runtime;
use crate::mutants::{self, off};
use crate::txn::finish::{Background, Counted, TaskCount};

/// Work that has a caller.
pub(crate) struct Unfinished<T: Send + 'static> {
    /// The work, until it has to wait for the first time.
    new: Option<(BoxFuture<'static, T>, Counted)>,
    /// The work from then on, with its number in the list of waiting work.
    waiting: Option<(u64, Arc<Slot<T>>)>,
    runtime: Arc<dyn Runtime>,
    background: Arc<Background>,
}

/// Work that has to wait. The caller or the task takes it out to poll it.
struct Slot<T>(Mutex<Held<T>>);

struct Held<T> {
    /// The work. `None` while it is polled, and once it has ended.
    work: Option<BoxFuture<'static, T>>,
    /// Counts the work until it has ended.
    counted: Option<Counted>,
    /// Whether a task polls the work.
    in_task: bool,
    /// The result, or the panic, once the task has it.
    result: Option<std::thread::Result<T>>,
    /// The caller's waker.
    waker: Option<Waker>,
    /// The waker of the task.
    task_waker: Option<Waker>,
    /// Counts the task once the caller has dropped the work.
    dropped: Option<TaskCount>,
}

impl<T: Send + 'static> Unfinished<T> {
    pub(super) fn new(
        work: BoxFuture<'static, T>,
        runtime: Arc<dyn Runtime>,
        background: Arc<Background>,
    ) -> Self {
        let new = Some((work, background.count()));
        Unfinished { new, waiting: None, runtime, background }
    }

    /// Leaves the list of waiting work.
    fn end(&mut self) -> Option<Arc<Slot<T>>> {
        let (number, slot) = self.waiting.take()?;
        self.background.no_longer_waits(number);
        Some(slot)
    }
}

impl<T: Send + 'static> Future for Unfinished<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let polled = match &self.waiting {
            Some((_, slot)) => slot.poll_by_caller(cx),
            None => {
                // Take the work out, so that work that panics here is not polled again.
                let (mut work, counted) = self.new.take().expect("it is not polled after its end");
                let polled = work.as_mut().poll(cx);
                if polled.is_pending() {
                    let slot = Arc::new(Slot::new(work, counted, cx.waker().clone()));
                    let number = self.background.waits(&self.runtime, slot.clone());
                    self.waiting = Some((number, slot));
                }
                polled
            }
        };
        if polled.is_ready() {
            self.end();
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Unfinished<T> {
    fn drop(&mut self) {
        // Count the work until it goes on in the background, so that the count never falls to
        // zero between.
        let (work, _counted) = match (self.new.take(), self.end()) {
            (Some((work, counted)), _) => (work, Some(counted)),
            (None, Some(slot)) => {
                let mut held = locked(&slot.0);
                if held.in_task {
                    drop(held);
                    return slot.leave_to_task(&self.background);
                }
                let Some(work) = held.work.take() else { return };
                (work, held.counted.take())
            }
            (None, None) => return,
        };
        if !off(mutants::DROPPED_MEANS_DEAD) {
            // No caller is left to receive the result.
            self.background.finish_in_task(&*self.runtime, Box::pin(async { drop(work.await) }));
        }
    }
}

impl<T> Slot<T> {
    fn new(work: BoxFuture<'static, T>, counted: Counted, waker: Waker) -> Self {
        Slot(Mutex::new(Held {
            work: Some(work),
            counted: Some(counted),
            in_task: false,
            result: None,
            waker: Some(waker),
            task_waker: None,
            dropped: None,
        }))
    }

    /// Counts the task, because no caller holds the work any more. If too many tasks run, drops
    /// the work.
    fn leave_to_task(&self, background: &Arc<Background>) {
        let count = background.finish_count();
        let (work, waker, _counted) = {
            let mut held = locked(&self.0);
            let counted = held.counted.take();
            if count.is_some() {
                held.dropped = count;
                drop(held);
                return drop(counted);
            }
            (held.work.take(), held.task_waker.take(), counted)
        };
        drop(work);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll_by_caller(&self, cx: &mut Context<'_>) -> Poll<T> {
        let mut held = locked(&self.0);
        match held.result.take() {
            Some(Ok(result)) => return Poll::Ready(result),
            Some(Err(panic)) => {
                drop(held);
                resume_unwind(panic)
            }
            None => {}
        }
        if !held.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            held.waker = Some(cx.waker().clone());
        }
        if held.in_task {
            return Poll::Pending;
        }
        let work = held.work.take().expect("it is not polled after its end");
        drop(held);
        self.poll_work(work, cx)
    }

    /// Polls the work, and puts it back if it has not ended.
    fn poll_work(&self, mut work: BoxFuture<'static, T>, cx: &mut Context<'_>) -> Poll<T> {
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() {
            locked(&self.0).work = Some(work);
        }
        polled
    }
}

/// Work that a task can take over from its caller.
pub(super) trait Adopt: Send + Sync {
    /// Returns the task that polls the work from now on. `None` if there is nothing to take over:
    /// the caller polls the work at this moment, or the work has ended.
    fn adopt(self: Arc<Self>) -> Option<BoxFuture<'static, ()>>;
}

impl<T: Send + 'static> Adopt for Slot<T> {
    fn adopt(self: Arc<Self>) -> Option<BoxFuture<'static, ()>> {
        {
            let mut held = locked(&self.0);
            if held.work.is_none() || held.in_task {
                return None;
            }
            held.in_task = true;
        }
        Some(Box::pin(Task(self)))
    }
}

/// Polls work in a task. If the task is dropped with its runtime, the caller polls the work again.
struct Task<T>(Arc<Slot<T>>);

impl<T> Future for Task<T> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let work = {
            let mut held = locked(&self.0.0);
            held.task_waker = Some(cx.waker().clone());
            held.work.take()
        };
        let Some(work) = work else { return Poll::Ready(()) };
        let polled = catch_unwind(AssertUnwindSafe(|| self.0.poll_work(work, cx)));
        let result = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(result)) => Ok(result),
            Err(panic) => Err(panic),
        };
        let counted = {
            let mut held = locked(&self.0.0);
            held.result = Some(result);
            (held.counted.take(), held.dropped.take())
        };
        drop(counted);
        Poll::Ready(())
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        let waker = {
            let mut held = locked(&self.0.0);
            held.in_task = false;
            held.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;

    use futures::FutureExt;
    use futures::channel::oneshot;

    use super::*;
    use crate::testing::VirtualRuntime;

    /// Work that waits for a message, and panics if there is none; and its task.
    type Adopted = (Unfinished<u8>, oneshot::Sender<u8>, BoxFuture<'static, ()>);

    fn adopted(background: &Arc<Background>) -> Adopted {
        let runtime: Arc<dyn Runtime> = Arc::new(VirtualRuntime::new(1));
        let (sender, receiver) = oneshot::channel();
        let mut work = background.finish(&runtime, async { receiver.await.expect("a message") });
        assert!((&mut work).now_or_never().is_none());
        let (_, slot) = work.waiting.as_ref().expect("it waits");
        let task = slot.clone().adopt().expect("a task");
        assert!(slot.clone().adopt().is_none(), "it has a task");
        assert_eq!(background.unfinished(), 1);
        (work, sender, task)
    }

    #[test]
    fn a_task_ends_the_work_and_its_caller_gets_the_result() {
        let background = Arc::default();
        let (mut work, sender, mut task) = adopted(&background);
        assert!((&mut task).now_or_never().is_none());
        sender.send(7).unwrap();
        assert!((&mut work).now_or_never().is_none(), "the task polls it");
        assert!((&mut task).now_or_never().is_some());
        assert_eq!(background.unfinished(), 0, "the caller need not come for that");
        assert_eq!(work.now_or_never(), Some(7));
    }

    #[test]
    fn a_caller_polls_the_work_again_if_the_runtime_drops_the_task() {
        let background = Arc::default();
        let (work, sender, task) = adopted(&background);
        drop(task);
        sender.send(7).unwrap();
        assert_eq!(background.unfinished(), 1);
        assert_eq!(work.now_or_never(), Some(7));
        assert_eq!(background.unfinished(), 0);
    }

    #[test]
    fn a_caller_that_drops_the_work_leaves_it_to_its_task() {
        let background = Arc::default();
        let (work, sender, task) = adopted(&background);
        drop(work);
        sender.send(7).unwrap();
        assert_eq!(background.unfinished(), 1);
        assert!(task.now_or_never().is_some());
        assert_eq!(background.unfinished(), 0);
    }

    #[test]
    fn a_panic_in_the_task_reaches_the_caller() {
        let background = Arc::default();
        let (work, sender, task) = adopted(&background);
        drop(sender);
        assert!(task.now_or_never().is_some());
        assert_eq!(background.unfinished(), 0);
        let panic: Box<dyn Any + Send> =
            catch_unwind(AssertUnwindSafe(|| work.now_or_never())).unwrap_err();
        let said = panic.downcast_ref::<String>().expect("a text");
        assert!(said.contains("a message"), "{said}");
    }
}
