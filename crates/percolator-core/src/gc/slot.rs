//! Where the task of a collector lives: where its handle and a closing client can reach it.

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
    /// Of the task, so that it ends when the work is taken away.
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

/// Ends a collection where it is.
pub(crate) fn end(task: &Slot) {
    // Not under the lock: what it held may take others with it.
    let mut work = locked(task);
    let (future, waker) = (work.future.take(), work.waker.take());
    drop(work);
    drop(future);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The task, as the runtime sees it.
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
