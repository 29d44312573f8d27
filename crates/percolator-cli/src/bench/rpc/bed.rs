//! What the arms of `bench rpc` work on.
//!
//! ```text
//!   cells   a table of transactions
//!   bare    a table that is written by bare requests: those of transactions in another store, which
//!           takes its timestamps from the same oracle
//! ```

use std::sync::Arc;

use bigtable_grpc::{Address, BareTable, ClientOptions, GrpcStore};
use percolator::{Bytes, Client, Column, Options, Percolator, RowKey, Services, Table};

use super::Settings;
use super::record::Template;
use crate::bench::server::Server;

/// Length of a key.
pub(super) const KEY_BYTES: usize = 24;
/// Length of a value.
pub(super) const VALUE_BYTES: usize = 100;
/// The table that is written by bare requests.
pub(super) const BARE: &str = "bare";
pub(super) const COLUMN: Column = Column::literal("v");

/// The server, and this process's clients of it.
#[derive(Debug)]
pub(super) struct Bed {
    pub(super) server: Server,
    pub(super) db: Percolator,
    /// The tables, in the order of [`Part`].
    pub(super) tables: [Table; 2],
    /// A client that sends each row's mutation by itself, and its handle of the table of transactions.
    pub(super) each: Client,
    pub(super) each_cells: Table,
    pub(super) bare: BareTable,
    pub(super) template: Template,
    pub(super) keys: Vec<RowKey>,
}

/// Which copy of the cells.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    Cells,
    Bare,
}

impl Part {
    pub(super) const ALL: [Part; 2] = [Part::Cells, Part::Bare];
}

impl Bed {
    pub(super) async fn create(settings: &Settings) -> anyhow::Result<Self> {
        let server = Server::start("table", &["--durability", "buffered"])?;
        let address: Address = format!("bigtable://{}/bench/rpc", server.address()).parse()?;
        let store = Arc::new(GrpcStore::open(&address, ClientOptions::default()).await?);
        let db = Percolator::over(store.clone(), Options::over_network()).await?;
        let tables = [db.table("cells").await?, db.table(BARE).await?];
        let bare = store.bare_table(BARE)?;
        let options = ClientOptions { batches: false, ..ClientOptions::default() };
        let store = Arc::new(GrpcStore::open(&address, options).await?);
        let services = Services { store, ..db.services().clone() };
        let each = Client::open(services, Options::over_network()).await?;
        let each_cells = each.table("cells").await?;
        let template = Template::open(db.services()).await?;
        let keys = (0..settings.cells).map(|cell| RowKey::from(format!("{cell:0KEY_BYTES$}")));
        Ok(Bed { server, db, tables, each, each_cells, bare, template, keys: keys.collect() })
    }

    /// How many transactions have committed, as the clients count.
    pub(super) fn committed(&self) -> u64 {
        self.db.stats().committed + self.each.stats().committed
    }

    pub(super) fn table(&self, part: Part) -> &Table {
        &self.tables[part as usize]
    }
}

/// The value of a cell that was written so often.
pub(super) fn value(cell: usize, written: u64) -> Bytes {
    let mut value = vec![7; VALUE_BYTES];
    value[..8].copy_from_slice(&(cell as u64).to_be_bytes());
    value[8..16].copy_from_slice(&written.to_be_bytes());
    value.into()
}
