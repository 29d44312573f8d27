//! Implements a server with scripted answers.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigtable::{Family, Layout, LocalityGroup, PageLimit, RowRange, Selection, Store, Table};
use bigtable::{TableSchema, TimeRange};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tonic::codegen::BoxStream;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::client::{Address, ClientOptions, GrpcStore};
use crate::families::entries;
use crate::proto::admin;
use crate::proto::admin::app_profile::{RoutingPolicy, SingleClusterRouting};
use crate::proto::admin::bigtable_instance_admin_server::{
    BigtableInstanceAdmin, BigtableInstanceAdminServer,
};
use crate::proto::admin::bigtable_table_admin_server::{
    BigtableTableAdmin, BigtableTableAdminServer,
};
use crate::proto::data;
use crate::proto::data::bigtable_server::{Bigtable, BigtableServer};
use crate::proto::data::read_rows_response::CellChunk;
use crate::proto::data::read_rows_response::cell_chunk::RowStatus;
use crate::proto::extension::ReadEachResponse;
use crate::proto::extension::check_and_mutate_rows_response::Outcome;
use crate::proto::extension::extension_server::ExtensionServer;

/// Longest time for a request in these tests: long for a loopback connection, short for a
/// stalled one.
pub(super) const DEADLINE: Duration = Duration::from_secs(2);
pub(super) const FAMILY: Family = Family::from_static("f");

/// The answers to give, and the requests received.
#[derive(Debug, Clone, Default)]
pub(super) struct Script(Arc<Mutex<Play>>);

/// The answer to a read: its messages, and the end of the stream.
pub(super) type Read = (Vec<data::ReadRowsResponse>, End);

/// The answer to several reads in one request: the same, or a refusal.
pub(super) type Each = Result<(Vec<ReadEachResponse>, End), Status>;

/// The end of a stream.
#[derive(Debug, Default)]
pub(super) enum End {
    #[default]
    Well,
    With(Status),
    /// The stream stalls without an end.
    Stalls,
}

#[derive(Debug, Default)]
pub(super) struct Play {
    pub(super) reads: VecDeque<Read>,
    /// Answers to mutations, conditional or not.
    pub(super) mutations: VecDeque<Result<bool, Status>>,
    /// If set, the server does not say what it takes.
    pub(super) describe: Option<Status>,
    /// Most entries of a batch; zero for a server without batches.
    pub(super) entries_max: u32,
    /// Answers to batches.
    pub(super) batches: VecDeque<Result<Vec<Outcome>, Status>>,
    /// A batch with the row `held` is answered once this has a permit.
    pub(super) held: Option<Arc<Semaphore>>,
    /// The rows of each batch received.
    pub(super) batched: Vec<Vec<bytes::Bytes>>,
    /// Most reads in one request; zero for a server without that extension.
    pub(super) reads_max: u32,
    /// The table and the row of each entry of each such request.
    pub(super) named: Vec<String>,
    /// Answers to requests for several reads. Without one, each read finds its row.
    pub(super) each: VecDeque<Each>,
    /// The rows of each such request received.
    pub(super) each_asked: Vec<Vec<bytes::Bytes>>,
    /// Keys for each request for samples.
    pub(super) samples: VecDeque<(Vec<&'static str>, End)>,
    /// If set, mutations get no answer.
    pub(super) deaf: bool,
    pub(super) profile: Option<RoutingPolicy>,
    /// If set, the profile is not shown.
    pub(super) profile_hidden: Option<Status>,
    pub(super) ping: Option<Status>,
    pub(super) families: Option<Vec<(&'static str, admin::ColumnFamily)>>,
    pub(super) may_not_change: bool,
    pub(super) asked: Vec<data::ReadRowsRequest>,
    pub(super) mutated: usize,
    /// The connections over which pings arrived.
    pub(super) pinged: Vec<SocketAddr>,
    pub(super) headers: Vec<Headers>,
}

/// The headers of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Headers {
    pub(super) method: &'static str,
    pub(super) routing: String,
    pub(super) features: String,
    pub(super) deadline: String,
    pub(super) authorization: String,
}

impl Script {
    pub(super) fn play<T>(&self, with: impl FnOnce(&mut Play) -> T) -> T {
        with(&mut self.0.lock().unwrap())
    }

