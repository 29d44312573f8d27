//! Implements the clock for everything that must not happen too late.
//!
//! The clock runs while the machine sleeps. On Linux, the clocks of `std` and of tokio stand
//! still then. A request that waited through an hour of sleep would look milliseconds old. The
//! server would apply it, although its sender has long concluded that this cannot happen any
//! more.

use std::time::Duration;
#[cfg(not(target_os = "linux"))]
use std::time::Instant;

/// A moment on a clock that runs while the machine sleeps, and that nobody sets.
///
/// ```
/// use std::time::Duration;
/// let begun = cluster_net::Moment::now();
/// let due = begun.later(Duration::from_secs(60));
/// assert!(!due.is_over() && due.elapsed() == Duration::ZERO);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

/// Simulated sleep of the machine: no test can put the machine to sleep.
#[cfg(feature = "test-sleep")]
static SLEPT_SECONDS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

impl Moment {
    /// The current moment.
    pub fn now() -> Self {
        #[cfg(feature = "test-sleep")]
        let slept = SLEPT_SECONDS.load(std::sync::atomic::Ordering::SeqCst);
        #[cfg(not(feature = "test-sleep"))]
        let slept = 0;
        Moment(Moment::read() + Duration::from_secs(slept))
    }

    /// Simulates that the machine has slept for this many seconds: all moments pass, and timers
    /// stand still. For tests, each in a process of its own.
    #[cfg(feature = "test-sleep")]
    pub fn sleep_machine(seconds: u64) {
        SLEPT_SECONDS.fetch_add(seconds, std::sync::atomic::Ordering::SeqCst);
    }

    #[cfg(target_os = "linux")]
    fn read() -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
        seconds + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
    }

    /// On other systems, the clock of `std` either counts sleep or is the best that exists.
    #[cfg(not(target_os = "linux"))]
    fn read() -> Duration {
        static FIRST: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        FIRST.get_or_init(Instant::now).elapsed()
    }

    /// The moment that is `by` later.
    #[must_use]
    pub fn later(self, by: Duration) -> Self {
        Moment(self.0.saturating_add(by))
    }

    /// Time since this moment; zero if it lies in the future.
    pub fn elapsed(self) -> Duration {
        Moment::now().0.saturating_sub(self.0)
    }

    /// True if the moment has passed.
    pub fn is_over(self) -> bool {
        Moment::now() >= self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_pass() {
        let then = Moment::now();
        assert!(then.is_over());
        assert!(!then.later(Duration::from_secs(3600)).is_over());
        assert!(!then.later(Duration::MAX).is_over());
        assert_eq!(then.later(Duration::from_secs(3600)).elapsed(), Duration::ZERO);
    }

    /// The machine's uptime counts sleep; the clock of `std` does not.
    #[cfg(target_os = "linux")]
    #[test]
    fn it_is_the_clock_that_counts_sleep() {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let seconds: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        let apart = (Moment::now().0.as_secs_f64() - seconds).abs();
        assert!(apart < 60.0, "{apart} seconds from /proc/uptime");
    }
}
