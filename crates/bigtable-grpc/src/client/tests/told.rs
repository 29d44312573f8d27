//! What the client does when answers do not come as they should: a server that plays what it is told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bigtable::{ConditionalMutation, Error, Family, Layout, LocalityGroup, Mutation, PageLimit};
use bigtable::{RowMutation, RowRange, Selection, Store, Table, TableSchema};
use bigtable::{TimeRange, Timestamp};
use tokio::net::TcpListener;
use tonic::codegen::BoxStream;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::client::{Address, ClientOptions, GrpcStore};
use crate::proto::admin;
use crate::proto::admin::app_profile::{
    MultiClusterRoutingUseAny, RoutingPolicy, SingleClusterRouting,
};
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
use crate::proto::extension::check_and_mutate_rows_response::Outcome;
use crate::proto::extension::extension_server::ExtensionServer;

pub(super) const FAMILY: Family = Family::from_static("f");

/// What is to be answered, and what was asked.
#[derive(Debug, Clone, Default)]
pub(super) struct Script(Arc<Mutex<Play>>);

#[derive(Debug, Default)]
pub(super) struct Play {
    /// For each read: its messages, and how the stream ends.
    reads: VecDeque<(Vec<data::ReadRowsResponse>, Option<Status>)>,
    /// For each mutation, conditional or not.
    pub(super) mutations: VecDeque<Result<bool, Status>>,
    /// Most entries of a batch; zero for a server without batches.
    pub(super) entries_max: u32,
    /// For each batch.
    pub(super) batches: VecDeque<Result<Vec<Outcome>, Status>>,
    /// The rows of each batch that was asked for.
    pub(super) batched: Vec<Vec<bytes::Bytes>>,
    profile: Option<RoutingPolicy>,
    gc_rule: Option<admin::GcRule>,
    asked: Vec<data::ReadRowsRequest>,
    pub(super) mutated: usize,
    headers: Vec<(String, String, bool)>,
}

impl Script {
    pub(super) fn play<T>(&self, with: impl FnOnce(&mut Play) -> T) -> T {
        with(&mut self.0.lock().unwrap())
    }

    pub(super) fn note<T>(&self, request: &Request<T>) {
        let header = |name| {
            let value = request.metadata().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let noted = (
            header("x-goog-request-params"),
            header("bigtable-features"),
            !header("grpc-timeout").is_empty(),
        );
        self.play(|play| play.headers.push(noted));
    }

    fn mutation(&self) -> Result<bool, Status> {
        self.play(|play| {
            play.mutated += 1;
            play.mutations.pop_front().unwrap_or(Ok(true))
        })
    }
}

#[tonic::async_trait]
impl Bigtable for Script {
    async fn read_rows(
        &self,
        request: Request<data::ReadRowsRequest>,
    ) -> Result<Response<BoxStream<data::ReadRowsResponse>>, Status> {
        self.note(&request);
        let (messages, end) = self.play(|play| {
            play.asked.push(request.into_inner());
            play.reads.pop_front().unwrap_or_default()
        });
        let messages = messages.into_iter().map(Ok).chain(end.map(Err));
        Ok(Response::new(Box::pin(futures::stream::iter(messages))))
    }

    async fn mutate_row(
        &self,
        request: Request<data::MutateRowRequest>,
    ) -> Result<Response<data::MutateRowResponse>, Status> {
        self.note(&request);
        self.mutation().map(|_| Response::new(data::MutateRowResponse {}))
    }

