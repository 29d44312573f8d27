//! Converts between the times of cells: microseconds in Google's API, [`Timestamp`]s in ours.
//! No other file does.
//!
//! A cell's time in the API is a multiple of 1,000 microseconds, because tables have a
//! granularity of milliseconds. A logical timestamp `t` is the cell time `1000 * t`. Read as a
//! date, it lies in January 1970.

use bigtable::{TimeRange, Timestamp};

/// Microseconds per step of a timestamp.
const STEP: i64 = 1000;

/// The latest time of a cell here, in microseconds; it lies in the year 287,396. Google's
/// service allows times until the year 294,247, where its integers end.
pub(crate) const MICROS_MAX: i64 = Timestamp::MAX.as_u64() as i64 * STEP;

/// The time of a cell in the API.
pub(crate) fn micros(timestamp: Timestamp) -> i64 {
    // A timestamp is below 2^53, so the product fits.
    timestamp.as_u64() as i64 * STEP
}

/// The timestamp of a cell's time; `None` if no cell can have this time.
pub(crate) fn timestamp(micros: i64) -> Option<Timestamp> {
    if micros % STEP != 0 {
        return None;
    }
    u64::try_from(micros / STEP).ok().and_then(Timestamp::new)
}

/// The timestamps in a range of the API: `start` included, `end` excluded, 0 for no end.
pub(crate) fn range(start: i64, end: i64) -> TimeRange {
    let from = u64::try_from(start.max(0)).unwrap_or(0).div_ceil(STEP as u64);
    let Some(from) = Timestamp::new(from) else { return TimeRange::EMPTY };
    if end == 0 {
        return TimeRange::since(from);
    }
    if end < 0 {
        return TimeRange::EMPTY;
    }
    let below = u64::try_from(end).unwrap_or(0).div_ceil(STEP as u64);
    match Timestamp::new(below) {
        Some(Timestamp::ZERO) => TimeRange::EMPTY,
        Some(below) => TimeRange { from, to: below.previous() },
        None => TimeRange::since(from),
    }
}

/// The range of the API that holds exactly these timestamps; `None` for the empty range, which
/// the API cannot express.
pub(crate) fn micros_range(range: TimeRange) -> Option<(i64, i64)> {
    if range.from > range.to {
        return None;
    }
    let end = if range.to == Timestamp::MAX { 0 } else { micros(range.to) + STEP };
    Some((micros(range.from), end))
}

/// The cell time that a server assigns, from the time since 1970.
pub(crate) fn now(since_epoch: std::time::Duration) -> Timestamp {
    u64::try_from(since_epoch.as_millis()).ok().and_then(Timestamp::new).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ts(number: u64) -> Timestamp {
        Timestamp::new(number).unwrap()
    }

    #[test]
    fn cell_times_are_thousands() {
        for number in [0, 1, 7, Timestamp::MAX.as_u64()] {
            assert_eq!(timestamp(micros(ts(number))), Some(ts(number)));
        }
        for micros in [-1, -1000, 1, 999, 1001, MICROS_MAX + 1000, i64::MAX, i64::MIN] {
            assert_eq!(timestamp(micros), None, "{micros}");
        }
    }

    #[test]
    fn ranges_hold_the_cells_whose_times_lie_in_them() {
        for (start, end) in [(0, 0), (1000, 2000), (999, 1001), (1001, 1999), (2000, 1000), (0, 1)]
        {
            let range = range(start, end);
            for number in 0..4 {
                let at = micros(ts(number));
                let inside = at >= start && (end == 0 || at < end);
                assert_eq!(range.contains(ts(number)), inside, "{number} in {start}..{end}");
            }
        }
        assert_eq!(range(i64::MIN, -5), TimeRange::EMPTY);
        assert_eq!(range(0, i64::MAX).to, Timestamp::MAX);
        for kept in [TimeRange::ALL, TimeRange::at(ts(5)), TimeRange::below(ts(5))] {
            let (start, end) = micros_range(kept).unwrap();
            assert_eq!(range(start, end), kept);
        }
        assert_eq!(micros_range(TimeRange::EMPTY), None);
    }
}
