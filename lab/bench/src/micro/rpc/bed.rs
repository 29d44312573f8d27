//! Provides the server and the clients of `percolator-bench micro rpc`.
//!
//! ```text
//!   cells   a table of transactions
//!   bare    a table that is written by bare requests: those of transactions in another store,
//!           which takes its timestamps from the same oracle
//! ```

use std::sync::Arc;

use bigtable_grpc::{Address, BareTable, ClientOptions, GrpcStore};
use percolator::runtime::Services;
use percolator::{Client, Options, Percolator, RowKey, Table};

use super::super::bed::key;
use super::record::Template;
use crate::server::Server;

/// The name of the table that bare requests write.
pub(super) const BARE: &str = "bare";

/// The server, and this process's clients of it.
#[derive(Debug)]
pub(super) struct Bed {
    pub(super) server: Server,
    pub(super) db: Percolator,
    /// The tables, in the order of [`Part`].
    pub(super) tables: [Table; 2],
    /// The clients with unusual settings, each with its handle of the transactions' table.
    each_alone: (Client, Table),
    read_first: (Client, Table),
    pub(super) bare: BareTable,
    pub(super) template: Template,
    pub(super) keys: Vec<RowKey>,
}

/// A copy of the cells.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    Cells,
    Bare,
}

impl Part {
    pub(super) const ALL: [Part; 2] = [Part::Cells, Part::Bare];
}

/// The way in which a client commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Usual,
    /// Each row's mutation is a request of its own.
    EachAlone,
    /// Each row is read by a request of its own before it is locked.
    ReadFirst,
}

impl Bed {
    pub(super) async fn create(cells: usize) -> anyhow::Result<Self> {
        let server = Server::start("table", &["--durability", "buffered"])?;
        let address: Address = format!("bigtable://{}/bench/rpc", server.address()).parse()?;
        let store = Arc::new(GrpcStore::open(&address, ClientOptions::default()).await?);
        let db = Percolator::over(store.clone(), Options::over_network()).await?;
        let tables = [db.table("cells").await?, db.table(BARE).await?];
        let bare = store.bare_table(BARE)?;
        let options = ClientOptions { batches: false, ..ClientOptions::default() };
        let store = Arc::new(GrpcStore::open(&address, options).await?);
        let services = Services { store, ..db.services().clone() };
        let each_alone = open(services, Options::over_network()).await?;
        let options = Options { prewrite_in_one_request: false, ..Options::over_network() };
        let read_first = open(db.services().clone(), options).await?;
        let template = Template::open(db.services()).await?;
        let keys = (0..cells).map(key).collect();
        Ok(Bed { server, db, tables, each_alone, read_first, bare, template, keys })
    }

    /// Number of transactions that the clients have committed.
    pub(super) fn committed(&self) -> u64 {
        let clients = [&*self.db, &self.each_alone.0, &self.read_first.0];
        clients.into_iter().map(|client| client.stats().committed).sum()
    }

    /// The client with this form of commit, and its table.
    pub(super) fn client(&self, part: Part, form: Form) -> (&Client, &Table) {
        let (client, table) = match form {
            Form::Usual => return (&self.db, self.table(part)),
            Form::EachAlone => &self.each_alone,
            Form::ReadFirst => &self.read_first,
        };
        (client, table)
    }

    pub(super) fn table(&self, part: Part) -> &Table {
        &self.tables[part as usize]
    }
}

async fn open(services: Services, options: Options) -> anyhow::Result<(Client, Table)> {
    let client = Client::open(services, options).await?;
    let table = client.table("cells").await?;
    Ok((client, table))
}