    async fn check_and_mutate_row(
        &self,
        request: Request<data::CheckAndMutateRowRequest>,
    ) -> Result<Response<data::CheckAndMutateRowResponse>, Status> {
        self.note(&request);
        let predicate_matched = self.mutation()?;
        Ok(Response::new(data::CheckAndMutateRowResponse { predicate_matched }))
    }
}

#[tonic::async_trait]
impl BigtableTableAdmin for Script {
    async fn get_table(
        &self,
        request: Request<admin::GetTableRequest>,
    ) -> Result<Response<admin::Table>, Status> {
        let gc_rule = self.play(|play| play.gc_rule.clone());
        let family = admin::ColumnFamily { gc_rule, ..Default::default() };
        let column_families = [("f".to_owned(), family)].into();
        let name = request.into_inner().name;
        Ok(Response::new(admin::Table { name, column_families, ..Default::default() }))
    }
}

#[tonic::async_trait]
impl BigtableInstanceAdmin for Script {
    async fn get_app_profile(
        &self,
        request: Request<admin::GetAppProfileRequest>,
    ) -> Result<Response<admin::AppProfile>, Status> {
        let single =
            SingleClusterRouting { allow_transactional_writes: true, ..Default::default() };
        let policy = self.play(|play| play.profile.clone());
        let routing_policy = policy.or(Some(RoutingPolicy::SingleClusterRouting(single)));
        let name = request.into_inner().name;
        Ok(Response::new(admin::AppProfile { name, routing_policy, ..Default::default() }))
    }
}

pub(super) async fn open(script: &Script) -> bigtable::Result<Arc<dyn Table>> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = tonic::transport::Server::builder()
        .add_service(BigtableServer::new(script.clone()))
        .add_service(ExtensionServer::new(script.clone()))
        .add_service(BigtableTableAdminServer::new(script.clone()))
        .add_service(BigtableInstanceAdminServer::new(script.clone()))
        .serve_with_incoming(TcpIncoming::from(listener));
    tokio::spawn(served);
    let address: Address = format!("bigtable://{address}/p/i").parse()?;
    let store = GrpcStore::open(&address, ClientOptions::default()).await?;
    let schema = TableSchema { groups: vec![LocalityGroup::on_disk("f", Layout::Versions)] };
    store.open_table("t", &schema).await
}

