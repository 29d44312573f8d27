//! Computes the largest request that each builder of [`rows`](super) can make.
//!
//! Before prewrite places a lock, it compares all of them with the store's limits. A resolver
//! takes as many cells at once as fit into one request.

use bigtable::{Family, Limits, Mutation, Probe, RequestSize, RowKey, TimeRange};

use super::{HEARTBEAT_VALUES_MAX, LockedCell, NewLock};
use crate::records::column::Column;
use crate::records::layout::{DATA, LOCK, NOTIFY, ROLLBACK, WRITE};
use crate::records::lock::{HEAD_BYTES, Kind, Lock};

/// Adds the changes that commit or roll-back makes to one cell.
pub(crate) type OfCell = fn(RequestSize, &Column, &Lock) -> RequestSize;

/// Prewrite of the row.
pub(crate) fn prewrite(row: &RowKey, cells: &[NewLock]) -> RequestSize {
    let mut size = RequestSize::of_row(row.as_bytes());
    for NewLock { column, lock, long_value, .. } in cells {
        let q = column.as_bytes().len();
        size = size.and_mutation(LOCK.as_str().len(), q, lock.encoded_len());
        if let Some(value) = long_value {
            size = size.and_mutation(DATA.as_str().len(), q, value.len());
        }
        if lock.notify {
            size = size.and_mutation(NOTIFY.as_str().len(), q, 0);
        }
    }
    size
}

/// Commit of the row, with its further changes.
pub(crate) fn commit(row: &RowKey, cells: &[NewLock], handled: &[Mutation]) -> RequestSize {
    let cells = cells.iter().map(|cell| (&cell.column, &cell.lock));
    handled.iter().fold(all(row, cells, commit_of_cell), RequestSize::and)
}

/// Roll-back of the row.
pub(crate) fn roll_back(row: &RowKey, cells: &[NewLock]) -> RequestSize {
    all(row, cells.iter().map(|cell| (&cell.column, &cell.lock)), roll_back_of_cell)
}

/// Roll-back of the primary with its tomb, by its owner or by a resolver. Its predicate holds
/// no names.
pub(crate) fn roll_back_primary(row: &RowKey, primary: &Column, lock: &Lock) -> RequestSize {
    let q = primary.as_bytes().len();
    let undone = all(row, [(primary, lock)].into_iter(), roll_back_of_cell);
    undone.and_mutation(ROLLBACK.as_str().len(), q, 0)
}

/// The heartbeat with the longest predicate.
pub(crate) fn heartbeat(row: &RowKey, primary: &Column, lock: &Lock) -> RequestSize {
    let q = primary.as_bytes().len();
    let size = asking(row, HEARTBEAT_VALUES_MAX);
    size.and_mutation(LOCK.as_str().len(), q, lock.encoded_len())
}

/// How many cells, counted from the first, one request can commit or roll back; at least one.
pub(crate) fn fitting(limits: &Limits, row: &RowKey, cells: &[LockedCell], of: OfCell) -> usize {
    let mut size = asking(row, 1);
    let fits = |cell: &&LockedCell| {
        size = of(size, &cell.column, &cell.lock);
        limits.check(size).is_ok()
    };
    cells.iter().take_while(fits).count().max(1)
}

/// Adds the changes that [`commit`](super::commit) makes to a cell.
pub(crate) fn commit_of_cell(size: RequestSize, column: &Column, lock: &Lock) -> RequestSize {
    let q = column.as_bytes().len();
    // A write record is shorter than its lock.
    let size = size.and_mutation(LOCK.as_str().len(), q, 0);
    let mut size = size.and_mutation(WRITE.as_str().len(), q, lock.encoded_len());
    if lock.notify {
        // One mutation writes the notification, the other deletes older ones.
        size = size.and_mutation(NOTIFY.as_str().len(), q, 0);
        size = size.and_mutation(NOTIFY.as_str().len(), q, 0);
    }
    size
}

/// Adds the changes that [`roll_back`](super::roll_back) makes to a cell.
pub(crate) fn roll_back_of_cell(size: RequestSize, column: &Column, lock: &Lock) -> RequestSize {
    let q = column.as_bytes().len();
    let long = lock.short_value.is_none() && lock.kind == Kind::Put;
    let families = [Some(LOCK), long.then_some(DATA), lock.notify.then_some(NOTIFY)];
    let and = |size: RequestSize, family: Family| size.and_mutation(family.as_str().len(), q, 0);
    families.into_iter().flatten().fold(size, and)
}

fn all<'a>(
    row: &RowKey,
    cells: impl Iterator<Item = (&'a Column, &'a Lock)>,
    of: OfCell,
) -> RequestSize {
    cells.fold(asking(row, 1), |size, (column, lock)| of(size, column, lock))
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
    use crate::{CellName, Incarnation};

    fn cell() -> impl Strategy<Value = NewLock> {
        let name = proptest::collection::vec(any::<u8>(), 1..60);
        let primary = proptest::option::of(0..9000_usize);
        let value = proptest::option::of(0..600_usize);
        (name, primary, value, any::<bool>()).prop_map(|(name, primary, value, notify)| {
            let zeros = |n: usize| bytes::Bytes::from(vec![0; n]);
            let primary = primary.map(|n| CellName {
                table: "t".repeat(50),
                row: RowKey::from(zeros(n % 4000)),
                column: Column::from_stored(zeros(n)),
            });
            let short = value.filter(|n| *n <= 256);
            let lock = Lock {
                primary: primary.map(Into::into),
                kind: if value.is_some() { Kind::Put } else { Kind::Delete },
                notify,
                owner: Incarnation(7),
                wall_ms: 8,
                lifetime_ms: 9,
                short_value: short.map(zeros),
            };
            let long_value = value.filter(|n| *n > 256).map(zeros);
            NewLock {
                column: Column::from_stored(name.into()),
                lock,
                long_value,
                unwritten_since: Timestamp::ZERO,
                observed: notify,
            }
        })
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
            unsettled in 1..=HEARTBEAT_VALUES_MAX,
        ) {
            let (row, s) = (RowKey::from("row"), Timestamp::new(7).unwrap());
            let c = Timestamp::new(9).unwrap();
            let handled = vec![Mutation::delete(NOTIFY, "handled", TimeRange::at(s))];
            let locked = |cell: &NewLock| LockedCell {
                column: cell.column.clone(),
                lock: cell.lock.clone(),
            };
            let locked: Vec<_> = cells.iter().map(locked).collect();
            within(&locks(&row, s, &cells), prewrite(&row, &cells));
            let mut committed = commit_primary(&row, s, c, &locked);
            committed.then.extend(handled.iter().cloned());
            within(&committed, commit(&row, &cells, &handled));
            prop_assert_eq!(committed.then.len(), commit(&row, &cells, &handled).mutations);
            within(&undone(&row, s, &locked), roll_back(&row, &cells));
            let NewLock { column, lock, .. } = &cells[0];
            let primary = roll_back_primary(&row, column, lock);
            within(&roll_back_primary_lock(&row, column, s, lock), primary);
            within(&roll_back_missing_primary(&row, column, s), primary);
            within(&abort_primary(&row, column, s, lock), primary);
            let old = vec![lock.clone(); unsettled];
            within(&beat(&row, column, s, &old, lock), heartbeat(&row, column, lock));
        }
    }
}
