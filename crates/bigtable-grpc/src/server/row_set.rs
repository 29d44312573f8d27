//! Turns the keys and ranges that a read names into sorted, disjoint ranges.

use std::cmp::Ordering;
use std::ops::Bound;

use bigtable::{RowKey, RowRange};
use tonic::Status;

use super::limits;
use crate::proto::data::row_range::{EndKey, StartKey};
use crate::proto::data::{self, RowSet};

/// The ranges of a request; all rows if it names none.
pub(crate) fn ranges(rows: Option<&RowSet>) -> Result<Vec<RowRange>, Status> {
    let Some(rows) = rows else { return Ok(vec![RowRange::all()]) };
    let count = rows.row_keys.len() + rows.row_ranges.len();
    if count == 0 {
        return Ok(vec![RowRange::all()]);
    }
    if count > limits::ROW_SET_MAX {
        return Err(Status::invalid_argument(format!(
            "the read names {count} keys and ranges, at most {}: send several requests",
            limits::ROW_SET_MAX
        )));
    }
    let mut ranges = Vec::with_capacity(count);
    for key in &rows.row_keys {
        limits::check_row_key(key)?;
        ranges.push(RowRange::row(key.clone()));
    }
    for wire in &rows.row_ranges {
        let range = range(wire)?;
        if !range.is_empty() {
            ranges.push(range);
        }
    }
    Ok(merge(ranges))
}

/// Converts a range. An empty key is no bound.
pub(super) fn range(wire: &data::RowRange) -> Result<RowRange, Status> {
    let start = match &wire.start_key {
        Some(StartKey::StartKeyClosed(key)) => bound(key, Bound::Included),
        Some(StartKey::StartKeyOpen(key)) => bound(key, Bound::Excluded),
        None => Bound::Unbounded,
    };
    let end = match &wire.end_key {
        Some(EndKey::EndKeyClosed(key)) => bound(key, Bound::Included),
        Some(EndKey::EndKeyOpen(key)) => bound(key, Bound::Excluded),
        None => Bound::Unbounded,
    };
    if let (
        Bound::Included(from) | Bound::Excluded(from),
        Bound::Included(to) | Bound::Excluded(to),
    ) = (&start, &end)
        && from > to
    {
        return Err(Status::invalid_argument(format!(
            "the range from {from} to {to} ends before it starts"
        )));
    }
    Ok(RowRange { start, end })
}

fn bound(key: &bigtable::Bytes, kind: fn(RowKey) -> Bound<RowKey>) -> Bound<RowKey> {
    if key.is_empty() { Bound::Unbounded } else { kind(RowKey::from(key.clone())) }
}

/// Sorts the ranges, and joins those that overlap or touch.
fn merge(mut ranges: Vec<RowRange>) -> Vec<RowRange> {
    ranges.sort_by(|a, b| by_start(&a.start, &b.start));
    let mut merged: Vec<RowRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if reaches(&last.end, &range.start) => {
                if by_end(&last.end, &range.end) == Ordering::Less {
                    last.end = range.end;
                }
            }
            _ => merged.push(range),
        }
    }
    merged
}

fn by_start(a: &Bound<RowKey>, b: &Bound<RowKey>) -> Ordering {
    use Bound::{Excluded, Included, Unbounded};
    match (a, b) {
        (Unbounded, Unbounded) => Ordering::Equal,
        (Unbounded, _) => Ordering::Less,
        (_, Unbounded) => Ordering::Greater,
        (Included(a), Included(b)) | (Excluded(a), Excluded(b)) => a.cmp(b),
        (Included(a), Excluded(b)) => a.cmp(b).then(Ordering::Less),
        (Excluded(a), Included(b)) => a.cmp(b).then(Ordering::Greater),
    }
}

fn by_end(a: &Bound<RowKey>, b: &Bound<RowKey>) -> Ordering {
    use Bound::{Excluded, Included, Unbounded};
    match (a, b) {
        (Unbounded, Unbounded) => Ordering::Equal,
        (Unbounded, _) => Ordering::Greater,
        (_, Unbounded) => Ordering::Less,
        (Included(a), Included(b)) | (Excluded(a), Excluded(b)) => a.cmp(b),
        (Included(a), Excluded(b)) => a.cmp(b).then(Ordering::Greater),
        (Excluded(a), Included(b)) => a.cmp(b).then(Ordering::Less),
    }
}

