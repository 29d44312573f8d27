//! How far collection may go: the safe point trails the present by a retention, and stays at or
//! below every registered reader.
//!
//! A retention is a time, the safe point a timestamp. What translates is a list of samples: "at
//! this moment this was the latest timestamp". In one life the moments are those of the monotonic
//! clock; the list is also stored, with wall times, so that a short-lived process can collect at
//! all. A wall clock that jumps makes the retention of one round longer or shorter, nothing else:
//! readers are protected by their registrations and the store's floor.

use std::collections::VecDeque;
use std::time::Duration;

use bigtable::{
    ConditionalMutation, Mutation, Probe, RowKey, Selection, Table, TimeRange, Timestamp,
};
use bytes::{BufMut, Bytes, BytesMut};

use crate::gc::{GcCounts, LastRound};
use crate::records::codec::Reader;
use crate::records::layout::SYSTEM;
use crate::{Client, Error, Result};

const ROW: &str = "gc";
const SAMPLES: &str = "samples";
const STATE: &str = "state";
/// Most samples that are kept. Those that go leave the gaps in proportion to their age, so that any
/// retention finds one that is little older than it.
const SAMPLES_MAX: usize = 64;
/// How often a record is written while others write it, too.
const WRITES_MAX: usize = 8;

/// When which timestamp was the latest, oldest first.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// Milliseconds of the monotonic clock; those of earlier lives are below zero.
    taken: VecDeque<(i64, Timestamp)>,
    /// What the store held when it was last read or written; `None` before.
    stored: Option<Bytes>,
}

impl Samples {
    /// Notes that `latest` is the latest timestamp now. Returns whether that is news.
    fn note(&mut self, now_ms: i64, latest: Timestamp) -> bool {
        if self.taken.back().is_some_and(|(_, newest)| *newest >= latest) {
            return false;
        }
        self.taken.push_back((now_ms, latest));
        if self.taken.len() > SAMPLES_MAX {
            self.thin_out(now_ms);
        }
        true
    }

    /// Drops the sample that leaves the smallest gap for its age; never the first or the last.
    fn thin_out(&mut self, now_ms: i64) {
        let at = |index: usize| self.taken[index].0;
        let gap = |index: &usize| {
            let gap = at(index + 1).saturating_sub(at(index - 1)) as f64;
            gap / (now_ms.saturating_sub(at(*index)) as f64 + 1.0)
        };
        let inner = 1..self.taken.len().saturating_sub(1);
        if let Some(index) = inner.min_by(|a, b| gap(a).total_cmp(&gap(b))) {
            self.taken.remove(index);
        }
    }

    /// The highest timestamp known to be older than `retention`.
    fn older_than(&self, now_ms: i64, retention: Duration) -> Timestamp {
        let age = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
        let old = |(taken, _): &&(i64, Timestamp)| now_ms.saturating_sub(*taken) >= age;
        self.taken.iter().rev().find(old).map_or(Timestamp::ZERO, |(_, ts)| *ts)
    }

    fn encode(&self, now_ms: i64, wall_ms: u64) -> Bytes {
        let mut out = BytesMut::with_capacity(4 + 16 * self.taken.len());
        // The length first, so that no encoding begins with another.
        out.put_u32(u32::try_from(self.taken.len()).unwrap_or(u32::MAX));
        for (taken, ts) in &self.taken {
            out.put_u64(wall_ms.saturating_add_signed(taken.saturating_sub(now_ms)));
            out.put_u64(ts.as_u64());
        }
        out.freeze()
    }

    /// Takes in what an earlier life, or another client, has stored.
    fn merge(&mut self, value: &Bytes, now_ms: i64, wall_ms: u64) -> Result<()> {
        let mut reader = Reader::new(value);
        let mut parse = || {
            let mut stored = Vec::new();
            for _ in 0..reader.u32()? {
                let wall = reader.u64()?;
                let age = i64::try_from(wall_ms.saturating_sub(wall)).unwrap_or(i64::MAX);
                stored.push((now_ms.saturating_sub(age), Timestamp::new(reader.u64()?)?));
            }
            Some(stored)
        };
        let corrupt = || Error::Corrupt { record: "samples", bytes: value.clone() };
        let mut all = parse().ok_or_else(corrupt)?;
        all.extend(self.taken.drain(..));
        all.sort_by_key(|(taken, ts)| (*ts, *taken));
        all.dedup_by_key(|(_, ts)| *ts);
        for (taken, ts) in all {
            // A higher timestamp was not the latest at an earlier moment.
            let after = self.taken.back().map_or(taken, |(before, _)| taken.max(*before));
            self.note(after, ts);
        }
        self.stored = Some(value.clone());
        Ok(())
    }
}

