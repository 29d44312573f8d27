//! A chain of observers with weak notifications: one counts documents into words, the other
//! sums words into a total.
//!
//! ```text
//! doc:text --strong: count--> words rows, one cell a document --weak: sum--> word:total
//! ```
//!
//! Many documents share words, and a strong observer on a shared cell would make them
//! conflict. Here each document writes its own cell and leaves a weak notification. One run
//! handles many of these notifications.
//!
//! Run it with `cargo run -p percolator --example word_count`.

use std::collections::BTreeMap;

use percolator::{
    Change, Column, Error, Observer, Percolator, Registration, Result, RowRange, Table,
    Transaction, WorkerOptions,
};

const TEXT: Column = Column::literal("doc:text");
const COUNTED: Column = Column::literal("doc:counted");
const CHANGED: Column = Column::literal("changed");
const TOTAL: Column = Column::literal("total");

struct Count {
    words: Table,
}

fn count(text: &[u8]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for word in String::from_utf8_lossy(text).split_whitespace() {
        *counts.entry(word.to_lowercase()).or_default() += 1;
    }
    counts
}

impl Observer for Count {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> Result<()> {
        let Change { table, row, .. } = change;
        let new = change.value(tx).await?.unwrap_or_default();
        let old = tx.get(table, row, &COUNTED).await?.unwrap_or_default();
        let (now, before) = (count(&new), count(&old));
        let of = Column::new(format!("of:{row}"))?;
        for word in before.keys().filter(|word| !now.contains_key(*word)) {
            tx.delete(&self.words, word.as_str(), &of)?;
            tx.notify(&self.words, word.as_str(), &CHANGED)?;
        }
        for (word, count) in &now {
            if before.get(word) != Some(count) {
                tx.set(&self.words, word.as_str(), &of, count.to_string())?;
                tx.notify(&self.words, word.as_str(), &CHANGED)?;
            }
        }
        tx.set(table, row, &COUNTED, new)
    }
}

struct Sum;

impl Observer for Sum {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> Result<()> {
        let Change { table, row, .. } = change;
        let cells = tx.scan(table).range(RowRange::row(row)).collect().await?;
        let mut total = 0;
        for (column, value) in cells.iter().flat_map(|row| &row.cells) {
            if column.family() == b"of" {
                let count = String::from_utf8_lossy(value);
                total += count.parse::<u64>().map_err(Error::application)?;
            }
        }
        tx.set(table, row, &TOTAL, total.to_string())
    }
}

/// Counts two documents, changes one, and returns the totals.
pub async fn run() -> Result<BTreeMap<String, u64>> {
    let db = Percolator::in_memory().await?;
    let (docs, words) = (db.table("docs").await?, db.table("words").await?);
    let observers = vec![
        Registration::strong("count", "docs", &TEXT, Count { words: words.clone() }),
        Registration::weak("sum", "words", &CHANGED, Sum),
    ];
    let workers = db.observe(observers, WorkerOptions::default()).await?;
    for (doc, text) in
        [("a", "to be or not to be"), ("b", "to err is human"), ("a", "to be is to do")]
    {
        db.transact(async |mut tx| tx.set(&docs, doc, &TEXT, text)).await?;
        // Without this wait, one run might count both versions of `a`, because changes
        // collapse.
        db.wait_idle(None).await?;
    }
    let mut totals = BTreeMap::new();
    for row in db.snapshot().await?.scan(&words).columns([&TOTAL]).collect().await? {
        let total = String::from_utf8_lossy(&row.cells[0].1).parse().map_err(Error::application)?;
        totals.insert(row.row.to_string(), total);
    }
    workers.stop().await;
    Ok(totals)
}

#[tokio::main]
#[allow(dead_code, clippy::print_stdout, reason = "an example prints, and a test includes it")]
async fn main() -> Result<()> {
    for (word, total) in run().await? {
        println!("{total:>3} {word}");
    }
    Ok(())
}
