//! Opens the tables that the torture uses, their observers, and the web index beside them.

use std::sync::Arc;
use std::time::Duration;

use bigtable_hbase::{HbaseAddress, HbaseOptions, HbaseStore};
use percolator::admin::GcOptions;
use percolator::{
    Change, Column, Error, Observer, OpenOptions, Options, Percolator, Registration, Result, Table,
    Transaction, WorkerOptions, Workers,
};
use percolator_cli::store::{Commit, Durability};
use webindex::{SEARCH_DIR, WebIndex};

use super::ledger::Work;
use crate::place::Place;

/// The number of accounts, in both banks together.
pub(crate) const ACCOUNTS: usize = 32;
/// The first balance of each account.
pub(crate) const BALANCE: i64 = 1000;
/// The number of counters of transfers.
pub(crate) const COUNTERS: usize = 16;
/// The number of rows in each of the other tables.
pub(crate) const ROWS: usize = 24;

pub(crate) const BANKS: [&str; 2] = ["bank-a", "bank-b"];
pub(crate) const VALUE: Column = Column::literal("v");
/// The column with the number of changes of a source, or of runs that wrote a copy.
pub(crate) const COUNT: Column = Column::literal("count");
const POKED: Column = Column::literal("poked:v");

/// Short intervals, so that kills hit garbage collection in progress. The judge checks the
/// state that it leaves.
const GC: GcOptions = GcOptions {
    retention: Duration::from_secs(20),
    interval: Duration::from_millis(500),
    share: 0.1,
};
/// Each round on HBase compacts files.
const HBASE_GC_INTERVAL: Duration = Duration::from_secs(10);

/// The place of the data.
#[derive(Debug, Clone)]
pub(crate) enum Stored {
    /// A directory, and when a commit counts as durable.
    OnDisk(Durability),
    /// A namespace of an HBase cluster.
    Hbase(Box<HbaseAddress>),
}

impl Stored {
    /// True if the store may be away for a while, without the end of this process.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self, Stored::Hbase(_))
    }

    async fn open(&self, place: &Place, client: Options) -> anyhow::Result<Percolator> {
        match self {
            Stored::OnDisk(durability) => {
                let durability = (*durability).into();
                let gc = Some(GC);
                let options = OpenOptions { durability, client, gc, ..OpenOptions::default() };
                Ok(Percolator::open_with(place.store(), options).await?)
            }
            Stored::Hbase(address) => {
                let store = HbaseStore::connect(address, HbaseOptions::default()).await?;
                let db = Percolator::over(Arc::new(store), client.clone()).await?;
                // Versions must stay until no earlier request can be applied any more.
                let gc = GcOptions { retention: 4 * address.request_life_max(), ..GC };
                let gc = GcOptions { interval: HBASE_GC_INTERVAL, ..gc };
                Ok(db.another_client_with(client, Some(gc)).await?)
            }
        }
    }
}

/// The open store. Transactions and their observers have a client separate from that of the
/// web index, so that each client knows the changes of its own commits.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) db: Percolator,
    pub(crate) index: WebIndex,
    pub(crate) tables: Tables,
    workers: Workers,
}

/// The open tables.
#[derive(Debug, Clone)]
pub(crate) struct Tables {
    pub(crate) banks: [Table; 2],
    pub(crate) receipts: Table,
    pub(crate) counters: Table,
    pub(crate) blind: Table,
    pub(crate) source: Table,
    pub(crate) copy: Table,
    pub(crate) tail: Table,
    pub(crate) todo: Table,
    pub(crate) done: Table,
}

impl World {
    /// Opens the store, the tables and the index, and starts the observers.
    pub(crate) async fn open(
        place: &Place,
        stored: &Stored,
        commit: Commit,
    ) -> anyhow::Result<Self> {
        let index_db = stored.open(place, commit.options()).await?;
        let db = index_db.another_client().await?;
        let tables = Tables::open(&db).await?;
        let workers = db.observe(tables.observers(), WorkerOptions::default()).await?;
        let search = place.store().join(SEARCH_DIR);
        let index = WebIndex::open(index_db, &search, WorkerOptions::default()).await?;
        let world = World { db, index, tables, workers };
        world.found_banks().await?;
        Ok(world)
    }

