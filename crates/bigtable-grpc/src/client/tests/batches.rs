//! Tests how the client handles the answers to several conditional mutations in one request.

use std::sync::Arc;
use std::time::Duration;

use bigtable::{ConditionalMutation, Error, Mutation, Probe, Table, TimeRange, Timestamp};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tonic::codegen::BoxStream;
use tonic::{Code, Request, Response, Status};

use super::reads::found;
use super::script::{DEADLINE, End, FAMILY, Script, open, open_with, stream};
use crate::client::ClientOptions;
use crate::client::split::BATCH_BYTES_MAX;
use crate::proto::extension::check_and_mutate_rows_response::Outcome;
use crate::proto::extension::extension_server::Extension;
use crate::proto::extension::{
    CheckAndMutateRowsRequest, CheckAndMutateRowsResponse, DescribeRequest, DescribeResponse,
    ReadEachRequest, ReadEachResponse,
};
use crate::proto::rpc;

#[tonic::async_trait]
impl Extension for Script {
    async fn describe(
        &self,
        _request: Request<DescribeRequest>,
    ) -> Result<Response<DescribeResponse>, Status> {
        if let Some(status) = self.play(|play| play.describe.clone()) {
            return Err(status);
        }
        match self.play(|play| (play.entries_max, play.reads_max)) {
            (0, 0) => Err(Status::unimplemented("what is that?")),
            (entries_max, reads_max) => {
                Ok(Response::new(DescribeResponse { entries_max, reads_max }))
            }
        }
    }

    async fn read_each(
        &self,
        request: Request<ReadEachRequest>,
    ) -> Result<Response<BoxStream<ReadEachResponse>>, Status> {
        let ReadEachRequest { table_names, entries } = request.into_inner();
        let named = entries.iter().map(|entry| (entry.table, &entry.row_key));
        let named = names(&table_names, named);
        let rows: Vec<_> = entries.into_iter().map(|e| e.row_key).collect();
        self.play(|play| play.named.push(named));
        let (messages, end) = self.play(|play| {
            play.each_asked.push(rows.clone());
            play.each.pop_front().unwrap_or_else(|| Ok((vec![found(&rows)], End::Well)))
        })?;
        Ok(stream(messages, end))
    }

    async fn check_and_mutate_rows(
        &self,
        request: Request<CheckAndMutateRowsRequest>,
    ) -> Result<Response<CheckAndMutateRowsResponse>, Status> {
        let CheckAndMutateRowsRequest { table_names, entries } = request.into_inner();
        let named = entries.iter().map(|entry| (entry.table, &entry.row_key));
        let named = names(&table_names, named);
        let rows: Vec<_> = entries.into_iter().map(|e| e.row_key).collect();
        let held = self.play(|play| {
            play.named.push(named);
            play.held.clone().filter(|_| rows.iter().any(|row| row == "held"))
        });
        if let Some(held) = held {
            held.acquire().await.unwrap().forget();
        }
        let answer = self.play(|play| {
            let yes = Outcome { predicate_matched: true, status: None };
            let all = vec![yes; rows.len()];
            play.batched.push(rows);
            play.batches.pop_front().unwrap_or(Ok(all))
        });
        Ok(Response::new(CheckAndMutateRowsResponse { outcomes: answer? }))
    }
}

/// The table and the row of each entry of a request.
fn names<'a>(tables: &[String], entries: impl Iterator<Item = (u32, &'a bytes::Bytes)>) -> String {
    let of = |table: u32| tables[table as usize].rsplit('/').next();
    let named = entries.map(|(table, row)| {
        format!("{}/{}", of(table).unwrap_or_default(), String::from_utf8_lossy(row))
    });
    named.collect::<Vec<_>>().join(" ")
}

pub(super) fn requests(rows: &[&str]) -> Vec<ConditionalMutation> {
    let set = || Mutation::set(FAMILY, "q", Timestamp::ZERO, "v");
    let request = |row: &&str| ConditionalMutation {
        otherwise: vec![set()],
        ..ConditionalMutation::new(*row)
    };
    rows.iter().map(request).collect()
}

fn outcome(code: Code) -> Outcome {
    let status = rpc::Status { code: code as i32, ..rpc::Status::default() };
    Outcome { predicate_matched: false, status: Some(status) }
}

