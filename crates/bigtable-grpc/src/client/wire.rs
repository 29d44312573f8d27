//! Builds a table's requests in the form of the API, and sends them.

use std::ops::{Bound, Deref};
use std::sync::Arc;

use bigtable::{ConditionalMutation, Mutation, PageLimit, RequestSize, Result, Row, RowKey};
use bigtable::{RowRange, TableSchema, TimeRange};
use tonic::Status;
use tonic::metadata::{Ascii, MetadataValue};

use super::channel::Channels;
use super::filter;
use super::gather::Gather;
use super::limits::Limits;
use super::merge::Merger;
use super::read::Read;
use super::retry::{once, repeat};
use super::status::{of_mutation, of_read};
use crate::filter::FILTER_BYTES_MAX;
use crate::proto::data::mutation::{DeleteFromColumn, Mutation as Wire, SetCell};
use crate::proto::data::row_range::{EndKey, StartKey};
use crate::proto::data::{
    self, CheckAndMutateRowRequest, ReadRowsRequest, RowFilter, RowSet, TimestampRange,
};
use crate::{syncing, time};

/// Most requests of one batch in flight at a time.
pub(super) const IN_FLIGHT_MAX: usize = 64;
/// Most mutations that the API takes in one request.
pub(super) const MUTATIONS_MAX: usize = 100_000;
/// Largest request, in bytes. Every server of the API takes a cell of this size with its
/// envelope.
const REQUEST_BYTES_MAX: usize = 100 << 20;
/// The limits of requests that the client sends.
pub(super) const LIMITS: bigtable::Limits = bigtable::Limits {
    row_key_bytes_max: bigtable::ROW_KEY_BYTES_MAX,
    qualifier_bytes_max: bigtable::QUALIFIER_BYTES_MAX,
    value_bytes_max: bigtable::VALUE_BYTES_MAX,
    mutations_max: Some(MUTATIONS_MAX),
    request_bytes_max: Some(REQUEST_BYTES_MAX),
    predicate_bytes_max: Some(FILTER_BYTES_MAX),
};
/// A table of a [`GrpcStore`](super::GrpcStore). A clone is the same table.
#[derive(Debug, Clone)]
pub(crate) struct GrpcTable(Arc<Parts>);

/// The parts of a table.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) channels: Arc<Channels>,
    pub(crate) name: String,
    /// `projects/P/instances/I/tables/T`
    pub(crate) path: String,
    pub(crate) app_profile: String,
    pub(crate) routing: MetadataValue<Ascii>,
    pub(crate) schema: TableSchema,
    pub(crate) limits: Limits,
    pub(super) gathers: Gathers,
}

impl From<Parts> for GrpcTable {
    fn from(parts: Parts) -> Self {
        GrpcTable(Arc::new(parts))
    }
}

impl Deref for GrpcTable {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// The queues in which requests of all tables wait for others; `None` if they do not wait.
#[derive(Debug, Clone)]
pub(super) struct Gathers {
    pub(super) mutations: Option<Arc<Gather<ConditionalMutation>>>,
    pub(super) reads: Option<Arc<Gather<Read>>>,
}

/// The result of one attempt at a read.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) rows: Vec<Row>,
    pub(super) bytes: usize,
    /// The last row that the server reports as scanned, if any.
    pub(super) scanned: Option<RowKey>,
    /// True if the page is full.
    pub(super) full: bool,
}

impl GrpcTable {
    pub(super) fn read_request(
        &self,
        rows: RowSet,
        filter: RowFilter,
        rows_max: usize,
    ) -> ReadRowsRequest {
        ReadRowsRequest {
            table_name: self.path.clone(),
            app_profile_id: self.app_profile.clone(),
            rows: Some(rows),
            filter: Some(filter),
            rows_limit: i64::try_from(rows_max.max(1)).unwrap_or(0),
            ..ReadRowsRequest::default()
        }
    }

    pub(super) fn conditional_request(
        &self,
        request: &ConditionalMutation,
    ) -> Result<CheckAndMutateRowRequest> {
        request.check(&self.schema)?;
        // The predicate's bound applies to the length of its filter, which `of_predicate`
        // checks.
        LIMITS.check(RequestSize { predicate_bytes: 0, ..request.size() })?;
        let predicate = filter::of_predicate(&request.predicate, request.then.is_empty())?;
        Ok(CheckAndMutateRowRequest {
            table_name: self.path.clone(),
            app_profile_id: self.app_profile.clone(),
            row_key: request.row.to_bytes(),
            predicate_filter: Some(predicate),
            true_mutations: wire_mutations(&request.then),
            false_mutations: wire_mutations(&request.otherwise),
            ..CheckAndMutateRowRequest::default()
        })
    }

    /// The set of one row.
    pub(super) fn one(key: &RowKey) -> RowSet {
        RowSet { row_keys: vec![key.to_bytes()], row_ranges: Vec::new() }
    }

