//! Computes the largest request that each builder of [`rows`](super) can make.
//!
//! Before prewrite places a lock, it compares all of them with the store's limits. A resolver
//! takes as many cells at once as fit into one request.

use bigtable::{Family, Limits, Mutation, Probe, RequestSize, RowKey, TimeRange};

use super::{HEARTBEAT_VALUES_MAX, LockedCell, PlannedCell};
use crate::records::column::{CellName, Column};
use crate::records::layout::{DATA, LOCK, NOTIFY, ROLLBACK, WRITE};
use crate::records::lock::{HEAD_BYTES, Intent, Kind};
use crate::records::write::HEADER_BYTES as WRITE_HEADER_BYTES;

/// Adds the changes that commit or roll-back makes to one cell.
pub(crate) type OfCell = fn(RequestSize, &Column, &Intent) -> RequestSize;

/// Prewrite of the row.
pub(crate) fn prewrite(row: &RowKey, cells: &[PlannedCell], primary: &CellName) -> RequestSize {
    let mut size = RequestSize::of_row(row.as_bytes());
    for cell in cells {
        let PlannedCell { column, intent, long_value, .. } = cell;
        let q = column.as_bytes().len();
        let primary = (!cell.is_primary).then_some(primary);
        size = size.and_mutation(LOCK.as_str().len(), q, intent.lock_len(primary));
        if let Some(value) = long_value {
            size = size.and_mutation(DATA.as_str().len(), q, value.len());
        }
        if intent.notify {
            size = size.and_mutation(NOTIFY.as_str().len(), q, 0);
        }
    }
    size
}

/// Commit of the row, with its further changes.
pub(crate) fn commit(row: &RowKey, cells: &[PlannedCell], handled: &[Mutation]) -> RequestSize {
    handled.iter().fold(all(row, intents(cells), commit_of_cell), RequestSize::and)
}

/// Roll-back of the row.
pub(crate) fn roll_back(row: &RowKey, cells: &[PlannedCell]) -> RequestSize {
    all(row, intents(cells), roll_back_of_cell)
}

fn intents(cells: &[PlannedCell]) -> impl Iterator<Item = (&Column, &Intent)> {
    cells.iter().map(|cell| (&cell.column, &cell.intent))
}

/// Roll-back of the primary with its tomb, by its owner or by a resolver. Its predicate holds
/// no names.
pub(crate) fn roll_back_primary(row: &RowKey, primary: &Column, intent: &Intent) -> RequestSize {
    let q = primary.as_bytes().len();
    let undone = all(row, [(primary, intent)].into_iter(), roll_back_of_cell);
    undone.and_mutation(ROLLBACK.as_str().len(), q, 0)
}

/// The heartbeat with the longest predicate.
pub(crate) fn heartbeat(row: &RowKey, primary: &Column, intent: &Intent) -> RequestSize {
    let q = primary.as_bytes().len();
    let size = asking(row, HEARTBEAT_VALUES_MAX);
    size.and_mutation(LOCK.as_str().len(), q, intent.lock_len(None))
}

/// How many cells, counted from the first, one request can commit or roll back; at least one.
pub(crate) fn fitting(limits: &Limits, row: &RowKey, cells: &[LockedCell], of: OfCell) -> usize {
    let mut size = asking(row, 1);
    let fits = |cell: &&LockedCell| {
        size = of(size, &cell.column, &cell.intent);
        limits.check(size).is_ok()
    };
    cells.iter().take_while(fits).count().max(1)
}

/// Adds the changes that [`commit`](super::commit) makes to a cell.
pub(crate) fn commit_of_cell(size: RequestSize, column: &Column, intent: &Intent) -> RequestSize {
    let q = column.as_bytes().len();
    let value = intent.short_value.as_ref().map_or(0, bytes::Bytes::len);
    let size = size.and_mutation(LOCK.as_str().len(), q, 0);
    let mut size = size.and_mutation(WRITE.as_str().len(), q, WRITE_HEADER_BYTES + value);
    if intent.notify {
        // One mutation writes the notification, the other deletes older ones.
        size = size.and_mutation(NOTIFY.as_str().len(), q, 0);
        size = size.and_mutation(NOTIFY.as_str().len(), q, 0);
    }
    size
}

/// Adds the changes that [`roll_back`](super::roll_back) makes to a cell.
pub(crate) fn roll_back_of_cell(
    size: RequestSize,
    column: &Column,
    intent: &Intent,
) -> RequestSize {
    let q = column.as_bytes().len();
    let long = intent.short_value.is_none() && intent.kind == Kind::Put;
    let families = [Some(LOCK), long.then_some(DATA), intent.notify.then_some(NOTIFY)];
    let and = |size: RequestSize, family: Family| size.and_mutation(family.as_str().len(), q, 0);
    families.into_iter().flatten().fold(size, and)
}

