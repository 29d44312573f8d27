//! Learns from the reads of a client's transactions which columns are read after which, and
//! keeps the reads of one transaction.
//!
//! Invariant: memory is bounded, and a wrong guess costs only bytes, never a wrong value.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bigtable::RowKey;
use bigtable::sync::locked;
use bytes::Bytes;

use crate::{Column, Table};

/// For how many first columns a client remembers the columns that follow. With one more, it
/// forgets all and starts again.
const LEADS_MAX: usize = 1024;
/// How many columns are remembered, and fetched, after a first one.
const FOLLOWERS_MAX: usize = 64;
/// How many cells a transaction keeps. A cell beyond that is read from the store each time.
const CELLS_MAX: usize = 4096;
/// How many bytes of values and names a transaction keeps.
const BYTES_MAX: usize = 4 << 20;
/// A column is fetched as long as its score is above zero. Each row in which it follows the
/// first column adds this to the score, and each other row takes one away.
const FOLLOWED: u8 = 2;
const SCORE_MAX: u8 = 8;
/// How many bytes may be fetched in vain before any fetched byte was used.
const WASTE_MIN: u64 = 4096;

/// The columns that follow each first column, learnt from the reads of a client's
/// transactions.
#[derive(Debug, Default)]
pub(crate) struct Predictor(Mutex<BTreeMap<(Arc<str>, Column), Lead>>);

/// The columns that follow after a column which was the first to be read of a row.
#[derive(Debug, Default)]
struct Lead {
    scores: BTreeMap<Column, u8>,
    used_bytes: u64,
    wasted_bytes: u64,
}

/// The cells that a transaction has read.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// `None` if columns are not read ahead.
    predictor: Option<Arc<Predictor>>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    rows: BTreeMap<(Table, RowKey), KeptRow>,
    cells: usize,
    bytes: usize,
    /// Whether a cell did not fit. From then on nothing is fetched ahead or kept.
    full: bool,
}

#[derive(Debug)]
struct KeptRow {
    /// The first column that was read of the row.
    lead: Column,
    cells: BTreeMap<Column, KeptCell>,
}

#[derive(Debug)]
struct KeptCell {
    value: Option<Bytes>,
    /// Whether the cell was fetched before the transaction read it.
    ahead: bool,
    asked: bool,
}

impl Predictor {
    fn leads(&self) -> MutexGuard<'_, BTreeMap<(Arc<str>, Column), Lead>> {
        locked(&self.0)
    }

    /// The columns that are worth fetching with the first one of a row.
    fn after(&self, table: &Table, lead: &Column) -> Vec<Column> {
        let leads = self.leads();
        let Some(lead) = leads.get(&(table.shared_name(), lead.clone())) else { return Vec::new() };
        if lead.is_wasteful() { Vec::new() } else { lead.scores.keys().cloned().collect() }
    }

    fn learn(&self, table: &Table, row: &KeptRow) {
        let mut leads = self.leads();
        let key = (table.shared_name(), row.lead.clone());
        if leads.len() >= LEADS_MAX && !leads.contains_key(&key) {
            leads.clear();
        }
        leads.entry(key).or_default().learn(row);
    }
}

impl Lead {
    fn is_wasteful(&self) -> bool {
        self.wasted_bytes > 2 * self.used_bytes + WASTE_MIN
    }

    fn learn(&mut self, row: &KeptRow) {
        if self.is_wasteful() {
            // Nothing is fetched now. Reduce the waste a little, so that fetching is tried
            // again after many rows.
            self.wasted_bytes -= self.wasted_bytes / 64;
        }
        self.scores.retain(|column, score| {
            let followed = row.cells.get(column).is_some_and(|cell| cell.asked);
            *score -= u8::from(!followed);
            *score > 0
        });
        for (column, cell) in &row.cells {
            let bytes = cell_bytes(column, &cell.value) as u64;
            match (cell.ahead, cell.asked) {
                (true, true) => self.used_bytes += bytes,
                (true, false) => self.wasted_bytes += bytes,
                (false, _) => {}
            }
            let known = self.scores.len() < FOLLOWERS_MAX || self.scores.contains_key(column);
            if cell.asked && *column != row.lead && known {
                let score = self.scores.entry(column.clone()).or_default();
                *score = (*score + FOLLOWED).min(SCORE_MAX);
            }
        }
    }
}

fn cell_bytes(column: &Column, value: &Option<Bytes>) -> usize {
    column.as_bytes().len() + value.as_ref().map_or(0, Bytes::len)
}

