//! Several conditional mutations in one request, where the server has an extension for it (paper
//! section 2.5).
//!
//! The server says so when the store is opened. One that has forgotten it since, because an older release
//! was started in its place, answers UNIMPLEMENTED and has applied nothing: then each row's request is
//! sent by itself, as to any other server.

use bigtable::{ConditionalMutation, Error, Result};
use futures::StreamExt;
use prost::Message;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Status};

use super::channel::Channels;
use super::retry::{once, repeat};
use super::status::of_mutation;
use super::table::{GrpcTable, IN_FLIGHT_MAX, MUTATIONS_MAX};
use crate::proto::data::CheckAndMutateRowRequest;
use crate::proto::extension::check_and_mutate_rows_request::Entry;
use crate::proto::extension::check_and_mutate_rows_response::Outcome;
use crate::proto::extension::{CheckAndMutateRowsRequest, DescribeRequest};

/// A request does not grow beyond this by another entry.
pub(super) const BATCH_BYTES_MAX: usize = 1 << 20;

/// What the server takes in one request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limits {
    /// Most conditional mutations; `None` if it takes one.
    pub(crate) entries_max: Option<usize>,
    /// Most reads of single rows by a filter each; `None` if it takes one.
    pub(crate) reads_max: Option<usize>,
}

/// Asks the server what it takes.
pub(super) async fn limits(channels: &Channels, routing: &MetadataValue<Ascii>) -> Limits {
    let answer = repeat(channels.deadline(), || async {
        let request = channels.request(routing, DescribeRequest {});
        Ok(channels.extension().describe(request).await?.into_inner())
    });
    match answer.await {
        Ok(described) => {
            let several = |max: u32| usize::try_from(max).ok().filter(|max| *max > 1);
            let (entries_max, reads_max) = (described.entries_max, described.reads_max);
            Limits { entries_max: several(entries_max), reads_max: several(reads_max) }
        }
        Err(status) => {
            tracing::debug!(%status, "the server takes no batches");
            Limits::default()
        }
    }
}

/// Entries of one request, and which of all requests they are.
#[derive(Debug, Default)]
struct Batch {
    entries: Vec<Entry>,
    places: Vec<usize>,
    bytes: usize,
    mutations: usize,
}

impl Batch {
    fn takes(&self, entry: &Entry, entries_max: usize) -> bool {
        self.entries.len() < entries_max
            && self.bytes + entry.encoded_len() <= BATCH_BYTES_MAX
            && self.mutations + mutations(entry) <= MUTATIONS_MAX
    }

    fn push(&mut self, place: usize, entry: Entry) {
        self.bytes += entry.encoded_len();
        self.mutations += mutations(&entry);
        self.places.push(place);
        self.entries.push(entry);
    }
}

/// Sends the requests in batches of at most `entries_max`.
pub(super) async fn send(
    table: &GrpcTable,
    entries_max: usize,
    requests: Vec<ConditionalMutation>,
) -> Vec<Result<bool>> {
    let mut results = Vec::with_capacity(requests.len());
    let mut batches: Vec<Batch> = Vec::new();
    for (place, request) in requests.iter().enumerate() {
        results.push(match table.conditional_request(request) {
            Err(error) => Err(error),
            // Nobody batches questions; there is no entry for one.
            Ok(wire) if wire.true_mutations.is_empty() && wire.false_mutations.is_empty() => {
                table.ask(wire).await
            }
            Ok(wire) => {
                let entry = entry(wire);
                match batches.last_mut().filter(|batch| batch.takes(&entry, entries_max)) {
                    Some(batch) => batch.push(place, entry),
                    None => {
                        let mut batch = Batch::default();
                        batch.push(place, entry);
                        batches.push(batch);
                    }
                }
                Err(Error::Unknown { why: "the server left it without an answer".to_owned() })
            }
        });
    }
    let sent = batches.into_iter().map(|Batch { places, entries, .. }| async move {
        let answer = send_one(table, entries).await;
        (places, answer)
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
                let alone = table.send_each(alone).await;
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

async fn send_one(
    table: &GrpcTable,
    entries: Vec<Entry>,
) -> std::result::Result<Vec<Outcome>, Status> {
    let request = CheckAndMutateRowsRequest { table_name: table.path.clone(), entries };
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
    }
}

fn mutations(entry: &Entry) -> usize {
    entry.true_mutations.len() + entry.false_mutations.len()
}

fn result(outcome: Outcome) -> Result<bool> {
    match outcome.status {
        None => Ok(outcome.predicate_matched),
        Some(status) => Err(of_mutation(&Status::new(Code::from_i32(status.code), status.message))),
    }
}
