//! Runs one round of garbage collection: raises the safe point, sweeps locks, and drops
//! versions.
//!
//! The order matters: nothing is dropped before the safe point is durable and every lock below
//! it is resolved.

use std::time::Duration;

use bigtable::Timestamp;

use crate::Result;
use crate::gc::collect::{collect_tables, let_stores_drop};
use crate::gc::pace::Pace;
use crate::gc::readers::{Lapsed, oldest_readers};
use crate::gc::report::{GcCounts, GcReport, GcStatus, LastRound, OldestReader};
use crate::gc::safe_point::{
    beyond_retention, last_round, recall, sample, store_round, wait_for_retention,
};
use crate::gc::sweep::sweep_locks;
use crate::gc::tally::Tally;
use crate::gc::unfenced::{
    check_retention, learn_longest_life, raise_safe_point, safe_point, store_swept,
};
use crate::mutants::{self, off};
use crate::shared::Shared;
use crate::watch::Event;

/// Collects garbage once: versions that were overwritten or deleted more than `retention` ago,
/// and that are below every open timestamp. The round runs at full speed; for regular use
/// there is [`collect_in_background`](crate::Client::collect_in_background).
pub(crate) async fn gc(shared: &Shared, retention: Duration) -> Result<GcReport> {
    check_retention(shared, retention)?;
    sample(shared).await?;
    wait_for_retention(shared, retention).await?;
    let begun = begun(shared);
    let (report, _) = run(shared, retention, Pace::full(), Scope::All(0)).await?;
    emit_collected(shared, &report, begun);
    Ok(report)
}

/// The time at which a round begins. `None` without a watcher.
pub(super) fn begun(shared: &Shared) -> Option<Duration> {
    shared.watcher().map(|_| shared.runtime().now())
}

/// Reports a round to the watcher, if there was one when the round began.
pub(super) fn emit_collected(shared: &Shared, report: &GcReport, begun: Option<Duration>) {
    if let Some(begun) = begun {
        let took = shared.runtime().now().saturating_sub(begun);
        shared.emit(|| Event::Collected { report, took });
    }
}

/// Returns the state of garbage collection. Writes nothing, and issues no timestamp.
pub(crate) async fn gc_status(shared: &Shared, retention: Duration) -> Result<GcStatus> {
    let latest = recall(shared).await?;
    let readers = oldest_readers(shared, latest, Lapsed::Stay).await?;
    status(shared, retention, latest, readers).await
}

/// Returns the state of garbage collection at the beginning of a round. Notes when the latest
/// timestamp was issued, and removes registrations that have lapsed.
async fn begin(shared: &Shared, retention: Duration) -> Result<GcStatus> {
    let latest = sample(shared).await?;
    let readers = oldest_readers(shared, latest, Lapsed::AreRemoved).await?;
    status(shared, retention, latest, readers).await
}

async fn status(
    shared: &Shared,
    retention: Duration,
    latest: Timestamp,
    mut readers: Vec<OldestReader>,
) -> Result<GcStatus> {
    readers.sort_by_key(|reader| reader.oldest);
    let next = readers.iter().map(|reader| reader.oldest).min().unwrap_or(latest);
    let safe_point = safe_point(shared).await?;
    let last = last_round(shared).await?;
    // Without a floor, a reader that began before may still read below the safe point.
    let lowest = match shared.unfenced() {
        None => safe_point,
        Some(_) => last.as_ref().map_or(Timestamp::ZERO, |last| last.collected),
    };
    let next = next.min(beyond_retention(shared, retention, latest)).max(lowest);
    Ok(GcStatus { safe_point, latest, next, readers, last })
}

/// How much a round does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// The stores may drop more by themselves, if the safe point is above this timestamp. The round
    /// reads only locks.
    InMerges(Timestamp),
    /// The round also reads all tables, and drops what the stores do not. Shorter rounds before it
    /// have resolved so many locks.
    All(u64),
}

/// Runs a round. Also returns whether the next one that reads all tables can wait for longer than
/// usual.
pub(super) async fn run(
    shared: &Shared,
    retention: Duration,
    mut pace: Pace,
    scope: Scope,
) -> Result<(GcReport, bool)> {
    learn_longest_life(shared).await?;
    check_retention(shared, retention)?;
    let announced = announce(shared, retention).await?;
    let GcStatus { next, last, .. } = begin(shared, retention).await?;
    let safe_point = next.min(announced);
    let collected = last.map_or(Timestamp::ZERO, |last| last.collected);
    let mut report = GcReport { safe_point, blocked_by: None, counts: GcCounts::default() };
    let (done, locks) = match scope {
        Scope::InMerges(dropped) => (collected.max(dropped), 0),
        Scope::All(locks) => (collected, locks),
    };
    if safe_point <= done {
        return Ok((report, false));
    }
    let store = &shared.services().store;
    raise_safe_point(shared, safe_point).await?;
    let mut tally = Tally::default();
    tally.counts.locks = locks;
    if !off(mutants::GC_BEFORE_LOCKS) {
        let counts = &mut tally.counts;
        report.blocked_by = sweep_locks(shared, safe_point, &mut pace, counts).await?;
    }
    let blocked = report.blocked_by.is_some();
    if !blocked {
        store_swept(shared, safe_point).await?;
        if !off(mutants::DROPPED_BEFORE_SYNC) {
            // A merge must not outlive what the sweep has written (H79).
            store.sync().await?;
        }
        let_stores_drop(shared, safe_point, &mut tally).await?;
        if let Scope::All(_) = scope {
            collect_tables(shared, safe_point, &mut pace, &mut tally).await?;
        }
    }
    let counts = tally.counts;
    report.counts = counts;
    if let Scope::InMerges(_) = scope {
        tracing::debug!(
            target: "percolator::gc", event = "gc_short_round", safe_point = safe_point.as_u64(),
            blocked, ?counts, "the store may drop more versions by itself"
        );
        return Ok((report, false));
    }
    let collected = if blocked { collected } else { safe_point };
    let wall_ms = shared.runtime().wall_ms();
    store_round(shared, &LastRound { wall_ms, safe_point, collected, blocked, counts }).await?;
    tracing::info!(
        target: "percolator::gc", event = "gc_round", safe_point = safe_point.as_u64(), blocked,
        ?counts, "a round of garbage collection has ended"
    );
    if counts.dropped() {
        store.reclaim().await?;
    }
    Ok((report, !blocked && tally.can_wait()))
}

/// On a store without a floor: stores how far this round may go, before it reads any
/// registration. A reader that registers later then finds this safe point. Returns the safe
/// point.
async fn announce(shared: &Shared, retention: Duration) -> Result<Timestamp> {
    if shared.unfenced().is_none() {
        return Ok(Timestamp::MAX);
    }
    let latest = sample(shared).await?;
    let reach = beyond_retention(shared, retention, latest);
    raise_safe_point(shared, reach).await?;
    Ok(reach)
}
