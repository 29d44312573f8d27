//! Keeps in-memory locality groups: an ordered map beside the keyspace ("in-memory column",
//! paper section 2.2).
//!
//! Cells that change often (locks, notifications) are read from this map. So a probe reads
//! nothing from disk. A scan does not step over the tombstones that frequent changes leave in
//! an LSM tree.
//!
//! Invariants:
//! * The map holds a subset of the keyspace's cells, under the same keys. `spilled` counts the
//!   other cells, so at zero the map alone answers.
//! * Only the committer changes the maps, after it has published the batch with the same
//!   change and before it acknowledges the batch.
//! * All groups share one lock, so a reader gets the in-memory cells of a row as of one
//!   moment.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::RwLockReadGuard;

use bigtable::OnFull;
use fjall::{Keyspace, Slice};

use crate::layout::chosen::Chosen;
use crate::layout::tally::{Listed, Lists, Tally};

/// The most cells that one refill step examines.
const REFILL_CELLS_MAX: usize = 512;

/// All in-memory groups of a store.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    groups: Vec<MemoryGroup>,
}

/// The cells of one in-memory group.
#[derive(Debug)]
pub(crate) struct MemoryGroup {
    cells: BTreeMap<Slice, Slice>,
    /// Counts the cells by column, in groups that may grow large.
    tally: Option<Tally>,
    /// The number of cells that are only in the keyspace.
    spilled: usize,
    on_full: OnFull,
    /// The key at which the next refill step begins.
    refill_from: Slice,
}

/// A change to an in-memory group, decided under the commit lock.
#[derive(Debug)]
pub(crate) struct MemoryChange {
    pub(crate) group: usize,
    pub(crate) key: Slice,
    pub(crate) value: Option<Slice>,
    /// Whether the cell exists now, but only in the keyspace.
    pub(crate) was_spilled: bool,
}

impl Memory {
    /// Adds a group and returns its position.
    pub(crate) fn add(&mut self, group: MemoryGroup) -> usize {
        self.groups.push(group);
        self.groups.len() - 1
    }

    pub(crate) fn group(&self, position: usize) -> &MemoryGroup {
        &self.groups[position]
    }

    pub(crate) fn apply(&mut self, changes: impl IntoIterator<Item = MemoryChange>) {
        for change in changes {
            self.groups[change.group].apply(change);
        }
    }

    /// Like [`MemoryGroup::take_back`].
    pub(crate) fn take_back(&mut self, position: usize, cells: Vec<(Slice, Slice)>) {
        self.groups[position].take_back(cells);
    }

    /// The fill level of the fullest group: cells divided by the bound.
    pub(crate) fn pressure(&self) -> f64 {
        let fill = |group: &MemoryGroup| group.len() as f64 / group.cells_max().max(1) as f64;
        self.groups.iter().map(fill).fold(0.0, f64::max)
    }
}

impl MemoryGroup {
    /// Reads the group's cells from its keyspace. The caller holds the commit lock.
    pub(crate) fn load(on_full: OnFull, keyspace: &Keyspace) -> fjall::Result<Self> {
        let mut group = MemoryGroup {
            cells: BTreeMap::new(),
            tally: matches!(on_full, OnFull::Spill { .. }).then(Tally::default),
            spilled: 0,
            on_full,
            refill_from: Slice::default(),
        };
        for entry in keyspace.iter() {
            let (key, value) = entry.into_inner()?;
            if group.has_room() {
                group.count(&key);
                group.cells.insert(key, value);
            } else {
                group.spilled += 1;
            }
        }
        Ok(group)
    }

    /// Counts a cell that is added to the map.
    fn count(&mut self, key: &Slice) {
        if let Some(tally) = &mut self.tally {
            tally.add(key);
        }
    }

    /// The number of all cells, including spilled ones.
    pub(crate) fn len(&self) -> usize {
        self.cells.len() + self.spilled
    }

    fn cells_max(&self) -> usize {
        match self.on_full {
            OnFull::Refuse { cells_max } | OnFull::Spill { cells_max } => cells_max,
        }
    }

    /// Whether the map may take one more cell. Groups that refuse are checked before
    /// (`refuses`).
    fn has_room(&self) -> bool {
        match self.on_full {
            OnFull::Refuse { .. } => true,
            OnFull::Spill { cells_max } => self.cells.len() < cells_max,
        }
    }

    /// Whether the group refuses cells beyond its bound, so that cells which are added must be
    /// counted.
    pub(crate) fn is_bounded(&self) -> bool {
        matches!(self.on_full, OnFull::Refuse { .. })
    }

    /// Whether a set cell may be added without a look for an earlier value. Then the map has all
    /// cells of the group, and the group does not count the cells that are added.
    pub(crate) fn takes_unseen(&self) -> bool {
        !self.is_bounded() && self.spilled == 0
    }

    /// The bound that `added` more cells would exceed, if the group refuses them.
    pub(crate) fn refuses(&self, added: isize) -> Option<usize> {
        match self.on_full {
            OnFull::Refuse { cells_max } if added > 0 => {
                (self.len().saturating_add_signed(added) > cells_max).then_some(cells_max)
            }
            OnFull::Refuse { .. } | OnFull::Spill { .. } => None,
        }
    }

    /// The map, if it holds every cell of the group.
    pub(crate) fn whole(&self) -> Option<&BTreeMap<Slice, Slice>> {
        (self.spilled == 0).then_some(&self.cells)
    }

