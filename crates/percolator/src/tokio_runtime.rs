//! The production [`Runtime`]: tokio's timers and tasks, and the machine's clocks and
//! randomness.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
#[cfg(not(target_os = "linux"))]
use std::time::Instant;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::BoxFuture;
use percolator_core::Runtime;
use tokio::runtime::Handle;
use tokio::task::coop;

/// The time, tasks and randomness of a tokio runtime.
///
/// ```
/// use percolator::runtime::Runtime;
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let runtime = percolator::runtime::TokioRuntime::current();
/// let before = runtime.now();
/// runtime.sleep(std::time::Duration::from_millis(1)).await;
/// assert!(runtime.now() > before);
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct TokioRuntime {
    handle: Handle,
    born: Moment,
}

/// A moment on a clock that goes on while the machine sleeps. With a clock that stops, a lease
/// that expired during the sleep would be taken for valid afterwards (H41).
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy)]
struct Moment(Duration);

#[cfg(target_os = "linux")]
impl Moment {
    fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
        Moment(seconds + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0)))
    }

    fn elapsed(self) -> Duration {
        Moment::now().0.saturating_sub(self.0)
    }
}

/// On other systems, `Instant` is the closest to such a clock.
#[cfg(not(target_os = "linux"))]
type Moment = Instant;

impl TokioRuntime {
    /// Returns the tokio runtime in which this code runs.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn current() -> Self {
        TokioRuntime { handle: Handle::current(), born: Moment::now() }
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

    /// Each poll uses the timer of the runtime in which it happens. If a caller drops its
    /// commit, the commit goes on in the database's runtime, and the caller's runtime may have
    /// ended by then.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let of = || Handle::try_current().map(|handle| handle.id()).ok();
        let mut asleep = (of(), Box::pin(tokio::time::sleep(duration)));
        let until = asleep.1.deadline();
        Box::pin(poll_fn(move |context| {
            let here = of();
            if here.is_some() && here != asleep.0 {
                asleep = (here, Box::pin(tokio::time::sleep_until(until)));
            }
            asleep.1.as_mut().poll(context)
        }))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.handle.spawn(task);
    }

    fn random(&self) -> u64 {
        getrandom::u64().expect("an operating system gives random numbers to every process")
    }

    fn poll_turns(&self, turns: &mut usize, context: &mut Context<'_>) -> Poll<()> {
        while *turns > 0 {
            ready!(coop::poll_proceed(context)).made_progress();
            *turns -= 1;
        }
        Poll::Ready(())
    }
}