    /// Reads rows until the page is full or the stream ends. Rows that arrive before an error
    /// are kept.
    pub(super) async fn read(
        &self,
        rows: RowSet,
        filter: RowFilter,
        limit: PageLimit,
        part: &mut Part,
    ) -> std::result::Result<(), Status> {
        let request = self.read_request(rows, filter, limit.rows_max);
        let request = self.channels.read_request(&self.routing, request);
        let mut data = self.channels.data();
        let answer = once(self.channels.deadline(), data.read_rows(request));
        let mut stream = answer.await?.into_inner();
        let mut merger = Merger::new(false);
        let broken = |what: String| Status::data_loss(format!("the stream is broken: {what}"));
        loop {
            // tonic's deadline ends with the first message, so each further message has its
            // own.
            let late = |_| Status::deadline_exceeded("the stream has stalled");
            let next = tokio::time::timeout(self.channels.deadline(), stream.message()).await;
            let Some(message) = next.map_err(late)?? else { break };
            for chunk in message.chunks {
                let Some(row) = merger.push(chunk).map_err(broken)? else { continue };
                part.bytes += row.bytes();
                part.rows.push(row);
                if limit.is_reached(part.rows.len(), part.bytes) {
                    part.full = true;
                    return Ok(());
                }
            }
            if !message.last_scanned_row_key.is_empty() {
                part.scanned = Some(RowKey::from(message.last_scanned_row_key));
            }
        }
        merger.finish().map_err(broken)
    }

    pub(super) async fn send_one(&self, request: ConditionalMutation) -> Result<bool> {
        let sync = request.sync;
        let request = self.conditional_request(&request)?;
        if request.true_mutations.is_empty() && request.false_mutations.is_empty() {
            return self.ask(request).await;
        }
        let mut request = self.channels.request(&self.routing, request);
        syncing::put(&mut request, sync);
        let mut client = self.channels.data();
        match once(self.channels.deadline(), client.check_and_mutate_row(request)).await {
            Ok(answer) => Ok(answer.into_inner().predicate_matched),
            Err(status) => Err(of_mutation(&status)),
        }
    }

    /// Evaluates the predicate of a request that changes nothing. The API refuses such a
    /// request, so this reads the row with the predicate as a filter.
    pub(super) async fn ask(&self, request: CheckAndMutateRowRequest) -> Result<bool> {
        let predicate = request.predicate_filter.unwrap_or_default();
        let row = self.row(&RowKey::from(request.row_key), predicate).await?;
        Ok(!row.cells.is_empty())
    }

    /// Reads a row through a filter.
    pub(super) async fn row(&self, key: &RowKey, filter: RowFilter) -> Result<Row> {
        let answer = repeat(self.channels.deadline(), || async {
            let mut part = Part::default();
            let limit = PageLimit { rows_max: 1, bytes_max: usize::MAX };
            self.read(Self::one(key), filter.clone(), limit, &mut part).await?;
            Ok(part.rows.pop())
        });
        let row = answer.await.map_err(|status| of_read(&status))?;
        Ok(row.unwrap_or_else(|| Row::new(key.clone(), Vec::new())))
    }
}

pub(super) fn wire_range(range: &RowRange) -> data::RowRange {
    let start_key = match &range.start {
        Bound::Unbounded => None,
        Bound::Included(key) => Some(StartKey::StartKeyClosed(key.to_bytes())),
        Bound::Excluded(key) => Some(StartKey::StartKeyOpen(key.to_bytes())),
    };
    let end_key = match &range.end {
        Bound::Unbounded => None,
        Bound::Included(key) => Some(EndKey::EndKeyClosed(key.to_bytes())),
        Bound::Excluded(key) => Some(EndKey::EndKeyOpen(key.to_bytes())),
    };
    data::RowRange { start_key, end_key }
}

pub(super) fn wire_mutations(mutations: &[Mutation]) -> Vec<data::Mutation> {
    mutations.iter().filter_map(wire_mutation).collect()
}

/// Translates a mutation; `None` if it changes nothing.
fn wire_mutation(mutation: &Mutation) -> Option<data::Mutation> {
    let mutation = match mutation {
        Mutation::Set { family, qualifier, timestamp, value } => Wire::SetCell(SetCell {
            family_name: family.as_str().to_owned(),
            column_qualifier: qualifier.clone(),
            timestamp_micros: time::micros(*timestamp),
            value: value.clone(),
        }),
        Mutation::Delete { family, qualifier, time: range } => {
            let (start_timestamp_micros, end_timestamp_micros) = time::micros_range(*range)?;
            let times = TimestampRange { start_timestamp_micros, end_timestamp_micros };
            Wire::DeleteFromColumn(DeleteFromColumn {
                family_name: family.as_str().to_owned(),
                column_qualifier: qualifier.clone(),
                time_range: (*range != TimeRange::ALL).then_some(times),
            })
        }
    };
    Some(data::Mutation { mutation: Some(mutation) })
}
