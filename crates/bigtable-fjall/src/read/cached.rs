//! Reads columns from the cache of newest versions alone, without a snapshot of the engine.
//!
//! Most reads are of values that were written or read a moment ago. To open a snapshot costs more
//! than such a read, so a reader opens one only after it has found too little here.
//!
//! Invariants:
//! * All columns of a read are of one state: the cache stays locked from the first to the last.
//! * That state is the one after all batches that have ended. The cache learns of a batch after
//!   its end, and before it is acknowledged. In between, this file answers nothing, because other
//!   readers may see the batch in a snapshot already.
//! * A batch is in the cache before the in-memory cells show it. So a reader that has copied the
//!   in-memory cells finds here what it would find in a snapshot that it opens now.

use std::ops::ControlFlow;

use bigtable::{Cell, Qualifiers};
use smallvec::SmallVec;

use crate::commit::recent::Recall;
use crate::engine::Engine;
use crate::failure::fault::Fault;
use crate::layout::chosen::Chosen;
use crate::layout::group::Group;
use crate::layout::key::Key;
use crate::layout::pack::{Pack, Version};
use crate::read::cursor::cell;

/// The newest packs of columns, as the cache knows them; `None` for a column without versions.
type Packs = SmallVec<[Option<Pack>; 4]>;

/// Returns the newest packs of these columns, if all of them are cached. The columns are in
/// groups with the layout `NewestFirst`. The caller has copied the in-memory cells that it wants.
pub(crate) fn packs<'k>(
    engine: &Engine,
    columns: impl Iterator<Item = &'k Key>,
) -> Result<Option<Packs>, Fault> {
    // A look at the cache is not worth waiting for its lock.
    let Ok(mut recent) = engine.recent.try_lock() else { return Ok(None) };
    let state = engine.snapshots.batches();
    let mut packs = Packs::new();
    for column in columns {
        packs.push(match recent.get_as_of(state, column) {
            Recall::Pack(pack) => Some(Pack::decode(pack)?),
            Recall::Absent => None,
            Recall::Unknown => return Ok(None),
        });
    }
    Ok(Some(packs))
}

/// Adds the cells of a row in these columns, if the cache has all of them.
pub(crate) fn add_cells(
    engine: &Engine,
    (table, row): (u32, &[u8]),
    columns: &[(&Group, Chosen<'_>)],
    cells: &mut Vec<Cell>,
) -> Result<bool, Fault> {
    let mut keys: SmallVec<[Key; 4]> = SmallVec::new();
    for (group, Chosen { family, select }) in columns {
        let (Some(_), Qualifiers::Is(qualifier)) = (&group.history, &select.qualifiers) else {
            return Ok(false);
        };
        keys.push(Key::column(table, row, *family, qualifier));
    }
    let Some(packs) = packs(engine, keys.iter())? else { return Ok(false) };
    let before = cells.len();
    for ((_, Chosen { select, .. }), pack) in columns.iter().zip(packs) {
        let (time, versions_max) = (select.time, select.versions_max);
        let Some(pack) = pack.filter(|_| versions_max > 0 && time.from <= time.to) else {
            continue;
        };
        let Qualifiers::Is(qualifier) = &select.qualifiers else { continue };
        let left = pack.visit(time, versions_max, &mut |version: Version<'_>| {
            cells.push(cell(select, qualifier.clone(), &version));
            ControlFlow::Continue(())
        })?;
        if left > 0 && pack.older() {
            cells.truncate(before);
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use bigtable::{
        Family, Glance, Glanced, Layout, LocalityGroup, Mutation, OnFull, RowMutation, Selection,
        Table, TableSchema, TimeRange, Timestamp,
    };
    use futures::executor::block_on;

    use super::*;
    use crate::{Durability, FjallStore, Options};

    const NEWEST: Family = Family::from_static("newest");
    const GUARD: Family = Family::from_static("guard");

    fn ts(number: u64) -> Timestamp {
        Timestamp::new(number).unwrap()
    }

    #[test]
    fn h27_the_cache_answers_for_the_published_state_alone() {
        crate::mutants::switch_off_named_mutant();
        let dir = tempfile::tempdir().unwrap();
        let options = Options { durability: Durability::Buffered, ..Options::default() };
        let store = FjallStore::open(dir.path(), options).unwrap();
        let groups = vec![
            LocalityGroup::on_disk("newest", Layout::NewestFirst),
            LocalityGroup::in_memory("guard", OnFull::Refuse { cells_max: 10 }),
        ];
        let table = block_on(store.open_fjall_table("t", &TableSchema { groups })).unwrap();
        for version in 1..=20 {
            let set = Mutation::set(NEWEST, "q", ts(version), version.to_string());
            block_on(table.mutate_row(RowMutation::new("r").mutation(set))).unwrap();
        }
        let (engine, info) = table.opened();
        let snapshots = &engine.snapshots;
        let row = "r".into();
        let glance = |s| {
            let (row, family, guard) = (&row, &NEWEST, &GUARD);
            table.glance(Glance { row, qualifier: b"q", family, guard, s: ts(s) }).unwrap()
        };
        let newest = |version: u64| Glanced::Newest(ts(version), version.to_string().into());
        assert_eq!(glance(20), newest(20));
        let select = Selection::default().column(NEWEST, "q", TimeRange::up_to(ts(19)), 1);
        let read = || block_on(table.read_row(&row, &select)).unwrap().cells;
        assert_eq!(read()[0].timestamp, ts(19));
        assert!(!snapshots.is_open(), "what is cached needs no snapshot");
        assert_eq!(glance(3), newest(3), "an older version is not cached");
        assert!(snapshots.is_open());
        let key = Key::column(info.id, b"r", info.family(&NEWEST).number, b"q");
        let cached = || packs(&engine, std::iter::once(&key)).unwrap();
        assert!(cached().is_some());
        {
            // A batch that has ended, and is not in the cache yet.
            let _lead = engine.wait_to_lead().unwrap();
            drop(snapshots.begin(&engine.db).unwrap());
        }
        assert!(cached().is_none(), "another reader may see the batch already");
        assert_eq!((glance(20), read()[0].timestamp), (newest(20), ts(19)));
    }
}
