//! Tests which requests are sent again, when, and for how long. The cases follow Google's own
//! test of Bigtable clients (cloud-bigtable-clients-test).

use std::time::Duration;

use bigtable::{ConditionalMutation, Error, Mutation, RowMutation, Selection, Table, TimeRange};
use bigtable::{RowKey, Timestamp};
use prost::Message;
use tokio::time::Instant;
use tonic::{Code, Status};

use super::script::{DEADLINE, End, FAMILY, Script, open, rows, scan, scanned, unavailable};
use crate::client::retry::RetryInfo;
use crate::proto::{data, rpc};

fn set() -> Mutation {
    Mutation::set(FAMILY, "q", Timestamp::ZERO, "v")
}

fn condition() -> ConditionalMutation {
    ConditionalMutation { otherwise: vec![set()], ..ConditionalMutation::new("r") }
}

async fn point(table: &dyn Table) -> bigtable::Result<usize> {
    let select = Selection::default().family(FAMILY, TimeRange::ALL, 1);
    Ok(table.read_row(&RowKey::from("r"), &select).await?.cells.len())
}

/// A refusal that names the time to wait before the next attempt.
fn come_back(code: Code, after: Duration) -> Status {
    let retry_delay = Some(prost_types::Duration::try_from(after).unwrap());
    let info = prost_types::Any {
        type_url: "type.googleapis.com/google.rpc.RetryInfo".to_owned(),
        value: RetryInfo { retry_delay }.encode_to_vec(),
    };
    let status = rpc::Status { code: code as i32, message: String::new(), details: vec![info] };
    Status::with_details(code, "come back", status.encode_to_vec().into())
}

#[tokio::test]
async fn a_paused_scan_goes_on() {
    let script = Script::default();
    let table = open(&script).await.unwrap();
    script.play(|play| {
        let pause = End::With(Status::aborted("the scan is paused"));
        play.reads.push_back((vec![rows(&["a", "b"])], pause));
        play.reads.push_back((vec![rows(&["c"])], End::Well));
    });
    assert_eq!(scan(&*table).await.unwrap(), ("abc".to_owned(), 2));
}

/// Rows that arrive before a broken stream may be wrong, so the client reads them again.
#[tokio::test]
async fn rows_before_a_broken_stream_are_read_again() {
    let script = Script::default();
    let table = open(&script).await.unwrap();
    script.play(|play| {
        let broken = End::With(come_back(Code::DataLoss, Duration::ZERO));
        play.reads.push_back((vec![rows(&["a", "b"])], broken));
        play.reads.push_back((vec![rows(&["a", "b", "c"])], End::Well));
    });
    assert_eq!(scan(&*table).await.unwrap(), ("abc".to_owned(), 1));
    let starts = script.play(|play| {
        let start = |request: &data::ReadRowsRequest| {
            request.rows.clone().unwrap().row_ranges[0].start_key.clone()
        };
        play.asked.iter().map(start).collect::<Vec<_>>()
    });
    assert_eq!(starts, [None, None], "the second request begins behind rows that were thrown away");
}

#[tokio::test]
async fn of_several_rows_those_that_did_not_come_are_asked_for_again() {
    let script = Script::default();
    let table = open(&script).await.unwrap();
    script.play(|play| {
        play.reads.push_back((vec![rows(&["a"]), scanned("b")], unavailable()));
        play.reads.push_back((vec![rows(&["d"])], End::Well));
    });
    let keys = ["d", "b", "a", "c", "d"].map(RowKey::from);
    let select = Selection::default().family(FAMILY, TimeRange::ALL, 1);
    let found = table.read_rows(&keys, &select).await.unwrap();
    let found: Vec<_> = found.iter().map(|row| (&row.key, row.cells.len())).collect();
    assert_eq!(found, keys.iter().zip([1, 0, 1, 0, 1]).collect::<Vec<_>>());
    let asked = script.play(|play| {
        let keys =
            |request: &data::ReadRowsRequest| request.rows.clone().unwrap().row_keys.concat();
        play.asked.iter().map(keys).collect::<Vec<_>>()
    });
    assert_eq!(asked, [b"abcd".to_vec(), b"cd".to_vec()]);
}

#[tokio::test]
async fn half_a_row_before_a_reset_is_forgotten() {
    let script = Script::default();
    let table = open(&script).await.unwrap();
    let mut half = rows(&["a", "b"]);
    half.chunks[1].row_status = None;
    script.play(|play| {
        play.reads.push_back((vec![half], unavailable()));
        play.reads.push_back((vec![rows(&["b", "c"])], End::Well));
    });
    assert_eq!(scan(&*table).await.unwrap(), ("abc".to_owned(), 2));
}

