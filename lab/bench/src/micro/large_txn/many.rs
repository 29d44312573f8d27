//! Runs thousands of transactions at once, each written as blocking code from begin to commit.
//! The paper runs such code on thousands of threads (section 2.5); here each transaction is a
//! task.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use percolator::{Column, Percolator, Table};
use tokio::sync::{Notify, watch};

use super::super::bed::{cell, key, number, open};
use crate::report::Condition;
use crate::system;
use crate::turns::{Block, Watch, nanos};

/// The two cells of each transaction.
const FROM: Column = Column::literal("from");
const TO: Column = Column::literal("to");

/// A table with as many rows as there are transactions at once.
#[derive(Debug)]
pub(super) struct Many {
    db: Percolator,
    table: Table,
    transactions: usize,
    /// Number of rounds of all transactions.
    rounds: u64,
    /// Memory of each waiting transaction, from the first round.
    pub(super) waiting_bytes: Option<f64>,
}

/// A slow step, in which every transaction waits for the last one.
#[derive(Debug)]
struct Step {
    arrived: AtomicUsize,
    all: usize,
    last: Notify,
}

impl Many {
    pub(super) async fn create(dir: &Path, transactions: usize) -> anyhow::Result<Self> {
        let db = open(dir).await?;
        let table = db.table("rows").await?;
        Ok(Many { db, table, transactions, rounds: 0, waiting_bytes: None })
    }

    /// Runs a transaction on each row, this many at a time.
    pub(super) async fn block(&mut self, at_once: usize) -> anyhow::Result<Block> {
        let before = system::resident_bytes();
        let mut turn = Watch::start();
        let rows: Vec<usize> = (0..self.transactions).collect();
        for rows in rows.chunks(at_once.max(1)) {
            let (open, gate) = watch::channel(false);
            let (arrived, last) = (AtomicUsize::new(0), Notify::new());
            let step = Arc::new(Step { arrived, all: rows.len(), last });
            let tasks: Vec<_> = rows
                .iter()
                .map(|row| {
                    let (db, table) = (self.db.clone(), self.table.clone());
                    tokio::spawn(straight(db, table, *row, gate.clone(), step.clone()))
                })
                .collect();
            step.last.notified().await;
            if rows.len() == self.transactions && self.rounds == 0 {
                let more = system::resident_bytes().zip(before);
                let more = more.map(|(then, before)| then.saturating_sub(before) as f64);
                self.waiting_bytes = more.map(|more| more / rows.len() as f64);
            }
            open.send_replace(true);
            for task in futures::future::try_join_all(tasks).await? {
                turn.note(task?);
            }
        }
        self.rounds += 1;
        Ok(turn.stop())
    }

    pub(super) async fn conditions(&self) -> anyhow::Result<Vec<Condition>> {
        let snapshot = self.db.snapshot().await?;
        let mut wrong = 0_u64;
        for transaction in 0..self.transactions {
            for column in [FROM, TO] {
                let held = snapshot.get(&self.table, key(transaction), &column).await?;
                wrong += u64::from(number(held.as_deref()) != self.rounds);
            }
        }
        let found = format!(
            "{} rounds of {} transactions, {wrong} cells wrong",
            self.rounds, self.transactions
        );
        let name = "each of many transactions at once took effect once";
        Ok(vec![Condition::new(name, wrong == 0, found)])
    }
}

/// Runs one transaction, and returns its time in nanoseconds.
async fn straight(
    db: Percolator,
    table: Table,
    transaction: usize,
    mut gate: watch::Receiver<bool>,
    step: Arc<Step>,
) -> anyhow::Result<u64> {
    let since = Instant::now();
    let mut tx = db.begin().await?;
    let from = number(tx.get(&table, key(transaction), &FROM).await?.as_deref()) + 1;
    tx.set(&table, key(transaction), &FROM, cell(from))?;
    if step.arrived.fetch_add(1, Ordering::SeqCst) + 1 == step.all {
        step.last.notify_one();
    }
    // The sender lives until all have ended.
    let _ = gate.wait_for(|open| *open).await;
    let to = number(tx.get(&table, key(transaction), &TO).await?.as_deref()) + 1;
    tx.set(&table, key(transaction), &TO, cell(to))?;
    tx.commit().await?;
    Ok(nanos(since.elapsed()))
}