impl Cache {
    /// A cache that learns, and that fetches columns ahead.
    pub(crate) fn new(predictor: &Arc<Predictor>) -> Self {
        Cache { predictor: Some(predictor.clone()), kept: Mutex::default() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.predictor.is_some()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        locked(&self.kept)
    }

    /// The kept value of a cell, if the cell is kept.
    pub(super) fn get(&self, at: &(Table, RowKey), column: &Column) -> Option<Option<Bytes>> {
        let mut kept = self.kept();
        let cell = kept.rows.get_mut(at)?.cells.get_mut(column)?;
        cell.asked = true;
        Some(cell.value.clone())
    }

    /// The columns to fetch together with this one.
    pub(super) fn ahead(&self, at: &(Table, RowKey), column: &Column) -> Vec<Column> {
        let Some(predictor) = &self.predictor else { return Vec::new() };
        {
            let kept = self.kept();
            if kept.full || kept.rows.contains_key(at) {
                return Vec::new();
            }
        }
        let mut ahead = predictor.after(&at.0, column);
        ahead.retain(|other| other != column);
        ahead
    }

    /// Keeps the cells that were read for `asked`, as far as there is room.
    pub(super) fn keep(
        &self,
        at: (Table, RowKey),
        asked: &Column,
        found: Vec<(Column, Option<Bytes>)>,
    ) {
        let mut kept = self.kept();
        let Kept { rows, cells, bytes, full } = &mut *kept;
        let new = || KeptRow { lead: asked.clone(), cells: BTreeMap::new() };
        for (column, value) in found {
            let key = if rows.contains_key(&at) { 0 } else { at.1.as_bytes().len() };
            let length = key + cell_bytes(&column, &value);
            *full |= *cells >= CELLS_MAX || *bytes + length > BYTES_MAX;
            if *full {
                return;
            }
            let row = rows.entry(at.clone()).or_insert_with(new);
            let asked = column == *asked;
            if row.cells.insert(column, KeptCell { value, ahead: !asked, asked }).is_none() {
                *cells += 1;
                *bytes += length;
            }
        }
    }
}

impl Drop for Cache {
    /// Learns from the transaction's reads when it ends.
    fn drop(&mut self) {
        let Some(predictor) = &self.predictor else { return };
        let kept = self.kept.get_mut().unwrap_or_else(PoisonError::into_inner);
        for ((table, _), row) in &kept.rows {
            predictor.learn(table, row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[(&'static str, usize, bool)]) -> KeptRow {
        let lead = Column::literal("f:lead");
        let cell = |(name, length, asked): &(&'static str, usize, bool)| {
            let value = Some(Bytes::from(vec![0; *length]));
            (Column::literal(name), KeptCell { value, ahead: true, asked: *asked })
        };
        KeptRow { lead, cells: cells.iter().map(cell).collect() }
    }

    #[test]
    fn what_follows_is_learnt_at_once_and_forgotten_soon() {
        let mut lead = Lead::default();
        lead.learn(&row(&[("f:lead", 1, true), ("f:a", 1, true), ("f:b", 1, false)]));
        assert_eq!(lead.scores.keys().collect::<Vec<_>>(), [&Column::literal("f:a")]);
        lead.learn(&row(&[("f:a", 1, false)]));
        assert!(!lead.scores.is_empty());
        lead.learn(&row(&[("f:a", 1, false)]));
        assert!(lead.scores.is_empty());
    }

    /// In every second row the column is read, and its value is short there.
    #[test]
    fn what_weighs_twice_what_was_of_use_is_fetched_no_more() {
        let mut lead = Lead::default();
        for _ in 0..100 {
            lead.learn(&row(&[("f:a", 10, true)]));
            lead.learn(&row(&[("f:a", 1000, false)]));
            if lead.is_wasteful() {
                break;
            }
        }
        assert!(lead.is_wasteful());
        assert!(lead.wasted_bytes <= 2 * lead.used_bytes + WASTE_MIN + 1100, "{lead:?}");
        // After many rows it is fetched again.
        (0..200).for_each(|_| lead.learn(&row(&[])));
        assert!(!lead.is_wasteful());
    }

    #[test]
    fn a_transaction_keeps_no_more_than_it_may() {
        let (predictor, value) = (Arc::default(), Bytes::from(vec![0; 1 << 20]));
        let store: Arc<dyn bigtable::Store> = Arc::new(bigtable::MemoryStore::new());
        let schema = crate::notify_schema();
        let opened = store.open_table("t", &schema);
        let opened = futures::executor::block_on(opened).unwrap();
        let table = Table::new("t", &store, opened, None);
        let (a, b) = (Column::literal("f:a"), Column::literal("f:b"));
        let at = |n: usize| (table.clone(), RowKey::from(n.to_string()));
        for (value, rows_max) in [(None, CELLS_MAX), (Some(value), 4)] {
            let cache = Cache::new(&predictor);
            for n in 0..2 * CELLS_MAX {
                cache.keep(at(n), &a, vec![(a.clone(), value.clone())]);
            }
            let kept = cache.kept();
            assert!(kept.rows.len() <= rows_max, "{} rows", kept.rows.len());
            assert!(kept.cells <= CELLS_MAX && kept.bytes <= BYTES_MAX);
            drop(kept);
            assert_eq!(cache.get(&at(0), &b), None);
        }
    }

    #[test]
    fn what_is_learnt_is_bounded() {
        let predictor = Predictor::default();
        let store: Arc<dyn bigtable::Store> = Arc::new(bigtable::MemoryStore::new());
        let schema = crate::notify_schema();
        let opened = store.open_table("t", &schema);
        let opened = futures::executor::block_on(opened).unwrap();
        let table = Table::new("t", &store, opened, None);
        for n in 0..=LEADS_MAX {
            let lead = Column::new(format!("f:{n}")).unwrap();
            let cells = row(&[("f:a", 1, true)]).cells;
            predictor.learn(&table, &KeptRow { lead: lead.clone(), cells });
            assert_eq!(predictor.after(&table, &lead), [Column::literal("f:a")]);
            assert!(predictor.leads().len() <= LEADS_MAX);
        }
        let mut lead = Lead::default();
        let names: Vec<String> = (0..200).map(|n| format!("f:{n}")).collect();
        let mut many = row(&[]);
        for name in &names {
            let column = Column::new(name.clone()).unwrap();
            many.cells.insert(column, KeptCell { value: None, ahead: false, asked: true });
        }
        lead.learn(&many);
        assert_eq!(lead.scores.len(), FOLLOWERS_MAX);
    }
}
