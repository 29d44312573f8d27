//! Implements the brokerage on Percolator.

use async_trait::async_trait;
use futures::StreamExt;
use percolator::{Column, Percolator, RowKey, Table};

use crate::backend::{Backend, Failed};
use crate::check::Books;
use crate::generate;
use crate::model::{D, Key, TABLE, decode, encode};
use crate::request::{Answer, Request};
use crate::transactions::{self, Session};
use crate::{Result, Scale};

/// Number of cells that a loading transaction writes, and number of such transactions at a
/// time.
const CELLS_AT_ONCE: usize = 800;
const LOADERS: usize = 8;

/// Most remaining locks that are named.
const LOCKS_NAMED: usize = 10;

#[derive(Debug)]
pub(crate) struct OnPercolator {
    pub(crate) db: Percolator,
    pub(crate) table: Table,
}

impl OnPercolator {
    pub(crate) async fn load(db: Percolator, scale: Scale) -> Result<Self> {
        let table = db.table(TABLE).await?;
        let mut rows = generate::rows(scale);
        let chunks = std::iter::from_fn(move || {
            let mut cells = Cells::new();
            while cells.len() < CELLS_AT_ONCE {
                let Some(row) = rows.next() else { break };
                cells.extend(row.cells());
            }
            (!cells.is_empty()).then_some(cells)
        });
        let load = |cells| write(&db, &table, cells);
        let mut loads = futures::stream::iter(chunks).map(load).buffer_unordered(LOADERS);
        while let Some(loaded) = loads.next().await {
            loaded?;
        }
        drop(loads);
        // The numbers after those of the history are free.
        let first = encode(&(scale.trades() + 1));
        write(&db, &table, vec![(numbers(), D, first)]).await?;
        Ok(OnPercolator { db, table })
    }

    /// Opens a brokerage that another process has loaded.
    pub(crate) async fn join(db: Percolator) -> Result<Self> {
        let table = db.table(TABLE).await?;
        Ok(OnPercolator { db, table })
    }
}

/// The row with the next free trade number. If every order incremented it, all orders would
/// conflict. So each driver takes many numbers at a time.
fn numbers() -> RowKey {
    Key::of("ID:trade").row()
}

type Cells = Vec<(RowKey, Column, percolator::Bytes)>;

async fn write(db: &Percolator, table: &Table, cells: Cells) -> Result<()> {
    let mut tx = db.begin().await?;
    for (row, column, value) in cells {
        tx.set(table, row, &column, value)?;
    }
    tx.commit().await?;
    Ok(())
}

#[async_trait]
impl Backend for OnPercolator {
    async fn attempt(&self, request: &Request) -> Result<Answer, Failed> {
        let mut session = Session::new(self.db.begin().await?, &self.table);
        let mut answer = transactions::run(&mut session, request).await?;
        answer.reads = session.reads;
        if !answer.unchanged && session.reads.writes > 0 {
            session.tx.commit().await?;
        }
        Ok(answer)
    }

    async fn reserve(&self, count: u64) -> Result<u64> {
        let reserve = async |mut tx: percolator::Attempt| {
            let found = tx.get(&self.table, numbers(), &D).await?;
            let missing =
                || percolator::Error::application("no trade numbers: load the data first");
            let first: u64 = decode(&found.ok_or_else(missing)?)?;
            tx.set(&self.table, numbers(), &D, encode(&(first + count)))?;
            Ok(first)
        };
        Ok(self.db.transact(reserve).await?)
    }

    async fn books(&self) -> Result<Books> {
        let mut books = Books::default();
        let snapshot = self.db.snapshot().await?;
        // The scan resolves every lock below its timestamp.
        let mut scan = snapshot.scan(&self.table);
        while let Some(row) = scan.next().await? {
            books.note(&row)?;
        }
        let locks = self.db.held_locks(LOCKS_NAMED).await?;
        books.locks = locks.iter().map(|lock| lock.cell.to_string()).collect();
        Ok(books)
    }
}
