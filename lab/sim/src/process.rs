//! Simulates a process as the protocol sees it: with clocks of its own, tasks that die with
//! it, and random numbers from the seed. Also defines the record of a timestamp that it received.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bigtable::Timestamp;
use futures::future::BoxFuture;
use percolator_core::Runtime;

use crate::executor::{Executor, ProcessId};
use crate::random::Rng;
use crate::swarm::Swarm;

/// A timestamp that reached a client: the virtual times of its request and of its arrival, and
/// the oracle that gave it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given {
    pub(crate) timestamp: Timestamp,
    pub(crate) asked: Duration,
    pub(crate) arrived: Duration,
    pub(crate) by: ProcessId,
}

const MILLION: i128 = 1_000_000;

/// A process's clocks.
#[derive(Debug)]
pub(crate) struct Clock {
    /// How much faster than virtual time the monotonic clock runs, in parts per million.
    drift_ppm: i64,
    /// The monotonic clock's reading at the beginning of virtual time.
    origin: Duration,
    wall_offset_ms: AtomicI64,
}

impl Clock {
    pub(crate) fn draw(rng: &mut Rng, swarm: &Swarm) -> Self {
        let mut signed = |max: u64| rng.between(0, 2 * max) as i64 - max as i64;
        let drift_ppm = signed(swarm.drift_ppm_max);
        let wall_offset_ms = AtomicI64::new(signed(swarm.wall_offset_ms_max));
        Clock { drift_ppm, origin: Duration::from_millis(rng.below(10_000_000)), wall_offset_ms }
    }

    /// Steps the wall clock.
    pub(crate) fn step(&self, ms: i64) {
        self.wall_offset_ms.fetch_add(ms, Ordering::Relaxed);
    }

    fn monotonic(&self, virtual_time: Duration) -> Duration {
        self.origin + scaled(virtual_time, MILLION + i128::from(self.drift_ppm), MILLION)
    }

    fn virtual_time(&self, own: Duration) -> Duration {
        scaled(own, MILLION, MILLION + i128::from(self.drift_ppm))
    }
}

fn scaled(time: Duration, by: i128, of: i128) -> Duration {
    let nanos = time.as_nanos() as i128 * by / of;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The runtime of one process.
#[derive(Clone)]
pub(crate) struct ProcessRuntime {
    pub(crate) executor: Executor,
    pub(crate) process: ProcessId,
    pub(crate) clock: Arc<Clock>,
}

impl fmt::Debug for ProcessRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProcessRuntime").field(&self.process).finish()
    }
}

impl Runtime for ProcessRuntime {
    fn now(&self) -> Duration {
        self.clock.monotonic(self.executor.now())
    }

    fn wall_ms(&self) -> u64 {
        let offset = self.clock.wall_offset_ms.load(Ordering::Relaxed);
        let ms = 1_300_000_000_000 + self.executor.now().as_millis() as u64;
        ms.saturating_add_signed(offset)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(self.executor.sleep(self.clock.virtual_time(duration)))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.executor.spawn(self.process, task);
    }

    fn random(&self) -> u64 {
        self.executor.draw(Rng::next)
    }
}
