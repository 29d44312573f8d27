//! Derives data from the rows of many writers: by the writers themselves, or by an observer.
//!
//! ```text
//!   hot         each writer counts in a row of its own, and the hot row must hold the sum. If
//!               writers send weak notifications, they never conflict. If they write the observed
//!               cell, any two that overlap conflict
//!   commission  the broker's commission (paper section 3.3): the one write of TPC-E that
//!               conflicts with all others of its kind. The paper left it out. Either each trade
//!               adds its commission to its broker's row itself. Or each caller adds up its own
//!               trades in a row of its own and notifies the broker's row, and an observer adds
//!               the rows up
//! ```

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use percolator::{Change, Column, Observer, Percolator, Registration, RowKey, Table, Transaction};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::super::bed::{cell, number, open};
use super::workers::{CALLERS, idle_workers};
use crate::callers::{AsyncCaller, call, committed};
use crate::report::Condition;
use crate::turns::{Block, Others};

/// The way in which the derived row gets its sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    HotWeak,
    HotStrong,
    /// The trade itself adds to the row.
    Conflicting,
    /// An observer adds the rows up.
    Observed,
}

/// A writer's own sum, and the sum of all.
const ADDED: Column = Column::literal("added");
const SUM: Column = Column::literal("sum");
/// The observed column in the row of the sum.
const CHANGED: Column = Column::literal("changed");
const PRICE: Column = Column::literal("price");
/// A trade's commission, in cents.
const CENTS: std::ops::Range<u64> = 1..10_000;

impl Way {
    const ALL: [Way; 4] = [Way::HotWeak, Way::HotStrong, Way::Conflicting, Way::Observed];

    /// The name of its table and of its arm.
    fn name(self) -> &'static str {
        match self {
            Way::HotWeak => "hot_weak",
            Way::HotStrong => "hot_strong",
            Way::Conflicting => "commission_conflicting",
            Way::Observed => "commission_observed",
        }
    }

    fn is_trade(self) -> bool {
        matches!(self, Way::Conflicting | Way::Observed)
    }
}

fn writer_row(number: usize) -> RowKey {
    RowKey::from(format!("writer-{number:02}"))
}

const DERIVED: &str = "derived";

struct SumUp;

impl Observer for SumUp {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> percolator::Result<()> {
        let rows: Vec<RowKey> = (0..CALLERS).map(writer_row).collect();
        let added = tx.get_many(&change.table, &rows, &[ADDED]).await?;
        let sum: u64 = added.iter().flatten().map(|added| number(added.as_deref())).sum();
        tx.set(&change.table, &change.row, &SUM, cell(sum))
    }
}

#[derive(Debug)]
pub(super) struct Derived {
    db: Percolator,
    tables: Vec<Table>,
    trades: Table,
    random: SmallRng,
    /// The sum of all acknowledged transactions of the writers.
    added: [Arc<AtomicU64>; 4],
    turns: u64,
}

struct Writer {
    db: Percolator,
    table: Table,
    trades: Table,
    way: Way,
    number: usize,
    turn: u64,
    written: u64,
    random: SmallRng,
    added: Arc<AtomicU64>,
}

impl AsyncCaller for Writer {
    async fn attempt(&mut self) -> anyhow::Result<bool> {
        let Writer { table, way, .. } = self;
        let more = if way.is_trade() { self.random.random_range(CENTS) } else { 1 };
        let (row, column) = match way {
            Way::Conflicting => (DERIVED.into(), SUM),
            _ => (writer_row(self.number), ADDED),
        };
        let mut tx = self.db.begin().await?;
        let sum = number(tx.get(table, &row, &column).await?.as_deref()) + more;
        // Stands for an application's work between reading and writing; others run meanwhile.
        tokio::task::yield_now().await;
        if way.is_trade() {
            let trade = format!("{}-{}-{}", self.number, self.turn, self.written);
            tx.set(&self.trades, trade, &PRICE, cell(more))?;
        }
        tx.set(table, &row, &column, cell(sum))?;
        match way {
            Way::HotWeak | Way::Observed => tx.notify(table, DERIVED, &CHANGED)?,
            Way::HotStrong => tx.set(table, DERIVED, &CHANGED, row.to_bytes())?,
            Way::Conflicting => {}
        }
        let done = committed(tx.commit().await)?;
        if done {
            self.written += 1;
            self.added.fetch_add(more, Ordering::Relaxed);
        }
        Ok(done)
    }
}

impl Derived {
    pub(super) async fn create(dir: &Path, seed: u64) -> anyhow::Result<Self> {
        let db = open(dir).await?;
        let mut tables = Vec::new();
        for way in Way::ALL {
            tables.push(db.table(way.name()).await?);
        }
        let trades = db.table("trades").await?;
        let random = SmallRng::seed_from_u64(seed);
        Ok(Derived { db, tables, trades, random, added: Default::default(), turns: 0 })
    }

    /// Runs a turn. Its own number is the share of the attempts that ended in a conflict.
    pub(super) async fn block(&mut self, way: Way, length: Duration) -> anyhow::Result<Block> {
        self.turns += 1;
        let observer = match way {
            Way::HotStrong => Registration::strong("sum-up", way.name(), &CHANGED, SumUp),
            _ => Registration::weak("sum-up", way.name(), &CHANGED, SumUp),
        };
        let workers = idle_workers(&self.db, vec![observer]).await?;
        let seed = self.random.random::<u64>();
        let writer = |number: usize| Writer {
            db: self.db.clone(),
            table: self.tables[way as usize].clone(),
            trades: self.trades.clone(),
            way,
            number,
            turn: self.turns,
            written: 0,
            random: SmallRng::seed_from_u64(seed.wrapping_add(number as u64)),
            added: self.added[way as usize].clone(),
        };
        let called = call(Others::Nobody, (0..CALLERS).map(writer), length).await?;
        self.db.wait_idle(None).await?;
        workers.stop().await;
        let conflicts = called.conflicts();
        Ok(called.block.with("conflicts", conflicts))
    }

    pub(super) async fn conditions(&self) -> anyhow::Result<Vec<Condition>> {
        let snapshot = self.db.snapshot().await?;
        let mut conditions = Vec::new();
        for way in Way::ALL {
            let added = self.added[way as usize].load(Ordering::Relaxed);
            let table = &self.tables[way as usize];
            let held = number(snapshot.get(table, DERIVED, &SUM).await?.as_deref());
            let name = format!("{}: the sum is that of all commits", way.name());
            let found = format!("{added} added, {held} in the row");
            conditions.push(Condition::new(name, held == added, found));
        }
        Ok(conditions)
    }
}
