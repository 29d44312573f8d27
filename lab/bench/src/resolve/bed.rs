//! Cells, and clients that die with some of them locked.
//!
//! Every cell holds how often it was written; what a dead transaction would have written is told
//! apart from that, and must never be read.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use percolator::{
    Client, Column, Durability, OpenOptions, Options, Percolator, RowKey, Snapshot, Table,
};
use percolator_cli::store::Commit;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{LIFETIME, LOCKS};
use crate::findings::Condition;
use crate::turns::{Block, Start, histogram, nanos};

const COLUMN: Column = Column::literal("v");
const CELLS: usize = 20_000;
/// Cells of one transaction that loads them.
const AT_ONCE: usize = 1000;
/// Dead transactions of the first turn, and of any; each keeps one cell of its own.
const DEAD: usize = 500;
/// Readers that wait at the same time.
const READERS: usize = 20;
/// What a dead transaction would have written.
const DEAD_VALUE: [u8; 8] = [0xff; 8];

/// The cells, and what they hold.
#[derive(Debug)]
pub(super) struct Bed {
    db: Percolator,
    two_phases: Client,
    table: Table,
    random: SmallRng,
    written: Vec<u64>,
    /// How many operations a turn begins with.
    dead: usize,
    further: usize,
    /// Reads of anything else than what was written.
    wrong: u64,
    reads: u64,
    left: u64,
}

fn row(cell: usize) -> RowKey {
    RowKey::from(format!("{cell:024}"))
}

impl Bed {
    pub(super) async fn create(dir: &Path, seed: u64) -> anyhow::Result<Self> {
        let durability = Durability::Buffered;
        let options = OpenOptions { durability, gc: None, ..OpenOptions::default() };
        let db = Percolator::open_with(dir, options).await?;
        let two_phases = Client::open(db.services().clone(), Commit::TwoPhases.options()).await?;
        let table = db.table("cells").await?;
        for first in (0..CELLS).step_by(AT_ONCE) {
            let mut tx = db.begin().await?;
            for cell in first..(first + AT_ONCE).min(CELLS) {
                tx.set(&table, row(cell), &COLUMN, 1_u64.to_be_bytes().to_vec())?;
            }
            tx.commit().await?;
        }
        Ok(Bed {
            db,
            two_phases,
            table,
            random: SmallRng::seed_from_u64(seed),
            written: vec![1; CELLS],
            dead: DEAD,
            further: LOCKS,
            wrong: 0,
            reads: 0,
            left: 0,
        })
    }

    pub(super) async fn commit(
        &mut self,
        length: Duration,
        two_phases: bool,
    ) -> anyhow::Result<Block> {
        let mut watch = Watch::start();
        while watch.last < length {
            let cell = self.random.random_range(0..CELLS);
            let client = if two_phases { &self.two_phases } else { &*self.db };
            let mut tx = client.begin().await?;
            let written = self.written[cell] + 1;
            tx.set(&self.table, row(cell), &COLUMN, written.to_be_bytes().to_vec())?;
            tx.commit().await?;
            self.written[cell] = written;
            watch.lap();
        }
        Ok(watch.stop())
    }

    pub(super) async fn get(&mut self, length: Duration) -> anyhow::Result<Block> {
        let mut watch = Watch::start();
        while watch.last < length {
            let cell = self.random.random_range(0..CELLS);
            self.read(cell).await?;
            watch.lap();
        }
        Ok(watch.stop())
    }

    /// A cell without a lock, or with one that is in the way.
    async fn read(&mut self, cell: usize) -> anyhow::Result<()> {
        let snapshot = self.db.snapshot().await?;
        let value = value(&snapshot, &self.table, cell).await?;
        self.note(cell, value);
        Ok(())
    }

    fn note(&mut self, cell: usize, value: Option<u64>) {
        self.reads += 1;
        self.wrong += u64::from(value != Some(self.written[cell]));
    }

    /// So many different cells at random.
    fn some(&mut self, count: usize) -> Vec<usize> {
        rand::seq::index::sample(&mut self.random, CELLS, count.min(CELLS)).into_vec()
    }

    /// Leaves locks on these cells, all of one transaction.
    async fn leave(&mut self, client: &Client, cells: &[usize]) -> anyhow::Result<()> {
        let mut tx = client.begin().await?;
        for cell in cells {
            tx.set(&self.table, row(*cell), &COLUMN, DEAD_VALUE.to_vec())?;
        }
        // Dropped: nobody will commit it.
        drop(tx.prewrite().await?);
        self.left += cells.len() as u64;
        Ok(())
    }