impl Client {
    /// Notes the latest timestamp, in memory and, if it is news, in the store. Returns it.
    pub(super) async fn sample(&self) -> Result<Timestamp> {
        let latest = self.oracle().peek().await?;
        self.collection().lived().note(self.now_ms(), latest);
        if self.collection().samples().stored.is_none() {
            let value = read(self.system(), SAMPLES).await?.unwrap_or_default();
            self.merge_samples(&value)?;
        }
        let (now_ms, wall_ms) = (self.now_ms(), self.runtime().wall_ms());
        let (old, new) = {
            let mut samples = self.collection().samples();
            if !samples.note(now_ms, latest) {
                return Ok(latest);
            }
            (samples.stored.clone().unwrap_or_default(), samples.encode(now_ms, wall_ms))
        };
        if replace(self.system(), SAMPLES, &old, new.clone()).await? {
            self.collection().samples().stored = Some(new)
        } else {
            // Another client stores its own, or a reply was lost: take in what is there, and store
            // the union with the next sample.

            let value = read(self.system(), SAMPLES).await?.unwrap_or_default();
            self.merge_samples(&value)?;
        }
        Ok(latest)
    }

    fn merge_samples(&self, value: &Bytes) -> Result<()> {
        let (now_ms, wall_ms) = (self.now_ms(), self.runtime().wall_ms());
        let mut samples = self.collection().samples();
        if value.is_empty() {
            samples.stored.get_or_insert_default();
            return Ok(());
        }
        samples.merge(value, now_ms, wall_ms)
    }

    /// The timestamp that the retention allows, readers not yet considered.
    pub(super) fn beyond_retention(&self, retention: Duration, latest: Timestamp) -> Timestamp {
        if retention.is_zero() {
            return latest;
        }
        let reach = self.collection().samples().older_than(self.now_ms(), retention).min(latest);
        match self.unfenced() {
            None => reach,
            // Readers that are young rely on it, so no wall clock may say how old they are.
            Some(_) => reach.min(self.lived_through(retention)),
        }
    }

    /// The highest timestamp that this client knows to be older than the shortest retention, by its
    /// own monotonic clock.
    fn lived_through(&self, retention: Duration) -> Timestamp {
        let min = retention.min(self.retention_min());
        self.collection().lived().older_than(self.now_ms(), min)
    }

    /// Where the store has no floor: waits until this client has seen timestamps grow old enough.
    pub(super) async fn wait_for_retention(&self, retention: Duration) -> Result<()> {
        let min = retention.min(self.retention_min());
        if self.unfenced().is_none() || self.lived_through(retention) > Timestamp::ZERO {
            return Ok(());
        }
        // From now on the registrations of others are watched.
        let latest = self.sample().await?;
        self.oldest_readers(latest).await?;
        // What is registered has lapsed when it was there for longer.
        self.runtime().sleep(min + Duration::from_millis(1)).await;
        Ok(())
    }

    fn now_ms(&self) -> i64 {
        i64::try_from(self.runtime().now().as_millis()).unwrap_or(i64::MAX)
    }

    /// The last round, as the store remembers it.
    pub(super) async fn last_round(&self) -> Result<Option<LastRound>> {
        read(self.system(), STATE).await?.map(|value| LastRound::decode(&value)).transpose()
    }

    /// Remembers a round. Two clients' rounds may overwrite one another; a round that finds less
    /// collected than is only looks at more.
    pub(super) async fn store_round(&self, round: &LastRound) -> Result<()> {
        let set = Mutation::set(SYSTEM, STATE, Timestamp::ZERO, round.encode());
        let request = ConditionalMutation { otherwise: vec![set], ..ConditionalMutation::new(ROW) };
        self.system().check_and_mutate_row(request).await?;
        Ok(())
    }
}

/// A timestamp that is stored under a name; zero if none is.
pub(super) async fn read_record(system: &dyn Table, name: &'static str) -> Result<Timestamp> {
    stored_timestamp(read(system, name).await?)
}

fn stored_timestamp(value: Option<Bytes>) -> Result<Timestamp> {
    let Some(value) = value else { return Ok(Timestamp::ZERO) };
    let ts = Reader::new(&value).u64().and_then(Timestamp::new);
    ts.ok_or_else(|| Error::Corrupt { record: "gc", bytes: value.clone() })
}

/// Stores a timestamp under a name, unless a higher one is there. It never goes back.
pub(super) async fn raise_record(
    system: &dyn Table,
    name: &'static str,
    ts: Timestamp,
) -> Result<()> {
    for _ in 0..WRITES_MAX {
        let old = read(system, name).await?;
        if stored_timestamp(old.clone())? >= ts {
            return Ok(());
        }
        let new = Bytes::copy_from_slice(&ts.as_u64().to_be_bytes());
        if replace(system, name, &old.unwrap_or_default(), new).await? {
            return Ok(());
        }
    }
    let why = format!("the record of the {name} stayed contended");
    Err(Error::Store(bigtable::Error::Unavailable { why }))
}

async fn read(system: &dyn Table, qualifier: &'static str) -> Result<Option<Bytes>> {
    let select = Selection::default().column(SYSTEM, qualifier, TimeRange::ALL, 1);
    let row = system.read_row(&RowKey::from(ROW), &select).await?;
    Ok(row.cells.first().map(|cell| cell.value.clone()))
}

