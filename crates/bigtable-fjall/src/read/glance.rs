//! Implements glances, by which transactions read single cells. A glance at `s` reads the newest
//! version of a column at or below `s`. It returns `Nothing`, and the caller reads the row, in each
//! of these cases:
//!
//! * The column has a cell at or below `s` in the guard family, which holds the locks.
//! * The guard's group is not in memory as a whole.
//! * The column's own group is in memory.
//! * A one-step commit of the row is pending, for which a reader at `s` must wait.
//!
//! A glance follows the order of every read: in-memory cells first, then the cache or the
//! snapshot, then the floor.

use std::ops::ControlFlow;

use bigtable::{Glance, Glanced, Result, TimeRange};

use crate::engine::Engine;
use crate::failure::fault::Fault;
use crate::layout::key::Key;
use crate::layout::pack::Version;
use crate::layout::table_info::TableInfo;
use crate::mutants::{self, off};
use crate::read::cached;
use crate::read::cells::Stored;
use crate::read::column::visit;

/// Looks for the newest cell of a column. Returns `Nothing` if the answer takes more than a
/// look.
pub(crate) fn glance(engine: &Engine, table: &TableInfo, at: Glance<'_>) -> Result<Glanced> {
    at.check(&table.schema)?;
    let bounds = || Key::row_bounds(table.id, at.row.as_bytes());
    if engine.pending.blocks(at.s, bounds) && !off(mutants::GLANCE_PASSES_PENDING) {
        return Ok(Glanced::Nothing);
    }
    engine.check_usable()?;
    let found = look(engine, table, at).map_err(|fault| engine.read_error(&fault))?;
    if !off(mutants::GLANCE_BELOW_FLOOR) {
        engine.check_floor(Some(at.s))?;
    }
    Ok(found)
}

fn look(engine: &Engine, table: &TableInfo, at: Glance<'_>) -> std::result::Result<Glanced, Fault> {
    let (guard, family) = (table.family(at.guard), table.family(at.family));
    let (guards, group) = (&table.groups[guard.group], &table.groups[family.group]);
    if guards.memory.is_none() || group.memory.is_some() {
        return Ok(Glanced::Nothing);
    }
    let key = |number| Key::column(table.id, at.row.as_bytes(), number, at.qualifier);
    let upto = TimeRange::up_to(at.s);
    let early = off(mutants::SNAPSHOT_BEFORE_GUARD)
        .then(|| engine.snapshots.get(&engine.db))
        .transpose()?;
    {
        let memory = engine.memory();
        let Some(held) = Stored::in_memory(guards, &memory) else {
            return Ok(Glanced::Nothing);
        };
        let mut guarded = false;
        if !held.is_empty_map() {
            visit(held, &key(guard.number), upto, 1, |_| {
                guarded = true;
                ControlFlow::Break(())
            })?;
        }
        if guarded {
            return Ok(Glanced::Nothing);
        }
    }
    let key = key(family.number);
    let mut found = Glanced::Absent;
    let mut see = |version: Version<'_>| {
        found = Glanced::Newest(version.timestamp, version.to_bytes());
        ControlFlow::Break(())
    };
    if group.history.is_some()
        && early.is_none()
        && let Some(packs) = cached::packs(engine, std::iter::once(&key))?
    {
        let Some(pack) = packs.first().and_then(Option::as_ref) else { return Ok(found) };
        if pack.visit(upto, 1, &mut see)? == 0 || !pack.older() {
            return Ok(found);
        }
    }
    let snapshot = early.map_or_else(|| engine.snapshots.get(&engine.db), Ok)?;
    let stored = Stored::remembered(group, &snapshot, &engine.recent);
    visit(stored, &key, upto, 1, see)?;
    Ok(found)
}
