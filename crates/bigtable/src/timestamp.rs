//! Defines logical time: a number that a counter issues, not the time of a clock (paper
//! section 2.3).

use std::fmt;

/// A logical timestamp: a counter below 2^53.
///
/// Bigtable stores cell times as microseconds in steps of 1,000, so a logical time must be
/// below 9.2e15. A number below 2^53 is also exact in JSON.
///
/// ```
/// use bigtable::Timestamp;
/// let ts = Timestamp::new(7).expect("below 2^53");
/// assert_eq!(ts.next(), Timestamp::new(8).unwrap());
/// assert!(Timestamp::new(u64::MAX).is_none());
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The lowest timestamp, before every transaction. The oracle never issues it.
    pub const ZERO: Timestamp = Timestamp(0);
    /// The highest timestamp, 2^53 - 1. The oracle never issues it.
    pub const MAX: Timestamp = Timestamp((1 << 53) - 1);

    /// The timestamp with this number. `None` from 2^53 on.
    pub const fn new(number: u64) -> Option<Self> {
        if number <= Self::MAX.0 { Some(Timestamp(number)) } else { None }
    }

    /// The timestamp's number.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The next higher timestamp. [`Timestamp::MAX`] returns itself.
    pub const fn next(self) -> Self {
        if self.0 < Self::MAX.0 { Timestamp(self.0 + 1) } else { self }
    }

    /// The next lower timestamp. [`Timestamp::ZERO`] returns itself.
    pub const fn previous(self) -> Self {
        Timestamp(self.0.saturating_sub(1))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A range of timestamps, both ends included. `from > to` is the empty range.
///
/// ```
/// use bigtable::{TimeRange, Timestamp};
/// let seven = Timestamp::new(7).unwrap();
/// assert!(TimeRange::up_to(seven).contains(seven));
/// assert!(!TimeRange::below(seven).contains(seven));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    /// The lowest timestamp in the range.
    pub from: Timestamp,
    /// The highest timestamp in the range.
    pub to: Timestamp,
}

impl TimeRange {
    /// All of time.
    pub const ALL: TimeRange = TimeRange { from: Timestamp::ZERO, to: Timestamp::MAX };
    /// No time at all.
    pub const EMPTY: TimeRange = TimeRange { from: Timestamp::MAX, to: Timestamp::ZERO };

    /// Exactly `ts`.
    pub const fn at(ts: Timestamp) -> Self {
        TimeRange { from: ts, to: ts }
    }

    /// Everything at or below `ts`.
    pub const fn up_to(ts: Timestamp) -> Self {
        TimeRange { from: Timestamp::ZERO, to: ts }
    }

    /// Everything strictly below `ts`.
    pub const fn below(ts: Timestamp) -> Self {
        if ts.as_u64() == 0 { TimeRange::EMPTY } else { TimeRange::up_to(ts.previous()) }
    }

    /// Everything at or above `ts`.
    pub const fn since(ts: Timestamp) -> Self {
        TimeRange { from: ts, to: Timestamp::MAX }
    }

    /// Everything strictly above `ts`.
    pub const fn above(ts: Timestamp) -> Self {
        if ts.as_u64() == Timestamp::MAX.as_u64() {
            TimeRange::EMPTY
        } else {
            TimeRange::since(ts.next())
        }
    }

    /// Whether the range contains `ts`.
    pub const fn contains(&self, ts: Timestamp) -> bool {
        self.from.as_u64() <= ts.as_u64() && ts.as_u64() <= self.to.as_u64()
    }
}
