//! Reads the versions of one column, in any layout of its group.

use std::ops::{Bound, ControlFlow};

use bigtable::{TimeRange, Timestamp};

use crate::failure::fault::Fault;
use crate::layout::key::{Key, Shape};
use crate::layout::pack::{Pack, Version};
use crate::read::cells::{Cells, Stored};
use crate::read::history;

/// Passes the versions of a column in `time` to `see`, newest first, at most `versions_max` of
/// them.
pub(crate) fn visit(
    stored: Stored<'_>,
    column: &Key,
    time: TimeRange,
    versions_max: u32,
    see: impl FnMut(Version<'_>) -> ControlFlow<()>,
) -> Result<(), Fault> {
    if versions_max == 0 || time.from > time.to {
        return Ok(());
    }
    match stored {
        Stored::Versions(cells) => visit_versions(cells, column, time, versions_max, see),
        Stored::NewestFirst(newest, history) => {
            let Some(newest) = newest.get(column)? else { return Ok(()) };
            visit_pack(&Pack::decode(newest)?, history, column, time, versions_max, see)
        }
    }
}

/// Like [`visit`], from the pack under the column's own key on. There is a version to look for:
/// `versions_max` is not zero, and `time` not empty.
pub(crate) fn visit_pack(
    newest: &Pack,
    history: Cells<'_>,
    column: &Key,
    time: TimeRange,
    versions_max: u32,
    mut see: impl FnMut(Version<'_>) -> ControlFlow<()>,
) -> Result<(), Fault> {
    let left = newest.visit(time, versions_max, &mut see)?;
    if left > 0 && newest.older() {
        history::visit(history, column, time, left, see)
    } else {
        Ok(())
    }
}

/// Like [`visit`], for groups where each version has its own key.
fn visit_versions(
    cells: Cells<'_>,
    column: &Key,
    time: TimeRange,
    versions_max: u32,
    mut see: impl FnMut(Version<'_>) -> ControlFlow<()>,
) -> Result<(), Fault> {
    if time.from == time.to {
        if let Some(stored) = cells.get(&column.at(time.to))? {
            let _ = see(Version::whole(time.to, &stored));
        }
        return Ok(());
    }
    let (from, to) = (column.at(time.to), column.at(time.from));
    let mut entries = cells.range(Bound::Included(&from), Bound::Included(&to));
    for _ in 0..versions_max {
        let Some((key, Some(stored))) = entries.next(|_| true)? else { break };
        let timestamp = timestamp_of(&key)?;
        if see(Version::whole(timestamp, &stored)).is_break() {
            break;
        }
    }
    Ok(())
}

/// Whether a column under the prefix `family` has a version in `time` whose value is `wanted`.
pub(crate) fn any_in_family(
    stored: Stored<'_>,
    family: &Key,
    time: TimeRange,
    wanted: impl Fn(&[u8]) -> bool,
) -> Result<bool, Fault> {
    let (from, end) = (Bound::Included(&**family), family.end());
    let (Stored::Versions(cells) | Stored::NewestFirst(cells, _)) = stored;
    let mut entries = cells.range(from, Bound::Excluded(&end));
    let in_time = |key: &[u8]| timestamp_of(key).is_ok_and(|at| time.contains(at));
    match stored {
        Stored::Versions(_) => {
            while let Some((_, value)) = entries.next(in_time)? {
                if value.is_some_and(|value| wanted(&value)) {
                    return Ok(true);
                }
            }
        }
        Stored::NewestFirst(..) => {
            let mut found = false;
            while let Some((key, _)) = entries.next(|_| false)? {
                visit(stored, &Key::from_prefix(&key), time, u32::MAX, |version| {
                    found = wanted(version.value());
                    if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })?;
                if found {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

/// The timestamp of the version that a key names.
pub(crate) fn timestamp_of(key: &[u8]) -> Result<Timestamp, Fault> {
    let timestamp = Shape::of(key).and_then(|shape| shape.timestamp);
    timestamp.ok_or(Fault::Damaged("a version has a malformed key"))
}
