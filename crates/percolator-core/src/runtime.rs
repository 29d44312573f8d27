//! Defines [`Runtime`], through which this crate reads clocks, sleeps, spawns tasks and draws
//! random numbers.
//!
//! No other code of this crate may do any of that. So production and simulation differ only
//! here and in the store, and a simulated run depends on its seed alone.

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

    /// Wall-clock time in milliseconds since 1970. It may jump; safety does not depend on it.
    fn wall_ms(&self) -> u64;

    /// Completes once `duration` has passed since this call, however late it is first polled.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;

    /// Runs a task to its end, even if the caller is dropped before.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// A uniformly random number.
    fn random(&self) -> u64;

    /// Takes turns of the task that is being polled. Returns `Ready` if it has taken all of them,
    /// and the task may go on. Returns `Pending` if other tasks should run before the next turn;
    /// `turns` is then the number that is still to be taken.
    ///
    /// A store in this process answers at once. A task that only reads would never be pending,
    /// and would keep its thread from all other tasks. Clients therefore take a turn before each
    /// read, and several before a commit and for a page of a scan. The default implementation
    /// counts none, and always lets the task go on.
    fn poll_turns(&self, turns: &mut usize, context: &mut Context<'_>) -> Poll<()> {
        let _ = (turns, context);
        Poll::Ready(())
    }
}

/// The number of scanned rows that cost about as much time as one commit.
pub(crate) const ROWS_OF_A_COMMIT: usize = 64;

/// Draws a random name for a new life of a client.
pub fn fresh_incarnation(runtime: &dyn Runtime) -> Incarnation {
    Incarnation(u128::from(runtime.random()) << 64 | u128::from(runtime.random()))
}

/// Waiting times that double each time up to a bound. The jitter is half of each step, so that
/// tasks that collided once do not collide again.
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