    fn note<T>(&self, method: &'static str, request: &Request<T>) {
        let header = |name| {
            let value = request.metadata().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let noted = Headers {
            method,
            routing: header("x-goog-request-params"),
            features: header("bigtable-features"),
            deadline: header("grpc-timeout"),
            authorization: header("authorization"),
        };
        self.play(|play| play.headers.push(noted));
    }

    async fn mutation(&self) -> Result<bool, Status> {
        let (deaf, answer) = self.play(|play| {
            play.mutated += 1;
            (play.deaf, play.mutations.pop_front().unwrap_or(Ok(true)))
        });
        if deaf {
            std::future::pending::<()>().await;
        }
        answer
    }
}

/// A stream with this end.
pub(super) fn stream<T: Send + 'static>(messages: Vec<T>, end: End) -> Response<BoxStream<T>> {
    use futures::stream::{StreamExt, iter, pending};
    let messages = iter(messages.into_iter().map(Ok));
    Response::new(match end {
        End::Well => Box::pin(messages),
        End::With(status) => Box::pin(messages.chain(iter([Err(status)]))),
        End::Stalls => Box::pin(messages.chain(pending())),
    })
}

#[tonic::async_trait]
impl Bigtable for Script {
    async fn read_rows(
        &self,
        request: Request<data::ReadRowsRequest>,
    ) -> Result<Response<BoxStream<data::ReadRowsResponse>>, Status> {
        self.note("read_rows", &request);
        let (messages, end) = self.play(|play| {
            play.asked.push(request.into_inner());
            play.reads.pop_front().unwrap_or_default()
        });
        Ok(stream(messages, end))
    }

    async fn sample_row_keys(
        &self,
        request: Request<data::SampleRowKeysRequest>,
    ) -> Result<Response<BoxStream<data::SampleRowKeysResponse>>, Status> {
        self.note("sample_row_keys", &request);
        let (keys, end) = self.play(|play| play.samples.pop_front().unwrap_or_default());
        let sample = |key: &str| data::SampleRowKeysResponse {
            row_key: key.to_owned().into(),
            ..Default::default()
        };
        Ok(stream(keys.into_iter().map(sample).collect(), end))
    }

    async fn ping_and_warm(
        &self,
        request: Request<data::PingAndWarmRequest>,
    ) -> Result<Response<data::PingAndWarmResponse>, Status> {
        self.note("ping_and_warm", &request);
        let peer = request.remote_addr().unwrap();
        let refused = self.play(|play| {
            play.pinged.push(peer);
            play.ping.clone()
        });
        refused.map_or(Ok(Response::new(data::PingAndWarmResponse {})), Err)
    }

    async fn mutate_row(
        &self,
        request: Request<data::MutateRowRequest>,
    ) -> Result<Response<data::MutateRowResponse>, Status> {
        self.note("mutate_row", &request);
        self.mutation().await.map(|_| Response::new(data::MutateRowResponse {}))
    }

    async fn check_and_mutate_row(
        &self,
        request: Request<data::CheckAndMutateRowRequest>,
    ) -> Result<Response<data::CheckAndMutateRowResponse>, Status> {
        self.note("check_and_mutate_row", &request);
        let predicate_matched = self.mutation().await?;
        Ok(Response::new(data::CheckAndMutateRowResponse { predicate_matched }))
    }
}

#[tonic::async_trait]
impl BigtableTableAdmin for Script {
    async fn get_table(
        &self,
        request: Request<admin::GetTableRequest>,
    ) -> Result<Response<admin::Table>, Status> {
        self.note("get_table", &request);
        let families = self.play(|play| play.families.clone());
        let families = families.unwrap_or_else(|| vec![("f", admin::ColumnFamily::default())]);
        let column_families =
            entries(families.into_iter().map(|(name, family)| (name.to_owned(), family)));
        let name = request.into_inner().name;
        Ok(Response::new(admin::Table { name, column_families, ..Default::default() }))
    }

    async fn list_tables(
        &self,
        request: Request<admin::ListTablesRequest>,
    ) -> Result<Response<admin::ListTablesResponse>, Status> {
        self.note("list_tables", &request);
        let parent = request.into_inner().parent;
        let table =
            |id: &str| admin::Table { name: format!("{parent}/tables/{id}"), ..Default::default() };
        let tables = ["t", "percolator.meta"].map(table).to_vec();
        Ok(Response::new(admin::ListTablesResponse { tables, ..Default::default() }))
    }

