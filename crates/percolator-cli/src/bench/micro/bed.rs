//! What `bench micro` compares, and one operation of each arm.
//!
//! ```text
//!   bare        a keyspace of fjall on its own
//!   raw         a table of the store beneath, with a column whose newest version lies apart, as write
//!               records do, and one whose versions do not, as long values do
//!   percolator  a table of transactions, in the same store as `raw`
//! ```
//!
//! Each cell's value carries the cell's number and the number of the write, so that a read that
//! returns anything else is noticed.

use std::sync::Arc;

use bigtable::{ConditionalMutation, Family, Layout, LocalityGroup, Mutation, RowKey, RowMutation};
use bigtable::{Selection, Store, TableSchema, TimeRange, Timestamp};
use bigtable_fjall::FjallStore;
use fjall::{KeyspaceCreateOptions, PersistMode};
use percolator::{Bytes, Client, Column, Percolator, Transaction};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

use crate::bench::micro::Settings;
use crate::store::{Commit, Durability};

/// Length of a key.
pub(crate) const KEY_BYTES: usize = 24;
/// Length of a value.
pub(crate) const VALUE_BYTES: usize = 100;
/// New cells of a keyspace in memory, before they are written out as a sorted run.
const WRITE_BUFFER_BYTES: u64 = 64 << 20;
/// Memory for blocks read from disk, in each of the two engines.
pub(crate) const CACHE_BYTES: u64 = 128 << 20;

/// How many cells one request loads.
const LOAD_AT_ONCE: usize = 1000;

const NEWEST: Family = Family::from_static("newest");
const APPENDED: Family = Family::from_static("appended");
const QUALIFIER: &[u8] = b"v";
const COLUMN: Column = Column::literal("v");

/// Which copy of the cells.
#[derive(Debug, Clone, Copy)]
enum Part {
    Bare,
    Newest,
    Appended,
    Percolator,
}

/// Everything that the arms work on.
pub(super) struct Bed {
    durability: Durability,
    bare: fjall::Database,
    keyspace: fjall::Keyspace,
    raw: Arc<dyn bigtable::Table>,
    db: Percolator,
    two_phases: Client,
    table: percolator::Table,
    keys: Vec<RowKey>,
    random: SmallRng,
    /// The number of the last write of each cell, in each copy.
    written: [Vec<u64>; 4],
    writes: u64,
    /// Reads that returned something else than was written.
    pub(super) wrong: u64,
}

impl Bed {
    /// Creates the stores in an empty directory and loads them.
    pub(super) async fn create(settings: &Settings) -> anyhow::Result<Bed> {
        let bare = fjall::Database::builder(settings.dir.join("bare")).cache_size(CACHE_BYTES);
        let bare = bare.open()?;
        // The same on both sides: a smaller buffer means more files to write and to look into.
        let buffered = || KeyspaceCreateOptions::default().max_memtable_size(WRITE_BUFFER_BYTES);
        let keyspace = bare.keyspace("cells", buffered)?;
        let options = bigtable_fjall::Options {
            durability: settings.durability.into(),
            cache_bytes: CACHE_BYTES,
            write_buffer_bytes: WRITE_BUFFER_BYTES,
            ..bigtable_fjall::Options::default()
        };
        let store = Arc::new(FjallStore::open(settings.dir.join("percolator"), options)?);
        let groups = vec![
            LocalityGroup::on_disk("newest", Layout::NewestApart),
            LocalityGroup::on_disk("appended", Layout::Versions),
        ];
        let raw = store.open_table("raw", &TableSchema { groups }).await?;
        let db = Percolator::over(store, percolator::Options::default()).await?;
        let options = Commit::TwoPhases.options();
        let two_phases = Client::open(db.services().clone(), options).await?;
        let table = db.table("cells").await?;
        let key = |cell: usize| RowKey::from(format!("{cell:0KEY_BYTES$}"));
        let mut bed = Bed {
            durability: settings.durability,
            bare,
            keyspace,
            raw,
            db,
            two_phases,
            table,
            keys: (0..settings.cells).map(key).collect(),
            random: SmallRng::seed_from_u64(settings.turns.seed),
            written: std::array::from_fn(|_| vec![0; settings.cells]),
            writes: 0,
            wrong: 0,
        };
        bed.load().await?;
        Ok(bed)
    }

    async fn load(&mut self) -> anyhow::Result<()> {
        let (raw, table) = (self.raw.clone(), self.table.clone());
        for first in (0..self.keys.len()).step_by(LOAD_AT_ONCE) {
            let cells = first..(first + LOAD_AT_ONCE).min(self.keys.len());
            let mut requests = Vec::with_capacity(LOAD_AT_ONCE);
            let mut tx = self.db.begin().await?;
            for cell in cells {
                let value = self.value(Part::Bare, cell);
                self.keyspace.insert(self.keys[cell].as_bytes(), value)?;
                let otherwise =
                    vec![self.raw_set(Part::Newest, cell), self.raw_set(Part::Appended, cell)];
                let request = ConditionalMutation::new(&self.keys[cell]);
                requests.push(ConditionalMutation { otherwise, ..request });
                let value = self.value(Part::Percolator, cell);
                tx.set(&table, &self.keys[cell], &COLUMN, Bytes::copy_from_slice(&value))?;
            }
            for result in raw.check_and_mutate_rows(requests).await {
                result?;
            }
            tx.commit().await?;
        }
        self.bare.persist(PersistMode::SyncData)?;
        Ok(())
    }

