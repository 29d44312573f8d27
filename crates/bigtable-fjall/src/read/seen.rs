//! Keeps what the last scan of old versions has read, for the removals that follow it (H78).
//!
//! Garbage collection scans a page of rows for versions up to a timestamp, and then deletes many of
//! them. To delete versions of a column in the layout `NewestFirst`, the committer needs the
//! column's newest pack and its history. The scan has read both. Otherwise the committer would read
//! them again, one column after the other, while all writers wait for the commit lock.
//!
//! A removal uses what was read only if its column has not changed since. The history of a changed
//! column is read again.
//!
//! Invariants:
//! * The kept histories are complete up to the timestamp `to`.
//! * While a column has the same newest pack, its history changes only in a batch that sets
//!   `Lead::rewritten`. A write that moves a pack into the history sets another newest pack. The
//!   removal of a whole table is no such batch, but a table that was removed takes no request. A
//!   merge may drop superseded packs meanwhile (`upkeep/superseded.rs`). A removal then removes
//!   them once more, or puts back a part that nobody reads.

use std::collections::{BTreeMap, HashMap};

use bigtable::{ColumnSelect, ConditionalMutation, Mutation, TimeRange, Timestamp};
use fjall::Slice;
use foldhash::fast::RandomState;

use crate::commit::recent::{Recall, Recent};
use crate::layout::pack::Pack;
use crate::mutants::{self, off};

/// The most bytes that are kept. Later columns are read again.
const BYTES_MAX: usize = 8 << 20;

/// The packs that a scan of old versions has read.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The id of the table.
    pub(crate) table: u32,
    /// The number of batches that the scan's state shows.
    batches: u64,
    /// The scan read versions up to this timestamp.
    to: Timestamp,
    /// The newest packs of columns with several versions.
    newest: HashMap<Slice, Slice, RandomState>,
    /// The histories of these columns.
    history: BTreeMap<Slice, Slice>,
    bytes: usize,
}

/// Whether what the scan reads of these columns is kept: if it selects old versions, up to a
/// timestamp.
pub(crate) fn is_kept(select: &ColumnSelect) -> bool {
    select.versions_max > 1 && select.time.to < Timestamp::MAX
}

/// Whether the request only deletes, and on no condition.
pub(crate) fn is_removal(request: &ConditionalMutation) -> bool {
    request.predicate.is_empty()
        && !request.otherwise.is_empty()
        && request.otherwise.iter().all(|mutation| matches!(mutation, Mutation::Delete { .. }))
}

impl Seen {
    /// For a scan of a table's versions up to `to`, in the state after `batches` batches.
    pub(crate) fn new(table: u32, batches: u64, to: Timestamp) -> Self {
        let (newest, history) = (HashMap::default(), BTreeMap::new());
        Seen { table, batches, to, newest, history, bytes: 0 }
    }

    /// Adds a column: its newest pack, and the packs of its history. The bytes are shared with the
    /// blocks that the scan has read, until the removals or the next such scan.
    pub(crate) fn add(&mut self, column: &Slice, newest: &Slice, history: Vec<(Slice, Slice)>) {
        let entry = |(key, pack): (&Slice, &Slice)| key.len() + pack.len();
        let added = entry((column, newest))
            + history.iter().map(|(key, pack)| entry((key, pack))).sum::<usize>();
        if self.bytes + added > BYTES_MAX {
            return;
        }
        self.bytes += added;
        self.newest.insert(column.clone(), newest.clone());
        self.history.extend(history);
    }

    /// Whether no batch since then has rewritten a history; `rewritten` is the number of the last
    /// one that did.
    pub(crate) fn holds(&self, rewritten: u64) -> bool {
        self.batches >= rewritten || off(mutants::REWRITTEN_SINCE)
    }

    /// The current pack of a column, if it is known without reading: a batch since then would have
    /// left the pack in the cache.
    pub(crate) fn newest(&self, recent: &mut Recent, column: &[u8]) -> Option<Slice> {
        match recent.get(column) {
            Recall::Unknown
                if recent.is_whole_since(self.batches) || off(mutants::FORGOTTEN_SINCE) =>
            {
                self.newest.get(column).cloned()
            }
            Recall::Pack(pack) => Some(pack),
            Recall::Unknown | Recall::Absent => None,
        }
    }

    /// The histories, if they have all versions in `time` of a column whose current pack is `pack`.
    pub(crate) fn history(
        &self,
        column: &[u8],
        pack: Option<&Pack>,
        time: TimeRange,
    ) -> Option<&BTreeMap<Slice, Slice>> {
        let (seen, pack) = (self.newest.get(column)?, pack?);
        let same = **seen == **pack.stored() || off(mutants::WRITTEN_SINCE);
        (same && time.to <= self.to).then_some(&self.history)
    }
}

