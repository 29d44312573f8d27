//! Scans rows in order: with the store's own scan, and at a snapshot.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bigtable::{PageLimit, RowKey, RowRange, Selection, Store, TimeRange};
use bigtable_fjall::FjallStore;
use percolator::{Options, Percolator};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::super::bed::{self, AT_ONCE, COLUMN, NEWEST, QUALIFIER, is_value, key, set, value};
use super::{CACHE_BYTES, ROWS_AT_ONCE, VERSIONS};
use crate::turns::{Block, Watch};

/// The arms: the name of each, and its operation.
pub(super) const ARMS: [(&str, &str); 3] = [
    ("raw_scan", "Table::scan over 1,000 rows of one cell with one version; counted in cells"),
    ("snapshot_scan", "snapshot, scan of the same rows"),
    ("snapshot_scan_ten", "the same where each cell has ten versions"),
];

/// The tables that are scanned.
pub(super) struct Rows {
    store: Arc<FjallStore>,
    raw: Arc<dyn bigtable::Table>,
    db: Percolator,
    one: percolator::Table,
    ten: percolator::Table,
    keys: Vec<RowKey>,
    random: SmallRng,
    /// Number of rows that scans returned.
    pub(super) seen: u64,
    /// Rows that were missing, surplus or wrong.
    pub(super) wrong: u64,
}

impl Rows {
    pub(super) async fn create(dir: &Path, cells: usize, seed: u64) -> anyhow::Result<Self> {
        let store = bed::store(dir, Some(CACHE_BYTES))?;
        let raw = bed::raw(&*store).await?;
        let db = Percolator::over(store.clone(), Options::default()).await?;
        let (one, ten) = (db.table("one").await?, db.table("ten").await?);
        let (keys, random) = ((0..cells).map(key).collect(), SmallRng::seed_from_u64(seed));
        let rows = Rows { store, raw, db, one, ten, keys, random, seen: 0, wrong: 0 };
        rows.load().await?;
        Ok(rows)
    }

    async fn load(&self) -> anyhow::Result<()> {
        let rows = |written| {
            let row = move |(row, key): (usize, &RowKey)| (key.clone(), value(row, written));
            self.keys.iter().enumerate().map(row)
        };
        let requests: Vec<_> = rows(1).map(|(key, value)| set(&key, 1, value)).collect();
        for some in requests.chunks(AT_ONCE) {
            bed::all(self.raw.check_and_mutate_rows(some.to_vec()).await)?;
        }
        bed::write(&self.db, &self.one, &COLUMN, rows(1)).await?;
        // Version by version, so that a cell's versions lie apart as in a real store.
        for written in 1..=VERSIONS {
            bed::write(&self.db, &self.ten, &COLUMN, rows(written)).await?;
        }
        // The same state as after garbage collection. The engine keeps an overwritten record
        // until it merges both files, which does not happen during a load of seconds.
        self.store.reclaim().await?;
        Ok(())
    }

    pub(super) async fn turn(&mut self, arm: usize, length: Duration) -> anyhow::Result<Block> {
        let at_once = ROWS_AT_ONCE.min(self.keys.len());
        let mut watch = Watch::start();
        let mut operations = 0;
        while watch.goes_on(length) {
            let first = self.random.random_range(0..=self.keys.len() - at_once);
            self.scan(arm, first, at_once).await?;
            // A latency is that of a whole scan, but operations are counted in cells.
            watch.lap(1);
            operations += at_once as u64;
        }
        Ok(Block { operations, ..watch.stop() })
    }

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

    pub(super) async fn check_all(&mut self) -> anyhow::Result<()> {
        for arm in 0..ARMS.len() {
            self.scan(arm, 0, self.keys.len()).await?;
        }
        Ok(())
    }
}
