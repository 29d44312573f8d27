//! The broker's commission (paper section 3.3): the one write of TPC-E that conflicts with all
//! others of its kind, and which the paper left out.
//!
//! Conflicting: each trade adds its commission to its broker's row, in its own transaction.
//! Observed: each caller adds up what it has traded in a row of its own and notifies the broker's;
//! an observer adds the rows up.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use percolator::{Change, Column, Observer, Percolator, Registration, RowKey, Table, Transaction};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::Turned;
use super::bed::{CALLERS, idle_workers, open};
use crate::callers::{AsyncCaller, call, committed, number};
use crate::findings::Condition;

/// Who adds a trade's commission to the broker's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The trade itself.
    Conflicting,
    /// An observer.
    Observed,
}

impl Way {
    const ALL: [Way; 2] = [Way::Conflicting, Way::Observed];

    fn name(self) -> &'static str {
        match self {
            Way::Conflicting => "conflicting",
            Way::Observed => "observed",
        }
    }

    fn broker(self) -> RowKey {
        RowKey::from(format!("broker-{}", self.name()))
    }

    fn earned(self, caller: usize) -> RowKey {
        RowKey::from(format!("{}-{caller:02}", self.name()))
    }
}

const BROKERS: &str = "brokers";
const COMMISSION: Column = Column::literal("commission");
/// Notified when callers have earned something.
const DUE: Column = Column::literal("due");
const EARNED: Column = Column::literal("earned");
const PRICE: Column = Column::literal("price");
/// A trade's commission, in cents.
const CENTS: std::ops::Range<u64> = 1..10_000;

/// The tables.
#[derive(Debug, Clone)]
struct Books {
    brokers: Table,
    earned: Table,
    trades: Table,
}

/// Adds up what the callers have earned.
struct AddUp(Books);

impl Observer for AddUp {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> percolator::Result<()> {
        let rows: Vec<RowKey> = (0..CALLERS).map(|caller| Way::Observed.earned(caller)).collect();
        let earned = tx.get_many(&self.0.earned, &rows, &[EARNED]).await?;
        let sum: u64 = earned.iter().flatten().map(|cents| number(cents.as_deref())).sum();
        tx.set(&change.table, &change.row, &COMMISSION, sum.to_be_bytes().to_vec())
    }
}

/// The experiment.
#[derive(Debug)]
pub(super) struct Commission {
    db: Percolator,
    books: Books,
    random: SmallRng,
    /// What was earned by trades that committed, by way.
    earned: [Arc<AtomicU64>; 2],
    turns: u64,
}

struct Trader {
    db: Percolator,
    books: Books,
    way: Way,
    number: usize,
    turn: u64,
    trades: u64,
    random: SmallRng,
    earned: Arc<AtomicU64>,
}

impl AsyncCaller for Trader {
    async fn attempt(&mut self) -> anyhow::Result<bool> {
        let Books { brokers, earned, trades } = &self.books;
        let cents = self.random.random_range(CENTS);
        let mut tx = self.db.begin().await?;
        let (table, row, column) = match self.way {
            Way::Conflicting => (brokers, self.way.broker(), COMMISSION),
            Way::Observed => (earned, self.way.earned(self.number), EARNED),
        };
        let sum = number(tx.get(table, row.clone(), &column).await?.as_deref()) + cents;
        // What else a trade does; others get their turns meanwhile.
        tokio::task::yield_now().await;
        let trade = format!("{}-{}-{}", self.number, self.turn, self.trades);
        tx.set(trades, trade, &PRICE, cents.to_be_bytes().to_vec())?;
        tx.set(table, row, &column, sum.to_be_bytes().to_vec())?;
        if self.way == Way::Observed {
            tx.notify(brokers, self.way.broker(), &DUE)?;
        }
        let done = committed(tx.commit().await)?;
        if done {
            self.trades += 1;
            self.earned.fetch_add(cents, Ordering::Relaxed);
        }
        Ok(done)
    }
}

impl Commission {
    pub(super) async fn create(dir: &Path, seed: u64) -> anyhow::Result<Self> {
        let db = open(dir).await?;
        let books = Books {
            brokers: db.table(BROKERS).await?,
            earned: db.table("earned").await?,
            trades: db.table("trades").await?,
        };
        let random = SmallRng::seed_from_u64(seed);
        Ok(Commission { db, books, random, earned: Default::default(), turns: 0 })
    }

    /// Beside the block, the share of the attempts that ended in a conflict.
    pub(super) async fn block(&mut self, way: Way, length: Duration) -> anyhow::Result<Turned> {
        self.turns += 1;
        let add_up = AddUp(self.books.clone());
        let observer = Registration::weak("add-up", BROKERS, &DUE, add_up);
        let workers = idle_workers(&self.db, vec![observer]).await?;
        let seed = self.random.random::<u64>();
        let caller = |number: usize| Trader {
            db: self.db.clone(),
            books: self.books.clone(),
            way,
            number,
            turn: self.turns,
            trades: 0,
            random: SmallRng::seed_from_u64(seed.wrapping_add(number as u64)),
            earned: self.earned[way as usize].clone(),
        };
        let (block, attempts) = call(None, CALLERS, length, caller).await?;
        self.db.wait_idle(None).await?;
        workers.stop().await;
        let conflicts = 1.0 - block.operations as f64 / attempts.max(1) as f64;
        Ok(Turned { block, aside: Some(conflicts) })
    }

    /// What the brokers' rows hold.
    pub(super) async fn conditions(&self) -> anyhow::Result<Vec<Condition>> {
        let snapshot = self.db.snapshot().await?;
        let mut conditions = Vec::new();
        for way in Way::ALL {
            let held = snapshot.get(&self.books.brokers, way.broker(), &COMMISSION).await?;
            let held = number(held.as_deref());
            let earned = self.earned[way as usize].load(Ordering::Relaxed);
            let name = format!("commission_{}: the broker has what was earned", way.name());
            let found = format!("{earned} cents earned, {held} in the row");
            conditions.push(Condition::new(name, held == earned, found));
        }
        Ok(conditions)
    }
}
