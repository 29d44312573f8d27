//! Callers that are answered by one reply.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use percolator_core::Result;

/// What a reply gave a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Given {
    /// The first of the batch's timestamps; zero if it wants none.
    pub(super) first: u64,
    pub(super) latest: u64,
    pub(super) schema_version: u64,
}

/// Callers that wait for one reply.
#[derive(Debug, Default)]
pub(super) struct Batch {
    done: OnceLock<Result<Given>>,
    waiting: Mutex<Vec<Waker>>,
}

impl Batch {
    /// Answers all callers; only the first answer counts.
    pub(super) fn answer(&self, given: Result<Given>) {
        let _ = self.done.set(given);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let wakers = std::mem::take(&mut *waiting);
        drop(waiting);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A caller's place in a batch. The timestamp of one that is dropped is nobody's (H45).
#[derive(Debug)]
pub(super) struct Ticket {
    batch: Arc<Batch>,
    /// Which of the batch's timestamps is this caller's.
    index: u32,
    slot: Option<usize>,
}

impl Ticket {
    pub(super) fn new(batch: Arc<Batch>, index: u32) -> Self {
        Ticket { batch, index, slot: None }
    }

    fn given(&self) -> Option<Result<Given>> {
        self.batch.done.get().map(|given| match given {
            Ok(given) => Ok(Given { first: given.first + u64::from(self.index), ..*given }),
            Err(error) => Err(error.clone()),
        })
    }
}

impl Future for Ticket {
    type Output = Result<Given>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(given) = self.given() {
            return Poll::Ready(given);
        }
        let batch = self.batch.clone();
        let mut waiting = batch.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // The answer is there before the wakers are taken, so one that came meanwhile is seen here.
        if let Some(given) = self.given() {
            return Poll::Ready(given);
        }
        match self.slot {
            Some(slot) => waiting[slot].clone_from(cx.waker()),
            None => {
                self.slot = Some(waiting.len());
                waiting.push(cx.waker().clone());
            }
        }
        Poll::Pending
    }
}