    /// Reads cells that transactions of their own have locked.
    pub(super) async fn first(&mut self, length: Duration) -> anyhow::Result<Block> {
        let cells = self.some(self.dead);
        let client = self.db.another_client().await?;
        for cell in &cells {
            self.leave(&client, &[*cell]).await?;
        }
        drop(client);
        let block = self.clean(&cells).await?;
        self.dead = next(&block, length).clamp(DEAD, CELLS / 2);
        Ok(block)
    }

    /// Reads cells that a few transactions have locked, each of which somebody has met before.
    pub(super) async fn further(&mut self, length: Duration) -> anyhow::Result<Block> {
        let cells = self.some(self.further.next_multiple_of(LOCKS));
        let client = self.db.another_client().await?;
        for cells in cells.chunks(LOCKS) {
            self.leave(&client, cells).await?;
        }
        drop(client);
        let mut rest = Vec::with_capacity(cells.len());
        for cells in cells.chunks(LOCKS) {
            self.read(cells[0]).await?;
            rest.extend_from_slice(&cells[1..]);
        }
        let block = self.clean(&rest).await?;
        self.further = next(&block, length).clamp(LOCKS, CELLS / 2);
        Ok(block)
    }

    async fn clean(&mut self, cells: &[usize]) -> anyhow::Result<Block> {
        let mut watch = Watch::start();
        for cell in cells {
            self.read(*cell).await?;
            watch.lap();
        }
        Ok(watch.stop())
    }

    /// Readers of locks whose owner lives but has forgotten them.
    pub(super) async fn resume(&mut self) -> anyhow::Result<Block> {
        let options = Options { lock_lifetime: LIFETIME, ..Options::default() };
        let client = Client::open(self.db.services().clone(), options).await?;
        let cells = self.some(READERS);
        for cell in &cells {
            self.leave(&client, &[*cell]).await?;
        }
        let table = Arc::new(self.table.clone());
        let mut block =
            Block { operations: 0, spent: Start::now(None).spent(), latencies: histogram() };
        let start = Start::now(None);
        let readers = cells.iter().map(|cell| {
            let (db, table, cell) = (self.db.clone(), table.clone(), *cell);
            tokio::spawn(async move {
                let since = Instant::now();
                let value = value(&db.snapshot().await?, &table, cell).await?;
                Ok::<_, anyhow::Error>((cell, value, since.elapsed()))
            })
        });
        for read in futures::future::try_join_all(readers).await? {
            let (cell, value, took) = read?;
            self.note(cell, value);
            block.latencies.saturating_record(nanos(took));
            block.operations += 1;
        }
        block.spent = start.spent();
        drop(client);
        Ok(block)
    }

    /// Reads every cell once more.
    pub(super) async fn conditions(&mut self) -> anyhow::Result<Vec<Condition>> {
        for cell in 0..CELLS {
            self.read(cell).await?;
        }
        let (reads, left, wrong) = (self.reads, self.left, self.wrong);
        let found = format!("{reads} reads, {left} locks left by the dead, {wrong} reads wrong");
        let name = "every read has what was committed, and nothing that was not";
        Ok(vec![Condition::new(name, wrong == 0, found)])
    }
}

/// How many operations fit into a turn at the rate of the last one.
fn next(block: &Block, length: Duration) -> usize {
    let each = block.spent.elapsed.as_secs_f64() / block.operations.max(1) as f64;
    (length.as_secs_f64() / each.max(1e-9)) as usize
}

/// What a cell holds; `None` if it is no number that anybody has written.
async fn value(snapshot: &Snapshot, table: &Table, cell: usize) -> percolator::Result<Option<u64>> {
    let value = snapshot.get(table, row(cell), &COLUMN).await?;
    Ok(value.and_then(|value| value.as_ref().try_into().ok()).map(u64::from_be_bytes))
}

/// Takes the times of one operation after the other.
struct Watch {
    start: Start<'static>,
    last: Duration,
    block: Block,
}

impl Watch {
    fn start() -> Self {
        let spent = Start::now(None).spent();
        let block = Block { operations: 0, spent, latencies: histogram() };
        Watch { start: Start::now(None), last: Duration::ZERO, block }
    }

    /// An operation has ended, and the next one begins.
    fn lap(&mut self) {
        let now = self.start.at().elapsed();
        self.block.latencies.saturating_record(nanos(now - self.last));
        self.block.operations += 1;
        self.last = now;
    }

    fn stop(self) -> Block {
        Block { spent: self.start.spent(), ..self.block }
    }
}