fn batched(script: &Script) -> Vec<usize> {
    script.play(|play| play.batched.iter().map(Vec::len).collect())
}

#[tokio::test]
async fn each_row_has_its_own_outcome() {
    let script = Script::default();
    script.play(|play| play.entries_max = 10);
    let table = open(&script).await.unwrap();
    let no = Outcome { predicate_matched: false, status: None };
    let yes = Outcome { predicate_matched: true, status: None };
    let outcomes = vec![no, outcome(Code::NotFound), yes, outcome(Code::Unavailable)];
    script.play(|play| play.batches.push_back(Ok(outcomes)));
    let mut asked = requests(&["a", "b", "c", "d"]);
    // The client refuses this one, and sends the other as a read. Neither becomes an entry.
    asked.insert(1, ConditionalMutation::new(""));
    let probe = Probe::new(FAMILY, "q", TimeRange::ALL);
    asked.push(ConditionalMutation { predicate: vec![probe], ..ConditionalMutation::new("e") });
    let results = table.check_and_mutate_rows(asked).await;
    assert_eq!(results.len(), 6);
    assert!(matches!(results[0], Ok(false)), "{results:?}");
    assert!(matches!(results[1], Err(Error::InvalidRequest(_))), "{results:?}");
    assert!(matches!(results[2], Err(Error::InvalidRequest(_))), "{results:?}");
    assert!(matches!(results[3], Ok(true)), "{results:?}");
    assert!(matches!(results[4], Err(Error::Unknown { .. })), "{results:?}");
    assert!(matches!(results[5], Ok(false)), "{results:?}");
    assert_eq!(batched(&script), [4]);
    assert_eq!(script.play(|play| play.mutated), 0, "no request of its own");
}

#[tokio::test]
async fn what_is_not_answered_is_unknown() {
    let script = Script::default();
    script.play(|play| play.entries_max = 10);
    let table = open(&script).await.unwrap();
    let yes = Outcome { predicate_matched: true, status: None };
    script.play(|play| {
        play.batches.push_back(Ok(vec![yes]));
        play.batches.push_back(Err(Status::deadline_exceeded("?")));
        play.batches.push_back(Err(Status::resource_exhausted("too much")));
    });
    let results = table.check_and_mutate_rows(requests(&["a", "b"])).await;
    assert!(matches!(results[..], [Ok(true), Err(Error::Unknown { .. })]), "{results:?}");
    let results = table.check_and_mutate_rows(requests(&["a", "b"])).await;
    let unknown = |result: &bigtable::Result<bool>| matches!(result, Err(Error::Unknown { .. }));
    assert!(results.iter().all(unknown), "{results:?}");
    let results = table.check_and_mutate_rows(requests(&["a", "b"])).await;
    let refused =
        |result: &bigtable::Result<bool>| matches!(result, Err(Error::Unavailable { .. }));
    assert!(results.iter().all(refused), "{results:?}");
    assert_eq!(batched(&script), [2, 2, 2], "each was sent once");
}

#[tokio::test]
async fn a_caller_does_not_wait_for_the_answer_to_another_batch() {
    let script = Script::default();
    let gate = Arc::new(Semaphore::new(0));
    script.play(|play| (play.entries_max, play.held) = (10, Some(gate.clone())));
    let (batch_delay, deadline) = (Duration::from_millis(50), DEADLINE);
    let options = ClientOptions { batch_delay, deadline, ..ClientOptions::default() };
    let table = open_with(&script, options).await.unwrap();
    // Together they exceed a batch.
    let change = |row: &str| {
        let set = Mutation::set(FAMILY, "q", Timestamp::ZERO, vec![0; BATCH_BYTES_MAX * 2 / 3]);
        ConditionalMutation { otherwise: vec![set], ..ConditionalMutation::new(row) }
    };
    let opens = async {
        let result = table.check_and_mutate_row(change("other")).await;
        gate.add_permits(1);
        result
    };
    let (held, other) = tokio::join!(table.check_and_mutate_row(change("held")), opens);
    assert!(held.is_ok() && other.is_ok(), "{held:?} {other:?}");
    assert_eq!(batched(&script), [1, 1]);
}

