//! Counts how many cells each column has in the map of an in-memory group, and lists the cells of
//! columns that are looked for alone.
//!
//! Cells are ordered by row, so a scan of one column examines all cells of the group. For
//! example, one column may have a million waiting cells and another none, or a few. A scan of the
//! other column would examine a million cells to find nothing, or a few. The tally answers at once
//! that the column has no cell. After a scan that examined many cells in vain, the tally lists the
//! cells of the scan's columns, if they are few. The next scan reads the list. Most columns are
//! never looked for alone, and have no list.
//!
//! Invariant: unless the tally has given up, its counts equal those of the map, and a list has
//! exactly the column's cells. The tally gives up at more than [`COLUMNS_MAX`] columns, and starts
//! again when the map is empty. Groups that refuse cells beyond a bound, like that of locks, stay
//! small and have no tally.

use std::collections::btree_set::Range;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::{RwLock, RwLockReadGuard};

use bigtable::Qualifiers;
use fjall::Slice;
use foldhash::fast::RandomState;
use smallvec::SmallVec;

use crate::layout::chosen::Chosen;
use crate::layout::key::{Key, Shape};

const NO_PANIC: &str = "nothing panics while it holds the lock of the lists";
/// The most columns that are counted. Observed columns are few; locks may be in any column.
const COLUMNS_MAX: usize = 64;

/// A column is rare if it has at most one in so many cells of the map.
const RARE: usize = 16;
/// The most cells of a list.
const LISTED_MAX: usize = 16 * 1024;
/// The most cells of a map in which columns are listed. To list a column, a reader goes through
/// the whole map, and changes wait meanwhile: about 20 ms.
const LISTED_OF_MAX: usize = 256 * 1024;

/// A column: the bytes of a key for table, family and qualifier, without the row.
pub(crate) type Column = SmallVec<[u8; 32]>;

/// Keys, by column.
pub(crate) type Lists = HashMap<Column, BTreeSet<Slice>, RandomState>;

/// The counts and lists, by column.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    counts: HashMap<Column, usize, RandomState>,
    /// The keys of columns that were looked for alone. A reader of the map may add a list.
    lists: RwLock<Lists>,
    gave_up: bool,
}

impl Tally {
    /// Counts a cell that was added to the map.
    pub(crate) fn add(&mut self, key: &Slice) {
        if self.gave_up {
            return;
        }
        let Some(column) = column_of(key) else { return self.give_up() };
        let lists = self.lists.get_mut().expect(NO_PANIC);
        if let Some(list) = lists.get_mut(&column) {
            list.insert(key.clone());
            if list.len() > LISTED_MAX {
                lists.remove(&column);
            }
        }
        if let Some(count) = self.counts.get_mut(&column) {
            *count += 1;
            return;
        }
        if self.counts.len() >= COLUMNS_MAX {
            self.counts.retain(|_, count| *count > 0);
        }
        if self.counts.len() < COLUMNS_MAX {
            self.counts.insert(column, 1);
        } else {
            self.give_up();
        }
    }

    /// Counts a cell that has left the map. `is_empty` says whether the map is empty now.
    pub(crate) fn remove(&mut self, key: &[u8], is_empty: bool) {
        let lists = self.lists.get_mut().expect(NO_PANIC);
        if is_empty {
            // The columns stay, because their next cells come soon.
            self.counts.values_mut().for_each(|count| *count = 0);
            lists.clear();
            self.gave_up = false;
        } else if !self.gave_up
            && let Some(column) = column_of(key)
            && let Some(count) = self.counts.get_mut(&column)
        {
            if let Some(list) = lists.get_mut(&column) {
                list.remove(key);
            }
            *count -= 1;
        }
    }

    fn give_up(&mut self) {
        self.counts.clear();
        self.lists.get_mut().expect(NO_PANIC).clear();
        self.gave_up = true;
    }

    fn count(&self, column: &Column) -> usize {
        self.counts.get(column).copied().unwrap_or(0)
    }

