//! The calls of one connection that wait for their answers.
//!
//! A request that was not sent can be repeated elsewhere. A request of which a part was sent may be
//! applied, whatever its caller does. So each call knows whether its request was sent. Such a call
//! stays here until its answer or its deadline, also if its caller gives up.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use bigtable::sync::locked;
use bytes::{Bytes, BytesMut};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

use crate::failure::Failure;

/// How often the calls are looked at while any waits.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(crate) type Answer = Result<Bytes, Failure>;

/// A call that waits for its answer.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) caller: oneshot::Sender<Answer>,
    /// The request; `None` once a part of it may have reached the server.
    pub(crate) frame: Option<BytesMut>,
    pub(crate) until: Instant,
}

/// The calls that wait for an answer.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    waiting: Mutex<HashMap<u32, Call>>,
    /// Told of each call that begins to wait.
    begun: Notify,
    broken: watch::Sender<bool>,
}

impl Calls {
    /// Adds a call; `false` if the connection is gone.
    pub(crate) fn add(&self, call_id: u32, call: Call) -> bool {
        let mut waiting = locked(&self.waiting);
        if self.are_over() {
            return false;
        }
        waiting.insert(call_id, call);
        self.begun.notify_one();
        true
    }

    pub(crate) fn take(&self, call_id: u32) -> Option<Call> {
        locked(&self.waiting).remove(&call_id)
    }

    /// Returns the request of a call, to be written now, and its deadline. `None` if the deadline
    /// has passed, or if nobody waits for the answer.
    pub(crate) fn send(&self, call_id: u32) -> Option<(BytesMut, Instant)> {
        let mut waiting = locked(&self.waiting);
        let call = waiting.get_mut(&call_id).filter(|call| call.until > Instant::now())?;
        Some((call.frame.take()?, call.until))
    }

    /// Whether a call still waits.
    pub(crate) fn has(&self, call_id: u32) -> bool {
        locked(&self.waiting).contains_key(&call_id)
    }

    /// Removes a call whose caller has given up, unless its request may have reached the server.
    /// Returns whether the call was removed.
    pub(crate) fn withdraw(&self, call_id: u32) -> bool {
        let mut waiting = locked(&self.waiting);
        let unsent = waiting.get(&call_id).is_some_and(|call| call.frame.is_some());
        unsent && waiting.remove(&call_id).is_some()
    }

    /// Ends all calls, because the connection is gone.
    pub(crate) fn end(&self, failure: &Failure) {
        // A caller that sees the end finds its failure.
        let mut waiting = locked(&self.waiting);
        self.broken.send_replace(true);
        for (_, Call { caller, frame, .. }) in waiting.drain() {
            let _ = caller.send(Err(match failure {
                Failure::Lost(why) if frame.is_some() => {
                    Failure::Moved(format!("the request was not sent: {why}"))
                }
                failure => failure.clone(),
            }));
        }
    }

    pub(crate) fn are_over(&self) -> bool {
        *self.broken.borrow()
    }

    /// Waits until the connection is gone.
    pub(crate) async fn over(&self) {
        let _ = self.broken.subscribe().wait_for(|broken| *broken).await;
    }

    /// Waits until a request that was sent has had no answer at its deadline.
    pub(crate) async fn overdue(&self) {
        loop {
            let begun = self.begun.notified();
            let now = Instant::now();
            let (is_empty, earliest) = {
                let waiting = locked(&self.waiting);
                let sent = waiting.values().filter(|call| call.frame.is_none());
                (waiting.is_empty(), sent.map(|call| call.until).min())
            };
            match earliest {
                Some(until) if until <= now => return,
                None if is_empty => begun.await,
                earliest => {
                    let next = now + LOOK_EVERY;
                    let next = earliest.map_or(next, |until| until.min(next));
                    tokio::time::sleep_until(next).await;
                }
            }
        }
    }
}

#[cfg(test)]
impl Calls {
    /// Whether a part of a request may have reached the server.
    pub(crate) fn is_sent(&self, call_id: u32) -> bool {
        locked(&self.waiting).get(&call_id).is_some_and(|call| call.frame.is_none())
    }

    pub(crate) fn is_empty(&self) -> bool {
        locked(&self.waiting).is_empty()
    }
}

/// A caller's wait for its answer. A request that was not sent by the end of the wait never is.
pub(crate) struct Wait<'a>(pub(crate) &'a Calls, pub(crate) u32);

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.0.withdraw(self.1);
    }
}