    /// A cell at random.
    pub(super) fn pick(&mut self) -> usize {
        self.random.random_range(0..self.keys.len())
    }

    /// The next value of a cell.
    fn value(&mut self, part: Part, cell: usize) -> [u8; VALUE_BYTES] {
        self.writes += 1;
        self.written[part as usize][cell] = self.writes;
        let mut value = [0; VALUE_BYTES];
        value[..8].copy_from_slice(&(cell as u64).to_be_bytes());
        value[8..16].copy_from_slice(&self.writes.to_be_bytes());
        self.random.fill_bytes(&mut value[16..]);
        value
    }

    /// Notes a read whose value is not the last one written.
    fn check(&mut self, part: Part, cell: usize, value: Option<&[u8]>) {
        let written = self.written[part as usize][cell];
        let right = value.is_some_and(|value| {
            value.len() == VALUE_BYTES
                && value[..8] == (cell as u64).to_be_bytes()
                && value[8..16] == written.to_be_bytes()
        });
        self.wrong += u64::from(!right);
    }

    pub(super) async fn fjall_get(&mut self, cell: usize) -> anyhow::Result<()> {
        let value = self.keyspace.get(self.keys[cell].as_bytes())?;
        self.check(Part::Bare, cell, value.as_deref());
        Ok(())
    }

    pub(super) async fn fjall_insert(&mut self, cell: usize) -> anyhow::Result<()> {
        let value = self.value(Part::Bare, cell);
        // An insert alone survives the end of the process.
        self.keyspace.insert(self.keys[cell].as_bytes(), value)?;
        if self.durability == Durability::Sync {
            self.bare.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }

    pub(super) async fn raw_read(&mut self, cell: usize) -> anyhow::Result<()> {
        self.read_raw(Part::Newest, cell).await
    }

    async fn read_raw(&mut self, part: Part, cell: usize) -> anyhow::Result<()> {
        let family = family(part);
        let newest = Selection::default().column(family.clone(), QUALIFIER, TimeRange::ALL, 1);
        let row = self.raw.read_row(&self.keys[cell], &newest).await?;
        let value = row.newest(&family, QUALIFIER).map(|found| found.value.clone());
        self.check(part, cell, value.as_deref());
        Ok(())
    }

    fn raw_set(&mut self, part: Part, cell: usize) -> Mutation {
        let value = Bytes::copy_from_slice(&self.value(part, cell));
        let version = Timestamp::new(self.writes).unwrap_or(Timestamp::MAX);
        Mutation::set(family(part), QUALIFIER, version, value)
    }

    pub(super) async fn raw_write(&mut self, cell: usize) -> anyhow::Result<()> {
        self.write_raw(Part::Newest, cell).await
    }

    pub(super) async fn raw_append(&mut self, cell: usize) -> anyhow::Result<()> {
        self.write_raw(Part::Appended, cell).await
    }

    async fn write_raw(&mut self, part: Part, cell: usize) -> anyhow::Result<()> {
        let set = self.raw_set(part, cell);
        self.raw.mutate_row(RowMutation::new(&self.keys[cell]).mutation(set)).await?;
        Ok(())
    }

    pub(super) async fn tx_read(&mut self, cell: usize) -> anyhow::Result<()> {
        let tx = self.db.begin().await?;
        let value = tx.get(&self.table, &self.keys[cell], &COLUMN).await?;
        self.check(Part::Percolator, cell, value.as_deref());
        Ok(())
    }

    pub(super) async fn snapshot_read(&mut self, cell: usize) -> anyhow::Result<()> {
        let snapshot = self.db.snapshot().await?;
        let value = snapshot.get(&self.table, &self.keys[cell], &COLUMN).await?;
        self.check(Part::Percolator, cell, value.as_deref());
        Ok(())
    }

    pub(super) async fn tx_write(&mut self, cell: usize) -> anyhow::Result<()> {
        let tx = self.db.begin().await?;
        self.write_tx(tx, cell).await
    }

    pub(super) async fn tx_write_two_phases(&mut self, cell: usize) -> anyhow::Result<()> {
        let tx = self.two_phases.begin().await?;
        self.write_tx(tx, cell).await
    }

    async fn write_tx(&mut self, mut tx: Transaction, cell: usize) -> anyhow::Result<()> {
        let value = Bytes::copy_from_slice(&self.value(Part::Percolator, cell));
        tx.set(&self.table, &self.keys[cell], &COLUMN, value)?;
        tx.commit().await?;
        Ok(())
    }

    /// Reads every cell of every copy.
    pub(super) async fn check_all(&mut self) -> anyhow::Result<()> {
        for cell in 0..self.keys.len() {
            self.fjall_get(cell).await?;
            self.read_raw(Part::Newest, cell).await?;
            self.read_raw(Part::Appended, cell).await?;
            self.snapshot_read(cell).await?;
        }
        Ok(())
    }
}

/// The family of a raw copy.
fn family(part: Part) -> Family {
    if let Part::Appended = part { APPENDED } else { NEWEST }
}
