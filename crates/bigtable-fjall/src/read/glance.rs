//! A look at one column without waiting: the read of a single cell in a transaction.
//!
//! It goes the way of every read: in-memory cells first, then the snapshot, then the floor.

use std::ops::ControlFlow;

use bigtable::{Glance, Glanced, Result, TimeRange};

use crate::engine::Engine;
use crate::failure::fault::Fault;
use crate::layout::key::Key;
use crate::layout::table_info::TableInfo;
use crate::mutants::{self, off};
use crate::read::cells::Stored;
use crate::read::column::visit;

impl Engine {
    pub(crate) fn glance(&self, table: &TableInfo, at: Glance<'_>) -> Result<Glanced> {
        at.check(&table.schema)?;
        let bounds = || Key::row_bounds(table.id, at.row.as_bytes());
        if self.pending.meets(at.s, bounds) && !off(mutants::GLANCE_PASSES_PENDING) {
            return Ok(Glanced::Nothing);
        }
        self.check_usable()?;
        let found = self.look(table, at).map_err(|fault| self.read_error(&fault))?;
        if !off(mutants::GLANCE_BELOW_FLOOR) {
            self.check_floor(Some(at.s))?;
        }
        Ok(found)
    }

    fn look(&self, table: &TableInfo, at: Glance<'_>) -> std::result::Result<Glanced, Fault> {
        let (guard, family) = (table.family(at.guard), table.family(at.family));
        let (guards, group) = (&table.groups[guard.group], &table.groups[family.group]);
        if guards.memory.is_none() || group.memory.is_some() {
            return Ok(Glanced::Nothing);
        }
        let key = |number| Key::column(table.id, at.row.as_bytes(), number, at.qualifier);
        let upto = TimeRange::up_to(at.s);
        let early = off(mutants::SNAPSHOT_BEFORE_GUARD)
            .then(|| self.snapshots.get(&self.db))
            .transpose()?;
        {
            let memory = self.memory();
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
        let snapshot = early.map_or_else(|| self.snapshots.get(&self.db), Ok)?;
        let stored = Stored::remembered(group, &snapshot, &self.recent);
        let mut found = Glanced::Absent;
        visit(stored, &key(family.number), upto, 1, |version| {
            found = Glanced::Newest(version.timestamp, version.to_bytes());
            ControlFlow::Break(())
        })?;
        Ok(found)
    }
}
