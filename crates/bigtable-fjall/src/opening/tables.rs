//! Opens tables, and their locality groups, in an open engine.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError};

use bigtable::sync::locked;
use bigtable::{Layout, LocalityGroup, Result, TableSchema};

use crate::commit::admission;
use crate::commit::puts::Puts;
use crate::commit::room::{FILES_BYTES, Use};
use crate::commit::write::write_batch;
use crate::engine::{Engine, Lead};
use crate::failure::fault::{self, Fault};
use crate::layout::catalog::{self, ensure};
use crate::layout::group::Group;
use crate::layout::memory::MemoryGroup;
use crate::layout::table_info::{TableInfo, number_families};
use crate::upkeep::seal::make_room;

/// Returns an open table. Opens or creates it if necessary.
pub(crate) fn open_table(
    engine: &Engine,
    name: &str,
    schema: &TableSchema,
) -> Result<Arc<TableInfo>> {
    let mut lead = engine.wait_to_lead()?;
    if let Ok(known) = engine.table_named(name) {
        ensure(known.schema == *schema, || catalog::other_schema(name))?;
        return Ok(known);
    }
    let info = Arc::new(open_unopened(engine, &mut lead, name, schema)?);
    engine.tables.write().unwrap_or_else(PoisonError::into_inner).push(info.clone());
    Ok(info)
}

/// Opens a table that is not open yet. The caller holds the commit lock.
fn open_unopened(
    engine: &Engine,
    lead: &mut Lead,
    name: &str,
    schema: &TableSchema,
) -> Result<TableInfo> {
    let reading = |fault: Fault| engine.read_error(&fault);
    let families = number_families(schema)?;
    let known = engine.catalog.table(name).map_err(reading)?;
    if let Some((_, description)) = &known {
        let same = **description == *catalog::describe(schema).as_bytes();
        ensure(same, || catalog::other_schema(name))?;
    }
    for group in &schema.groups {
        let mut same = engine.catalog.check_group(group).map_err(reading)?;
        let open = lead.groups.iter().find(|open| open.schema.name == group.name);
        same &= open.is_none_or(|open| open.schema == *group);
        ensure(same, || catalog::other_group(&group.name))?;
    }
    if known.is_none() {
        // The table's groups may have to be created as well.
        admission::look_at_disk(engine, lead);
        admission::admit(engine, lead, Use::Growth, FILES_BYTES)?;
    }
    let mut groups = Vec::new();
    for group in &schema.groups {
        let group = open_group(engine, lead, group).map_err(|e| reading(e.into()))?;
        // The engine may still have to write out buffers that it recovered.
        if let Err(error) = group.keyspaces().try_for_each(|keyspace| make_room(engine, keyspace)) {
            engine.stop(&error);
            return Err(fault::stopped());
        }
        groups.push(group);
    }
    let id = match known {
        Some((id, _)) => id,
        None => {
            let id = engine.catalog.next_id().map_err(reading)?.max(lead.ids_from);
            let mut puts = Puts::default();
            engine.catalog.put_table(&mut puts, name, id, schema);
            write_batch(engine, puts.into(), true)?;
            id
        }
    };
    lead.ids_from = lead.ids_from.max(id + 1);
    let upkeep = engine.options.upkeep_tables.iter().any(|table| table == name);
    let (name, schema, dropped) = (name.to_owned(), schema.clone(), AtomicBool::new(false));
    let upkeep = AtomicBool::new(upkeep);
    Ok(TableInfo { id, name, schema, groups, families, dropped, upkeep })
}

/// Returns a locality group, and opens it if necessary. The caller holds the commit lock.
pub(crate) fn open_group(
    engine: &Engine,
    lead: &mut Lead,
    schema: &LocalityGroup,
) -> fjall::Result<Arc<Group>> {
    if let Some(open) = lead.groups.iter().find(|open| open.schema.name == schema.name) {
        return Ok(open.clone());
    }
    let mut group = Group::open(&engine.db, schema, &engine.options)?;
    group.keyspaces().for_each(|keyspace| engine.merges.early_syncs.add(keyspace));
    engine.journals().add_keyspaces(group.keyspaces()).map_err(fjall::Error::Io)?;
    if group.history.is_some() {
        locked(&engine.recent).follow_buffers(&group.cells);
    }
    if let Layout::InMemory(on_full) = schema.layout {
        let cells = MemoryGroup::load(on_full, &group.cells)?;
        group.memory = Some(engine.memory_mut().add(cells));
    }
    let group = Arc::new(group);
    lead.groups.push(group.clone());
    Ok(group)
}
