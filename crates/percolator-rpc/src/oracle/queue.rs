//! Queues waiting callers in batches, which are then sent together.
//!
//! Invariant: a batch is closed when a request takes it. Later callers join another batch,
//! which goes into a later request. So no caller gets a timestamp that was issued before it
//! asked (H09). Batches leave in the order in which they were opened.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use percolator_core::{Error, Result, TIMESTAMPS_MAX};
use tokio::sync::Notify;

use crate::oracle::batch::{Batch, Given, Seat};

/// A caller's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// A timestamp.
    Timestamp,
    /// To read the latest timestamp and the schema version.
    Look,
    /// To raise the schema version.
    Raise(u64),
}

/// The queue between the callers and the task that sends requests.
#[derive(Debug)]
pub(super) struct Queue {
    inner: Mutex<Inner>,
    wake: Notify,
    callers_max: usize,
}

#[derive(Debug)]
struct Inner {
    open: Group,
    /// Closed batches, none of them empty, so `callers_max` bounds their number.
    closed: VecDeque<Group>,
    callers: usize,
    /// True if the sending task waits for callers.
    asleep: bool,
    /// The reason why no further request is sent.
    ended: Option<Error>,
}

/// A batch, and the sum of its callers' requests.
#[derive(Debug)]
struct Group {
    batch: Arc<Batch>,
    /// One waker for each caller.
    wakers: Vec<Waker>,
    timestamps: u32,
    raise: u64,
    since: Instant,
}

/// The batches of one request.
#[derive(Debug)]
pub(super) struct Flight {
    groups: Vec<Group>,
    pub(super) timestamps: u32,
    pub(super) raise: u64,
}

impl Group {
    fn new() -> Self {
        let (batch, wakers) = (Arc::default(), Vec::new());
        Group { batch, wakers, timestamps: 0, raise: 0, since: Instant::now() }
    }
}

impl Queue {
    pub(super) fn new(callers_max: usize) -> Self {
        let inner = Inner {
            open: Group::new(),
            closed: VecDeque::new(),
            callers: 0,
            asleep: false,
            ended: None,
        };
        Queue { inner: Mutex::new(inner), wake: Notify::new(), callers_max }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the next request that leaves. `waker` is called when the answer arrives.
    pub(super) fn join(&self, want: Want, waker: Waker) -> Result<Seat> {
        let mut inner = self.inner();
        if let Some(error) = &inner.ended {
            return Err(error.clone());
        }
        if inner.callers >= self.callers_max {
            let max = self.callers_max;
            let why = format!(
                "{max} callers wait for a timestamp already: begin fewer transactions at the \
                 same time"
            );
            return Err(Error::Oracle(why));
        }
        if inner.open.timestamps == TIMESTAMPS_MAX {
            inner.close();
        }
        if inner.open.wakers.is_empty() {
            inner.open.since = Instant::now();
        }
        inner.callers += 1;
        inner.open.wakers.push(waker);
        let seat = Seat { batch: inner.open.batch.clone(), index: inner.open.timestamps };
        match want {
            Want::Timestamp => inner.open.timestamps += 1,
            Want::Look => {}
            Want::Raise(version) => inner.open.raise = inner.open.raise.max(version),
        }
        let asleep = std::mem::take(&mut inner.asleep);
        drop(inner);
        if asleep {
            self.wake.notify_one();
        }
        Ok(seat)
    }

    /// Waits until there is a caller; `false` after the end.
    pub(super) async fn awaited(&self) -> bool {
        loop {
            {
                let mut inner = self.inner();
                if inner.ended.is_some() {
                    return false;
                }
                if inner.callers > 0 {
                    return true;
                }
                inner.asleep = true;
            }
            self.wake.notified().await;
        }
    }

    /// Takes the waiting batches, as many as fit into one request.
    pub(super) fn take(&self) -> Flight {
        let mut inner = self.inner();
        inner.close();
        let mut flight = Flight { groups: Vec::new(), timestamps: 0, raise: 0 };
        while let Some(group) = inner.closed.front() {
            if flight.timestamps + group.timestamps > TIMESTAMPS_MAX {
                break;
            }
            flight.timestamps += group.timestamps;
            flight.raise = flight.raise.max(group.raise);
            flight.groups.extend(inner.closed.pop_front());
        }
        flight
    }

    /// Gives each batch of a request its share of the reply.
    pub(super) fn deliver(&self, flight: Flight, given: Given) {
        let mut first = given.first;
        for group in flight.groups {
            let timestamps = u64::from(group.timestamps);
            self.answer(group, Ok(Given { first, ..given }));
            first += timestamps;
        }
    }

    /// Fails the callers of a request for good.
    pub(super) fn fail(&self, flight: Flight, error: &Error) {
        flight.groups.into_iter().for_each(|group| self.answer(group, Err(error.clone())));
    }

    /// Puts the callers of an unanswered request back to the front.
    pub(super) fn put_back(&self, flight: Flight) {
        let mut inner = self.inner();
        for group in flight.groups.into_iter().rev() {
            inner.closed.push_front(group);
        }
    }

    /// Fails the batches that have waited for longer than `deadline`. The open batch is closed
    /// first, so that later callers get a batch, and a deadline, of their own.
    pub(super) fn expire(&self, deadline: Duration, why: impl Fn() -> Error) {
        let mut late = Vec::new();
        {
            let mut inner = self.inner();
            inner.close();
            while inner.closed.front().is_some_and(|group| group.since.elapsed() >= deadline) {
                late.extend(inner.closed.pop_front());
            }
        }
        late.into_iter().for_each(|group| self.answer(group, Err(why())));
    }

    /// Fails all callers, present and future.
    pub(super) fn end(&self, error: &Error) {
        let groups = {
            let mut inner = self.inner();
            inner.ended.get_or_insert_with(|| error.clone());
            inner.close();
            std::mem::take(&mut inner.closed)
        };
        groups.into_iter().for_each(|group| self.answer(group, Err(error.clone())));
        self.wake.notify_one();
    }

    fn answer(&self, group: Group, given: Result<Given>) {
        self.inner().callers -= group.wakers.len();
        group.batch.answer(given, group.wakers);
    }
}

impl Inner {
    /// Closes the open batch, so that no further caller joins it.
    fn close(&mut self) {
        if !self.open.wakers.is_empty() {
            let mut next = Group::new();
            // The next batch is likely to have as many callers.
            next.wakers.reserve(self.open.wakers.len().min(TIMESTAMPS_MAX as usize));
            self.closed.push_back(std::mem::replace(&mut self.open, next));
        }
    }
}

#[cfg(test)]
mod tests;
