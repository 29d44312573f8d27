//! Records the requests of transactions instead of sending them.

use std::sync::{Arc, Mutex};

use anyhow::Context;
use bigtable::layer::{StoreLayer, TableLayer};
use bigtable::sync::locked;
use bigtable::{ConditionalMutation, Glance, Glanced, MemoryStore, Row, Selection, Store};
use percolator::runtime::Services;
use percolator::{Bytes, Client, Options, RowKey, Table};

use super::super::bed::COLUMN;
use super::bed::BARE;

/// A client with a store of its own, whose requests are recorded.
#[derive(Debug)]
pub(super) struct Template {
    client: Client,
    table: Table,
    noted: Arc<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    conditional: Mutex<Vec<ConditionalMutation>>,
    reads: Mutex<Vec<Selection>>,
}

impl Template {
    /// Opens a client with these services, except for the store.
    pub(super) async fn open(services: &Services) -> anyhow::Result<Self> {
        let noted = Arc::new(Noted::default());
        let store = Recorder { store: MemoryStore::new(), noted: noted.clone() };
        let services = Services { store: Arc::new(store), ..services.clone() };
        let client = Client::open(services, Options::default()).await?;
        let table = client.table(BARE).await?;
        Ok(Template { client, table, noted })
    }

    /// The requests of a transaction that writes one cell: prewrite and commit.
    pub(super) async fn commit(
        &self,
        row: &RowKey,
        value: Bytes,
    ) -> anyhow::Result<[ConditionalMutation; 2]> {
        let mut tx = self.client.begin().await?;
        tx.set(&self.table, row, &COLUMN, value)?;
        tx.commit().await?;
        let noted = std::mem::take(&mut *locked(&self.noted.conditional));
        noted.try_into().ok().context("a transaction on one cell has two requests")
    }

    /// The selection of a read of a cell as of now.
    pub(super) async fn read(&self) -> anyhow::Result<Selection> {
        self.client.snapshot().await?.get(&self.table, "any", &COLUMN).await?;
        let noted: Result<[Selection; 1], _> =
            std::mem::take(&mut *locked(&self.noted.reads)).try_into();
        let [selection] = noted.ok().context("a read of one cell has one request")?;
        Ok(selection)
    }
}

/// A store in memory that reports the properties of one behind the API, so that clients make
/// the same requests.
#[derive(Debug)]
struct Recorder {
    store: MemoryStore,
    noted: Arc<Noted>,
}

impl StoreLayer for Recorder {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn table(&self, table: Arc<dyn bigtable::Table>) -> Arc<dyn bigtable::Table> {
        let noted = if table.name() == BARE { self.noted.clone() } else { Arc::default() };
        Arc::new(Recorded { table, noted })
    }

    fn commits_rows(&self) -> bool {
        false
    }

    fn locality_groups(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct Recorded {
    table: Arc<dyn bigtable::Table>,
    noted: Arc<Noted>,
}

impl TableLayer for Recorded {
    fn inner(&self) -> &dyn bigtable::Table {
        &*self.table
    }

    async fn read_row(&self, row: &RowKey, select: &Selection) -> bigtable::Result<Row> {
        locked(&self.noted.reads).push(select.clone());
        self.table.read_row(row, select).await
    }

    fn glance(&self, _: Glance<'_>) -> bigtable::Result<Glanced> {
        Ok(Glanced::Nothing)
    }

    async fn check_and_mutate_row(&self, request: ConditionalMutation) -> bigtable::Result<bool> {
        locked(&self.noted.conditional).push(request.clone());
        self.table.check_and_mutate_row(request).await
    }

    async fn check_and_mutate_rows(
        &self,
        requests: Vec<ConditionalMutation>,
    ) -> Vec<bigtable::Result<bool>> {
        locked(&self.noted.conditional).extend_from_slice(&requests);
        self.table.check_and_mutate_rows(requests).await
    }
}
