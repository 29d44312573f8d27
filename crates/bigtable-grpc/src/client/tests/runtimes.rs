//! Tests gathered requests of callers in several runtimes, and in a process that stands still.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bigtable::{ConditionalMutation, Error, RowKey, Selection, Table, TimeRange};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::batches::requests;
use super::script::{DEADLINE, FAMILY, Script, open_with};
use crate::client::ClientOptions;
use crate::client::gather::LATE_MAX;

/// Long enough for a runtime to begin and end during the delay.
const DELAY: Duration = Duration::from_millis(300);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn mutation(row: &str) -> ConditionalMutation {
    requests(&[row]).remove(0)
}

fn select() -> Selection {
    Selection::default().family(FAMILY, TimeRange::ALL, 1)
}

async fn open(script: &Script) -> Arc<dyn Table> {
    script.play(|play| (play.entries_max, play.reads_max) = (4, 4));
    let options =
        ClientOptions { batch_delay: DELAY, deadline: DEADLINE, ..ClientOptions::default() };
    open_with(script, options).await.unwrap()
}

/// Requests rows in a runtime that ends while the requests gather.
fn ask_elsewhere(table: &Arc<dyn Table>, rows: &'static [&'static str]) {
    let table = table.clone();
    let asked = thread::spawn(move || {
        runtime().block_on(async {
            let select = select();
            let keys: Vec<_> = rows.iter().map(|row| RowKey::from(*row)).collect();
            let reads = futures::future::join_all(keys.iter().map(|k| table.read_row(k, &select)));
            let mutations = table.check_and_mutate_rows(requests(rows));
            let both = futures::future::join(reads, mutations);
            assert!(timeout(Duration::from_millis(1), both).await.is_err());
        });
    });
    asked.join().unwrap();
}

#[tokio::test]
async fn who_came_first_may_end_while_others_wait() {
    let script = Script::default();
    let table = open(&script).await;
    ask_elsewhere(&table, &["a"]);
    let (select, key) = (select(), RowKey::from("b"));
    let mine = futures::future::join(
        table.read_row(&key, &select),
        table.check_and_mutate_row(mutation("b")),
    );
    let (read, mutated) = timeout(DEADLINE, mine).await.expect("nobody has sent them");
    assert_eq!(read.unwrap().key, key);
    assert!(mutated.unwrap());
    let sent = script.play(|play| play.mutated + play.batched.iter().map(Vec::len).sum::<usize>());
    assert_eq!(sent, 2, "what was asked for by who has ended is sent, too");
}

#[tokio::test]
async fn who_fills_a_request_may_end_before_it_is_answered() {
    let script = Script::default();
    let table = open(&script).await;
    let (select, key) = (select(), RowKey::from("a"));
    let first = futures::future::join(
        table.read_row(&key, &select),
        table.check_and_mutate_row(mutation("a")),
    );
    let full = async { ask_elsewhere(&table, &["b", "c", "d"]) };
    let ((read, mutated), ()) = futures::future::join(first, full).await;
    assert_eq!(read.unwrap().key, key);
    assert!(mutated.unwrap());
}

#[test]
fn without_the_runtime_of_the_store_callers_get_an_error() {
    let home = runtime();
    let script = Script::default();
    let table = home.block_on(open(&script));
    let (select, key) = (select(), RowKey::from("a"));
    // One request gathers already when the runtime ends; the other comes later.
    let waiting = table.check_and_mutate_row(mutation("a"));
    let mut waiting = Box::pin(waiting);
    home.block_on(async {
        let begun = timeout(Duration::from_millis(1), &mut waiting).await;
        assert!(begun.is_err());
    });
    drop(home);
    let late = runtime();
    let answers = async { (waiting.await, table.read_row(&key, &select).await) };
    let answers = late.block_on(async { timeout(DEADLINE, answers).await });
    let (mutated, read) = answers.expect("they wait for ever");
    assert!(matches!(mutated, Err(Error::Unknown { .. })), "{mutated:?}");
    let told = read.unwrap_err().to_string();
    assert!(told.contains("open the store in a runtime that runs for longer"), "{told}");
}

#[tokio::test]
async fn what_would_be_sent_long_after_it_was_due_is_not() {
    let script = Script::default();
    let table = open(&script).await;
    let sent = || script.play(|play| play.mutated + play.each_asked.len() + play.asked.len());
    let before = sent();
    tokio::time::pause();
    for (late, is_sent) in [(LATE_MAX + DELAY, false), (Duration::ZERO, true)] {
        let (select, key) = (select(), RowKey::from("a"));
        let mine = futures::future::join(
            table.read_row(&key, &select),
            table.check_and_mutate_row(mutation("a")),
        );
        let stop = async {
            tokio::time::advance(DELAY + late).await;
            tokio::time::resume();
        };
        let ((read, mutated), ()) = futures::future::join(mine, stop).await;
        assert_eq!((read.is_ok(), mutated.is_ok()), (is_sent, is_sent), "{read:?}, {mutated:?}");
        if !is_sent {
            assert!(matches!(mutated, Err(Error::Unavailable { .. })), "{mutated:?}");
            assert_eq!(sent(), before);
            tokio::time::pause();
        }
    }
    assert_eq!(sent(), before + 2);
}
