//! Runs oracle processes over one store in memory, which can be cut off from each process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bigtable::layer::{StoreLayer, TableLayer};
use bigtable::{
    ConditionalMutation, Glance, Glanced, MemoryStore, Page, PageLimit, Row, RowKey, RowMutation,
    RowRange, Selection, Store, Table, TableSchema,
};
use percolator::cluster::{OracleNode, OracleOptions, OracleRole, WindowOracle};
use percolator::runtime::TokioRuntime;
use percolator_rpc::Address;
use percolator_rpc::oracle::{
    OracleServer, OracleServerOptions, RemoteOracle, RemoteOracleOptions,
};
use tokio::net::TcpListener;

/// An oracle process, and the switch that cuts it off from the store.
pub(crate) struct Process {
    pub(crate) server: OracleServer,
    pub(crate) cut: Arc<AtomicBool>,
}

impl Process {
    pub(crate) fn address(&self) -> Address {
        self.server.address().into()
    }

    /// Waits until this process leads.
    pub(crate) async fn leads(&self) -> Arc<WindowOracle> {
        loop {
            match self.server.node().role() {
                OracleRole::Leads(oracle) => return oracle,
                OracleRole::StandsBy { .. } => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    }
}

pub(crate) async fn start(store: &Arc<MemoryStore>) -> Process {
    start_with(store, OracleServerOptions::default()).await
}

pub(crate) async fn start_with(store: &Arc<MemoryStore>, options: OracleServerOptions) -> Process {
    let cut = Arc::new(AtomicBool::new(false));
    let store = Arc::new(CutStore { inner: store.clone(), cut: cut.clone() });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let node = OracleOptions { address, window: 100_000 };
    let node = OracleNode::new(store, Arc::new(TokioRuntime::current()), node).unwrap();
    let server = OracleServer::start(Arc::new(node), listener, options).unwrap();
    Process { server, cut }
}

pub(crate) fn client(addresses: impl IntoIterator<Item = Address>) -> RemoteOracle {
    RemoteOracle::new(addresses.into_iter().collect(), RemoteOracleOptions::default()).unwrap()
}

/// A store that can be made unreachable for one process.
#[derive(Debug)]
struct CutStore {
    inner: Arc<MemoryStore>,
    cut: Arc<AtomicBool>,
}

#[derive(Debug)]
struct CutTable {
    inner: Arc<dyn Table>,
    cut: Arc<AtomicBool>,
}

fn check(cut: &AtomicBool) -> bigtable::Result<()> {
    if cut.load(Ordering::SeqCst) {
        Err(bigtable::Error::Unavailable { why: "cut off".to_owned() })
    } else {
        Ok(())
    }
}

impl StoreLayer for CutStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn open_table(
        &self,
        name: &str,
        schema: &TableSchema,
    ) -> bigtable::Result<Arc<dyn Table>> {
        check(&self.cut)?;
        let inner = self.inner.open_table(name, schema).await?;
        Ok(Arc::new(CutTable { inner, cut: self.cut.clone() }))
    }
}

impl TableLayer for CutTable {
    fn inner(&self) -> &dyn Table {
        &*self.inner
    }

    async fn read_row(&self, row: &RowKey, select: &Selection) -> bigtable::Result<Row> {
        check(&self.cut)?;
        self.inner.read_row(row, select).await
    }

    async fn read_rows(&self, rows: &[RowKey], select: &Selection) -> bigtable::Result<Vec<Row>> {
        check(&self.cut)?;
        self.inner.read_rows(rows, select).await
    }

    fn glance(&self, at: Glance<'_>) -> bigtable::Result<Glanced> {
        check(&self.cut)?;
        self.inner.glance(at)
    }

    async fn scan(
        &self,
        range: &RowRange,
        select: &Selection,
        limit: PageLimit,
    ) -> bigtable::Result<Page> {
        check(&self.cut)?;
        self.inner.scan(range, select, limit).await
    }

    async fn mutate_row(&self, request: RowMutation) -> bigtable::Result<()> {
        check(&self.cut)?;
        self.inner.mutate_row(request).await
    }

    async fn check_and_mutate_row(&self, request: ConditionalMutation) -> bigtable::Result<bool> {
        check(&self.cut)?;
        self.inner.check_and_mutate_row(request).await
    }

    async fn check_and_mutate_rows(
        &self,
        requests: Vec<ConditionalMutation>,
    ) -> Vec<bigtable::Result<bool>> {
        match check(&self.cut) {
            Ok(()) => self.inner.check_and_mutate_rows(requests).await,
            Err(error) => vec![Err(error); requests.len()],
        }
    }
}
