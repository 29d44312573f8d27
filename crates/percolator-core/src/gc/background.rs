//! Runs rounds of garbage collection in the background, with a small share of the machine.
//!
//! The task holds the client, and with it the store. A caller that closes a database must not
//! have to wait for the task. So the task's future is kept where its handle can reach it
//! ([`slot`]). Dropping the handle drops the future at its current await, with everything that
//! it holds.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigtable::Timestamp;
use futures::future::{BoxFuture, join};

use crate::gc::pace::Pace;
use crate::gc::readers::renew_registration;
use crate::gc::registration::LIFETIME;
use crate::gc::round::{Scope, begun, emit_collected, run};
use crate::gc::safe_point::{beyond_retention, sample};
use crate::gc::slot::{self, Slot, Task, Work};
use crate::shared::Shared;
use crate::{Holder, Result};

/// How often a registration is renewed, and the longest time between two looks for garbage.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(LIFETIME.as_secs() / 3);
const LOOK_EVERY_MIN: Duration = Duration::from_millis(20);
/// How many looks there are within one retention.
const STEPS: u32 = 32;
/// The name of the advisory lock on collecting. It only saves work: two collectors at a time
/// do no harm.
const LOCK: &[u8] = b"gc";
const LOCK_LIFETIME: Duration = Duration::from_secs(600);
/// The longest time from the end of a long round to the next round.
const REST_MAX: Duration = Duration::from_secs(300);
/// The same, where stores drop nearly all of the garbage by themselves.
const LONG_REST_MAX: Duration = Duration::from_secs(1800);
/// Then a rest is as long as so many rounds.
const LONG_REST: u32 = 9;

/// The options of garbage collection in the background.
///
/// ```
/// # use percolator_core::face as percolator;
/// use percolator::admin::GcOptions;
/// let retention = std::time::Duration::from_secs(60);
/// let options = GcOptions { retention, ..GcOptions::default() };
/// assert!(options.share < 0.5);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct GcOptions {
    /// How long old versions stay readable. A transaction or snapshot that is open for longer
    /// keeps its versions, if its client runs a [`Collector`]. On a store without a floor, set
    /// at least [`retention_min`](crate::Client::retention_min). With less nothing is
    /// collected, and each look logs why. Default: 600 s.
    pub retention: Duration,
    /// The shortest time from the end of one round to the next. After a round that took longer, the
    /// next one waits for as long as that round took, at most five minutes. An embedded store drops
    /// most overwritten versions by itself. There a round that reads the store waits nine times as
    /// long as the last one took, at most half an hour. It waits less if the last one found much
    /// else to drop. Default: 60 s.
    pub interval: Duration,
    /// The share of one core that a round takes, between 0 and 1. It is exact only while the
    /// pieces of work are short, because no rest is longer than a second. It does not include
    /// the store's own work to give the space back. Default: 0.1.
    pub share: f64,
}

impl Default for GcOptions {
    fn default() -> Self {
        GcOptions {
            retention: Duration::from_secs(600),
            interval: Duration::from_secs(60),
            share: 0.1,
        }
    }
}

/// A running garbage collection. Dropping it ends the collection at once, even in the middle
/// of a round. The next round does the rest.
///
/// See [`Client::collect_in_background`](crate::Client::collect_in_background).
#[must_use = "dropping it ends the collection"]
pub struct Collector {
    task: Arc<Slot>,
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Collector")
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        slot::end(&self.task);
    }
}

/// Collects garbage in the background from now on, and keeps this client registered as a
/// reader of its open timestamps. A database without writes costs nothing, and no timestamps
/// are issued.
pub(crate) fn collect_in_background(shared: &Arc<Shared>, options: GcOptions) -> Collector {
    let future: BoxFuture<'static, ()> = Box::pin(collect(shared.clone(), options));
    let task = Arc::new(Mutex::new(Work::new(future)));
    shared.closing().add_collector(&task);
    shared.runtime().spawn(Box::pin(Task(task.clone())));
    Collector { task }
}

/// Releases the advisory lock when dropped, also when the task is dropped in the middle of a
/// round.
struct Alone<'a>(&'a Shared, Holder);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.locks().unlock(LOCK, self.1);
    }
}

/// The task's memory from one look to the next.
#[derive(Debug, Default)]
struct Memory {
    /// Up to which timestamp everything is collected, as far as this task knows.
    collected: Timestamp,
    /// Up to which timestamp the stores may drop versions by themselves.
    dropped: Timestamp,
    /// The locks that rounds have resolved since the last one that read all tables.
    locks: u64,
    /// When the next round may begin.
    not_before: Duration,
    /// When the next round may begin that reads all tables.
    all_not_before: Duration,
}

