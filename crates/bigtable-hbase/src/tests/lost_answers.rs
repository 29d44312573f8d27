//! Tests requests whose answers are lost. The first copy of such a request may be applied at any
//! later moment, and must not undo what the caller has written since.

use std::sync::Arc;

use bigtable::{
    ConditionalMutation, Error, Family, Layout, LocalityGroup, Mutation, Probe, RowKey,
    RowMutation, Selection, Store, Table, TableSchema, TimeRange, Timestamp,
};

use super::fake::{Fake, Fault};
use crate::table::AT_ONCE;

const DATA: Family = Family::from_static("data");

async fn table(fake: &Fake, options: &str) -> Arc<dyn Table> {
    let schema = TableSchema { groups: vec![LocalityGroup::on_disk("data", Layout::Versions)] };
    fake.store(options).await.open_table("t", &schema).await.expect("a table")
}

fn at(number: u64) -> Timestamp {
    Timestamp::new(number).expect("a small number")
}

fn set(value: &'static str) -> Mutation {
    Mutation::set(DATA, "q", at(5), value)
}

fn change(mutation: Mutation) -> RowMutation {
    RowMutation::new("r").mutation(mutation)
}

fn if_there(probe: Probe, then: Mutation) -> ConditionalMutation {
    let (predicate, then) = (vec![probe], vec![then]);
    ConditionalMutation { predicate, then, ..ConditionalMutation::new("r") }
}

async fn value(table: &dyn Table) -> Option<bigtable::Bytes> {
    let select = Selection::default().column(DATA, "q", TimeRange::ALL, 1);
    let row = table.read_row(&RowKey::from("r"), &select).await.expect("a row");
    row.newest(&DATA, b"q").map(|cell| cell.value.clone())
}

/// Writes "old", then sends a request of which the first copy is late. After the request has
/// ended, "new" is written, and then the late copy is applied. If the request was acknowledged, the
/// late copy must change nothing. Returns the request's result.
async fn with_a_late_copy(
    request: impl AsyncFn(&dyn Table) -> Result<bool, Error>,
) -> Result<bool, Error> {
    let fake = Fake::start().await;
    let table = table(&fake, "").await;
    table.mutate_row(change(set("old"))).await.expect("a cell");
    fake.next(&[Fault::Held]);
    let result = request(&*table).await;
    table.mutate_row(change(set("new"))).await.expect("an acknowledged cell");
    fake.release();
    if result.is_ok() {
        let value = value(&*table).await;
        assert_eq!(value.as_deref(), Some(&b"new"[..]), "an acknowledged cell is missing");
    }
    result
}

/// The store may acknowledge such a request only if the late copy changes nothing. A client cannot
/// keep a request without a condition from being applied, so its outcome is unknown.
#[tokio::test]
async fn a_late_copy_undoes_no_write_after_an_acknowledgement() {
    let deletion = Mutation::delete(DATA, "q", TimeRange::at(at(5)));
    for mutation in [deletion.clone(), set("late")] {
        let send = async |table: &dyn Table| {
            table.mutate_row(change(mutation.clone())).await.map(|()| true)
        };
        let result = with_a_late_copy(send).await;
        assert!(matches!(result, Err(Error::Unknown { .. })), "{mutation:?}: {result:?}");
    }

    // All probes are at one time: the condition is a filter, in the same request.
    let there = Probe::new(DATA, "q", TimeRange::at(at(5)));
    let filtered = if_there(there, deletion.clone());
    let send = async |table: &dyn Table| table.check_and_mutate_row(filtered.clone()).await;
    let result = with_a_late_copy(send).await;
    assert!(matches!(result, Err(Error::Unknown { .. })), "{result:?}");

    // The client reads first, and its request names the guard that it has read.
    let there = Probe::new(DATA, "q", TimeRange::ALL);
    let guarded = if_there(there, deletion);
    let send = async |table: &dyn Table| table.check_and_mutate_row(guarded.clone()).await;
    let result = with_a_late_copy(send).await;
    assert!(matches!(result, Ok(true)), "{result:?}");
}

/// A plain, a filtered and a guarded request, each of which writes "new".
fn requests() -> [ConditionalMutation; 3] {
    let when = |time| if_there(Probe::new(DATA, "q", time), set("new"));
    let plain =
        ConditionalMutation { otherwise: vec![set("new")], ..ConditionalMutation::new("r") };
    [plain, when(TimeRange::at(at(5))), when(TimeRange::ALL)]
}

#[tokio::test]
async fn the_guard_shows_that_a_request_was_applied() {
    for request in requests() {
        let fake = Fake::start().await;
        let table = table(&fake, "").await;
        table.mutate_row(change(set("old"))).await.expect("a cell");
        fake.next(&[Fault::AnswerLost]);
        let held = table.check_and_mutate_row(request.clone()).await.expect("it was applied");
        assert_eq!(held, !request.predicate.is_empty());
        assert_eq!(value(&*table).await.as_deref(), Some(&b"new"[..]));
        assert_eq!(fake.changes(), 2, "a request that was applied was sent again");
    }
}

#[tokio::test]
async fn the_outcome_is_unknown_if_another_client_has_changed_the_row() {
    for request in requests() {
        let fake = Fake::start().await;
        let table = table(&fake, "").await;
        table.mutate_row(change(set("old"))).await.expect("a cell");
        fake.next(&[Fault::AnswerLostAndRowChanged]);
        let result = table.check_and_mutate_row(request).await;
        assert!(matches!(result, Err(Error::Unknown { .. })), "{result:?}");
        assert_eq!(fake.changes(), 2);
    }
}

#[tokio::test]
async fn a_request_that_was_not_applied_is_sent_again() {
    for request in requests() {
        let fake = Fake::start().await;
        let table = table(&fake, "").await;
        table.mutate_row(change(set("old"))).await.expect("a cell");
        let moved = Fault::Refused("NotServingRegionException");
        fake.next(&[moved, Fault::Refused("RegionTooBusyException"), moved]);
        table.check_and_mutate_row(request).await.expect("the fourth copy is applied");
        assert_eq!(value(&*table).await.as_deref(), Some(&b"new"[..]));
        assert_eq!(fake.changes(), 5);
    }
}

/// Garbage collection relies on the longest life of a request, which begins with its deadline.
#[tokio::test]
async fn no_copy_is_sent_after_the_deadline() {
    let fake = Fake::start().await;
    let table = table(&fake, "deadline=1s").await;
    table.mutate_row(change(set("old"))).await.expect("a cell");
    fake.next(&[Fault::Silent; 4]);
    let [_, _, guarded] = requests();
    let result = table.check_and_mutate_row(guarded).await;
    assert!(matches!(result, Err(Error::Unknown { .. })), "{result:?}");
    assert_eq!(fake.changes(), 2, "a second copy was sent after the deadline");
}

/// All rows of a batch have its deadline, also those that wait for a place.
#[tokio::test]
async fn no_row_of_a_batch_is_sent_after_the_deadline_of_the_batch() {
    let fake = Fake::start().await;
    let table = table(&fake, "deadline=1s").await;
    fake.next(&[Fault::Silent; AT_ONCE]);
    let change = |row: usize| ConditionalMutation {
        otherwise: vec![set("new")],
        ..ConditionalMutation::new(format!("r{row}"))
    };
    let results = table.check_and_mutate_rows((0..2 * AT_ONCE).map(change).collect()).await;
    assert!(results.iter().all(Result::is_err), "{results:?}");
    assert_eq!(fake.changes() as usize, AT_ONCE, "a row was sent after the deadline");
}
