//! Rows in order: the store's own scan, and a snapshot's.

use std::sync::Arc;
use std::time::Duration;

use bigtable::{
    ConditionalMutation, Family, Layout, LocalityGroup, Mutation, PageLimit, RowKey, RowRange,
    Selection, Store, TableSchema, TimeRange, Timestamp,
};
use bigtable_fjall::{Durability, FjallStore};
use percolator::{Bytes, Column, Options, Percolator};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{ROWS_AT_ONCE, Settings, VERSIONS};
use crate::turns::{Block, Start, histogram, nanos};

/// Length of a key, and of a value.
pub(super) const KEY_BYTES: usize = 24;
pub(super) const VALUE_BYTES: usize = 100;
/// Memory for blocks read from disk.
pub(super) const CACHE_BYTES: u64 = 512 << 20;

const NEWEST: Family = Family::from_static("newest");
const QUALIFIER: &[u8] = b"v";
pub(super) const COLUMN: Column = Column::literal("v");
/// How many cells are written at once.
const LOAD_AT_ONCE: usize = 1000;

/// The arms: names, and what one operation is.
pub(super) const ARMS: [(&str, &str); 3] = [
    ("raw_scan", "Table::scan over 1,000 rows of one cell with one version; counted in cells"),
    ("snapshot_scan", "snapshot, scan of the same rows"),
    ("snapshot_scan_ten", "the same where each cell has ten versions"),
];

/// The tables.
pub(super) struct Rows {
    store: Arc<FjallStore>,
    raw: Arc<dyn bigtable::Table>,
    db: Percolator,
    one: percolator::Table,
    ten: percolator::Table,
    keys: Vec<RowKey>,
    random: SmallRng,
    /// Rows that scans returned.
    pub(super) seen: u64,
    /// Those that were missing, too many or not as they were written.
    pub(super) wrong: u64,
}

/// The key of a row.
pub(super) fn key(row: usize) -> RowKey {
    RowKey::from(format!("{row:0KEY_BYTES$}"))
}

/// The value of a row's cell that was written so often.
pub(super) fn value(row: usize, written: usize) -> Bytes {
    let mut value = vec![7; VALUE_BYTES];
    value[..8].copy_from_slice(&(row as u64).to_be_bytes());
    value[8..16].copy_from_slice(&(written as u64).to_be_bytes());
    value.into()
}

/// Whether a value is that of this row, written so often.
pub(super) fn is_value(value: &[u8], row: usize, written: usize) -> bool {
    value.len() == VALUE_BYTES
        && value[..8] == (row as u64).to_be_bytes()
        && value[8..16] == (written as u64).to_be_bytes()
}

impl Rows {
    pub(super) async fn create(settings: &Settings) -> anyhow::Result<Self> {
        let options = bigtable_fjall::Options {
            durability: Durability::Buffered,
            cache_bytes: CACHE_BYTES,
            ..bigtable_fjall::Options::default()
        };
        let store = Arc::new(FjallStore::open(settings.dir.join("rows"), options)?);
        let groups = vec![LocalityGroup::on_disk("newest", Layout::NewestFirst)];
        let raw = store.open_table("raw", &TableSchema { groups }).await?;
        let db = Percolator::over(store.clone(), Options::default()).await?;
        let (one, ten) = (db.table("one").await?, db.table("ten").await?);
        let rows = Rows {
            store,
            raw,
            db,
            one,
            ten,
            keys: (0..settings.cells).map(key).collect(),
            random: SmallRng::seed_from_u64(settings.turns.seed),
            seen: 0,
            wrong: 0,
        };
        rows.load().await?;
        Ok(rows)
    }