/// True if a range with this end overlaps or touches a later one with this start.
fn reaches(end: &Bound<RowKey>, start: &Bound<RowKey>) -> bool {
    use Bound::{Excluded, Included, Unbounded};
    match (end, start) {
        (Unbounded, _) | (_, Unbounded) => true,
        (Included(end), Included(start)) => end >= start,
        (Included(end), Excluded(start)) | (Excluded(end), Included(start)) => end >= start,
        (Excluded(end), Excluded(start)) => end > start,
    }
}

/// The key of a range of one row. A bound may be longer than any valid key; that is no row.
pub(crate) fn single(range: &RowRange) -> Option<&RowKey> {
    match (&range.start, &range.end) {
        (Bound::Included(start), Bound::Included(end)) if start == end => {
            Some(start).filter(|key| key.check().is_ok())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> RowKey {
        RowKey::from(text)
    }

    #[test]
    fn keys_and_ranges_become_disjoint_and_sorted() {
        let rows = RowSet {
            row_keys: ["z", "b", "b", "a", "d"].map(|k| k.as_bytes().to_vec().into()).to_vec(),
            row_ranges: vec![
                data::RowRange {
                    start_key: Some(StartKey::StartKeyClosed("b".into())),
                    end_key: Some(EndKey::EndKeyOpen("d".into())),
                },
                data::RowRange {
                    start_key: Some(StartKey::StartKeyOpen("f".into())),
                    end_key: Some(EndKey::EndKeyClosed("g".into())),
                },
                data::RowRange {
                    start_key: Some(StartKey::StartKeyClosed("x".into())),
                    end_key: Some(EndKey::EndKeyOpen("x".into())),
                },
            ],
        };
        let ranges = ranges(Some(&rows)).unwrap();
        let closed = |from, to| RowRange {
            start: Bound::Included(key(from)),
            end: Bound::Included(key(to)),
        };
        let open = RowRange { start: Bound::Excluded(key("f")), end: Bound::Included(key("g")) };
        assert_eq!(ranges, [closed("a", "a"), closed("b", "d"), open, closed("z", "z")]);
    }

    #[test]
    fn merged_ranges_hold_the_same_rows() {
        let bounds = |k: usize| match k % 7 {
            0 => Bound::Unbounded,
            k if k < 4 => Bound::Included(key(["a", "b", "c"][k - 1])),
            k => Bound::Excluded(key(["a", "b", "c"][k - 4])),
        };
        let all: Vec<_> = (0..49)
            .map(|n| RowRange { start: bounds(n / 7), end: bounds(n) })
            .filter(|range| !range.is_empty())
            .collect();
        for a in &all {
            for b in &all {
                let merged = merge(vec![a.clone(), b.clone()]);
                for row in ["", "a", "a0", "b", "b0", "c", "c0"].map(key) {
                    let inside = merged.iter().filter(|range| range.contains(&row)).count();
                    let expected = usize::from(a.contains(&row) || b.contains(&row));
                    assert_eq!(inside, expected, "{row} in {a:?} and {b:?}");
                }
            }
        }
    }

    #[test]
    fn ranges_must_not_run_backwards() {
        let range = |start_key, end_key| {
            let row_ranges =
                vec![data::RowRange { start_key: Some(start_key), end_key: Some(end_key) }];
            ranges(Some(&RowSet { row_keys: Vec::new(), row_ranges }))
        };
        let (start, end) = (StartKey::StartKeyClosed("b".into()), EndKey::EndKeyOpen("a".into()));
        assert!(range(start, end).is_err());
        let (start, end) = (StartKey::StartKeyOpen("b".into()), EndKey::EndKeyOpen("b".into()));
        assert_eq!(range(start, end).unwrap(), []);
        let (start, end) = (StartKey::StartKeyOpen("".into()), EndKey::EndKeyClosed("".into()));
        assert_eq!(range(start, end).unwrap(), [RowRange::all()]);
    }
}
