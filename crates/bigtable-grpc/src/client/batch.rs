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
use super::spanned::{Spanned, by_table};
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
            Ok(Limits {
                entries_max: several(entries_max),
                reads_max: several(reads_max),
                reads_ranges: described.reads_ranges,
                spans_tables: described.spans_tables,
            })
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
/// An entry with its table and the index of its request.
type Placed = (usize, GrpcTable, Entry);

/// Sends the requests, each by itself.
pub(super) async fn send_each(requests: Vec<Asked>) -> Vec<Result<bool>> {
    let sent =
        requests.into_iter().map(|(table, request)| async move { table.send_one(request).await });
    futures::stream::iter(sent).buffered(IN_FLIGHT_MAX).collect().await
}

/// Sends the requests in batches of at most `entries_max`.
pub(super) async fn send(entries_max: usize, requests: Vec<Asked>) -> Vec<Result<bool>> {
    let mut results = Vec::with_capacity(requests.len());
    let mut entries: Vec<Placed> = Vec::with_capacity(requests.len());
    for (place, (table, request)) in requests.iter().enumerate() {
        results.push(match table.conditional_request(request) {
            Err(error) => Err(error),
            // The extension has no entry for a request that changes nothing; nobody batches
            // those.
            Ok(wire) if wire.true_mutations.is_empty() && wire.false_mutations.is_empty() => {
                table.ask(wire).await
            }
            Ok(wire) => {
                entries.push((place, table.clone(), entry(wire)));
                Err(Error::Unknown {
                    why: "the server did not answer this request of the batch".to_owned(),
                })
            }
        });
    }
    let max = Size { entries: entries_max, bytes: BATCH_BYTES_MAX, mutations: MUTATIONS_MAX };
    let spans = entries.first().is_none_or(|(_, table, _)| table.limits.spans_tables);
    let groups = if spans { vec![entries] } else { by_table(entries, |(_, table, _)| &table.path) };
    let batches = groups.into_iter().flat_map(|group| split(group, max, |(.., e)| size(e)));
    let sent = batches.map(|batch| async move {
        let places: Vec<_> = batch.iter().map(|(place, ..)| *place).collect();
        (places, send_one(batch).await)
    });
    let answers: Vec<_> = futures::stream::iter(sent).buffered(IN_FLIGHT_MAX).collect().await;
    for (places, answer) in answers {
        match answer {
            Ok(outcomes) => {
                for (place, outcome) in places.into_iter().zip(outcomes) {
                    results[place] = result(outcome);
                }
            }
            Err(status) if status.code() == Code::Unimplemented => {
                let alone = places.iter().map(|place| requests[*place].clone()).collect();
                let alone = send_each(alone).await;
                for (place, answer) in places.into_iter().zip(alone) {
                    results[place] = answer;
                }
            }
            Err(status) => {
                places.into_iter().for_each(|place| results[place] = Err(of_mutation(&status)));
            }
        }
    }
    results
}

async fn send_one(batch: Vec<Placed>) -> std::result::Result<Vec<Outcome>, Status> {
    let Some((_, table, _)) = batch.first() else { return Ok(Vec::new()) };
    let (table, mut tables) = (table.clone(), Spanned::default());
    let entries = batch.into_iter();
    let entries = entries.map(|(_, of, entry)| Entry { table: tables.number(&of.path), ..entry });
    let entries = entries.collect();
    let (table_name, table_names) = tables.names();
    let request = CheckAndMutateRowsRequest { table_name, entries, table_names };
    let request = table.channels.request(&table.routing, request);
    let mut client = table.channels.extension();
    let answer = once(table.channels.deadline(), client.check_and_mutate_rows(request)).await?;
    Ok(answer.into_inner().outcomes)
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