#[tokio::test]
async fn an_error_after_the_last_row_that_was_wanted_is_none() {
    let script = Script::default();
    let table = open(&script).await.unwrap();
    script.play(|play| play.reads.push_back((vec![rows(&["r"])], unavailable())));
    assert_eq!(point(&*table).await.unwrap(), 1);
    assert_eq!(script.play(|play| play.asked.len()), 1);
}

#[tokio::test]
async fn a_server_that_says_when_to_come_back_is_heard() {
    let script = Script::default();
    let table = open(&script).await.unwrap();
    let delay = Duration::from_millis(300);
    for code in [Code::Unavailable, Code::FailedPrecondition] {
        script.play(|play| {
            play.asked.clear();
            play.reads.push_back((vec![], End::With(come_back(code, delay))));
            play.reads.push_back((vec![rows(&["r"])], End::Well));
        });
        let began = Instant::now();
        assert_eq!(point(&*table).await.unwrap(), 1);
        assert!(began.elapsed() >= delay, "{code:?}: {:?}", began.elapsed());
    }
    // If the server asks for a long pause, the caller gets the error at once.
    let long = Duration::from_secs(3600);
    script.play(|play| {
        play.asked.clear();
        play.reads.push_back((vec![], End::With(come_back(Code::Unavailable, long))));
    });
    let refused = point(&*table).await;
    assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
    assert_eq!(script.play(|play| play.asked.len()), 1);
    // The client repeats an unconditional mutation, but not a conditional one.
    script.play(|play| {
        play.mutated = 0;
        play.mutations = [Err(come_back(Code::Unavailable, delay)), Ok(true)].into();
    });
    table.mutate_row(RowMutation::new("r").mutation(set())).await.unwrap();
    script.play(|play| play.mutations = [Err(come_back(Code::Unavailable, delay))].into());
    let unknown = table.check_and_mutate_row(condition()).await;
    assert!(matches!(unknown, Err(Error::Unknown { .. })), "{unknown:?}");
    assert_eq!(script.play(|play| play.mutated), 2 + 1);
}

#[tokio::test]
async fn a_stream_that_stalls_is_given_up_and_read_again() {
    let script = Script::default();
    let table = open(&script).await.unwrap();
    script.play(|play| {
        play.reads.push_back((vec![rows(&["a"])], End::Stalls));
        play.reads.push_back((vec![rows(&["b"])], End::Well));
        play.samples.push_back((vec!["x"], End::Stalls));
        play.samples.push_back((vec!["m"], End::Well));
    });
    let began = Instant::now();
    let (scanned, tablets) = tokio::join!(scan(&*table), table.tablets());
    assert_eq!(scanned.unwrap().0, "ab");
    assert_eq!(tablets.unwrap().len(), 2);
    assert!(began.elapsed() >= DEADLINE && began.elapsed() < DEADLINE * 5);
}

#[tokio::test]
async fn a_conditional_mutation_without_an_answer_is_unknown_in_time() {
    let script = Script::default();
    let table = open(&script).await.unwrap();
    script.play(|play| play.deaf = true);
    let began = Instant::now();
    let unknown = table.check_and_mutate_row(condition()).await;
    assert!(matches!(unknown, Err(Error::Unknown { .. })), "{unknown:?}");
    assert!(began.elapsed() < DEADLINE * 5, "{:?}", began.elapsed());
    assert_eq!(script.play(|play| play.mutated), 1);
}

#[tokio::test]
async fn samples_are_taken_anew() {
    let script = Script::default();
    let table = open(&script).await.unwrap();
    script.play(|play| {
        play.samples.push_back((vec!["a", "b"], unavailable()));
        play.samples.push_back((vec!["c", ""], End::Well));
    });
    let tablets = table.tablets().await.unwrap();
    assert_eq!(tablets.len(), 2, "{tablets:?}");
}

#[tokio::test]
async fn many_reads_at_a_time_have_each_their_answer() {
    let script = Script::default();
    let table = open(&script).await.unwrap();
    script.play(|play| {
        play.reads.extend((0..500).map(|_| (vec![rows(&["r"])], End::Well)));
    });
    let all = futures::future::join_all((0..500).map(|_| point(&*table))).await;
    assert!(all.into_iter().all(|cells| cells.unwrap() == 1));
}
