//! Provides the server and the clients of `percolator-bench micro rpc`.
//!
//! ```text
//!   cells   the table that transactions write
//!   bare    the table that bare requests write. `record` takes these requests from transactions
//!           on a store in memory, whose timestamps come from the same oracle
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
    /// The client without batches, with its handle of the transactions' table.
    each_alone: (Client, Table),
    pub(super) bare: BareTable,
    pub(super) template: Template,
    pub(super) keys: Vec<RowKey>,
}

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
        let alone = Client::open(services, Options::over_network()).await?;
        let table = alone.table("cells").await?;
        let each_alone = (alone, table);
        let template = Template::open(db.services()).await?;
        let keys = (0..cells).map(key).collect();
        Ok(Bed { server, db, tables, each_alone, bare, template, keys })
    }

    pub(super) fn committed(&self) -> u64 {
        self.db.stats().committed + self.each_alone.0.stats().committed
    }

    /// The client with this form of commit, and its table.
    pub(super) fn client(&self, part: Part, form: Form) -> (&Client, &Table) {
        match form {
            Form::Usual => (&self.db, self.table(part)),
            Form::EachAlone => (&self.each_alone.0, &self.each_alone.1),
        }
    }

    pub(super) fn table(&self, part: Part) -> &Table {
        &self.tables[part as usize]
    }
}