#[cfg(test)]
mod tests {
    use bigtable::{Family, Layout, LocalityGroup, PageLimit, RowKey, RowMutation, RowRange};
    use bigtable::{Selection, Table, TableSchema};
    use futures::executor::block_on;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::commit::begin::{add_seen, begin_all};
    use crate::commit::edit::Request;
    use crate::{Durability, FjallStore, FjallTable, Options};

    const FAMILY: Family = Family::from_static("newest");
    const ROWS: u8 = 4;
    const TIMES: u64 = 12;
    const RECENT_BYTES: usize = 1 << 20;

    /// A change of one row: an overwritten or older version, or a removal of versions.
    #[derive(Debug, Clone)]
    enum Change {
        Set(u8, u64, usize),
        Delete(u8, u64, u64),
    }

    fn change() -> impl Strategy<Value = Change> {
        // A value of the second length does not share its pack.
        let set = (0..ROWS, 1..=TIMES, prop_oneof![Just(4), Just(600)]);
        let delete = (0..ROWS, 0..=TIMES, 0..=TIMES);
        prop_oneof![
            3 => set.prop_map(|(row, time, bytes)| Change::Set(row, time, bytes)),
            1 => delete.prop_map(|(row, from, to)| Change::Delete(row, from, to)),
        ]
    }

    fn ts(time: u64) -> Timestamp {
        Timestamp::new(time).unwrap()
    }

    /// Opens a table. With zero `recent_bytes`, no pack is cached.
    fn open(dir: &std::path::Path, durability: Durability, recent_bytes: usize) -> FjallTable {
        let options = Options { durability, recent_bytes, ..Options::default() };
        let store = FjallStore::open(dir, options).unwrap();
        let groups = vec![LocalityGroup::on_disk("newest", Layout::NewestFirst)];
        block_on(store.open_fjall_table("t", &TableSchema { groups })).unwrap()
    }

    fn removal(row: u8, from: u64, to: u64) -> ConditionalMutation {
        let delete = Mutation::delete(FAMILY, "q", TimeRange { from: ts(from), to: ts(to) });
        ConditionalMutation { otherwise: vec![delete], ..ConditionalMutation::new(vec![row]) }
    }

    fn apply(table: &FjallTable, change: &Change) {
        let done = match *change {
            Change::Set(row, time, bytes) => {
                let set = Mutation::set(FAMILY, "q", ts(time), vec![7; bytes]);
                block_on(table.mutate_row(RowMutation::new(vec![row]).mutation(set)))
            }
            Change::Delete(row, from, to) => {
                block_on(table.check_and_mutate_row(removal(row, from, to))).map(|_| ())
            }
        };
        done.unwrap();
    }

    /// The timestamps and lengths of a row's versions, newest first.
    fn versions(table: &FjallTable, row: u8) -> Vec<(u64, usize)> {
        let select = Selection::default().column(FAMILY, "q", TimeRange::ALL, u32::MAX);
        let row = block_on(table.read_row(&RowKey::from(vec![row]), &select)).unwrap();
        row.cells.iter().map(|cell| (cell.timestamp.as_u64(), cell.value.len())).collect()
    }

    /// Scans for the newest `versions_max` versions up to `to`.
    fn scan(table: &FjallTable, (to, versions_max): (u64, u32)) {
        let select = Selection::default().family(FAMILY, TimeRange::up_to(ts(to)), versions_max);
        block_on(table.scan(&RowRange::all(), &select, PageLimit::default())).unwrap();
    }

    /// Scans, applies `meanwhile`, and then removes the versions in `times` from all rows. Returns
    /// how many removals could use what was read.
    fn remove(
        table: &FjallTable,
        scanned: (u64, u32),
        meanwhile: &[Change],
        times: (u64, u64),
    ) -> usize {
        scan(table, scanned);
        meanwhile.iter().for_each(|change| apply(table, change));
        let (engine, info) = table.opened();
        let removals =
            (0..ROWS).map(|row| Request::Conditional(removal(row, times.0, times.1), None));
        let mut removals: Vec<_> = removals.collect();
        add_seen(&engine, &info, &mut removals);
        let rewritten = engine.wait_to_lead().unwrap().rewritten.get();
        let hold = removals.iter().filter(|request| request.seen(rewritten).is_some()).count();
        for begun in begin_all(&engine, &info, removals) {
            block_on(begun.outcome()).unwrap();
        }
        hold
    }

    /// A table whose rows have versions 2, 4 and 6, each in a pack of its own.
    fn filled(dir: &std::path::Path, durability: Durability, recent_bytes: usize) -> FjallTable {
        let table = open(dir, durability, recent_bytes);
        for row in 0..ROWS {
            [2, 4, 6].iter().for_each(|time| apply(&table, &Change::Set(row, *time, 600)));
        }
        table
    }