    /// Whether the group is known to have no cell in any of these columns of a table.
    pub(crate) fn has_none(&self, table: u32, columns: &[Chosen<'_>]) -> bool {
        let has_none = |tally: &Tally| tally.has_none(table, columns);
        self.spilled == 0 && self.tally.as_ref().is_some_and(has_none)
    }

    /// Lists the cells of these columns of a table from now on, if they are rare.
    pub(crate) fn list(&self, table: u32, columns: &[Chosen<'_>]) {
        if let Some(tally) = &self.tally {
            tally.list(table, columns, &self.cells);
        }
    }

    /// The lists of cells, if the map holds every cell of the group.
    pub(crate) fn lists(&self) -> Option<RwLockReadGuard<'_, Lists>> {
        self.tally.as_ref().filter(|_| self.spilled == 0).map(Tally::lists)
    }

    /// The keys of these columns of a table between two keys, if they are listed.
    pub(crate) fn listed<'l>(
        &self,
        lists: &'l Lists,
        table: u32,
        columns: &[Chosen<'_>],
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Option<Listed<'l>> {
        self.tally.as_ref()?.listed(lists, table, columns, bounds)
    }

    /// Whether the map holds the cell.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.cells.contains_key(key)
    }

    fn apply(&mut self, change: MemoryChange) {
        let MemoryChange { key, value, was_spilled, .. } = change;
        match value {
            Some(value) => {
                let has_room = self.has_room();
                match self.cells.entry(key) {
                    Entry::Occupied(mut cell) => drop(cell.insert(value)),
                    Entry::Vacant(place) if has_room => {
                        self.spilled -= usize::from(was_spilled);
                        if let Some(tally) = &mut self.tally {
                            tally.add(place.key());
                        }
                        place.insert(value);
                    }
                    Entry::Vacant(_) if !was_spilled => self.spilled += 1,
                    Entry::Vacant(_) => {}
                }
            }
            None => {
                if self.cells.remove(&key).is_none() {
                    self.spilled -= usize::from(was_spilled);
                } else if let Some(tally) = &mut self.tally {
                    tally.remove(&key, self.cells.is_empty());
                }
            }
        }
    }

    /// The key at which the next refill step begins, if cells are spilled and the map is at
    /// most half full.
    pub(crate) fn refill_from(&self) -> Option<Slice> {
        let wanted = self.spilled > 0 && self.cells.len() <= self.cells_max() / 2;
        wanted.then(|| self.refill_from.clone())
    }

    /// Takes some cells back into the map. Steps are small and go through the keyspace in
    /// turn, so that no single commit pays for a whole scan.
    fn take_back(&mut self, cells: Vec<(Slice, Slice)>) {
        let at_end = cells.len() < REFILL_CELLS_MAX;
        for (key, value) in cells {
            if !self.has_room() {
                return;
            }
            self.refill_from = key.clone();
            if self.cells.insert(key.clone(), value).is_none() {
                self.count(&key);
                self.spilled -= 1;
            }
        }
        if at_end {
            self.refill_from = Slice::default();
        }
    }
}

/// Reads the cells of one refill step, from a key on.
pub(crate) fn spilled(keyspace: &Keyspace, from: Slice) -> fjall::Result<Vec<(Slice, Slice)>> {
    let entries = keyspace.range((Bound::Included(from), Bound::Unbounded));
    entries.take(REFILL_CELLS_MAX).map(|entry| entry.into_inner()).collect()
}

#[cfg(test)]
mod tests {
    use fjall::{Database, KeyspaceCreateOptions};

    use super::*;

    fn put(group: &mut MemoryGroup, keyspace: &Keyspace, key: &str) {
        let was_spilled = !group.has(key.as_bytes()) && keyspace.contains_key(key).unwrap();
        keyspace.insert(key, "v").unwrap();
        let value = Some("v".into());
        group.apply(MemoryChange { group: 0, key: key.into(), value, was_spilled });
    }

    fn remove(group: &mut MemoryGroup, keyspace: &Keyspace, key: &str) {
        let was_spilled = !group.has(key.as_bytes()) && keyspace.contains_key(key).unwrap();
        keyspace.remove(key).unwrap();
        group.apply(MemoryChange { group: 0, key: key.into(), value: None, was_spilled });
    }

    #[test]
    fn spilled_cells_are_counted_and_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::builder(dir.path()).worker_threads(1).open().unwrap();
        let keyspace = db.keyspace("g", KeyspaceCreateOptions::default).unwrap();
        let on_full = OnFull::Spill { cells_max: 4 };
        let mut group = MemoryGroup::load(on_full, &keyspace).unwrap();
        for key in ["a", "b", "c", "d", "e", "f", "e"] {
            put(&mut group, &keyspace, key);
        }
        assert_eq!((group.len(), group.spilled), (6, 2));
        assert!(group.whole().is_none());
        remove(&mut group, &keyspace, "f");
        assert_eq!((group.len(), group.spilled), (5, 1));
        for key in ["a", "b"] {
            remove(&mut group, &keyspace, key);
        }
        let from = group.refill_from().unwrap();
        group.take_back(spilled(&keyspace, from).unwrap());
        assert_eq!(group.whole().map(BTreeMap::len), Some(3));

        let loaded = MemoryGroup::load(OnFull::Spill { cells_max: 2 }, &keyspace);
        assert_eq!(loaded.unwrap().spilled, 1);
    }
}
