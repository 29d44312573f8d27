//! Sends several conditional mutations in one request, to servers that have an extension for it
//! (paper section 2.5).
//!
//! The client asks the server for its limits when the store is opened. The server may later be
//! replaced by an older release without the extension. That release answers UNIMPLEMENTED and
//! has applied nothing. The client then sends each row's request by itself, as to any other
//! server.

use bigtable::{ConditionalMutation, Error, Result};
use futures::StreamExt;
use prost::Message;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Status};

use super::channel::Channels;
use super::limits::Limits;
use super::retry::{once, repeat};
use super::spanned::Spanned;
use super::split::{BATCH_BYTES_MAX, Size, split};
use super::status::{of_mutation, of_read};
use super::wire::{GrpcTable, IN_FLIGHT_MAX, MUTATIONS_MAX};
use crate::identity::Named;
use crate::proto::data::CheckAndMutateRowRequest;
use crate::proto::extension::check_and_mutate_rows_request::Entry;
use crate::proto::extension::check_and_mutate_rows_response::Outcome;
use crate::proto::extension::{CheckAndMutateRowsRequest, DescribeRequest};

/// Asks the server how much it takes in one request, and for the id of its store.
///
/// # Errors
/// The errors of the request. A server without the extension takes no batches, which is no error.
pub(super) async fn limits(channels: &Channels, routing: &MetadataValue<Ascii>) -> Result<Limits> {
    let answer = repeat(channels.deadline(), || async {
        let request = channels.request(routing, DescribeRequest {});
        let answer = channels.extension().describe(request).await?;
        if let Some(named) = Named::of(answer.metadata()) {
            channels.name_store(named);
        }
        Ok(answer.into_inner())
    });
    match answer.await {
        Ok(described) => {
            let several = |max: u32| usize::try_from(max).ok().filter(|max| *max > 1);
            let (entries_max, reads_max) = (described.entries_max, described.reads_max);
            Ok(Limits { entries_max: several(entries_max), reads_max: several(reads_max) })
        }
        Err(status) if status.code() == Code::Unimplemented => {
            tracing::debug!(%status, "the server does not accept batches");
            Ok(Limits::default())
        }
        Err(status) => Err(of_read(&status)),
    }
}

/// A conditional mutation of a table.
type Asked = (GrpcTable, ConditionalMutation);

/// An entry of a batch, and the request that it is for.
struct Placed {
    /// The index of the request.
    place: usize,
    asked: Asked,
    entry: Entry,
}

/// Sends the requests, in batches if the server takes them. Tells the index and the result of each
/// request once its answer has arrived.
pub(super) async fn send(requests: Vec<Asked>, mut tell: impl FnMut(usize, Result<bool>) + Send) {
    let entries_max = requests.first().and_then(|(table, _)| table.limits.entries_max);
    let Some(entries_max) = entries_max.filter(|_| requests.len() > 1) else {
        return send_each(requests.into_iter().enumerate().collect(), tell).await;
    };
    let mut entries = Vec::with_capacity(requests.len());
    for (place, (table, request)) in requests.into_iter().enumerate() {
        match table.conditional_request(&request) {
            Err(error) => tell(place, Err(error)),
            // The extension has no entry for a request that changes nothing; nobody batches
            // those.
            Ok(wire) if wire.true_mutations.is_empty() && wire.false_mutations.is_empty() => {
                tell(place, table.ask(wire).await);
            }
            Ok(wire) => {
                entries.push(Placed { place, asked: (table, request), entry: entry(wire) });
            }
        }
    }
    let max = Size { entries: entries_max, bytes: BATCH_BYTES_MAX, mutations: MUTATIONS_MAX };
    let batches = split(entries, max, |placed| size(&placed.entry)).into_iter().map(send_batch);
    let mut answers = futures::stream::iter(batches).buffer_unordered(IN_FLIGHT_MAX);
    while let Some(answers) = answers.next().await {
        answers.into_iter().for_each(|(place, result)| tell(place, result));
    }
}

/// Sends the requests, each by itself.
async fn send_each(
    requests: Vec<(usize, Asked)>,
    mut tell: impl FnMut(usize, Result<bool>) + Send,
) {
    let sent = requests
        .into_iter()
        .map(|(place, (table, request))| async move { (place, table.send_one(request).await) });
    let mut answers = futures::stream::iter(sent).buffer_unordered(IN_FLIGHT_MAX);
    while let Some((place, result)) = answers.next().await {
        tell(place, result);
    }
}

/// Sends one batch. Returns the index and the result of each of its requests.
async fn send_batch(batch: Vec<Placed>) -> Vec<(usize, Result<bool>)> {
    let mut tables = Spanned::default();
    let (mut entries, mut asked) = (Vec::new(), Vec::new());
    for placed in batch {
        let table = tables.number(&placed.asked.0.path);
        entries.push(Entry { table, ..placed.entry });
        asked.push((placed.place, placed.asked));
    }
    let Some((_, (table, _))) = asked.first() else { return Vec::new() };
    let request = CheckAndMutateRowsRequest { entries, table_names: tables.names() };
    let request = table.channels.request(&table.routing, request);
    let mut client = table.channels.extension();
    match once(table.channels.deadline(), client.check_and_mutate_rows(request)).await {
        Ok(answer) => {
            let mut outcomes = answer.into_inner().outcomes.into_iter();
            let mut next = || outcomes.next().map_or_else(|| Err(unanswered()), result);
            asked.into_iter().map(|(place, _)| (place, next())).collect()
        }
        Err(status) if status.code() == Code::Unimplemented => {
            let mut results = Vec::with_capacity(asked.len());
            send_each(asked, |place, result| results.push((place, result))).await;
            results
        }
        Err(status) => {
            asked.into_iter().map(|(place, _)| (place, Err(of_mutation(&status)))).collect()
        }
    }
}

/// The error for a request that has no outcome in the answer to its batch.
pub(super) fn unanswered() -> Error {
    Error::Unknown { why: "the server did not answer this request of the batch".to_owned() }
}

fn entry(wire: CheckAndMutateRowRequest) -> Entry {
    Entry {
        row_key: wire.row_key,
        predicate_filter: wire.predicate_filter,
        true_mutations: wire.true_mutations,
        false_mutations: wire.false_mutations,
        table: 0,
    }
}

fn size(entry: &Entry) -> Size {
    let mutations = entry.true_mutations.len() + entry.false_mutations.len();
    Size { entries: 1, bytes: entry.encoded_len(), mutations }
}

fn result(outcome: Outcome) -> Result<bool> {
    match outcome.status {
        None => Ok(outcome.predicate_matched),
        Some(status) => Err(of_mutation(&Status::new(Code::from_i32(status.code), status.message))),
    }
}