    async fn modify_column_families(
        &self,
        request: Request<admin::ModifyColumnFamiliesRequest>,
    ) -> Result<Response<admin::Table>, Status> {
        self.note("modify_column_families", &request);
        if self.play(|play| play.may_not_change) {
            return Err(Status::permission_denied("bigtable.tables.update is missing"));
        }
        self.play(|play| play.families = None);
        Ok(Response::new(admin::Table::default()))
    }
}

#[tonic::async_trait]
impl BigtableInstanceAdmin for Script {
    async fn get_app_profile(
        &self,
        request: Request<admin::GetAppProfileRequest>,
    ) -> Result<Response<admin::AppProfile>, Status> {
        self.note("get_app_profile", &request);
        if let Some(status) = self.play(|play| play.profile_hidden.clone()) {
            return Err(status);
        }
        let single =
            SingleClusterRouting { allow_transactional_writes: true, ..Default::default() };
        let policy = self.play(|play| play.profile.clone());
        let routing_policy = policy.or(Some(RoutingPolicy::SingleClusterRouting(single)));
        let name = request.into_inner().name;
        Ok(Response::new(admin::AppProfile { name, routing_policy, ..Default::default() }))
    }
}

impl Script {
    /// Serves the script, and returns the server's address.
    pub(super) async fn serve(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = tonic::transport::Server::builder()
            .add_service(BigtableServer::new(self.clone()))
            .add_service(ExtensionServer::new(self.clone()))
            .add_service(BigtableTableAdminServer::new(self.clone()))
            .add_service(BigtableInstanceAdminServer::new(self.clone()))
            .serve_with_incoming(TcpIncoming::from(listener));
        tokio::spawn(served);
        address
    }

    /// The headers of the requests for a method.
    pub(super) fn headers_of(&self, method: &str) -> Vec<Headers> {
        self.play(|play| play.headers.iter().filter(|h| h.method == method).cloned().collect())
    }
}

/// Opens the script's table, behind a client with a short deadline.
pub(super) async fn open(script: &Script) -> bigtable::Result<Arc<dyn Table>> {
    let options = ClientOptions { deadline: DEADLINE, ..ClientOptions::default() };
    open_with(script, options).await
}

pub(super) async fn open_with(
    script: &Script,
    options: ClientOptions,
) -> bigtable::Result<Arc<dyn Table>> {
    let address: Address = format!("bigtable://{}/p/i", script.serve().await).parse()?;
    table_of(&GrpcStore::open(&address, options).await?).await
}

pub(super) async fn table_of(store: &GrpcStore) -> bigtable::Result<Arc<dyn Table>> {
    let schema = TableSchema { groups: vec![LocalityGroup::on_disk("f", Layout::Versions)] };
    store.open_table("t", &schema).await
}

pub(super) fn rows(keys: &[&'static str]) -> data::ReadRowsResponse {
    let chunk = |key: &&'static str| CellChunk {
        row_key: (*key).into(),
        family_name: Some("f".to_owned()),
        qualifier: Some(b"q".to_vec()),
        timestamp_micros: 1000,
        row_status: Some(RowStatus::CommitRow(true)),
        ..Default::default()
    };
    data::ReadRowsResponse { chunks: keys.iter().map(chunk).collect(), ..Default::default() }
}

pub(super) fn scanned(key: &'static str) -> data::ReadRowsResponse {
    data::ReadRowsResponse { last_scanned_row_key: key.into(), ..Default::default() }
}

pub(super) fn unavailable() -> End {
    End::With(Status::unavailable("the connection broke"))
}

pub(super) async fn scan(table: &dyn Table) -> bigtable::Result<(String, usize)> {
    let select = Selection::default().family(FAMILY, TimeRange::ALL, 1);
    let (mut next, mut keys, mut pages) = (Some(RowRange::all()), String::new(), 0);
    while let Some(range) = next {
        let page = table.scan(&range, &select, PageLimit::default()).await?;
        page.rows.iter().for_each(|row| keys.push_str(&row.key.to_string()));
        next = page.resume;
        pages += 1;
    }
    Ok((keys, pages))
}
