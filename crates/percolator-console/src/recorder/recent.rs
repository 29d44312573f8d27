//! Keeps single transactions in memory: the slowest, the failed, and one of sixteen of the rest.
//!
//! Each list has a fixed length, and starts empty with the process.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use percolator::Timestamp;
use percolator::store::sync::locked;

use crate::cells::Place;
use crate::recorder::wall_ms;

/// The most sampled commits that are kept.
const COMMITTED_MAX: usize = 2_048;
/// The most failed transactions that are kept.
const FAILED_MAX: usize = 1_024;
/// The most slow transactions that are kept.
const SLOWEST_MAX: usize = 128;
/// How long a slow transaction stays in the list.
const SLOW_FOR: Duration = Duration::from_secs(15 * 60);

/// A transaction that has ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ended {
    pub(crate) name: Arc<str>,
    pub(crate) start_ts: Timestamp,
    /// `None` if it did not commit.
    pub(crate) commit_ts: Option<Timestamp>,
    pub(crate) one_step: bool,
    pub(crate) total: Duration,
    pub(crate) prewrite: Duration,
    pub(crate) commit: Duration,
    /// How many cells it wrote; the next field is the first of them.
    pub(crate) cells: usize,
    pub(crate) first: Option<Place>,
    /// The cell whose change it handled, if an observer ran it.
    pub(crate) cause: Option<Place>,
    /// Why it did not commit.
    pub(crate) error: Option<String>,
    /// Milliseconds since 1970.
    pub(crate) wall_ms: u64,
}

/// The three lists.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    committed: Mutex<VecDeque<Ended>>,
    failed: Mutex<VecDeque<Ended>>,
    slowest: Mutex<Slowest>,
}

/// The slowest transactions, in order of their duration, the longest first.
#[derive(Debug, Default)]
struct Slowest {
    ended: Vec<Ended>,
}

fn push(ring: &Mutex<VecDeque<Ended>>, ended: Ended, max: usize) {
    let mut ring = locked(ring);
    if ring.len() >= max {
        ring.pop_front();
    }
    ring.push_back(ended);
}

impl Recent {
    /// Whether a commit of this duration belongs to the slowest.
    pub(crate) fn is_slow(&self, total: Duration) -> bool {
        let slowest = locked(&self.slowest);
        slowest.ended.len() < SLOWEST_MAX
            || slowest.ended.last().is_some_and(|last| total > last.total)
    }

    pub(crate) fn committed(&self, ended: Ended) {
        push(&self.committed, ended, COMMITTED_MAX);
    }

    pub(crate) fn failed(&self, ended: Ended) {
        push(&self.failed, ended, FAILED_MAX);
    }

    pub(crate) fn slow(&self, ended: Ended) {
        let mut slowest = locked(&self.slowest);
        let young = ended.wall_ms.saturating_sub(SLOW_FOR.as_millis() as u64);
        slowest.ended.retain(|other| other.wall_ms >= young);
        let at = slowest.ended.partition_point(|other| other.total >= ended.total);
        slowest.ended.insert(at, ended);
        slowest.ended.truncate(SLOWEST_MAX);
    }

    /// Returns the slowest transactions of the last quarter of an hour, the slowest first.
    pub(crate) fn slowest(&self, limit: usize) -> Vec<Ended> {
        self.slowest_at(wall_ms(), limit)
    }

    fn slowest_at(&self, now_ms: u64, limit: usize) -> Vec<Ended> {
        let mut slowest = locked(&self.slowest);
        let young = now_ms.saturating_sub(SLOW_FOR.as_millis() as u64);
        slowest.ended.retain(|other| other.wall_ms >= young);
        slowest.ended.iter().take(limit).cloned().collect()
    }

    /// Returns the transactions that failed, the newest first.
    pub(crate) fn failures(&self, limit: usize) -> Vec<Ended> {
        locked(&self.failed).iter().rev().take(limit).cloned().collect()
    }

    /// Returns the sampled transactions that committed, the newest first.
    pub(crate) fn commits(&self, limit: usize) -> Vec<Ended> {
        locked(&self.committed).iter().rev().take(limit).cloned().collect()
    }

    /// Returns the transaction with this start timestamp, if it was kept.
    pub(crate) fn find(&self, start_ts: Timestamp) -> Option<Ended> {
        let of = |ring: &Mutex<VecDeque<Ended>>| {
            locked(ring).iter().rev().find(|ended| ended.start_ts == start_ts).cloned()
        };
        let slow = || {
            let slowest = locked(&self.slowest);
            slowest.ended.iter().find(|ended| ended.start_ts == start_ts).cloned()
        };
        of(&self.failed).or_else(slow).or_else(|| of(&self.committed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(start_ts: u64, ms: u64) -> Ended {
        Ended {
            name: "t".into(),
            start_ts: Timestamp::new(start_ts).unwrap(),
            commit_ts: None,
            one_step: true,
            total: Duration::from_millis(ms),
            prewrite: Duration::ZERO,
            commit: Duration::ZERO,
            cells: 0,
            first: None,
            cause: None,
            error: None,
            wall_ms: 1_000_000 + start_ts,
        }
    }

    #[test]
    fn the_slowest_are_kept_in_order_and_bounded() {
        let recent = Recent::default();
        for n in 1..=300u64 {
            let ended = ended(n, (n * 37) % 301);
            if recent.is_slow(ended.total) {
                recent.slow(ended);
            }
        }
        let slowest = recent.slowest_at(1_000_000, usize::MAX);
        assert_eq!(slowest.len(), SLOWEST_MAX);
        let ms: Vec<u128> = slowest.iter().map(|e| e.total.as_millis()).collect();
        assert_eq!(ms, (173..=300).rev().collect::<Vec<u128>>());
    }

    #[test]
    fn what_is_older_than_a_quarter_of_an_hour_is_no_longer_slow() {
        let recent = Recent::default();
        recent.slow(ended(1, 1_000_000));
        let later = Ended { wall_ms: 1_000_001 + SLOW_FOR.as_millis() as u64 + 1, ..ended(2, 5) };
        recent.slow(later.clone());
        assert_eq!(recent.slowest_at(later.wall_ms, 10), [later]);
        assert_eq!(recent.slowest(10), []);
    }

    #[test]
    fn rings_forget_the_oldest_and_find_by_start_timestamp() {
        let recent = Recent::default();
        for n in 1..=FAILED_MAX as u64 + 1 {
            recent.failed(ended(n, 1));
        }
        assert_eq!(recent.failures(usize::MAX).len(), FAILED_MAX);
        assert_eq!(recent.find(Timestamp::new(1).unwrap()), None);
        assert!(recent.find(Timestamp::new(2).unwrap()).is_some());
    }
}
