//! Implements the service google.bigtable.v2.Bigtable. The parts that it lacks answer
//! UNIMPLEMENTED: SQL queries, change streams, authorized and materialized views.

use std::pin::Pin;
use std::sync::Arc;

use base64::Engine;
use futures::Stream;
use prost::Message;
use tonic::{Request, Response, Status};

use super::deadline::Deadline;
use super::tables::Tables;
use super::{check, limits, modify, mutate, names, read_rows, sample};
use crate::proto::data::bigtable_server::Bigtable;
use crate::proto::data::{
    CheckAndMutateRowRequest, CheckAndMutateRowResponse, FeatureFlags, MutateRowRequest,
    MutateRowResponse, MutateRowsRequest, MutateRowsResponse, PingAndWarmRequest,
    PingAndWarmResponse, ReadModifyWriteRowRequest, ReadModifyWriteRowResponse, ReadRowsRequest,
    ReadRowsResponse, SampleRowKeysRequest, SampleRowKeysResponse,
};
use crate::syncing;

/// Most entries in one message of MutateRows.
const ENTRIES_MAX: usize = 10_000;
/// The header with the features that a client understands.
const FEATURES: &str = "bigtable-features";

/// The service.
#[derive(Debug)]
pub(crate) struct Data(pub(crate) Arc<Tables>);

type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Bigtable for Data {
    async fn read_rows(
        &self,
        request: Request<ReadRowsRequest>,
    ) -> Result<Response<Messages<ReadRowsResponse>>, Status> {
        let features = features(&request);
        let request = request.into_inner();
        no_view(&request.authorized_view_name)?;
        no_view(&request.materialized_view_name)?;
        let tells_scanned = features.last_scanned_row_responses;
        let stream = read_rows::stream(&self.0, request, tells_scanned).await?;
        Ok(Response::new(Box::pin(stream)))
    }

    async fn sample_row_keys(
        &self,
        request: Request<SampleRowKeysRequest>,
    ) -> Result<Response<Messages<SampleRowKeysResponse>>, Status> {
        let request = request.into_inner();
        no_view(&request.authorized_view_name)?;
        no_view(&request.materialized_view_name)?;
        Ok(messages(sample::keys(&self.0, request).await?))
    }

    async fn mutate_row(
        &self,
        request: Request<MutateRowRequest>,
    ) -> Result<Response<MutateRowResponse>, Status> {
        let (deadline, sync) = (Deadline::of(&request), syncing::of(&request));
        let request = request.into_inner();
        no_view(&request.authorized_view_name)?;
        mutate::row(&self.0, request, deadline, sync).await?;
        Ok(Response::new(MutateRowResponse {}))
    }

    async fn mutate_rows(
        &self,
        request: Request<MutateRowsRequest>,
    ) -> Result<Response<Messages<MutateRowsResponse>>, Status> {
        let deadline = Deadline::of(&request);
        let request = request.into_inner();
        no_view(&request.authorized_view_name)?;
        let entries = mutate::rows(&self.0, request, deadline).await?;
        let message =
            |entries: &[_]| MutateRowsResponse { entries: entries.to_vec(), rate_limit_info: None };
        Ok(messages(entries.chunks(ENTRIES_MAX).map(message).collect()))
    }

    async fn check_and_mutate_row(
        &self,
        request: Request<CheckAndMutateRowRequest>,
    ) -> Result<Response<CheckAndMutateRowResponse>, Status> {
        let (deadline, sync) = (Deadline::of(&request), syncing::of(&request));
        let request = request.into_inner();
        no_view(&request.authorized_view_name)?;
        let predicate_matched = check::row(&self.0, request, deadline, sync).await?;
        Ok(Response::new(CheckAndMutateRowResponse { predicate_matched }))
    }

    async fn ping_and_warm(
        &self,
        request: Request<PingAndWarmRequest>,
    ) -> Result<Response<PingAndWarmResponse>, Status> {
        names::check_instance(&request.into_inner().name)?;
        Ok(Response::new(PingAndWarmResponse {}))
    }

    async fn read_modify_write_row(
        &self,
        request: Request<ReadModifyWriteRowRequest>,
    ) -> Result<Response<ReadModifyWriteRowResponse>, Status> {
        let deadline = Deadline::of(&request);
        let request = request.into_inner();
        no_view(&request.authorized_view_name)?;
        let row = modify::row(&self.0, request, deadline).await?;
        Ok(Response::new(ReadModifyWriteRowResponse { row: Some(row) }))
    }
}

/// The service with its limits.
pub(crate) fn service(
    tables: Arc<Tables>,
) -> crate::proto::data::bigtable_server::BigtableServer<Data> {
    crate::proto::data::bigtable_server::BigtableServer::new(Data(tables))
        .max_decoding_message_size(limits::REQUEST_BYTES_MAX)
}

fn messages<T: Send + 'static>(all: Vec<T>) -> Response<Messages<T>> {
    Response::new(Box::pin(futures::stream::iter(all.into_iter().map(Ok))))
}

fn no_view(name: &str) -> Result<(), Status> {
    if name.is_empty() {
        return Ok(());
    }
    Err(Status::unimplemented(format!("view {name}: this server has no views, name a table")))
}

/// The features that the client reports; none if the header is missing or damaged.
fn features<T>(request: &Request<T>) -> FeatureFlags {
    let header = request.metadata().get(FEATURES).and_then(|value| value.to_str().ok());
    let decoded = header.and_then(|text| {
        let text = text.trim_end_matches('=');
        let web = &base64::engine::general_purpose::URL_SAFE_NO_PAD;
        let plain = &base64::engine::general_purpose::STANDARD_NO_PAD;
        web.decode(text).or_else(|_| plain.decode(text)).ok()
    });
    decoded.and_then(|bytes| FeatureFlags::decode(&*bytes).ok()).unwrap_or_default()
}