#[tokio::test]
async fn a_batch_is_no_larger_than_the_server_takes() {
    let script = Script::default();
    script.play(|play| play.entries_max = 3);
    let table = open(&script).await.unwrap();
    let results = table.check_and_mutate_rows(requests(&["a"; 7])).await;
    assert!(results.iter().all(|result| matches!(result, Ok(true))), "{results:?}");
    let mut sizes = batched(&script);
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 3, 3]);
    // A batch also has a bound on bytes, for the sake of others on the same connection.
    script.play(|play| play.batched.clear());
    let mut large = requests(&["a", "b", "c"]);
    large.iter_mut().for_each(|request| {
        request.otherwise = vec![Mutation::set(FAMILY, "q", Timestamp::ZERO, vec![7; 700_000])];
    });
    let results = table.check_and_mutate_rows(large).await;
    assert!(results.iter().all(|result| matches!(result, Ok(true))), "{results:?}");
    assert_eq!(batched(&script), [1, 1, 1]);
}

#[tokio::test]
async fn without_batches_each_row_is_a_request_of_its_own() {
    let script = Script::default();
    let table = open(&script).await.unwrap();
    let results = table.check_and_mutate_rows(requests(&["a", "b"])).await;
    assert!(results.iter().all(|result| matches!(result, Ok(true))), "{results:?}");
    assert_eq!((batched(&script).len(), script.play(|play| play.mutated)), (0, 2));

    // The server supported batches when the store was opened, and no longer does.
    let script = Script::default();
    script.play(|play| {
        play.entries_max = 10;
        play.batches.push_back(Err(Status::unimplemented("what is that?")));
        play.mutations = [Ok(true), Err(Status::aborted("?"))].into();
    });
    let table = open(&script).await.unwrap();
    let results = table.check_and_mutate_rows(requests(&["a", "b"])).await;
    let right = results.iter().filter(|result| matches!(result, Ok(true))).count();
    let unknown = results.iter().filter(|r| matches!(r, Err(Error::Unknown { .. }))).count();
    assert_eq!((right, unknown), (1, 1), "{results:?}");
    assert_eq!((batched(&script), script.play(|play| play.mutated)), (vec![2], 2));
}

#[tokio::test]
async fn requests_of_several_callers_wait_for_each_other() {
    let script = Script::default();
    script.play(|play| play.entries_max = 4);
    let delayed = |batch_delay| ClientOptions { batch_delay, ..ClientOptions::default() };
    let table = open_with(&script, delayed(Duration::from_millis(50))).await.unwrap();
    let one_of = |table: &Arc<dyn Table>, row: &'static str| {
        let table = table.clone();
        let request = requests(&[row]).remove(0);
        async move { table.check_and_mutate_row(request).await }
    };
    let no = Outcome { predicate_matched: false, status: None };
    let yes = Outcome { predicate_matched: true, status: None };
    script.play(|play| play.batches.push_back(Ok(vec![no, yes, outcome(Code::NotFound)])));
    let results = tokio::join!(one_of(&table, "a"), one_of(&table, "b"), one_of(&table, "c"));
    assert!(matches!(results.0, Ok(false)) && matches!(results.1, Ok(true)), "{results:?}");
    assert!(matches!(results.2, Err(Error::InvalidRequest(_))), "{results:?}");
    assert_eq!(batched(&script), [3]);

    // A full batch does not wait, and a caller that gives up delays no other.
    let patient = open_with(&script, delayed(Duration::from_secs(3600))).await.unwrap();
    let given_up = timeout(Duration::from_millis(1), one_of(&patient, "d")).await;
    assert!(given_up.is_err());
    let rest = patient.check_and_mutate_rows(requests(&["e", "f", "g"]));
    let rest = timeout(Duration::from_secs(60), rest).await.unwrap();
    assert!(rest.iter().all(|result| matches!(result, Ok(true))), "{rest:?}");
    assert_eq!(batched(&script), [3, 4]);
    // A single request goes as an ordinary one.
    assert!(one_of(&table, "h").await.is_ok());
    assert_eq!((batched(&script).len(), script.play(|play| play.mutated)), (2, 1));
}
