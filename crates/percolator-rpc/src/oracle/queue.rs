//! Callers that wait, in the batches in which they will be asked for.
//!
//! Invariant: what is taken for a request is closed: who comes later is in another batch, which
//! goes into a later request (H09). Batches leave in the order in which they were opened.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use percolator_core::{Error, Result, TIMESTAMPS_MAX};
use tokio::sync::Notify;

use crate::oracle::batch::{Batch, Given, Seat};

/// What a caller wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// A timestamp.
    Timestamp,
    /// To see the latest timestamp and the schema version.
    Look,
    /// That the schema version is raised.
    Raise(u64),
}

/// The queue between callers and the task that asks.
#[derive(Debug)]
pub(super) struct Queue {
    inner: Mutex<Inner>,
    wake: Notify,
    callers_max: usize,
}

#[derive(Debug)]
struct Inner {
    open: Group,
    /// Bounded by `callers_max`: none is empty.
    closed: VecDeque<Group>,
    callers: usize,
    /// Whether the asking task waits for callers.
    asleep: bool,
    /// Why nobody asks any more.
    ended: Option<Error>,
}

/// A batch, and what its callers want.
#[derive(Debug)]
struct Group {
    batch: Arc<Batch>,
    /// One for each caller.
    wakers: Vec<Waker>,
    timestamps: u32,
    raise: u64,
    since: Instant,
}

/// Batches that are asked for in one request.
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

    /// A place in the next request that leaves; `waker` is called when it is answered.
    pub(super) fn join(&self, want: Want, waker: Waker) -> Result<Seat> {
        let mut inner = self.inner();
        if let Some(error) = &inner.ended {
            return Err(error.clone());
        }
        if inner.callers >= self.callers_max {
            let max = self.callers_max;
            let why =
                format!("{max} callers wait for it already: begin fewer transactions at once");
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

    /// Waits until somebody waits; `false` once ended.
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

    /// All that wait, as far as one request goes.
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

    /// Gives each batch of the request its share of the reply.
    pub(super) fn deliver(&self, flight: Flight, given: Given) {
        let mut first = given.first;
        for group in flight.groups {
            let timestamps = u64::from(group.timestamps);
            self.answer(group, Ok(Given { first, ..given }));
            first += timestamps;
        }
    }

    /// Tells the callers of a request that it failed for good.
    pub(super) fn fail(&self, flight: Flight, error: &Error) {
        flight.groups.into_iter().for_each(|group| self.answer(group, Err(error.clone())));
    }

    /// Puts the callers of a request that was not answered back to the front.
    pub(super) fn put_back(&self, flight: Flight) {
        let mut inner = self.inner();
        for group in flight.groups.into_iter().rev() {
            inner.closed.push_front(group);
        }
    }

    /// Fails whoever has waited for longer than `deadline`. Who comes later waits in a later batch,
    /// so that it gets its own time.
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

    /// Fails everybody, now and later.
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
    /// Lets nobody join the open batch any more.
    fn close(&mut self) {
        if !self.open.wakers.is_empty() {
            let mut next = Group::new();
            // As many as now will come again, as likely as not.
            next.wakers.reserve(self.open.wakers.len().min(TIMESTAMPS_MAX as usize));
            self.closed.push_back(std::mem::replace(&mut self.open, next));
        }
    }
}

#[cfg(test)]
mod tests;
