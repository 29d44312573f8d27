//! Drops superseded versions while the engine merges files (H79, ADR-25).
//!
//! In the layout `NewestFirst`, a pack that moves to the history names the version that superseded
//! it. A merge reads and writes such packs anyway. So it can leave out those that no reader needs,
//! without another read, and without a removal that later merges would have to carry.
//!
//! The caller of [`drop_superseded`](bigtable::Table::drop_superseded) says up to which timestamp
//! nobody reads. This is a rule for one family of one table. Rules are not stored: after the store
//! was opened, merges drop nothing until there is a rule again.
//!
//! A merge leaves a removal mark in place of a pack, unless it writes the last level. So an older
//! entry under the same key cannot come back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bigtable::Timestamp;
use bigtable::sync::locked;
use fjall::Slice;
use foldhash::fast::RandomState;

use crate::failure::fault::Fault;
use crate::layout::key::{Shape, table_of};
use crate::layout::pack::Pack;
use crate::mutants::{self, off};

/// Says which versions of a family merges may drop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    /// Versions may go that were superseded at or before this timestamp.
    pub(crate) up_to: Timestamp,
    /// Whether a version stays nevertheless, by its value.
    pub(crate) keep: fn(&[u8]) -> bool,
}

/// Rules, by the table's id and the family's number.
pub(crate) type Rules = HashMap<(u32, u8), Rule, RandomState>;

/// The rules of a store. A merge keeps those that held when it began.
#[derive(Debug, Default)]
pub(crate) struct Superseded(Mutex<Arc<Rules>>);

impl Superseded {
    /// Sets the rule of a family. The timestamp of a rule never goes back.
    pub(crate) fn set(&self, table: u32, family: u8, rule: Rule) {
        let mut rules = locked(&self.0);
        let known = rules.get(&(table, family));
        if known.is_none_or(|known| known.up_to < rule.up_to) {
            Arc::make_mut(&mut rules).insert((table, family), rule);
        }
    }

    pub(crate) fn rules(&self) -> Arc<Rules> {
        locked(&self.0).clone()
    }
}

