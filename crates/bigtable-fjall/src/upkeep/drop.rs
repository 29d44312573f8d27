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
use fjall::Slice;

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
        while remove_some(engine, &info, group)? {}
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

/// Removes some of the table's cells in a group. Returns whether there may be more.
fn remove_some(engine: &Engine, table: &TableInfo, group: &Group) -> Result<bool> {
    let lead = engine.wait_to_lead()?;
    admission::look_at_disk(engine, &lead);
    admission::admit(engine, &lead, Use::Upkeep, 0)?;
    let prefix = Key::table(table.id);
    // Remove the history first: without the pack under the column's own key, nothing would
    // refer to it.
    let keyspaces = [(group.history.as_ref(), true), (Some(&group.cells), false)];
    let mut batch = Batch::default();
    let mut count = 0;
    for (keyspace, history) in keyspaces {
        let Some(keyspace) = keyspace else { continue };
        let keys = first_keys(&Cells::Live(keyspace), &prefix, BATCH_KEYS_MAX - count);
        let keys = keys.map_err(|fault| engine.read_error(&fault))?;
        count += keys.len();
        group.removed[usize::from(history)].fetch_add(keys.len() as u64, Ordering::Relaxed);
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
    }
    let bytes = batch.bytes;
    write_batch(engine, batch, false)?;
    seal_full(engine, &lead, bytes);
    Ok(count == BATCH_KEYS_MAX)
}

fn first_keys(
    cells: &Cells<'_>,
    prefix: &Key,
    keys_max: usize,
) -> std::result::Result<Vec<Slice>, Fault> {
    let end = prefix.end();
    let mut entries = cells.range(Bound::Included(prefix), Bound::Excluded(&end));
    let mut keys = Vec::new();
    while keys.len() < keys_max {
        let Some((key, _)) = entries.next(|_| false)? else { break };
        keys.push(key);
    }
    Ok(keys)
}
