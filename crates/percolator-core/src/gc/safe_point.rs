//! Computes the safe point, up to which collection may go. The safe point trails the present
//! by a retention, and stays at or below every registered reader.
//!
//! A retention is a time, and the safe point is a timestamp. A list of samples translates
//! between them: "at this moment this was the latest timestamp". Within one process the
//! moments come from the monotonic clock. The list is also stored, with wall times, so that a
//! short-lived process can collect at all. A wall clock that jumps only makes the retention of
//! one round longer or shorter. Readers stay protected by their registrations and by the
//! store's floor.

use std::time::Duration;

use bigtable::{ConditionalMutation, Mutation, Timestamp};
use bytes::Bytes;

use crate::Result;
use crate::gc::readers::{Lapsed, oldest_readers};
use crate::gc::record::{ROW, read, replace};
use crate::gc::report::LastRound;
use crate::gc::samples::Age;
use crate::gc::unfenced::retention_min;
use crate::records::layout::SYSTEM;
use crate::shared::Shared;

const SAMPLES: &str = "samples";
const STATE: &str = "state";

/// Notes the latest timestamp in memory, and in the store if it is a new one. Returns it.
pub(super) async fn sample(shared: &Shared) -> Result<Timestamp> {
    let latest = shared.oracle().peek().await?;
    shared.collection().lived().note(now_ms(shared), latest);
    if shared.collection().samples().stored.is_none() {
        let value = read(shared.system(), SAMPLES).await?.unwrap_or_default();
        merge_samples(shared, &value)?;
    }
    let (now_ms, wall_ms) = (now_ms(shared), shared.runtime().wall_ms());
    let (old, new) = {
        let mut samples = shared.collection().samples();
        if !samples.note(now_ms, latest) {
            return Ok(latest);
        }
        (samples.stored.clone().unwrap_or_default(), samples.encode(now_ms, wall_ms))
    };
    if replace(shared.system(), SAMPLES, &old, new.clone()).await? {
        shared.collection().samples().stored = Some(new)
    } else {
        // Another client has stored its samples, or a reply was lost. Merge the stored
        // samples, and store the union with the next sample.
        let value = read(shared.system(), SAMPLES).await?.unwrap_or_default();
        merge_samples(shared, &value)?;
    }
    Ok(latest)
}

/// Reads the samples that the store has. Returns the latest timestamp without noting it,
/// because a sample in memory alone would never be stored.
pub(super) async fn recall(shared: &Shared) -> Result<Timestamp> {
    let latest = shared.oracle().peek().await?;
    let value = read(shared.system(), SAMPLES).await?.unwrap_or_default();
    merge_samples(shared, &value)?;
    Ok(latest)
}

/// Returns how old timestamps are. Notes the latest one, so that its age will be known later.
pub(crate) async fn ages(shared: &Shared, timestamps: &[Timestamp]) -> Result<Vec<Age>> {
    sample(shared).await?;
    let now_ms = now_ms(shared);
    let samples = shared.collection().samples();
    Ok(timestamps.iter().map(|ts| samples.age_of(now_ms, *ts)).collect())
}

fn merge_samples(shared: &Shared, value: &Bytes) -> Result<()> {
    let (now_ms, wall_ms) = (now_ms(shared), shared.runtime().wall_ms());
    let mut samples = shared.collection().samples();
    if value.is_empty() {
        samples.stored.get_or_insert_default();
        return Ok(());
    }
    samples.merge(value, now_ms, wall_ms)
}

/// The highest timestamp that the retention allows, before readers are considered.
pub(super) fn beyond_retention(
    shared: &Shared,
    retention: Duration,
    latest: Timestamp,
) -> Timestamp {
    if retention.is_zero() {
        return latest;
    }
    let reach = shared.collection().samples().older_than(now_ms(shared), retention).min(latest);
    match shared.unfenced() {
        None => reach,
        // Young readers rely on the retention, so no wall clock may decide how old they are.
        Some(_) => reach.min(lived_through(shared, retention)),
    }
}

/// The highest timestamp that is older than the shortest retention, by this client's own
/// monotonic clock.
fn lived_through(shared: &Shared, retention: Duration) -> Timestamp {
    let min = retention.min(retention_min(shared));
    shared.collection().lived().older_than(now_ms(shared), min)
}

/// On a store without a floor: waits until this client has seen timestamps grow old enough.
pub(super) async fn wait_for_retention(shared: &Shared, retention: Duration) -> Result<()> {
    let min = retention.min(retention_min(shared));
    if shared.unfenced().is_none() || lived_through(shared, retention) > Timestamp::ZERO {
        return Ok(());
    }
    // From now on this client watches the registrations of others.
    let latest = sample(shared).await?;
    oldest_readers(shared, latest, Lapsed::AreRemoved).await?;
    // After this sleep, an unchanged registration has lapsed.
    shared.runtime().sleep(min + Duration::from_millis(1)).await;
    Ok(())
}

fn now_ms(shared: &Shared) -> i64 {
    i64::try_from(shared.runtime().now().as_millis()).unwrap_or(i64::MAX)
}

/// Reads the record of the last round.
pub(super) async fn last_round(shared: &Shared) -> Result<Option<LastRound>> {
    read(shared.system(), STATE).await?.map(|value| LastRound::decode(&value)).transpose()
}

/// Stores the record of a round. Rounds of two clients may overwrite each other's record. The
/// record may then name a lower timestamp than was collected, and the next round repeats some
/// work.
pub(super) async fn store_round(shared: &Shared, round: &LastRound) -> Result<()> {
    let set = Mutation::set(SYSTEM, STATE, Timestamp::ZERO, round.encode());
    let request = ConditionalMutation { otherwise: vec![set], ..ConditionalMutation::new(ROW) };
    shared.system().check_and_mutate_row(request).await?;
    Ok(())
}