/// Whether a merge may drop an entry of a history.
pub(crate) fn may_go(rules: &Rules, key: &[u8], pack: Slice) -> Result<bool, Fault> {
    let named = table_of(key).zip(Shape::of(key)).map(|(table, shape)| (table, shape.family));
    let Some(rule) = named.and_then(|named| rules.get(&named)) else { return Ok(false) };
    let pack = Pack::decode(pack)?;
    let Some(by) = pack.superseded_by()? else { return Ok(false) };
    if by > rule.up_to && !off(mutants::SUPERSEDED_LATER) {
        return Ok(false);
    }
    let keeps = pack.versions()?.iter().any(|(_, value)| (rule.keep)(value));
    Ok(!keeps || off(mutants::KEPT_VERSIONS_GO))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use bigtable::{Family, Layout, LocalityGroup, Mutation, RowKey, RowMutation, Selection};
    use bigtable::{Store, Table, TableSchema, TimeRange};
    use fjall::AbstractTree;
    use futures::executor::block_on;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::held::wait_until;
    use crate::layout::tuning::first_level;
    use crate::upkeep::seal::seal;
    use crate::{Durability, FjallStore, FjallTable, Options};

    const FAMILY: Family = Family::from_static("newest");
    /// The first byte of a value that a merge must keep.
    const KEPT: u8 = 1;

    fn keep(value: &[u8]) -> bool {
        value.first() == Some(&KEPT)
    }

    fn ts(time: u64) -> Timestamp {
        Timestamp::new(time).unwrap()
    }

    struct Opened {
        store: FjallStore,
        table: FjallTable,
    }

    impl Opened {
        fn new(dir: &Path) -> Self {
            crate::mutants::switch_off_named_mutant();
            let options = Options { durability: Durability::Buffered, ..Options::default() };
            let store = FjallStore::open(dir, options).unwrap();
            let groups = vec![LocalityGroup::on_disk("newest", Layout::NewestFirst)];
            let table = block_on(store.open_fjall_table("t", &TableSchema { groups })).unwrap();
            Opened { store, table }
        }

        fn set(&self, row: u8, time: u64, value: Vec<u8>) {
            let set = Mutation::set(FAMILY, "q", ts(time), value);
            block_on(self.table.mutate_row(RowMutation::new(vec![row]).mutation(set))).unwrap();
        }

        fn delete(&self, row: u8, to: u64) {
            let delete = Mutation::delete(FAMILY, "q", TimeRange::up_to(ts(to)));
            block_on(self.table.mutate_row(RowMutation::new(vec![row]).mutation(delete))).unwrap();
        }

        /// Raises the floor, and lets merges drop what was superseded up to it.
        fn allow(&self, floor: u64, up_to: u64) {
            block_on(self.store.raise_floor(ts(floor))).unwrap();
            assert!(self.table.drop_superseded(&FAMILY, ts(up_to), keep));
        }

        /// Writes the history's buffer out, and then merges its runs: none, those of the first
        /// level, or all into the last level.
        fn merge(&self, levels: u8) {
            let (engine, info) = self.table.opened();
            let history = info.groups[0].keyspace(true);
            seal(&engine, history);
            wait_until("the run is written", || history.sealed_memtable_count() == 0);
            match levels {
                0 => {}
                1 => {
                    let kept_from = engine.db.supervisor.snapshot_tracker.get_seqno_safe_to_gc();
                    let strategy = Arc::new(first_level(&engine.options));
                    history.tree.compact(strategy, kept_from).unwrap();
                }
                _ => history.major_compact().unwrap(),
            }
        }

        /// The timestamps of a row's versions, newest first.
        fn versions(&self, row: u8) -> Vec<u64> {
            let select = Selection::default().column(FAMILY, "q", TimeRange::ALL, u32::MAX);
            let row = block_on(self.table.read_row(&RowKey::from(vec![row]), &select)).unwrap();
            row.cells.iter().map(|cell| cell.timestamp.as_u64()).collect()
        }
    }

    #[test]
    fn h79_a_merge_drops_no_version_that_a_reader_needs() {
        let dir = tempfile::tempdir().unwrap();
        let opened = Opened::new(dir.path());
        let [plain, kept, short, long, late] = [0, 1, 2, 3, 4];
        for time in (2..=20).step_by(2) {
            opened.set(plain, time, vec![7; 300]);
            opened.set(kept, time, vec![KEPT; 300]);
            // Eight of these share a pack.
            opened.set(short, time, vec![7; 20]);
            // Such a value has no place for a stamp behind it.
            opened.set(long, time, vec![7; 2000]);
        }
        // These versions moved to the history one after the other, but out of order.
        [2, 8, 6, 4].iter().for_each(|time| opened.set(late, *time, vec![7; 300]));
        let even = |from: u64| -> Vec<u64> { (from / 2..=10).rev().map(|half| 2 * half).collect() };
        opened.merge(2);
        assert_eq!(opened.versions(plain), even(2), "without a rule nothing goes");
        opened.allow(10, 10);
        opened.merge(2);
        assert_eq!(opened.versions(plain), even(10), "version 10 is visible at 10 and 11");
        assert_eq!(opened.versions(kept), even(2));
        assert_eq!(opened.versions(short), even(2), "the pack was superseded at 18");
        assert_eq!(opened.versions(long), even(2));
        assert_eq!(opened.versions(late), [8, 6, 4], "only version 2 names what superseded it");
        // A rule above the floor is one at the floor.
        opened.allow(18, 20);
        opened.merge(2);
        assert_eq!(opened.versions(plain), [20, 18]);
        assert_eq!(opened.versions(kept), even(2));
        assert_eq!(opened.versions(short), [20, 18]);
    }

    #[test]
    fn a_store_that_was_opened_again_has_forgotten_its_rules() {
        let dir = tempfile::tempdir().unwrap();
        let opened = Opened::new(dir.path());
        (1..=3).for_each(|time| opened.set(0, time, vec![7; 300]));
        opened.allow(3, 3);
        drop(opened);
        let opened = Opened::new(dir.path());
        opened.merge(2);
        assert_eq!(opened.versions(0), [3, 2, 1]);
        opened.allow(3, 3);
        opened.merge(2);
        // Readers share a snapshot until something is written.
        opened.set(1, 4, vec![7]);
        assert_eq!(opened.versions(0), [3]);
    }

    #[test]
    fn only_families_with_a_history_are_dropped_from() {
        let dir = tempfile::tempdir().unwrap();
        let store = FjallStore::open(dir.path(), Options::default()).unwrap();
        let groups = vec![LocalityGroup::on_disk("plain", Layout::Versions)];
        let table = block_on(store.open_fjall_table("t", &TableSchema { groups })).unwrap();
        for family in ["plain", "unknown"] {
            assert!(!table.drop_superseded(&Family::from_static(family), Timestamp::MAX, keep));
        }
    }

    /// A step of a random history of two rows.
    #[derive(Debug, Clone)]
    enum Step {
        /// A newer version of a row: a short, a middle or a long value, perhaps one to keep.
        Set(u8, usize, bool),
        /// Removes a row whose newest version is at or below the floor, as if it were a deletion.
        Remove(u8),
        Merge(u8),
        Raise,
        Reopen,
    }

    fn step() -> impl Strategy<Value = Step> {
        let bytes = prop_oneof![Just(20usize), Just(300), Just(2000)];
        prop_oneof![
            12 => (0..2u8, bytes, prop::bool::weighted(0.2))
                .prop_map(|(row, bytes, kept)| Step::Set(row, bytes, kept)),
            2 => (0..2u8).prop_map(Step::Remove),
            6 => (0..3u8).prop_map(Step::Merge),
            2 => Just(Step::Raise),
            1 => Just(Step::Reopen),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
        #[test]
        fn readers_above_the_floor_see_the_same_versions(steps in vec(step(), 1..40)) {
            let dir = tempfile::tempdir().unwrap();
            let mut opened = Opened::new(dir.path());
            // All versions that were written and not removed, and those to keep.
            let mut model = [const { BTreeMap::<u64, bool>::new() }; 2];
            let (mut now, mut floor) = (1, 0);
            for step in steps {
                now += 1;
                match step {
                    Step::Set(row, bytes, kept) => {
                        opened.set(row, now, vec![if kept { KEPT } else { 7 }; bytes]);
                        model[usize::from(row)].insert(now, kept);
                    }
                    Step::Remove(row) => {
                        let versions = &mut model[usize::from(row)];
                        if versions.last_key_value().is_some_and(|(newest, _)| *newest <= floor) {
                            opened.delete(row, floor);
                            versions.clear();
                        }
                    }
                    Step::Merge(levels) => opened.merge(levels),
                    Step::Raise => {
                        floor = now - 1;
                        opened.allow(floor, floor);
                    }
                    Step::Reopen => {
                        drop(opened);
                        opened = Opened::new(dir.path());
                    }
                }
                for (row, versions) in (0u8..).zip(&model) {
                    let found = opened.versions(row);
                    let visible = versions.range(..=floor).next_back().map(|(time, _)| *time);
                    let needed = versions.iter().filter(|(time, kept)| {
                        **kept || **time > floor || Some(**time) == visible
                    });
                    for (time, _) in needed {
                        prop_assert!(found.contains(time), "row {row} lost version {time}");
                    }
                    let known = found.iter().all(|time| versions.contains_key(time));
                    prop_assert!(known, "row {row} has {found:?}");
                    prop_assert_eq!(found.first(), versions.last_key_value().map(|(time, _)| time));
                }
            }
        }
    }
}