fn all<'a>(
    row: &RowKey,
    cells: impl Iterator<Item = (&'a Column, &'a Intent)>,
    of: OfCell,
) -> RequestSize {
    cells.fold(asking(row, 1), |size, (column, intent)| of(size, column, intent))
}

/// A request for a row with this many probes for locks. Each counts as the longest probe, the
/// one for exactly one lock.
fn asking(row: &RowKey, probes: usize) -> RequestSize {
    let probe = Probe::family(LOCK, TimeRange::ALL).with_value_prefix(&[0; HEAD_BYTES][..]);
    RequestSize::of_row(row.as_bytes()).and_predicate(probes * probe.bytes_max())
}

#[cfg(test)]
mod tests {
    use bigtable::{ConditionalMutation, Timestamp};
    use proptest::prelude::*;

    use super::super::{abort_primary, commit_primary, heartbeat as beat, prewrite as locks};
    use super::super::{roll_back as undone, roll_back_missing_primary, roll_back_primary_lock};
    use super::*;
    use crate::Incarnation;
    use crate::records::lock::Lock;

    fn zeros(n: usize) -> bytes::Bytes {
        bytes::Bytes::from(vec![0; n])
    }

    fn cell() -> impl Strategy<Value = PlannedCell> {
        let name = proptest::collection::vec(any::<u8>(), 1..60);
        let value = proptest::option::of(0..600_usize);
        (name, any::<bool>(), value, any::<bool>()).prop_map(|(name, is_primary, value, notify)| {
            let short = value.filter(|n| *n <= 256);
            let kind = if value.is_some() { Kind::Put } else { Kind::Delete };
            PlannedCell {
                column: Column::from_stored(name.into()),
                intent: Intent { kind, notify, short_value: short.map(zeros) },
                long_value: value.filter(|n| *n > 256).map(zeros),
                is_primary,
                unwritten_since: Timestamp::ZERO,
                observed: notify,
            }
        })
    }

    fn lock_of(cell: &PlannedCell, primary: &CellName) -> Lock {
        Lock {
            primary: (!cell.is_primary).then(|| primary.clone().into()),
            owner: Incarnation(7),
            wall_ms: 8,
            lifetime_ms: 9,
            intent: cell.intent.clone(),
        }
    }

    /// Checks that the request is within the stated size.
    fn within(request: &ConditionalMutation, stated: RequestSize) {
        let is = request.size();
        assert!(is.mutations <= stated.mutations, "{is:?} of {stated:?}");
        assert!(is.bytes <= stated.bytes, "{is:?} of {stated:?}");
        assert!(is.predicate_bytes <= stated.predicate_bytes, "{is:?} of {stated:?}");
        assert!(is.qualifier_bytes <= stated.qualifier_bytes);
        assert!(is.value_bytes <= stated.value_bytes);
        assert_eq!(is.row_key_bytes, stated.row_key_bytes);
    }

    proptest! {
        /// The sizes that prewrite compares with the limits are those of the later requests
        /// (H70).
        #[test]
        fn no_builder_makes_a_larger_request_than_it_states(
            cells in proptest::collection::vec(cell(), 1..8),
            primary_bytes in 0..9000_usize,
            unsettled in 1..=HEARTBEAT_VALUES_MAX,
        ) {
            let (row, s) = (RowKey::from("row"), Timestamp::new(7).unwrap());
            let c = Timestamp::new(9).unwrap();
            let handled = vec![Mutation::delete(NOTIFY, "handled", TimeRange::at(s))];
            let locked = |cell: &PlannedCell| LockedCell {
                column: cell.column.clone(),
                intent: cell.intent.clone(),
            };
            let locked: Vec<_> = cells.iter().map(locked).collect();
            let name = CellName {
                table: "t".repeat(50),
                row: RowKey::from(zeros(primary_bytes % 4000)),
                column: Column::from_stored(zeros(primary_bytes)),
            };
            let lock_of = |cell: &PlannedCell| lock_of(cell, &name);
            within(&locks(&row, s, &cells, lock_of), prewrite(&row, &cells, &name));
            let mut committed = commit_primary(&row, s, c, &locked);
            committed.then.extend(handled.iter().cloned());
            within(&committed, commit(&row, &cells, &handled));
            prop_assert_eq!(committed.then.len(), commit(&row, &cells, &handled).mutations);
            within(&undone(&row, s, &locked), roll_back(&row, &cells));
            let primary = PlannedCell { is_primary: true, ..cells[0].clone() };
            let (PlannedCell { column, intent, .. }, lock) = (&primary, lock_of(&primary));
            let primary = roll_back_primary(&row, column, intent);
            within(&roll_back_primary_lock(&row, column, s, &lock), primary);
            within(&roll_back_missing_primary(&row, column, s), primary);
            within(&abort_primary(&row, column, s, intent), primary);
            let old = vec![lock.clone(); unsettled];
            within(&beat(&row, column, s, &old, &lock), heartbeat(&row, column, intent));
        }
    }
}
