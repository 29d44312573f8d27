//! Implements the service percolator.bigtable.v1.Extension: this server's additions to Google's
//! API.
//!
//! It takes several CheckAndMutateRow in one request, and several reads (`read_each.rs`; paper
//! section 2.5), also of several tables. Each row is handled as in a request of its own: the same
//! limits, the same checks, its own outcome.

use std::sync::Arc;

use bigtable::Store as _;
use futures::future::join_all;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};

use super::check::Condition;
use super::deadline::Deadline;
use super::mutate::rpc_status;
use super::names::check_table;
use super::status::of_engine;
use super::tables::Tables;
use super::{limits, read_each};
use crate::identity::Named;
use crate::proto::extension::check_and_mutate_rows_request::Entry;
use crate::proto::extension::check_and_mutate_rows_response::Outcome;
use crate::proto::extension::extension_server::{self, ExtensionServer};
use crate::proto::extension::{
    CheckAndMutateRowsRequest, CheckAndMutateRowsResponse, DescribeRequest, DescribeResponse,
    ReadEachRequest, ReadEachResponse,
};

/// Most entries of one request. The engine commits together as many as fit.
pub(crate) const ENTRIES_MAX: usize = 1000;

/// The service.
#[derive(Debug)]
pub(crate) struct Extension(Arc<Tables>);

/// The service with its limits.
pub(crate) fn service(tables: Arc<Tables>) -> ExtensionServer<Extension> {
    ExtensionServer::new(Extension(tables)).max_decoding_message_size(limits::REQUEST_BYTES_MAX)
}

#[tonic::async_trait]
impl extension_server::Extension for Extension {
    async fn describe(
        &self,
        _request: Request<DescribeRequest>,
    ) -> Result<Response<DescribeResponse>, Status> {
        let [entries_max, reads_max] =
            [ENTRIES_MAX, read_each::ENTRIES_MAX].map(|max| u32::try_from(max).unwrap_or(u32::MAX));
        let mut response = Response::new(DescribeResponse { entries_max, reads_max });
        if let Some(named) = self.0.store.id().and_then(Named::new) {
            named.put(response.metadata_mut());
        }
        Ok(response)
    }

    async fn check_and_mutate_rows(
        &self,
        request: Request<CheckAndMutateRowsRequest>,
    ) -> Result<Response<CheckAndMutateRowsResponse>, Status> {
        let deadline = Deadline::of(&request);
        let outcomes = rows(&self.0, request.into_inner(), deadline).await?;
        Ok(Response::new(CheckAndMutateRowsResponse { outcomes }))
    }

    async fn read_each(
        &self,
        request: Request<ReadEachRequest>,
    ) -> Result<Response<BoxStream<ReadEachResponse>>, Status> {
        let stream = read_each::stream(&self.0, request.into_inner()).await?;
        Ok(Response::new(Box::pin(stream)))
    }
}

/// Checks the names of a request's tables, and that each entry is of one of them.
pub(super) fn check_names(
    names: &[String],
    wanted: impl ExactSizeIterator<Item = u32>,
) -> Result<(), Status> {
    if names.len() > wanted.len() {
        let (names, entries) = (names.len(), wanted.len());
        return Err(Status::invalid_argument(format!(
            "the request names {names} tables for {entries} entries: name each table once"
        )));
    }
    names.iter().try_for_each(|name| check_table(name))?;
    match wanted.max().filter(|last| *last as usize >= names.len()) {
        None => Ok(()),
        Some(last) => Err(Status::invalid_argument(format!(
            "an entry is of table {last}, and the request names {} tables",
            names.len()
        ))),
    }
}

/// Answers CheckAndMutateRows: each entry has its own outcome.
async fn rows(
    tables: &Tables,
    request: CheckAndMutateRowsRequest,
    deadline: Deadline,
) -> Result<Vec<Outcome>, Status> {
    if request.entries.len() > ENTRIES_MAX {
        return Err(Status::invalid_argument(format!(
            "the request has {} entries, at most {ENTRIES_MAX}: send several requests",
            request.entries.len()
        )));
    }
    let wanted = request.entries.iter().map(|entry| entry.table);
    let names = &request.table_names;
    check_names(names, wanted)?;
    let mut of_tables: Vec<Vec<(usize, Condition)>> = names.iter().map(|_| Vec::new()).collect();
    let mut outcomes = vec![Outcome::default(); request.entries.len()];
    let mut mutations = 0;
    for (place, entry) in request.entries.into_iter().enumerate() {
        let table = entry.table as usize;
        let condition = condition(entry);
        mutations += condition.mutations();
        of_tables[table].push((place, condition));
    }
    limits::check_mutations(mutations)?;
    let answers = names.iter().zip(of_tables).map(|(name, conditions)| async move {
        let (places, conditions): (Vec<_>, Vec<_>) = conditions.into_iter().unzip();
        let count = conditions.len();
        let answers = of_table(tables, name, conditions, deadline).await;
        let answers = answers.unwrap_or_else(|status| vec![Err(status); count]);
        places.into_iter().zip(answers)
    });
    for (place, found) in join_all(answers).await.into_iter().flatten() {
        outcomes[place] = match found {
            Ok(predicate_matched) => Outcome { predicate_matched, status: None },
            Err(status) => {
                Outcome { predicate_matched: false, status: Some(rpc_status(Some(status))) }
            }
        };
    }
    Ok(outcomes)
}

/// Applies the conditional mutations of one table.
///
/// # Errors
/// If the table is not there.
async fn of_table(
    tables: &Tables,
    name: &str,
    conditions: Vec<Condition>,
    deadline: Deadline,
) -> Result<Vec<Result<bool, Status>>, Status> {
    let table = tables.table(name).await?;
    let held = table.hold_schema().await?;
    let mut edits = Vec::with_capacity(conditions.len());
    let mut findings = Vec::with_capacity(conditions.len());
    for condition in conditions {
        findings.push(condition.edit(&held).map(|(edit, finding)| {
            edits.push(deadline.of_edit(edit));
            finding
        }));
    }
    let mut results = table.engine.edit_rows(edits).await.into_iter();
    let answers = findings.into_iter().map(|finding| {
        let finding = finding?;
        let unanswered = || Status::internal("the engine left an edit without an answer");
        results.next().ok_or_else(unanswered)?.map_err(of_engine)?;
        finding.take()?
    });
    Ok(answers.collect())
}

fn condition(entry: Entry) -> Condition {
    Condition {
        row_key: entry.row_key,
        predicate: entry.predicate_filter,
        then: entry.true_mutations,
        otherwise: entry.false_mutations,
    }
}