    async fn load(&self) -> anyhow::Result<()> {
        for first in (0..self.keys.len()).step_by(LOAD_AT_ONCE) {
            let rows = first..(first + LOAD_AT_ONCE).min(self.keys.len());
            let set = |row: usize| {
                let set = Mutation::set(NEWEST, QUALIFIER, version(), value(row, 1));
                let request = ConditionalMutation::new(&self.keys[row]);
                ConditionalMutation { otherwise: vec![set], ..request }
            };
            for result in self.raw.check_and_mutate_rows(rows.clone().map(set).collect()).await {
                result?;
            }
            self.write(&self.one, rows, 1).await?;
        }
        // Version by version, so that a cell's versions lie apart as they do in life.
        for written in 1..=VERSIONS {
            for first in (0..self.keys.len()).step_by(LOAD_AT_ONCE) {
                let rows = first..(first + LOAD_AT_ONCE).min(self.keys.len());
                self.write(&self.ten, rows, written).await?;
            }
        }
        // As after garbage collection: the engine keeps a record that was written over until a
        // merge meets both, and in a load of seconds there is none.
        self.store.reclaim().await?;
        Ok(())
    }

    async fn write(
        &self,
        table: &percolator::Table,
        rows: std::ops::Range<usize>,
        written: usize,
    ) -> anyhow::Result<()> {
        let mut tx = self.db.begin().await?;
        for row in rows {
            tx.set(table, &self.keys[row], &COLUMN, value(row, written))?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// One turn of an arm.
    pub(super) async fn turn(&mut self, arm: usize, length: Duration) -> anyhow::Result<Block> {
        let (mut latencies, mut operations) = (histogram(), 0);
        let at_once = ROWS_AT_ONCE.min(self.keys.len());
        let start = Start::now(None);
        let mut last = Duration::ZERO;
        while last < length {
            let first = self.random.random_range(0..=self.keys.len() - at_once);
            self.scan(arm, first, at_once).await?;
            let now = start.at().elapsed();
            latencies.saturating_record(nanos(now - last));
            (last, operations) = (now, operations + at_once as u64);
        }
        Ok(Block { operations, spent: start.spent(), latencies })
    }

    /// Scans so many rows and looks at each.
    async fn scan(&mut self, arm: usize, first: usize, count: usize) -> anyhow::Result<()> {
        let range = RowRange {
            start: std::ops::Bound::Included(self.keys[first].clone()),
            end: std::ops::Bound::Included(self.keys[first + count - 1].clone()),
        };
        let mut right = 0;
        let seen = match arm {
            0 => self.scan_raw(range, first, &mut right).await?,
            arm => {
                let (table, written) =
                    if arm == 1 { (&self.one, 1) } else { (&self.ten, VERSIONS) };
                let snapshot = self.db.snapshot().await?;
                let mut scan = snapshot.scan(table).range(range).columns([&COLUMN]);
                let mut seen = 0;
                while let Some(row) = scan.next().await? {
                    let at = first + seen;
                    let cell = matches!(&row.cells[..], [(_, v)] if is_value(v, at, written));
                    right += usize::from(cell && self.keys.get(at) == Some(&row.row));
                    seen += 1;
                }
                seen
            }
        };
        self.seen += seen as u64;
        self.wrong += (seen.max(count) - right) as u64;
        Ok(())
    }

    async fn scan_raw(
        &self,
        range: RowRange,
        first: usize,
        right: &mut usize,
    ) -> anyhow::Result<usize> {
        let newest = Selection::default().column(NEWEST, QUALIFIER, TimeRange::ALL, 1);
        let (mut left, mut seen) = (Some(range), 0);
        while let Some(range) = left {
            let page = self.raw.scan(&range, &newest, PageLimit::default()).await?;
            for row in page.rows {
                let at = first + seen;
                let cell =
                    row.newest(&NEWEST, QUALIFIER).is_some_and(|c| is_value(&c.value, at, 1));
                *right += usize::from(cell && self.keys.get(at) == Some(&row.key));
                seen += 1;
            }
            left = page.resume;
        }
        Ok(seen)
    }

    /// Scans all tables from end to end.
    pub(super) async fn check_all(&mut self) -> anyhow::Result<()> {
        for arm in 0..ARMS.len() {
            self.scan(arm, 0, self.keys.len()).await?;
        }
        Ok(())
    }
}

/// The time of the raw cells.
fn version() -> Timestamp {
    Timestamp::new(1).unwrap_or(Timestamp::MAX)
}