    /// Whether the table certainly has no cell in any of these columns.
    pub(crate) fn has_none(&self, table: u32, columns: &[Chosen<'_>]) -> bool {
        !self.gave_up
            && columns.iter().all(|chosen| match chosen_column(table, chosen) {
                None => self.counts.values().all(|count| *count == 0),
                Some(column) => self.count(&column) == 0,
            })
    }

    /// Lists the cells of these columns from now on, if they are rare, until the map is empty or
    /// the list is too long. The caller reads the map, so that it does not change meanwhile.
    pub(crate) fn list(&self, table: u32, columns: &[Chosen<'_>], cells: &BTreeMap<Slice, Slice>) {
        let columns = columns.iter().filter_map(|chosen| chosen_column(table, chosen));
        let mut lists = Lists::default();
        for column in columns {
            // A column without cells gets a list, too.
            let is_rare = self.count(&column) <= LISTED_MAX.min(cells.len() / RARE);
            if !is_rare || self.gave_up || cells.len() > LISTED_OF_MAX {
                return;
            }
            if !self.lists().contains_key(&column) {
                lists.insert(column, BTreeSet::new());
            }
        }
        if lists.is_empty() || self.lists().len() + lists.len() > COLUMNS_MAX {
            return;
        }
        for key in cells.keys() {
            if let Some(list) = column_of(key).and_then(|column| lists.get_mut(&column)) {
                list.insert(key.clone());
            }
        }
        self.lists.write().expect(NO_PANIC).extend(lists);
    }

    pub(crate) fn lists(&self) -> RwLockReadGuard<'_, Lists> {
        self.lists.read().expect(NO_PANIC)
    }

    /// The listed cells of these columns, between two keys. `None` unless all of the columns that
    /// have cells are listed.
    pub(crate) fn listed<'l>(
        &self,
        lists: &'l Lists,
        table: u32,
        columns: &[Chosen<'_>],
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Option<Listed<'l>> {
        if self.gave_up || lists.is_empty() {
            return None;
        }
        // A selection may name a column twice, with different times.
        let mut own = BTreeSet::new();
        for chosen in columns {
            own.insert(chosen_column(table, chosen)?);
        }
        let mut listed = Listed::default();
        for column in own.into_iter().filter(|column| self.count(column) > 0) {
            listed.0.push(lists.get(&column)?.range::<[u8], _>(bounds).peekable());
        }
        Some(listed)
    }
}

/// The keys of several columns, in order.
#[derive(Default)]
pub(crate) struct Listed<'a>(SmallVec<[Peekable<Range<'a, Slice>>; 2]>);

impl<'a> Iterator for Listed<'a> {
    type Item = &'a Slice;

    fn next(&mut self) -> Option<&'a Slice> {
        let next = |column: &mut Peekable<Range<'a, Slice>>| column.peek().copied();
        let ahead =
            self.0.iter_mut().enumerate().filter_map(|(n, column)| Some((next(column)?, n)));
        let (_, first) = ahead.min()?;
        self.0[first].next()
    }
}

/// The column of a selection. `None` if the selection is for more than one.
fn chosen_column(table: u32, chosen: &Chosen<'_>) -> Option<Column> {
    match &chosen.select.qualifiers {
        Qualifiers::All => None,
        Qualifiers::Is(qualifier) => column_of(&Key::column(table, &[], chosen.family, qualifier)),
    }
}

/// The column of a key. `None` if the bytes are not a key.
fn column_of(key: &[u8]) -> Option<Column> {
    let shape = Shape::of(key)?;
    let mut column = Column::from_slice(shape.table_prefix(key));
    column.extend_from_slice(shape.family_and_qualifier(key));
    Some(column)
}

#[cfg(test)]
mod tests {
    use bigtable::{ColumnSelect, Family, TimeRange, Timestamp};

    use super::*;

    const TABLES: [u32; 2] = [3, 70_000];

