//! Holds the future of a collector's task, where the collector's handle and a closing client
//! can drop it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bigtable::sync::locked;
use futures::future::BoxFuture;

pub(crate) type Slot = Mutex<Work>;

#[derive(Default)]
pub(crate) struct Work {
    future: Option<BoxFuture<'static, ()>>,
    /// The task's waker, so that the task ends once its future has been dropped.
    waker: Option<Waker>,
}

impl Work {
    pub(super) fn new(future: BoxFuture<'static, ()>) -> Self {
        Work { future: Some(future), waker: None }
    }
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").field("runs", &self.future.is_some()).finish()
    }
}

/// Ends a collection at its current await.
pub(crate) fn end(task: &Slot) {
    // Drop the future outside of the lock: it may hold the last reference to the client, and
    // so drop much else.
    let mut work = locked(task);
    let (future, waker) = (work.future.take(), work.waker.take());
    drop(work);
    drop(future);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The task that the runtime polls.
pub(super) struct Task(pub(super) Arc<Slot>);

impl Future for Task {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut work = locked(&self.0);
        work.waker = Some(cx.waker().clone());
        let Some(future) = &mut work.future else { return Poll::Ready(()) };
        let polled = future.as_mut().poll(cx);
        if polled.is_ready() {
            work.future.take();
        }
        polled
    }
}
