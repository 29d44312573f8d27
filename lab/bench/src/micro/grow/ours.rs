//! Grows an embedded database.

use std::ops::{Bound, Range};

use percolator::observe::{Observed, Strength};
use percolator::{
    Change, Column, Durability, Observer, OpenOptions, Percolator, Registration, RowRange, Table,
    Transaction, WorkerOptions, Workers,
};

use super::work::{Drawn, GrowWork, Program, SCANNED, is_value, name};

const TABLE: &str = "rows";
const VALUE: Column = Column::literal("v");
/// The observed column, and the column that its observer writes.
const OBSERVED: Column = Column::literal("observed");
const COPY: Column = Column::literal("copy");
/// Reads of one snapshot.
const READS: usize = 100;

pub(super) struct Ours {
    db: Percolator,
    table: Table,
    snapshot: Option<(Transaction, usize)>,
    workers: Option<Workers>,
}

/// Copies the changed cell.
struct Copy(Table);

impl Observer for Copy {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> percolator::Result<()> {
        match tx.get(&self.0, &change.row, &OBSERVED).await? {
            Some(value) => tx.set(&self.0, &change.row, &COPY, value),
            None => tx.delete(&self.0, &change.row, &COPY),
        }
    }
}

impl Program for Ours {
    async fn open(work: &GrowWork) -> anyhow::Result<Self> {
        let options = OpenOptions {
            durability: Durability::Buffered,
            cache_bytes: work.cache_mb << 20,
            ..OpenOptions::default()
        };
        let db = Percolator::open_with(&work.data, options).await?;
        let observed = Observed {
            table: TABLE.to_owned(),
            column: OBSERVED,
            observer: "copy".to_owned(),
            strength: Strength::Strong,
        };
        db.declare(&[observed]).await?;
        let table = db.table(TABLE).await?;
        Ok(Ours { db, table, snapshot: None, workers: None })
    }

    async fn close(self) -> anyhow::Result<()> {
        Ok(self.db.close().await?)
    }

    async fn load(&mut self, rows: Range<u64>, drawn: &mut Drawn) -> anyhow::Result<()> {
        let mut tx = self.db.begin().await?;
        for row in rows {
            tx.set(&self.table, name(row).as_str(), &VALUE, drawn.value(row))?;
        }
        tx.commit().await?;
        Ok(())
    }

    async fn get(&mut self, row: u64) -> anyhow::Result<bool> {
        let (tx, reads) = match self.snapshot.take() {
            Some((tx, reads)) if reads < READS => (tx, reads),
            _ => (self.db.begin().await?, 0),
        };
        let found = tx.get(&self.table, name(row).as_str(), &VALUE).await?;
        self.snapshot = Some((tx, reads + 1));
        Ok(found.is_some_and(|value| is_value(&value, row)))
    }

    async fn update(&mut self, rows: &[u64], drawn: &mut Drawn) -> anyhow::Result<u64> {
        let mut tx = self.db.begin().await?;
        let mut wrong = 0;
        for row in rows {
            let name = name(*row);
            let found = tx.get(&self.table, name.as_str(), &VALUE).await?;
            wrong += u64::from(!found.is_some_and(|value| is_value(&value, *row)));
            tx.set(&self.table, name.as_str(), &VALUE, drawn.value(*row))?;
        }
        tx.commit().await?;
        Ok(wrong)
    }

    async fn observed(&mut self, row: u64, drawn: &mut Drawn) -> anyhow::Result<bool> {
        if self.workers.is_none() {
            let copy = Registration::strong("copy", TABLE, &OBSERVED, Copy(self.table.clone()));
            self.workers = Some(self.db.observe(vec![copy], WorkerOptions::default()).await?);
        }
        let (table, name, value) = (&self.table, name(row), drawn.value(row));
        self.db
            .transact(async |mut tx| tx.set(table, name.as_str(), &OBSERVED, value.clone()))
            .await?;
        Ok(true)
    }

    async fn scan(&mut self, from: u64) -> anyhow::Result<(usize, u64)> {
        let tx = self.db.begin().await?;
        let start = Bound::Included(name(from).into());
        let range = RowRange { start, end: Bound::Unbounded };
        let mut scan = tx.scan(&self.table).range(range).columns([&VALUE]);
        let (mut seen, mut wrong) = (0, 0);
        while seen < SCANNED
            && let Some(row) = scan.next().await?
        {
            wrong += u64::from(row.cells.len() != 1);
            seen += 1;
        }
        Ok((seen, wrong))
    }

    async fn end(&mut self) -> anyhow::Result<()> {
        self.snapshot = None;
        if let Some(workers) = self.workers.take() {
            self.db.wait_idle(None).await?;
            workers.stop().await;
        }
        Ok(())
    }
}
