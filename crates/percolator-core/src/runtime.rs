//! The world outside: time, sleep, tasks and randomness.
//!
//! Nothing in this crate reads a clock, sleeps, spawns or draws a random number but through this
//! trait. Production and simulation differ only here and in the store.

use crate::records::lock::Incarnation;
use std::fmt::Debug;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;

/// Time, sleep, tasks and randomness for a [`Client`](crate::Client).
///
/// ```
/// # percolator_core::doc_test(|client| async move {
/// let runtime = client.runtime();
/// let before = runtime.now();
/// runtime.sleep(std::time::Duration::from_millis(1)).await;
/// assert!(runtime.now() > before);
/// # Ok(()) });
/// ```
pub trait Runtime: Send + Sync + Debug {
    /// Monotonic time since some fixed moment. Never goes back.
    fn now(&self) -> Duration;

    /// Wall-clock time in milliseconds since 1970. May jump; safety does not depend on it.
    fn wall_ms(&self) -> u64;

    /// Completes after `duration`.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;

    /// Runs a task to its end, whatever becomes of the caller.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// A uniformly random number.
    fn random(&self) -> u64;

    /// Ready if the task that is being polled may go on; pending if other tasks are to have their
    /// turn first.
    ///
    /// A store in this process answers at once. A task that only reads would never be pending, and
    /// would keep its thread from all others. So clients ask before each read, and several times
    /// for a page of a scan. Without an implementation of its own, a runtime lets each task go on.
    fn poll_turn(&self, context: &mut Context<'_>) -> Poll<()> {
        let _ = context;
        Poll::Ready(())
    }
}

/// A commit takes as long as a page of so many rows.
pub(crate) const ROWS_OF_A_COMMIT: usize = 128;

/// A name for a new life of a client (H17).
pub fn fresh_incarnation(runtime: &dyn Runtime) -> Incarnation {
    Incarnation(u128::from(runtime.random()) << 64 | u128::from(runtime.random()))
}

/// Waiting times that grow: doubled each time up to a bound, with jitter of half their length, so
/// that those who collided do not collide again.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, max: Duration) -> Self {
        Backoff { next: first, max }
    }

    /// The next waiting time: between half and all of the current step.
    pub(crate) fn step(&mut self, runtime: &dyn Runtime) -> Duration {
        let step = self.next;
        self.next = (step * 2).min(self.max);
        let half = (step / 2).as_nanos().max(1) as u64;
        step / 2 + Duration::from_nanos(runtime.random() % half)
    }
}
