//! Reads the history: older versions of columns, in groups with the layout `NewestFirst`.
//!
//! Each entry is a pack (`pack.rs`) under the column's key at the time of its **oldest**
//! version. Newer times sort first. So the first pack at or after the key for time t holds the
//! newest version at or below t, if the history has one.
//!
//! Invariants:
//! * A column has a history only if it has a pack under its own key. That pack says that there
//!   is a history, and all its versions are newer.
//! * The packs of a column do not overlap in time.

use std::ops::{Bound, ControlFlow};

use bigtable::{TimeRange, Timestamp};
use fjall::Slice;

use crate::failure::fault::Fault;
use crate::layout::key::Key;
use crate::layout::pack::{Pack, Version};
use crate::read::cells::{Cells, Entries};

/// Passes the versions of a column's history in `time` to `see`, newest first, at most
/// `versions_max` of them.
pub(crate) fn visit(
    cells: Cells<'_>,
    column: &Key,
    time: TimeRange,
    versions_max: u32,
    mut see: impl FnMut(Version<'_>) -> ControlFlow<()>,
) -> Result<(), Fault> {
    let (from, to) = (column.at(time.to), column.at(Timestamp::ZERO));
    let mut entries = cells.range(Bound::Included(&from), Bound::Included(&to));
    let mut left = versions_max;
    while left > 0 {
        let Some((_, Some(stored))) = entries.next(|_| true)? else { break };
        left = Pack::decode(stored)?.visit(time, left, &mut see)?;
    }
    Ok(())
}

/// A cursor over the history of many columns, for scans. It walks to columns that are near,
/// and seeks to columns that are far.
pub(crate) struct History<'a> {
    cells: Cells<'a>,
    /// The end of the scan.
    end: Key,
    entries: Option<Entries<'a>>,
    /// The next entry of the cursor.
    ahead: Option<(Slice, Pack)>,
    /// There is nothing between this key and the next entry.
    behind: Slice,
}

/// The most entries to walk over; beyond that a seek is cheaper.
const STEPS_MAX: usize = 48;

impl<'a> History<'a> {
    pub(crate) fn new(cells: Cells<'a>, end: Key) -> Self {
        History { cells, end, entries: None, ahead: None, behind: Slice::default() }
    }

    /// Like the function [`visit`]. It is fastest if columns, and time ranges within a column,
    /// are requested in the order of their keys. Adds the entries that it reads to `entries`, and
    /// returns how many more versions it would pass on.
    pub(crate) fn visit(
        &mut self,
        column: &Key,
        time: TimeRange,
        versions_max: u32,
        mut entries: Option<&mut Vec<(Slice, Slice)>>,
        mut see: impl FnMut(Version<'_>) -> ControlFlow<()>,
    ) -> Result<u32, Fault> {
        self.move_to(&column.at(time.to))?;
        let mut left = versions_max;
        while let Some((key, pack)) = &self.ahead {
            if !key.starts_with(column) {
                break;
            }
            if let Some(entries) = &mut entries {
                entries.push((key.clone(), pack.stored().clone()));
            }
            left = pack.visit(time, left, &mut see)?;
            if left == 0 {
                // Stay before this pack: the next request may need its other versions.
                break;
            }
            self.step()?;
        }
        Ok(left)
    }

    /// Moves the cursor to the first entry at or above `from`.
    fn move_to(&mut self, from: &Key) -> Result<(), Fault> {
        if self.entries.is_some() && *self.behind < **from {
            for _ in 0..STEPS_MAX {
                if self.ahead.as_ref().is_none_or(|(key, _)| **key >= **from) {
                    return Ok(());
                }
                self.step()?;
            }
        }
        self.ahead = None;
        self.entries = None;
        if **from < *self.end {
            let (from, end) = (Bound::Included(&**from), Bound::Excluded(&*self.end));
            self.entries = Some(self.cells.range(from, end));
            self.step()?;
        }
        self.behind = Slice::new(from);
        Ok(())
    }

    fn step(&mut self) -> Result<(), Fault> {
        let Some(entries) = &mut self.entries else { return Ok(()) };
        let next = match entries.next(|_| true)? {
            Some((key, Some(stored))) => Some((key, Pack::decode(stored)?)),
            _ => None,
        };
        if let Some((key, _)) = std::mem::replace(&mut self.ahead, next) {
            self.behind = key;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const VERSIONS: u64 = 60;

    fn column(number: u8) -> Key {
        Key::column(0, b"row", 0, &[number])
    }

    /// Three columns with a version at each even time, and `versions_each` versions in each
    /// pack.
    fn filled(versions_each: u64) -> BTreeMap<Slice, Slice> {
        let mut map = BTreeMap::new();
        for number in 0..3 {
            for first in (1..=VERSIONS).step_by(versions_each as usize) {
                let times = (first..first + versions_each).rev();
                let times = times.filter_map(|time| Timestamp::new(2 * time));
                let versions: Vec<_> = times.map(|time| (time, &b"value"[..])).collect();
                let key = column(number).at(versions[versions.len() - 1].0);
                map.insert(Slice::new(&key), Pack::encode(&versions, false));
            }
        }
        map
    }

    proptest! {
        #[test]
        fn a_cursor_answers_in_whatever_order_it_is_asked(
            versions_each in proptest::sample::select(vec![1u64, 2, 3, 5]),
            asked in vec((0..3u8, 0..=2 * VERSIONS, 0..=2 * VERSIONS, 1..9u32), 1..12),
        ) {
            let map = filled(versions_each);
            let mut history = History::new(Cells::Map(&map), Key::table(0).end());
            for (number, from, to, versions_max) in asked {
                let ts = |number| Timestamp::new(number).unwrap();
                let time = TimeRange { from: ts(from.min(to)), to: ts(from.max(to)) };
                let (mut walked, mut sought) = (Vec::new(), Vec::new());
                let see = |version: Version<'_>| {
                    walked.push(version.timestamp);
                    ControlFlow::Continue(())
                };
                history.visit(&column(number), time, versions_max, None, see).unwrap();
                let see = |version: Version<'_>| {
                    sought.push(version.timestamp);
                    ControlFlow::Continue(())
                };
                visit(Cells::Map(&map), &column(number), time, versions_max, see).unwrap();
                let all = (1..=VERSIONS).rev().map(|time| ts(2 * time));
                let within = all.filter(|timestamp| time.contains(*timestamp));
                let expected: Vec<_> = within.take(versions_max as usize).collect();
                prop_assert_eq!(&walked, &expected);
                prop_assert_eq!(&sought, &expected);
            }
        }
    }
}
