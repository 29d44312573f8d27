//! The production [`Runtime`]: tokio's timers and tasks, the machine's clocks and randomness.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::future::BoxFuture;
use percolator_core::Runtime;

/// Time, tasks and randomness of a tokio runtime.
///
/// ```
/// use percolator::Runtime;
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let runtime = percolator::TokioRuntime::current();
/// let before = runtime.now();
/// runtime.sleep(std::time::Duration::from_millis(1)).await;
/// assert!(runtime.now() > before);
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct TokioRuntime {
    handle: tokio::runtime::Handle,
    born: Instant,
}

impl TokioRuntime {
    /// The tokio runtime that this code runs in.
    ///
    /// # Panics
    /// Outside of one.
    pub fn current() -> Self {
        TokioRuntime { handle: tokio::runtime::Handle::current(), born: Instant::now() }
    }
}

impl Runtime for TokioRuntime {
    fn now(&self) -> Duration {
        self.born.elapsed()
    }

    fn wall_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.handle.spawn(task);
    }

    fn random(&self) -> u64 {
        rand::random()
    }
}