    /// Gives every account its first balance, unless it has one.
    async fn found_banks(&self) -> Result<()> {
        let tables = &self.tables;
        self.db
            .transact(async |mut tx| {
                let (table, row) = tables.account(0);
                if tx.get(table, row.as_str(), &VALUE).await?.is_some() {
                    return Ok(());
                }
                for account in 0..ACCOUNTS {
                    let (table, row) = tables.account(account);
                    tx.set(table, row, &VALUE, BALANCE.to_string())?;
                }
                Ok(())
            })
            .await
    }

    /// Stops the observers.
    pub(crate) async fn stop(self) {
        self.workers.stop().await;
        self.index.stop().await;
    }
}

impl Tables {
    async fn open(db: &Percolator) -> Result<Self> {
        Ok(Tables {
            banks: [db.table(BANKS[0]).await?, db.table(BANKS[1]).await?],
            receipts: db.table("receipts").await?,
            counters: db.table("counters").await?,
            blind: db.table("blind").await?,
            source: db.table("source").await?,
            copy: db.table("copy").await?,
            tail: db.table("tail").await?,
            todo: db.table("todo").await?,
            done: db.table("done").await?,
        })
    }

    /// The table and row of an account.
    pub(crate) fn account(&self, account: usize) -> (&Table, String) {
        (&self.banks[account % 2], format!("account{:02}", account / 2))
    }

    /// A chain of strong observers, from `source` to `copy` to `tail`, and a weak one, from
    /// `todo` to `done`.
    fn observers(&self) -> Vec<Registration> {
        let copy = Copy { from: VALUE, to: self.copy.clone(), counted: true };
        let tail = Copy { from: VALUE, to: self.tail.clone(), counted: false };
        let done = Copy { from: VALUE, to: self.done.clone(), counted: false };
        vec![
            Registration::strong("copy", "source", &VALUE, copy),
            Registration::strong("tail", "copy", &VALUE, tail),
            Registration::weak("done", "todo", &POKED, done),
        ]
    }

    /// Does a piece of work in a transaction.
    pub(crate) async fn apply(&self, tx: &mut Transaction, id: &str, work: Work) -> Result<()> {
        match work {
            Work::Transfer { from, to, amount, counter } => {
                for (account, change) in [(from, -amount), (to, amount)] {
                    let (table, row) = self.account(account);
                    add(tx, table, &row, &VALUE, change).await?;
                }
                add(tx, &self.counters, &counter_row(counter), &VALUE, 1).await?;
                tx.set(&self.receipts, id, &VALUE, format!("{work:?}"))
            }
            Work::Blind { row, delete: true } => tx.delete(&self.blind, row_name(row), &VALUE),
            Work::Blind { row, delete: false } => {
                tx.set(&self.blind, row_name(row), &VALUE, id.to_owned())
            }
            Work::Source { row, delete } => {
                add(tx, &self.source, &row_name(row), &COUNT, 1).await?;
                if delete {
                    tx.delete(&self.source, row_name(row), &VALUE)
                } else {
                    tx.set(&self.source, row_name(row), &VALUE, id.to_owned())
                }
            }
            Work::Poke { row } => {
                tx.set(&self.todo, row_name(row), &VALUE, id.to_owned())?;
                tx.notify(&self.todo, row_name(row), &POKED)
            }
        }
    }
}

pub(crate) fn row_name(row: usize) -> String {
    format!("row{row:02}")
}

pub(crate) fn counter_row(counter: usize) -> String {
    format!("counter{counter:02}")
}

/// Parses a number stored as text. A missing cell is zero.
pub(crate) fn number(value: Option<&[u8]>) -> Result<i64> {
    let Some(value) = value else { return Ok(0) };
    String::from_utf8_lossy(value).parse().map_err(Error::application)
}

async fn add(
    tx: &mut Transaction,
    table: &Table,
    row: &str,
    column: &Column,
    change: i64,
) -> Result<()> {
    let old = number(tx.get(table, row, column).await?.as_deref())?;
    tx.set(table, row, column, (old + change).to_string())
}

/// Keeps a cell of another table equal to the changed one.
struct Copy {
    from: Column,
    to: Table,
    /// Whether the observer counts its runs.
    counted: bool,
}

impl Observer for Copy {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> Result<()> {
        let row = change.row.clone();
        if self.counted {
            let runs = number(tx.get(&self.to, row.clone(), &COUNT).await?.as_deref())?;
            tx.set(&self.to, row.clone(), &COUNT, (runs + 1).to_string())?;
        }
        match tx.get(&change.table, row.clone(), &self.from).await? {
            Some(value) => tx.set(&self.to, row, &VALUE, value),
            None => tx.delete(&self.to, row, &VALUE),
        }
    }
}
