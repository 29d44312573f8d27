//! Counts how many cells each column has in the map of an in-memory group.
//!
//! Cells are ordered by row, so a scan of one column examines all cells of the group. For
//! example, one column may have a million waiting cells and another none. A scan of the other
//! column would examine a million cells to find nothing. The tally answers at once that the
//! column has no cell.
//!
//! Invariant: unless the tally has given up, its counts equal those of the map. The tally
//! gives up at more than [`COLUMNS_MAX`] columns, and starts again when the map is empty.
//! Groups that refuse cells beyond a bound, like that of locks, stay small and have no tally.

use std::collections::HashMap;

use bigtable::Qualifiers;
use foldhash::fast::RandomState;
use smallvec::SmallVec;

use crate::layout::chosen::Chosen;
use crate::layout::key::{Key, Shape};

/// The most columns that are counted. Observed columns are few; locks may be in any column.
const COLUMNS_MAX: usize = 64;

/// A column: the bytes of a key for table, family and qualifier, without the row.
type Column = SmallVec<[u8; 32]>;

/// The counts, by column.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    counts: HashMap<Column, usize, RandomState>,
    gave_up: bool,
}

impl Tally {
    /// Counts a cell that was added to the map.
    pub(crate) fn add(&mut self, key: &[u8]) {
        if self.gave_up {
            return;
        }
        let Some(column) = column_of(key) else { return self.give_up() };
        if let Some(count) = self.counts.get_mut(&column) {
            *count += 1;
        } else if self.counts.len() < COLUMNS_MAX {
            self.counts.insert(column, 1);
        } else {
            self.give_up();
        }
    }

    /// Counts a cell that has left the map. `is_empty` says whether the map is empty now.
    pub(crate) fn remove(&mut self, key: &[u8], is_empty: bool) {
        if is_empty {
            // `clear` keeps the memory for the next cells.
            self.counts.clear();
            self.gave_up = false;
        } else if !self.gave_up
            && let Some(column) = column_of(key)
            && let Some(count) = self.counts.get_mut(&column)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&column);
            }
        }
    }

    fn give_up(&mut self) {
        self.counts.clear();
        self.gave_up = true;
    }

    /// Whether the table certainly has no cell in any of these columns.
    pub(crate) fn has_none(&self, table: u32, columns: &[Chosen<'_>]) -> bool {
        !self.gave_up
            && columns.iter().all(|chosen| match &chosen.select.qualifiers {
                Qualifiers::All => self.counts.is_empty(),
                Qualifiers::Is(qualifier) => {
                    let key = Key::column(table, &[], chosen.family, qualifier);
                    column_of(&key).is_some_and(|column| !self.counts.contains_key(&column))
                }
            })
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

    fn key(table: u32, row: u8, family: u8, qualifier: &str, version: u64) -> Vec<u8> {
        let column = Key::column(table, &[row, 0, 1], family, qualifier.as_bytes());
        column.at(Timestamp::new(version).unwrap()).to_vec()
    }

    fn has_none(tally: &Tally, table: u32, family: u8, qualifiers: Qualifiers) -> bool {
        let family_name = Family::from_static("notify");
        let select =
            ColumnSelect { family: family_name, qualifiers, time: TimeRange::ALL, versions_max: 1 };
        tally.has_none(table, &[Chosen { family, select: &select }])
    }

    #[test]
    fn cells_are_counted_by_table_family_and_qualifier() {
        let mut tally = Tally::default();
        let mut there = Vec::new();
        let is = |text: &'static str| Qualifiers::Is(text.as_bytes().into());
        for (step, seed) in (0..4000_u32).map(|n| n.wrapping_mul(2_654_435_761)).enumerate() {
            let qualifier = ["a", "b", ""][(seed >> 7) as usize % 3];
            let (table, family) = (TABLES[(seed >> 3) as usize % 2], (seed >> 5) as u8 % 2);
            let new = key(table, (seed >> 11) as u8, family, qualifier, u64::from(seed >> 20));
            // Cells come and go; at intervals all of them go.
            if !there.contains(&new) {
                tally.add(&new);
                there.push(new);
            }
            if step % 3 == 0 || step % 500 > 450 {
                while let Some(gone) = there.pop() {
                    tally.remove(&gone, there.is_empty());
                    if step % 500 <= 450 {
                        break;
                    }
                }
            }
            tally = recounted(&there, tally);
            for (table, family) in TABLES.into_iter().flat_map(|t| [(t, 0), (t, 1)]) {
                for qualifier in ["a", "b", ""] {
                    let of = Key::column(table, &[], family, qualifier.as_bytes());
                    let of = column_of(&of).unwrap();
                    let none = !there.iter().any(|key| column_of(key).unwrap() == of);
                    assert_eq!(has_none(&tally, table, family, is(qualifier)), none);
                }
            }
        }
    }

    /// Returns the tally, after checking that its counts match the keys in `there`.
    fn recounted(there: &[Vec<u8>], tally: Tally) -> Tally {
        let mut counts: HashMap<Column, usize, RandomState> = HashMap::default();
        for key in there {
            *counts.entry(column_of(key).unwrap()).or_default() += 1;
        }
        assert_eq!(tally.counts, counts);
        tally
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