fn rows(keys: &[&'static str]) -> data::ReadRowsResponse {
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

fn scanned(key: &'static str) -> data::ReadRowsResponse {
    data::ReadRowsResponse { last_scanned_row_key: key.into(), ..Default::default() }
}

fn unavailable() -> Option<Status> {
    Some(Status::unavailable("the connection broke"))
}

async fn scan(table: &dyn Table) -> bigtable::Result<(String, usize)> {
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

/// Where each read began.
fn starts(script: &Script) -> Vec<String> {
    let start = |request: &data::ReadRowsRequest| {
        let range = &request.rows.as_ref().unwrap().row_ranges[0];
        format!("{:?}", range.start_key)
    };
    script.play(|play| play.asked.iter().map(start).collect())
}

#[tokio::test]
async fn a_broken_stream_goes_on_behind_the_last_row() {
    let script = Script::default();
    let table = open(&script).await.unwrap();
    script.play(|play| {
        play.reads.push_back((vec![], unavailable()));
        play.reads.push_back((vec![rows(&["a"]), rows(&["b"])], unavailable()));
        play.reads.push_back((vec![scanned("k")], unavailable()));
        play.reads.push_back((vec![rows(&["m"])], None));
    });
    assert_eq!(scan(&*table).await.unwrap(), ("abm".to_owned(), 2));
    let open = |key| format!(r#"Some(StartKeyOpen(b"{key}"))"#);
    assert_eq!(starts(&script), ["None".to_owned(), "None".to_owned(), open("b"), open("k")]);
}

#[tokio::test]
async fn a_read_is_repeated_a_few_times_and_only_if_that_may_help() {
    let script = Script::default();
    let table = open(&script).await.unwrap();
    script.play(|play| play.reads.extend((0..20).map(|_| (vec![], unavailable()))));
    assert!(matches!(scan(&*table).await, Err(Error::Unavailable { .. })));
    assert_eq!(script.play(|play| play.asked.len()), 6);
    script.play(|play| {
        play.reads = [(vec![], Some(Status::invalid_argument("no such thing")))].into();
        play.asked.clear();
    });
    assert!(matches!(scan(&*table).await, Err(Error::InvalidRequest(_))));
    assert_eq!(script.play(|play| play.asked.len()), 1);
}

#[tokio::test]
async fn a_stream_that_breaks_its_rules_is_no_answer() {
    let script = Script::default();
    let table = open(&script).await.unwrap();
    let mut half = rows(&["a"]);
    half.chunks[0].row_status = None;
    for bad in [half, rows(&["b", "a"]), rows(&["a", "a"])] {
        script.play(|play| play.reads.push_back((vec![bad], None)));
        let (keys, _) = scan(&*table).await.unwrap_or_default();
        assert!(keys.len() < 2, "{keys}");
    }
}

#[tokio::test]
async fn a_conditional_mutation_is_sent_once() {
    let script = Script::default();
    let table = open(&script).await.unwrap();
    let set = || Mutation::set(FAMILY, "q", Timestamp::ZERO, "v");
    let request =
        || ConditionalMutation { otherwise: vec![set()], ..ConditionalMutation::new("r") };
    for (status, unknown) in [
        (Status::unavailable("?"), true),
        (Status::deadline_exceeded("?"), true),
        (Status::aborted("?"), true),
        (Status::internal("?"), true),
        (Status::unknown("?"), true),
        (Status::cancelled("?"), true),
        (Status::resource_exhausted("too much"), false),
        (Status::invalid_argument("no"), false),
        (Status::not_found("no"), false),
    ] {
        let code = status.code();
        script.play(|play| {
            play.mutations = [Err(status), Ok(true)].into();
            play.mutated = 0;
        });
        let outcome = table.check_and_mutate_row(request()).await;
        let is_unknown = matches!(outcome, Err(Error::Unknown { .. }));
        assert!(outcome.is_err() && is_unknown == unknown, "{code:?}: {outcome:?}");
        assert_eq!(script.play(|play| play.mutated), 1, "{code:?}");
    }
    script.play(|play| play.mutations = [Ok(false), Ok(true), Ok(false)].into());
    let outcomes = table.check_and_mutate_rows(vec![request(), request(), request()]).await;
    assert!(outcomes.iter().all(Result::is_ok));
}

#[tokio::test]
async fn a_mutation_that_names_its_times_is_repeated() {
    let script = Script::default();
    let table = open(&script).await.unwrap();
    let set = Mutation::set(FAMILY, "q", Timestamp::ZERO, "v");
    let request = || RowMutation::new("r").mutation(set.clone());
    let lost = || Err(Status::unavailable("?"));
    script.play(|play| play.mutations = [lost(), lost(), Ok(true)].into());
    table.mutate_row(request()).await.unwrap();
    assert_eq!(script.play(|play| play.mutated), 3);
    // What may have been applied stays unknown, whatever is answered later.
    script.play(|play| play.mutations = [lost(), Err(Status::not_found("gone"))].into());
    let outcome = table.mutate_row(request()).await;
    assert!(matches!(outcome, Err(Error::Unknown { .. })), "{outcome:?}");
    script.play(|play| play.mutations = [Err(Status::not_found("gone"))].into());
    let outcome = table.mutate_row(request()).await;
    assert!(matches!(outcome, Err(Error::InvalidRequest(_))), "{outcome:?}");
}

#[tokio::test]
async fn requests_carry_their_headers_and_deadlines() {
    let script = Script::default();
    let table = open(&script).await.unwrap();
    scan(&*table).await.unwrap();
    let otherwise = vec![Mutation::set(FAMILY, "q", Timestamp::ZERO, "v")];
    let request = ConditionalMutation { otherwise, ..ConditionalMutation::new("r") };
    table.check_and_mutate_row(request).await.unwrap();
    let headers = script.play(|play| play.headers.clone());
    let params = "table_name=projects%2Fp%2Finstances%2Fi%2Ftables%2Ft&app_profile_id=default";
    assert!(!headers.is_empty());
    for (routing, features, deadline) in headers {
        assert_eq!((routing.as_str(), features.is_empty(), deadline), (params, false, true));
    }
}

#[tokio::test]
async fn tables_that_lose_data_are_refused() {
    let script = Script::default();
    let rule = admin::GcRule { rule: Some(admin::gc_rule::Rule::MaxNumVersions(1)) };
    script.play(|play| play.gc_rule = Some(rule));
    let refused = open(&script).await.unwrap_err().to_string();
    assert!(
        refused.contains("garbage collection rule") && refused.contains("remove it"),
        "{refused}"
    );

    let script = Script::default();
    let several = RoutingPolicy::MultiClusterRoutingUseAny(MultiClusterRoutingUseAny::default());
    script.play(|play| play.profile = Some(several));
    let refused = open(&script).await.unwrap_err().to_string();
    assert!(refused.contains("several clusters"), "{refused}");
    let single = RoutingPolicy::SingleClusterRouting(SingleClusterRouting::default());
    script.play(|play| play.profile = Some(single));
    let refused = open(&script).await.unwrap_err().to_string();
    assert!(refused.contains("single-row transactions"), "{refused}");
}

#[tokio::test]
async fn nobody_there_is_no_unknown_outcome() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let address: Address = format!("bigtable://{address}/p/i").parse().unwrap();
    let outcome = GrpcStore::open(&address, ClientOptions::default()).await;
    assert!(matches!(outcome, Err(Error::Unavailable { .. })), "{outcome:?}");
}
