//! Many writers of what one hot row's observer derives its data from.
//!
//! Each writer counts in a row of its own; the hot row is to hold the sum. With a weak notification
//! writers never conflict; with a write of the observed cell any two that overlap do.

use std::path::Path;
use std::time::Duration;

use percolator::{Change, Column, Observer, Percolator, Registration, RowKey, Table, Transaction};

use super::Turned;
use super::bed::{CALLERS, idle_workers, open};
use crate::callers::{AsyncCaller, call, committed, number};
use crate::findings::Condition;

/// How the hot row's observer learns of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Weak,
    Strong,
}

impl Way {
    const ALL: [Way; 2] = [Way::Weak, Way::Strong];

    fn table(self) -> &'static str {
        match self {
            Way::Weak => "weak",
            Way::Strong => "strong",
        }
    }
}

/// Each writer's own, the observed one, and what is derived.
const COUNT: Column = Column::literal("count");
const CHANGED: Column = Column::literal("changed");
const SUM: Column = Column::literal("sum");
const HOT: &str = "hot";

/// Sums up what the writers have.
struct SumUp;

impl Observer for SumUp {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> percolator::Result<()> {
        let rows: Vec<RowKey> = (0..CALLERS).map(row).collect();
        let counts = tx.get_many(&change.table, &rows, &[COUNT]).await?;
        let sum: u64 = counts.iter().flatten().map(|count| number(count.as_deref())).sum();
        tx.set(&change.table, &change.row, &SUM, sum.to_be_bytes().to_vec())
    }
}

fn row(writer: usize) -> RowKey {
    RowKey::from(format!("writer-{writer:02}"))
}

/// The experiment.
#[derive(Debug)]
pub(super) struct Hot {
    db: Percolator,
    tables: [Table; 2],
    /// Transactions that the writers were told are committed.
    committed: [u64; 2],
}

struct Writer {
    db: Percolator,
    table: Table,
    row: RowKey,
    way: Way,
}

impl AsyncCaller for Writer {
    async fn attempt(&mut self) -> anyhow::Result<bool> {
        let mut tx = self.db.begin().await?;
        let count = tx.get(&self.table, &self.row, &COUNT).await?;
        let count = number(count.as_deref()) + 1;
        // What an application does between reading and writing; others get their turns meanwhile.
        tokio::task::yield_now().await;
        tx.set(&self.table, &self.row, &COUNT, count.to_be_bytes().to_vec())?;
        match self.way {
            Way::Weak => tx.notify(&self.table, HOT, &CHANGED)?,
            Way::Strong => tx.set(&self.table, HOT, &CHANGED, self.row.to_bytes())?,
        }
        committed(tx.commit().await)
    }
}

impl Hot {
    pub(super) async fn create(dir: &Path) -> anyhow::Result<Self> {
        let db = open(dir).await?;
        let tables = [db.table(Way::Weak.table()).await?, db.table(Way::Strong.table()).await?];
        Ok(Hot { db, tables, committed: [0; 2] })
    }

    /// Beside the block, the share of the attempts that committed.
    pub(super) async fn block(&mut self, way: Way, length: Duration) -> anyhow::Result<Turned> {
        let observer = match way {
            Way::Weak => Registration::weak("sum-up", way.table(), &CHANGED, SumUp),
            Way::Strong => Registration::strong("sum-up", way.table(), &CHANGED, SumUp),
        };
        let workers = idle_workers(&self.db, vec![observer]).await?;
        let caller = |number: usize| Writer {
            db: self.db.clone(),
            table: self.tables[way as usize].clone(),
            row: row(number),
            way,
        };
        let (block, attempts) = call(None, CALLERS, length, caller).await?;
        self.db.wait_idle(None).await?;
        workers.stop().await;
        self.committed[way as usize] += block.operations;
        let share = block.operations as f64 / attempts.max(1) as f64;
        Ok(Turned { block, aside: Some(share) })
    }

    /// What the hot rows hold.
    pub(super) async fn conditions(&self) -> anyhow::Result<Vec<Condition>> {
        let snapshot = self.db.snapshot().await?;
        let mut conditions = Vec::new();
        for way in Way::ALL {
            let (table, committed) = (&self.tables[way as usize], self.committed[way as usize]);
            let derived = number(snapshot.get(table, HOT, &SUM).await?.as_deref());
            let name = format!("hot_{}: the derived sum is that of all commits", way.table());
            let found = format!("{committed} commits, {derived} derived");
            conditions.push(Condition::new(name, derived == committed, found));
        }
        Ok(conditions)
    }
}
