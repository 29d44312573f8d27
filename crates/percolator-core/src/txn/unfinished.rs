//! Holds the work of a commit, which its caller polls, and which a task may take over.
//!
//! A caller may keep the future and not poll it, as `select!` does while a branch awaits. Work that
//! has waited for a while therefore goes on in a task. The caller then only waits for the result.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bigtable::sync::locked;
use futures::future::BoxFuture;

use crate::Runtime;
use crate::mutants::{self, off};
use crate::txn::finish::{Background, Counted};

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
    work: Option<BoxFuture<'static, T>>,
    /// Counts the work, as long as the caller polls it.
    counted: Option<Counted>,
    /// Whether a task polls the work.
    in_task: bool,
    /// The result, once the task has it.
    result: Option<T>,
    /// The caller's waker.
    waker: Option<Waker>,
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
                    return;
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
        }))
    }

    fn poll_by_caller(&self, cx: &mut Context<'_>) -> Poll<T> {
        let mut held = locked(&self.0);
        if let Some(result) = held.result.take() {
            return Poll::Ready(result);
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
    /// The task that polls the work from now on, and the count of the caller. `None` if there is
    /// nothing to take over: the caller polls the work at this moment, or the work has ended.
    fn adopt(self: Arc<Self>) -> Option<(BoxFuture<'static, ()>, Option<Counted>)>;
}

impl<T: Send + 'static> Adopt for Slot<T> {
    fn adopt(self: Arc<Self>) -> Option<(BoxFuture<'static, ()>, Option<Counted>)> {
        let counted = {
            let mut held = locked(&self.0);
            if held.work.is_none() || held.in_task {
                return None;
            }
            held.in_task = true;
            held.counted.take()
        };
        Some((Box::pin(Task(self)), counted))
    }
}

/// Polls work in a task. If the task is dropped with its runtime, the caller polls the work again.
struct Task<T>(Arc<Slot<T>>);

impl<T> Future for Task<T> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(work) = locked(&self.0.0).work.take() else { return Poll::Ready(()) };
        self.0.poll_work(work, cx).map(|result| locked(&self.0.0).result = Some(result))
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
