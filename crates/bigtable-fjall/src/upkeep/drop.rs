//! Drops a table: removes its cells in batches, then its name.
//!
//! Invariants:
//! * The name is removed last. So no cell with the table's id is left when another table may
//!   get the id.
//! * While the store is open, the id is not given to another table, because handles of the
//!   dropped table may still read.

use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use bigtable::{Error, Result};
use fjall::{Keyspace, Slice};

use crate::commit::admission;
use crate::commit::draft::Batch;
use crate::commit::puts::Puts;
use crate::commit::room::Use;
use crate::commit::write::write_batch;
use crate::engine::Engine;
use crate::failure::fault::Fault;
use crate::layout::group::Group;
use crate::layout::key::Key;
use crate::layout::memory::MemoryChange;
use crate::layout::table_info::TableInfo;
use crate::layout::tuning::bytes_of;
use crate::read::cells::Cells;
use crate::upkeep::full::seal_full;

/// The most keys removed in one batch. The commit lock is held for one batch.
const BATCH_KEYS_MAX: usize = 4096;

/// Drops a table that is open, if it exists.
pub(crate) fn drop_table(engine: &Engine, name: &str) -> Result<()> {
    let reading = |fault: Fault| engine.read_error(&fault);
    let info = {
        let lead = engine.wait_to_lead()?;
        let Ok(info) = engine.table_named(name) else {
            return match engine.catalog.table(name).map_err(reading)? {
                None => Ok(()),
                Some(_) => Err(Error::invalid(format!("table {name} was not opened"))),
            };
        };
        admission::look_at_disk(engine, &lead);
        admission::admit(engine, &lead, Use::Upkeep, 0)?;
        info.dropped.store(true, Ordering::SeqCst);
        info
    };
    for group in &info.groups {
        // The history first: without the pack under the column's own key, nothing would refer to
        // it.
        for history in [true, false] {
            let mut last = None;
            while let Some(removed) = remove_some(engine, &info, group, history, last)? {
                last = Some(removed);
                engine.let_others_lead();
            }
        }
    }
    let _lead = engine.wait_to_lead()?;
    // Another caller may have dropped the table meanwhile, and a third may have created a
    // table of the same name.
    if !engine.table_named(name).is_ok_and(|table| Arc::ptr_eq(&table, &info)) {
        return Ok(());
    }
    let mut puts = Puts::default();
    engine.catalog.remove_table(&mut puts, name);
    write_batch(engine, puts.into(), true)?;
    let mut tables = engine.tables.write().unwrap_or_else(PoisonError::into_inner);
    tables.retain(|table| table.name != name);
    Ok(())
}

/// Removes the table's first cells in a keyspace of the group, or the first ones behind a key.
/// Nobody writes to the table meanwhile. Returns the last removed key, unless no more cells follow.
fn remove_some(
    engine: &Engine,
    table: &TableInfo,
    group: &Group,
    history: bool,
    behind: Option<Slice>,
) -> Result<Option<Slice>> {
    let keyspace = if history { group.history.as_ref() } else { Some(&group.cells) };
    let Some(keyspace) = keyspace else { return Ok(None) };
    let lead = engine.wait_to_lead()?;
    admission::look_at_disk(engine, &lead);
    admission::admit(engine, &lead, Use::Upkeep, 0)?;
    let prefix = Key::table(table.id);
    // Without the key, each batch would pass over the marks of all cells that were removed before.
    let from = behind.as_deref().map_or(Bound::Included(&*prefix), Bound::Excluded);
    let keys = first_keys(keyspace, from, &prefix.end());
    let keys = keys.map_err(|fault| engine.read_error(&fault))?;
    let last = keys.last().filter(|_| keys.len() == BATCH_KEYS_MAX).cloned();
    group.removed[usize::from(history)].fetch_add(keys.len() as u64, Ordering::Relaxed);
    let mut batch = Batch::default();
    for key in keys {
        batch.bytes += bytes_of(&key, None);
        batch.writes.remove(keyspace, key.clone());
        if let Some(group) = group.memory {
            let was_spilled = !engine.memory().group(group).has(&key);
            batch.memory.push(MemoryChange { group, key, value: None, was_spilled });
        } else if group.history.is_some() && !history {
            batch.newest.push((key, None));
        }
    }
    let bytes = batch.bytes;
    write_batch(engine, batch, false)?;
    seal_full(engine, &lead, bytes);
    Ok(last)
}

fn first_keys(
    keyspace: &Keyspace,
    from: Bound<&[u8]>,
    end: &Key,
) -> std::result::Result<Vec<Slice>, Fault> {
    let mut entries = Cells::Live(keyspace).range(from, Bound::Excluded(end));
    let mut keys = Vec::new();
    while keys.len() < BATCH_KEYS_MAX {
        let Some((key, _)) = entries.next(|_| false)? else { break };
        keys.push(key);
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use bigtable::Timestamp;
    use bigtable::{Family, Layout, LocalityGroup, Mutation, RowMutation, Table, TableSchema};
    use futures::executor::block_on;

    use super::*;
    use crate::{FjallStore, Options};

    #[test]
    fn a_batch_begins_behind_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let store = FjallStore::open(dir.path(), Options::default()).unwrap();
        let groups = vec![LocalityGroup::on_disk("cells", Layout::Versions)];
        let table = block_on(store.open_fjall_table("t", &TableSchema { groups })).unwrap();
        for row in ["a", "b", "c"] {
            let set = Mutation::set(Family::from_static("cells"), "q", Timestamp::ZERO, "v");
            block_on(table.mutate_row(RowMutation::new(row).mutation(set))).unwrap();
        }
        let (engine, info) = table.opened();
        let group = &info.groups[0];
        let keys = || {
            let (from, end) = (Key::table(info.id), Key::table(info.id).end());
            first_keys(&group.cells, Bound::Included(&*from), &end).unwrap()
        };
        let all = keys();
        assert_eq!(all.len(), 3);
        let last = remove_some(&engine, &info, group, false, Some(all[1].clone())).unwrap();
        assert_eq!((last, keys()), (None, all[..2].to_vec()));
    }
}
