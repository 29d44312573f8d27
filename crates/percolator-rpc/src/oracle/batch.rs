//! Passes one reply to all callers of a batch.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use percolator_core::Result;

use crate::oracle::queue::{Queue, Want};

/// A batch's share of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Given {
    /// The first of the batch's timestamps; zero if it wants none.
    pub(super) first: u64,
    pub(super) latest: u64,
    pub(super) schema_version: u64,
}

/// The answer for callers that wait for one reply.
#[derive(Debug, Default)]
pub(super) struct Batch {
    done: OnceLock<Result<Given>>,
    /// The wakers of callers that have moved to another task since they joined.
    moved: Mutex<Vec<Waker>>,
}

impl Batch {
    /// Answers all callers: it wakes the given wakers and those that moved. Only the first
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

/// A caller's place in a batch.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) batch: Arc<Batch>,
    /// The index of the caller's timestamp in the batch.
    pub(super) index: u32,
}

/// A caller. It joins a batch when it is first polled. If it is dropped, no other caller gets
/// its timestamp (H45).
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
            // The request has not left yet, so there is no answer. The waker is called when
            // there is.
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
            // `answer` stores the answer before it takes these wakers, so an answer that
            // arrived since the first check is seen here.
            if let Some(given) = seat.batch.given(seat.index) {
                return Poll::Ready(given);
            }
            moved.push(waker.clone());
        }
        Poll::Pending
    }
}