    fn key(table: u32, row: u8, family: u8, qualifier: &str, version: u64) -> Slice {
        let column = Key::column(table, &[row, 0, 1], family, qualifier.as_bytes());
        Slice::new(&column.at(Timestamp::new(version).unwrap()))
    }

    /// Calls `with` with the selection of a column.
    fn chosen<T>(family: u8, qualifiers: Qualifiers, with: impl FnOnce(&[Chosen<'_>]) -> T) -> T {
        let family_name = Family::from_static("notify");
        let select =
            ColumnSelect { family: family_name, qualifiers, time: TimeRange::ALL, versions_max: 1 };
        with(&[Chosen { family, select: &select }])
    }

    fn has_none(tally: &Tally, table: u32, family: u8, qualifiers: Qualifiers) -> bool {
        chosen(family, qualifiers, |columns| tally.has_none(table, columns))
    }

    #[test]
    fn cells_are_counted_and_listed_by_table_family_and_qualifier() {
        let mut tally = Tally::default();
        let (mut there, mut map) = (Vec::new(), BTreeMap::new());
        let is = |text: &'static str| Qualifiers::Is(text.as_bytes().into());
        let mut lists = 0;
        for (step, seed) in (0..1500_u32).map(|n| n.wrapping_mul(2_654_435_761)).enumerate() {
            // Most cells are in the columns without a name, and only the others are listed.
            let qualifier = *["a", "b"].get((seed >> 7) as usize % 20).unwrap_or(&"");
            let (table, family) = (TABLES[(seed >> 3) as usize % 2], (seed >> 5) as u8 % 2);
            let new = key(table, (seed >> 11) as u8, family, qualifier, u64::from(seed >> 20));
            // Cells come and go; at intervals all of them go.
            if map.insert(new.clone(), Slice::default()).is_none() {
                tally.add(&new);
                there.push(new);
            }
            if step % 10 == 0 {
                chosen(family, is(qualifier), |columns| tally.list(table, columns, &map));
            }
            if step % 3 == 0 || step % 500 > 450 {
                while let Some(gone) = there.pop() {
                    map.remove(&gone);
                    tally.remove(&gone, map.is_empty());
                    if step % 500 <= 450 {
                        break;
                    }
                }
            }
            for (table, family) in TABLES.into_iter().flat_map(|t| [(t, 0), (t, 1)]) {
                for qualifier in ["a", "b", ""] {
                    let of = Key::column(table, &[], family, qualifier.as_bytes());
                    let of = column_of(&of).unwrap();
                    let own = || map.keys().filter(|key| column_of(key).unwrap() == of);
                    let counted = tally.count(&of);
                    assert_eq!(counted, own().count());
                    assert_eq!(has_none(&tally, table, family, is(qualifier)), counted == 0);
                    let all = (Bound::Unbounded, Bound::Unbounded);
                    chosen(family, is(qualifier), |columns| {
                        let twice = [columns[0], columns[0]];
                        if let Some(listed) = tally.listed(&tally.lists(), table, &twice, all) {
                            lists += usize::from(counted > 0);
                            assert!(listed.eq(own()));
                        }
                    });
                }
            }
        }
        assert!(lists > 300, "{lists}");
    }

    #[test]
    fn too_many_columns_are_not_counted_until_the_map_is_empty() {
        let mut tally = Tally::default();
        let keys = |n: usize| key(3, 0, 0, &format!("q{n}"), 1);
        (0..=COLUMNS_MAX).for_each(|n| tally.add(&keys(n)));
        assert!(!has_none(&tally, 3, 0, Qualifiers::Is("z".into())), "nobody knows");
        (0..=COLUMNS_MAX).for_each(|n| tally.remove(&keys(n), n == COLUMNS_MAX));
        assert!(has_none(&tally, 3, 0, Qualifiers::All) && !tally.gave_up);
        tally.add(&keys(0));
        assert!(has_none(&tally, 3, 0, Qualifiers::Is("z".into())));
        assert!(!has_none(&tally, 3, 0, Qualifiers::All));
    }
}
