//! Callers that are answered by one reply.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use percolator_core::Result;

use crate::oracle::queue::{Queue, Want};

/// What a reply gave a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Given {
    /// The first of the batch's timestamps; zero if it wants none.
    pub(super) first: u64,
    pub(super) latest: u64,
    pub(super) schema_version: u64,
}

/// The answer of callers that wait for one reply.
#[derive(Debug, Default)]
pub(super) struct Batch {
    done: OnceLock<Result<Given>>,
    /// Of callers that have moved to another task since they joined.
    moved: Mutex<Vec<Waker>>,
}

impl Batch {
    /// Answers all callers, whose wakers are those given and those that moved; only the first
    /// answer counts.
    pub(super) fn answer(&self, given: Result<Given>, wakers: Vec<Waker>) {
        let _ = self.done.set(given);
        let moved = std::mem::take(&mut *self.moved.lock().unwrap_or_else(PoisonError::into_inner));
        wakers.into_iter().chain(moved).for_each(Waker::wake);
    }

    fn given(&self, index: u32) -> Option<Result<Given>> {
        self.done.get().map(|given| match given {
            Ok(given) => Ok(Given { first: given.first + u64::from(index), ..*given }),
            Err(error) => Err(error.clone()),
        })
    }
}

/// A place in a batch.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) batch: Arc<Batch>,
    /// Which of the batch's timestamps is this caller's.
    pub(super) index: u32,
}

/// A caller. It joins when it is first polled; the timestamp of one that is dropped is nobody's
/// (H45).
#[derive(Debug)]
pub(super) struct Ticket<'a> {
    queue: &'a Queue,
    want: Want,
    seat: Option<(Seat, Waker)>,
}

impl<'a> Ticket<'a> {
    pub(super) fn new(queue: &'a Queue, want: Want) -> Self {
        Ticket { queue, want, seat: None }
    }
}

impl Future for Ticket<'_> {
    type Output = Result<Given>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some((seat, waker)) = &mut self.seat else {
            let waker = cx.waker().clone();
            // It was not asked for yet, so it cannot be answered yet; if it is, the waker is
            // called.
            let seat = self.queue.join(self.want, waker.clone())?;
            self.seat = Some((seat, waker));
            return Poll::Pending;
        };
        if let Some(given) = seat.batch.given(seat.index) {
            return Poll::Ready(given);
        }
        if !waker.will_wake(cx.waker()) {
            waker.clone_from(cx.waker());
            let mut moved = seat.batch.moved.lock().unwrap_or_else(PoisonError::into_inner);
            // The answer is there before these wakers are taken, so one that came meanwhile is
            // seen.
            if let Some(given) = seat.batch.given(seat.index) {
                return Poll::Ready(given);
            }
            moved.push(waker.clone());
        }
        Poll::Pending
    }
}