impl Memory {
    /// The scope of a round that begins now, and up to which timestamp nothing is left for it.
    fn next(&self, now: Duration) -> (Scope, Timestamp) {
        if now < self.all_not_before {
            (Scope::InMerges(self.dropped), self.dropped)
        } else {
            (Scope::All(self.locks), self.collected)
        }
    }
}

/// Registers and collects concurrently, because a round may take longer than a registration
/// lives.
async fn collect(shared: Arc<Shared>, options: GcOptions) {
    match shared.unfenced() {
        None => drop(join(keep_registered(&shared), keep_collecting(&shared, &options)).await),
        // On a store without a floor every client registers, whether it collects or not.
        Some(_) => keep_collecting(&shared, &options).await,
    }
}

/// Renews this client's registration as a reader.
async fn keep_registered(shared: &Arc<Shared>) {
    let mut before = Timestamp::ZERO;
    // Random, because the registration must differ from one of an earlier collector of this
    // client.
    let mut renewals = shared.runtime().random() >> 1;
    loop {
        let renewed = async {
            let latest = shared.oracle().peek().await?;
            renew_registration(shared, before, renewals).await?;
            before = latest;
            Ok::<(), crate::Error>(())
        };
        if let Err(error) = renewed.await {
            tracing::warn!(target: "percolator::gc", event = "registration_error", %error);
        }
        renewals += 1;
        shared.runtime().sleep(LOOK_EVERY_MAX).await;
    }
}

async fn keep_collecting(shared: &Shared, options: &GcOptions) {
    let look_every = (options.retention / STEPS).clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX);
    let mut memory = Memory::default();
    loop {
        if let Err(error) = look(shared, options, &mut memory).await {
            // The next look tries again.
            tracing::warn!(target: "percolator::gc", event = "gc_error", %error);
        }
        shared.runtime().sleep(look_every).await;
    }
}

/// The time from the end of a round that read all tables, and took `took`, to the next such
/// round.
///
/// Such a round reads the whole store, however little there is to drop. In a large store, rounds
/// that follow each other without a rest would find little each. The rest is bounded, so that
/// rounds keep up with many overwritten versions. It is long if stores drop nearly all of these by
/// themselves.
fn rest(interval: Duration, took: Duration, can_wait: bool) -> Duration {
    let rest = if can_wait { (took * LONG_REST).min(LONG_REST_MAX) } else { took.min(REST_MAX) };
    interval.max(rest)
}

async fn look(shared: &Shared, options: &GcOptions, memory: &mut Memory) -> Result<()> {
    let latest = sample(shared).await?;
    let wanted = beyond_retention(shared, options.retention, latest);
    let since = shared.runtime().now();
    let (scope, done) = memory.next(since);
    if wanted <= done || since < memory.not_before {
        return Ok(());
    }
    let holder = shared.next_holder();
    if !shared.locks().try_lock(LOCK, holder, LOCK_LIFETIME).await? {
        return Ok(());
    }
    let alone = Alone(shared, holder);
    let pace = Pace::share(options.share, since);
    let begun = begun(shared);
    let round = run(shared, options.retention, pace, scope).await;
    drop(alone);
    let now = shared.runtime().now();
    memory.not_before = now + options.interval;
    let reads_all = matches!(scope, Scope::All(_));
    if reads_all {
        let can_wait = round.as_ref().is_ok_and(|(_, can_wait)| *can_wait);
        memory.all_not_before = now + rest(options.interval, now.saturating_sub(since), can_wait);
        if !can_wait {
            memory.not_before = memory.all_not_before;
        }
    }
    let (report, _) = round?;
    if report.blocked_by.is_none() {
        memory.dropped = report.safe_point;
    }
    if !reads_all {
        memory.locks += report.counts.locks;
        return Ok(());
    }
    memory.locks = 0;
    emit_collected(shared, &report, begun);
    if report.blocked_by.is_none() {
        memory.collected = report.safe_point;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_round_waits_as_long_as_the_last_one_took_within_bounds() {
        let seconds = Duration::from_secs;
        let rests =
            |interval, took, can_wait| rest(seconds(interval), seconds(took), can_wait).as_secs();
        assert_eq!([1, 90, 3_600].map(|took| rests(60, took, false)), [60, 90, 300]);
        assert_eq!([1, 90, 3_600].map(|took| rests(60, took, true)), [60, 810, 1_800]);
        assert_eq!(rests(600, 3_600, false), 600, "a longer interval is kept");
    }
}
