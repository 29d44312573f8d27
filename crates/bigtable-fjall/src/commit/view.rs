//! Reads the published state for the committer, without a snapshot of the engine.
//!
//! Invariant: only the holder of the commit lock reads through a view. Any other thread could
//! see a part of a batch that is not published yet.

use std::sync::Mutex;

use bigtable::{Probe, Qualifiers, Row, RowKey, Selection};

use crate::commit::recent::Recent;
use crate::failure::fault::Fault;
use crate::layout::group::Group;
use crate::layout::key::Key;
use crate::layout::memory::Memory;
use crate::layout::table_info::{FamilyInfo, TableInfo};
use crate::read::cells::Stored;
use crate::read::column::{any_in_family, visit};
use crate::read::cursor::read_column;

/// The published state, as the holder of the commit lock reads it.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) memory: &'a Memory,
    pub(crate) recent: &'a Mutex<Recent>,
}

impl<'a> View<'a> {
    /// The selected cells of a row.
    pub(crate) fn row(
        &self,
        table: &'a TableInfo,
        row: &RowKey,
        select: &Selection,
    ) -> std::result::Result<Row, Fault> {
        let mut cells = Vec::new();
        for column in &select.columns {
            let group = &table.groups[table.family(&column.family).group];
            let column = table.chosen(column);
            read_column(self.stored(group), table.id, row.as_bytes(), column, &mut cells)?;
        }
        Ok(Row::new(row.clone(), cells))
    }

    pub(crate) fn stored(&self, group: &'a Group) -> Stored<'a> {
        Stored::in_memory(group, self.memory).unwrap_or_else(|| Stored::live(group, self.recent))
    }

    /// Whether the probe finds a cell.
    pub(crate) fn finds(
        &self,
        table: &'a TableInfo,
        row: &RowKey,
        probe: &Probe,
    ) -> std::result::Result<bool, Fault> {
        use std::ops::ControlFlow::{Break, Continue};
        let Probe { family, qualifiers, time, value_prefix } = probe;
        let FamilyInfo { number, group, .. } = table.family(family);
        let stored = self.stored(&table.groups[*group]);
        if stored.is_empty_map() {
            return Ok(false);
        }
        let wanted = |value: &[u8]| value_prefix.as_ref().is_none_or(|p| value.starts_with(p));
        let qualifier = match qualifiers {
            Qualifiers::Is(qualifier) => qualifier,
            Qualifiers::All => {
                let family = Key::family(table.id, row.as_bytes(), *number);
                return any_in_family(stored, &family, *time, wanted);
            }
        };
        let key = Key::column(table.id, row.as_bytes(), *number, qualifier);
        let mut found = false;
        visit(stored, &key, *time, u32::MAX, |version| {
            found = wanted(version.value());
            if found { Break(()) } else { Continue(()) }
        })?;
        Ok(found)
    }
}
