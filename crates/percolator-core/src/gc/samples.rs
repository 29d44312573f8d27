//! Remembers which timestamp was the latest at which moment, to translate a time into a
//! timestamp.
//!
//! The list is bounded. Neither its moments nor its timestamps go back from one sample to the
//! next.
//!
//! ADR-6 says what this design costs, and what would change it.

use std::collections::VecDeque;
use std::time::Duration;

use bigtable::Timestamp;
use bytes::{BufMut, Bytes, BytesMut};

use crate::records::codec::Reader;
use crate::{Error, Result};

/// Most samples that are kept. Samples are dropped so that the gaps between the others grow
/// with their age. So every retention finds a sample that is little older than the retention.
const SAMPLES_MAX: usize = 64;

/// How old a timestamp is, as far as that is known. A timestamp is a number without a time:
/// only samples know when which one was the latest.
///
/// ```
/// # use percolator_core::face as percolator;
/// # percolator_core::doc_test(|client| async move {
/// use std::time::Duration;
/// let then = client.begin().await?.start_ts();
/// client.ages(&[then]).await?;
/// client.runtime().sleep(Duration::from_secs(240)).await;
/// let age = client.ages(&[then]).await?[0];
/// assert_eq!((age.at_least, age.at_most), (Duration::from_secs(240), None));
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Age {
    /// The timestamp is at least this old.
    pub at_least: Duration,
    /// The timestamp is at most this old. `None` if there is no older sample.
    pub at_most: Option<Duration>,
}

/// Samples of moments and the latest timestamp at each, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    /// Milliseconds of the monotonic clock. Moments of earlier processes are below zero.
    taken: VecDeque<(i64, Timestamp)>,
    /// The value in the store when it was last read or written. `None` before that.
    pub(super) stored: Option<Bytes>,
}

impl Samples {
    /// Notes that `latest` is the latest timestamp now. Returns whether it is a new one.
    pub(super) fn note(&mut self, now_ms: i64, latest: Timestamp) -> bool {
        if self.taken.back().is_some_and(|(_, newest)| *newest >= latest) {
            return false;
        }
        self.taken.push_back((now_ms, latest));
        if self.taken.len() > SAMPLES_MAX {
            self.thin_out(now_ms);
        }
        true
    }

    /// Drops the sample whose removal leaves the smallest gap relative to its age; never the
    /// first or the last.
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

    /// The highest timestamp that is known to be older than `retention`.
    pub(super) fn older_than(&self, now_ms: i64, retention: Duration) -> Timestamp {
        let age = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
        let old = |(taken, _): &&(i64, Timestamp)| now_ms.saturating_sub(*taken) >= age;
        self.taken.iter().rev().find(old).map_or(Timestamp::ZERO, |(_, ts)| *ts)
    }

    /// How old a timestamp is: it was issued before the first sample that is at or above it,
    /// and after the last sample below it.
    pub(super) fn age_of(&self, now_ms: i64, ts: Timestamp) -> Age {
        let since = |taken: i64| {
            Duration::from_millis(u64::try_from(now_ms.saturating_sub(taken)).unwrap_or(0))
        };
        let reached = self.taken.iter().find(|(_, latest)| *latest >= ts);
        let before = self.taken.iter().rev().find(|(_, latest)| *latest < ts);
        Age {
            at_least: reached.map_or(Duration::ZERO, |(taken, _)| since(*taken)),
            at_most: before.map(|(taken, _)| since(*taken)),
        }
    }

    pub(super) fn encode(&self, now_ms: i64, wall_ms: u64) -> Bytes {
        let mut out = BytesMut::with_capacity(4 + 16 * self.taken.len());
        // The length comes first, so that no encoding is a prefix of another.
        out.put_u32(u32::try_from(self.taken.len()).unwrap_or(u32::MAX));
        for (taken, ts) in &self.taken {
            out.put_u64(wall_ms.saturating_add_signed(taken.saturating_sub(now_ms)));
            out.put_u64(ts.as_u64());
        }
        out.freeze()
    }

    /// Merges the samples that an earlier process, or another client, has stored.
    pub(super) fn merge(&mut self, value: &Bytes, now_ms: i64, wall_ms: u64) -> Result<()> {
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
            // A higher timestamp cannot have been the latest at an earlier moment.
            let after = self.taken.back().map_or(taken, |(before, _)| taken.max(*before));
            self.note(after, ts);
        }
        self.stored = Some(value.clone());
        Ok(())
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
    fn an_age_lies_between_two_samples() {
        let mut samples = Samples::default();
        assert!(samples.note(1_000, ts(10)) && samples.note(4_000, ts(20)));
        let seconds = Duration::from_secs;
        let age = |n| samples.age_of(10_000, ts(n));
        assert_eq!(age(10), Age { at_least: seconds(9), at_most: None });
        assert_eq!(age(11), Age { at_least: seconds(6), at_most: Some(seconds(9)) });
        assert_eq!(age(20), age(11));
        assert_eq!(age(21), Age { at_least: Duration::ZERO, at_most: Some(seconds(6)) });
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
        // A wall clock that went back makes samples look young, not old.
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
}