/// Replaces a stored value, empty meaning none; `false` when another one is stored.
async fn replace(
    system: &dyn Table,
    qualifier: &'static str,
    old: &Bytes,
    new: Bytes,
) -> Result<bool> {
    let probe = Probe::new(SYSTEM, qualifier, TimeRange::ALL);
    let write = vec![Mutation::set(SYSTEM, qualifier, Timestamp::ZERO, new)];
    let request = ConditionalMutation::new(ROW);
    if old.is_empty() {
        let request = ConditionalMutation { predicate: vec![probe], otherwise: write, ..request };
        return Ok(!system.check_and_mutate_row(request).await?);
    }
    let predicate = vec![probe.with_value_prefix(old.clone())];
    let request = ConditionalMutation { predicate, then: write, ..request };
    Ok(system.check_and_mutate_row(request).await?)
}

const VERSION: u8 = 1;

impl LastRound {
    fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(96);
        out.put_u8(VERSION);
        out.put_u8(u8::from(self.blocked));
        out.put_u64(self.wall_ms);
        out.put_u64(self.safe_point.as_u64());
        out.put_u64(self.collected.as_u64());
        for (_, count) in self.counts.entries() {
            out.put_u64(count);
        }
        out.freeze()
    }

    fn decode(value: &Bytes) -> Result<Self> {
        let mut reader = Reader::new(value);
        let mut parse = || {
            if reader.u8()? != VERSION {
                return None;
            }
            let blocked = reader.u8()? != 0;
            let wall_ms = reader.u64()?;
            let safe_point = Timestamp::new(reader.u64()?)?;
            let collected = Timestamp::new(reader.u64()?)?;
            let mut counts = GcCounts::default();
            for count in counts.fields() {
                *count = reader.u64()?;
            }
            Some(LastRound { wall_ms, safe_point, collected, blocked, counts })
        };
        parse().ok_or_else(|| Error::Corrupt { record: "gc", bytes: value.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ts(n: u64) -> Timestamp {
        Timestamp::new(n).unwrap()
    }

    #[test]
    fn a_retention_maps_to_the_newest_sample_that_is_old_enough() {
        let mut samples = Samples::default();
        for n in 1..=10 {
            assert!(samples.note(n * 1000, ts(n as u64 * 10)));
            assert!(!samples.note(n * 1000 + 1, ts(n as u64 * 10)));
        }
        let older = |seconds| samples.older_than(10_500, Duration::from_secs(seconds));
        assert_eq!([older(0), older(1), older(5), older(60)], [ts(100), ts(90), ts(50), ts(0)]);
    }

    #[test]
    fn samples_stay_bounded_and_survive_a_restart_with_their_age() {
        let mut samples = Samples::default();
        for n in 0..1000 {
            samples.note(n * 100, ts(n as u64 + 1));
        }
        assert!(samples.taken.len() <= SAMPLES_MAX);
        let stored = samples.encode(100_000, 5_000_000);
        let mut later = Samples::default();
        later.note(50, ts(2000));
        later.merge(&stored, 100, 5_060_000).unwrap();
        assert!(later.taken.iter().is_sorted_by(|a, b| a.0 <= b.0 && a.1 < b.1));
        assert_eq!(later.older_than(100, Duration::from_secs(60)), ts(1000));
        assert_eq!(later.older_than(100, Duration::from_millis(50)), ts(2000));
        // A wall clock that went back makes everything young, not old.
        let mut back = Samples::default();
        back.merge(&stored, 100, 1_000).unwrap();
        assert_eq!(back.older_than(100, Duration::from_millis(1)), ts(0));
    }

    #[test]
    fn every_retention_finds_a_sample_however_often_one_is_taken() {
        for (every_ms, retention_s) in [(100, 60), (1_000, 600), (5_000, 600), (10_000, 3_600)] {
            let (mut samples, age_ms) = (Samples::default(), retention_s as i64 * 1_000);
            for n in 1..20_000_i64 {
                let now = n * every_ms;
                samples.note(now, ts(n as u64));
                if now > 2 * age_ms {
                    let found = samples.older_than(now, Duration::from_secs(retention_s));
                    let taken = found.as_u64() as i64 * every_ms;
                    assert!(now - taken >= age_ms, "not before its time");
                    assert!(now - taken <= age_ms * 3 / 2 + 2 * every_ms, "{every_ms} {found:?}");
                }
            }
            assert!(samples.taken.len() <= SAMPLES_MAX);
        }
    }

    #[test]
    fn rounds_round_trip() {
        let mut counts = GcCounts::default();
        for (n, count) in counts.fields().into_iter().enumerate() {
            *count = n as u64;
        }
        let (safe_point, collected) = (ts(7), ts(6));
        let round = LastRound { wall_ms: 5, safe_point, collected, blocked: true, counts };
        assert_eq!(LastRound::decode(&round.encode()).unwrap(), round);
    }
}
