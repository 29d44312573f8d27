//! Keeps cells, and clients that die with some of them locked.
//!
//! Every cell's value is the number of its writes. The value of a dead transaction is
//! different, and no read may return it.

use std::path::Path;
use std::time::{Duration, Instant};

use percolator::{Client, Options, Percolator, Snapshot, Table};
use percolator_cli::store::Commit;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::super::bed::{COLUMN, cell, key, number, open, write};
use super::{LIFETIME, LOCKS};
use crate::report::Condition;
use crate::turns::{Block, Watch, nanos};

const CELLS: usize = 20_000;
/// Dead transactions of the first turn, and fewest of any; each locks one cell.
const DEAD: usize = 500;
/// Number of readers that wait at the same time.
const READERS: usize = 20;
/// The value that a dead transaction would have written.
const DEAD_VALUE: u64 = u64::MAX;

/// The cells, and their expected values.
#[derive(Debug)]
pub(super) struct Locks {
    db: Percolator,
    two_phases: Client,
    table: Table,
    random: SmallRng,
    written: Vec<u64>,
    /// Number of operations of the next turn.
    dead: usize,
    further: usize,
    /// Reads that returned something other than the last write.
    wrong: u64,
    reads: u64,
    left: u64,
}

impl Locks {
    pub(super) async fn create(dir: &Path, seed: u64) -> anyhow::Result<Self> {
        let db = open(dir).await?;
        let two_phases = Client::open(db.services().clone(), Commit::TwoPhases.options()).await?;
        let table = db.table("cells").await?;
        write(&db, &table, &COLUMN, (0..CELLS).map(|at| (key(at), cell(1)))).await?;
        Ok(Locks {
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
        while watch.goes_on(length) {
            let at = self.random.random_range(0..CELLS);
            let client = if two_phases { &self.two_phases } else { &*self.db };
            let mut tx = client.begin().await?;
            let written = self.written[at] + 1;
            tx.set(&self.table, key(at), &COLUMN, cell(written))?;
            tx.commit().await?;
            self.written[at] = written;
            watch.lap(1);
        }
        Ok(watch.stop())
    }

    pub(super) async fn get(&mut self, length: Duration) -> anyhow::Result<Block> {
        let mut watch = Watch::start();
        while watch.goes_on(length) {
            let cell = self.random.random_range(0..CELLS);
            self.read(cell).await?;
            watch.lap(1);
        }
        Ok(watch.stop())
    }

    /// Reads a cell, with or without a lock on it.
    async fn read(&mut self, cell: usize) -> anyhow::Result<()> {
        let snapshot = self.db.snapshot().await?;
        let value = value(&snapshot, &self.table, cell).await?;
        self.note(cell, value);
        Ok(())
    }

    fn note(&mut self, cell: usize, value: u64) {
        self.reads += 1;
        self.wrong += u64::from(value != self.written[cell]);
    }

    fn some(&mut self, count: usize) -> Vec<usize> {
        rand::seq::index::sample(&mut self.random, CELLS, count.min(CELLS)).into_vec()
    }

    /// Leaves locks of one transaction on these cells.
    async fn leave(&mut self, client: &Client, cells: &[usize]) -> anyhow::Result<()> {
        let mut tx = client.begin().await?;
        for at in cells {
            tx.set(&self.table, key(*at), &COLUMN, cell(DEAD_VALUE))?;
        }
        // Dropped, so that nobody will commit it.
        drop(tx.prewrite().await?);
        self.left += cells.len() as u64;
        Ok(())
    }

    /// Reads cells that each a transaction of its own has locked.
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

    /// Reads cells that a few transactions have locked. A lock of each transaction was found
    /// before.
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
            watch.lap(1);
        }
        Ok(watch.stop())
    }

    /// Runs readers on locks whose owner is alive but has forgotten them.
    pub(super) async fn resume(&mut self) -> anyhow::Result<Block> {
        let options = Options { lock_lifetime: LIFETIME, ..Options::default() };
        let client = Client::open(self.db.services().clone(), options).await?;
        let cells = self.some(READERS);
        for cell in &cells {
            self.leave(&client, &[*cell]).await?;
        }
        let mut watch = Watch::start();
        let readers = cells.iter().map(|cell| {
            let (db, table, cell) = (self.db.clone(), self.table.clone(), *cell);
            tokio::spawn(async move {
                let since = Instant::now();
                let value = value(&db.snapshot().await?, &table, cell).await?;
                Ok::<_, anyhow::Error>((cell, value, since.elapsed()))
            })
        });
        for read in futures::future::try_join_all(readers).await? {
            let (cell, value, took) = read?;
            self.note(cell, value);
            watch.note(nanos(took));
        }
        let block = watch.stop();
        drop(client);
        Ok(block)
    }

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

/// Number of operations that fit into a turn at the rate of the last one.
fn next(block: &Block, length: Duration) -> usize {
    let each = block.spent.elapsed.as_secs_f64() / block.operations.max(1) as f64;
    (length.as_secs_f64() / each.max(1e-9)) as usize
}

async fn value(snapshot: &Snapshot, table: &Table, at: usize) -> percolator::Result<u64> {
    Ok(number(snapshot.get(table, key(at), &COLUMN).await?.as_deref()))
}
