//! Reads the published state for the committer, without a snapshot of the engine.
//!
//! Invariant: only the holder of the commit lock reads through a view. Any other thread could
//! see a part of a batch that is not published yet.

use std::ops::ControlFlow::{Break, Continue};
use std::sync::Mutex;

use bigtable::sync::locked;
use bigtable::{Probe, Qualifiers, Row, RowKey, Selection};
use smallvec::SmallVec;

use crate::commit::recent::Recent;
use crate::failure::fault::Fault;
use crate::layout::group::Group;
use crate::layout::key::RowKeys;
use crate::layout::memory::Memory;
use crate::layout::pack::{Pack, Version};
use crate::layout::table_info::{FamilyInfo, TableInfo};
use crate::read::cells::{Cells, Stored};
use crate::read::column::{any_in_family, visit, visit_pack};
use crate::read::cursor::read_column;

/// The published state, as the holder of the commit lock reads it.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) memory: &'a Memory,
    pub(crate) recent: &'a Mutex<Recent>,
}

/// A row of a request.
pub(crate) struct RowAt<'a> {
    pub(crate) table: &'a TableInfo,
    pub(crate) keys: RowKeys,
    /// The row's position in the request.
    pub(crate) index: usize,
}

impl<'a> RowAt<'a> {
    /// The only row of a request.
    pub(crate) fn only(table: &'a TableInfo, row: &RowKey) -> Self {
        RowAt { table, keys: RowKeys::new(table.id, row.as_bytes()), index: 0 }
    }
}

/// The newest packs of columns that the predicate of a request has read, in the order of its
/// probes. The request usually writes the same columns in the same order, and its draft takes the
/// packs from here. The commit lock is held from the one to the other, so they stay true.
#[derive(Default)]
pub(crate) struct Packs<'a> {
    packs: SmallVec<[Known<'a>; 3]>,
    /// The first pack that is not taken, and not passed over.
    next: usize,
}

/// The newest pack of a column; `None` if the column has none.
struct Known<'a> {
    row: usize,
    family: u8,
    qualifier: &'a [u8],
    pack: Option<Pack>,
}

/// The most packs that are passed over in search of a column.
const PASSED_MAX: usize = 4;

impl Packs<'_> {
    /// Takes the pack of a column, if it is one of the next.
    pub(crate) fn take(
        &mut self,
        row: usize,
        family: u8,
        qualifier: &[u8],
    ) -> Option<Option<Pack>> {
        let rest = self.packs.get_mut(self.next..)?;
        let is_of = |known: &Known<'_>| {
            known.row == row && known.family == family && known.qualifier == qualifier
        };
        let at = rest.iter().take(PASSED_MAX).position(is_of)?;
        self.next += at + 1;
        Some(rest[at].pack.take())
    }
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

    /// Whether the probe finds a cell of the row.
    pub(crate) fn finds(
        &self,
        row: &mut RowAt<'a>,
        probe: &Probe,
    ) -> std::result::Result<bool, Fault> {
        let Probe { family, qualifiers, time, value_prefix } = probe;
        let FamilyInfo { number, group, .. } = row.table.family(family);
        let stored = self.stored(&row.table.groups[*group]);
        if stored.is_empty_map() || time.from > time.to {
            return Ok(false);
        }
        let wanted = is_wanted(probe);
        let qualifier = match qualifiers {
            Qualifiers::Is(qualifier) => qualifier,
            Qualifiers::All => {
                return any_in_family(stored, row.keys.family(*number), *time, wanted);
            }
        };
        let key = row.keys.column(*number, qualifier);
        if let (Stored::NewestFirst(Cells::Recent(recent, _), _), None) = (stored, value_prefix) {
            // The newest version mostly decides, and the cache shows it in place.
            let newest = |pack: Option<&_>| pack.map(Pack::newest_of).transpose();
            let newest = locked(recent).look(key, newest).transpose()?;
            match newest {
                Some(None) => return Ok(false),
                Some(Some(newest)) if newest < time.from => return Ok(false),
                Some(Some(newest)) if newest <= time.to => return Ok(true),
                Some(Some(_)) | None => {}
            }
        }
        let mut found = false;
        visit(stored, key, *time, u32::MAX, see(wanted, &mut found))?;
        Ok(found)
    }

    /// Like [`View::finds`], and keeps the newest pack of the probe's column, if the column has
    /// packs.
    pub(crate) fn finds_and_keeps<'p>(
        &self,
        row: &mut RowAt<'a>,
        probe: &'p Probe,
        packs: &mut Packs<'p>,
    ) -> std::result::Result<bool, Fault> {
        let FamilyInfo { number: family, group, .. } = *row.table.family(&probe.family);
        let group = &row.table.groups[group];
        let (Qualifiers::Is(qualifier), Some(_)) = (&probe.qualifiers, &group.history) else {
            return self.finds(row, probe);
        };
        let Stored::NewestFirst(newest, history) = self.stored(group) else {
            return self.finds(row, probe);
        };
        let key = row.keys.column(family, qualifier);
        let pack = newest.get_to_keep(key)?.map(Pack::decode).transpose()?;
        let mut found = false;
        if let Some(pack) = &pack
            && probe.time.from <= probe.time.to
        {
            let see = see(is_wanted(probe), &mut found);
            visit_pack(pack, history, key, probe.time, u32::MAX, see)?;
        }
        packs.packs.push(Known { row: row.index, family, qualifier, pack });
        Ok(found)
    }
}

/// Whether a value counts for the probe.
fn is_wanted(probe: &Probe) -> impl Fn(&[u8]) -> bool {
    let prefix = probe.value_prefix.as_ref();
    move |value| prefix.is_none_or(|prefix| value.starts_with(prefix))
}

/// Notes in `found` whether a version is wanted, and looks at no more versions after one.
fn see(
    wanted: impl Fn(&[u8]) -> bool,
    found: &mut bool,
) -> impl FnMut(Version<'_>) -> std::ops::ControlFlow<()> {
    move |version| {
        *found = wanted(version.value());
        if *found { Break(()) } else { Continue(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_is_taken_once_and_by_its_own_column() {
        let mut packs = Packs::default();
        for (row, qualifier) in [(0, b"a"), (0, b"b"), (1, b"a"), (1, b"b"), (1, b"c"), (1, b"d")] {
            packs.packs.push(Known { row, family: 2, qualifier, pack: None });
        }
        assert!(packs.take(0, 3, b"a").is_none(), "of another family");
        assert!(packs.take(1, 2, b"c").is_none(), "too far ahead");
        assert!(packs.take(0, 2, b"b").is_some());
        assert!(packs.take(0, 2, b"b").is_none(), "it was taken");
        assert!(packs.take(0, 2, b"a").is_none(), "it was passed over");
        for qualifier in [b"a", b"b", b"c", b"d"] {
            assert!(packs.take(1, 2, qualifier).is_some(), "{qualifier:?}");
        }
        assert!(packs.take(1, 2, b"d").is_none());
    }
}