    #[test]
    fn h78_a_removal_sees_what_was_written_after_it_was_read() {
        crate::mutants::switch_off_named_mutant();
        for recent_bytes in [0, RECENT_BYTES] {
            let dir = tempfile::tempdir().unwrap();
            let filled = |name| filled(&dir.path().join(name), Durability::Buffered, recent_bytes);
            let table = filled("written");
            // This write moves version 6 into the history.
            let used = remove(&table, (6, u32::MAX), &[Change::Set(1, 8, 600)], (0, 6));
            assert_eq!(used, ROWS.into());
            assert_eq!(versions(&table, 1), [(8, 600)]);
            assert_eq!(versions(&table, 0), []);
            let table = filled("rewritten");
            // This one leaves the newest pack as it is.
            assert_eq!(remove(&table, (4, u32::MAX), &[Change::Set(1, 3, 600)], (0, 4)), 0);
            assert_eq!(versions(&table, 1), [(6, 600)]);
            assert_eq!(versions(&table, 0), [(6, 600)]);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn removals_after_a_scan_leave_the_same_versions_as_others(
            before in vec(change(), 0..40),
            scanned in (0..=TIMES, prop_oneof![2u32..5, Just(u32::MAX)]),
            meanwhile in vec(change(), 0..4),
            (from, to) in (0..=TIMES, 0..=TIMES),
            recent_bytes in prop_oneof![Just(0), Just(RECENT_BYTES)],
        ) {
            let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
            let open = |dir: &tempfile::TempDir| open(dir.path(), Durability::Buffered, recent_bytes);
            let [with, without] = dirs.each_ref().map(open);
            for table in [&with, &without] {
                before.iter().for_each(|change| apply(table, change));
            }
            remove(&with, scanned, &meanwhile, (from, to));
            meanwhile.iter().for_each(|change| apply(&without, change));
            (0..ROWS).for_each(|row| apply(&without, &Change::Delete(row, from, to)));
            for row in 0..ROWS {
                prop_assert_eq!(versions(&with, row), versions(&without, row));
            }
        }
    }

    #[test]
    fn a_removal_beyond_the_scan_reads_again() {
        let dir = tempfile::tempdir().unwrap();
        // The scan stops at version 2, or before it has read version 2.
        for (name, scanned) in [("to", (2, u32::MAX)), ("versions", (6, 2))] {
            let table = filled(&dir.path().join(name), Durability::Buffered, RECENT_BYTES);
            remove(&table, scanned, &[], (0, 4));
            (0..ROWS).for_each(|row| assert_eq!(versions(&table, row), [(6, 600)], "{name}"));
        }
    }

    #[test]
    fn removals_of_a_synced_store_use_the_scan_too() {
        let dir = tempfile::tempdir().unwrap();
        let table = filled(dir.path(), Durability::Sync, RECENT_BYTES);
        scan(&table, (6, u32::MAX));
        let removals = (0..ROWS).map(|row| removal(row, 0, 4)).collect();
        let done = block_on(table.check_and_mutate_rows(removals));
        assert!(done.iter().all(|done| matches!(done, Ok(false))));
        (0..ROWS).for_each(|row| assert_eq!(versions(&table, row), [(6, 600)]));
        let (engine, info) = table.opened();
        assert!(engine.take_seen(info.id).is_none(), "it was used");
    }

    #[test]
    fn only_scans_of_old_versions_are_kept_and_only_columns_with_several() {
        let dir = tempfile::tempdir().unwrap();
        let table = filled(dir.path(), Durability::Buffered, RECENT_BYTES);
        apply(&table, &Change::Set(9, 2, 600));
        let (engine, info) = table.opened();
        let all = Selection::default().family(FAMILY, TimeRange::ALL, u32::MAX);
        block_on(table.scan(&RowRange::all(), &all, PageLimit::default())).unwrap();
        assert!(engine.take_seen(info.id).is_none());
        scan(&table, (6, u32::MAX));
        assert!(engine.take_seen(info.id + 1).is_none(), "of another table");
        let seen = engine.take_seen(info.id).unwrap();
        assert_eq!((seen.newest.len(), seen.history.len()), (ROWS.into(), 2 * usize::from(ROWS)));
    }

    #[test]
    fn what_exceeds_the_bound_is_not_kept() {
        let mut seen = Seen::new(0, 0, ts(1));
        let pack = |bytes: usize| Slice::from(vec![0; bytes]);
        let column = |name: &str| Slice::from(name);
        seen.add(&column("a"), &pack(10), vec![(column("a1"), pack(BYTES_MAX / 2))]);
        seen.add(&column("b"), &pack(10), vec![(column("b1"), pack(BYTES_MAX / 2))]);
        seen.add(&column("c"), &pack(10), vec![(column("c1"), pack(10))]);
        let kept = |name| seen.newest.contains_key(&column(name));
        assert_eq!(["a", "b", "c"].map(kept), [true, false, true]);
        assert_eq!(seen.history.len(), 2);
    }
}
