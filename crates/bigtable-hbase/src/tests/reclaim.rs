//! Tests what a round of upkeep drops, and how often there is one.

use std::sync::Arc;
use std::time::Duration;

use bigtable::sync::locked;
use bigtable::{
    ConditionalMutation, Family, Layout, LocalityGroup, Mutation, OnFull, Probe, RowMutation,
    Store, Table, TableSchema, TimeRange, Timestamp,
};

use super::fake::{Fake, Fault};
use crate::HbaseStore;

const DATA: Family = Family::from_static("data");
const LOCK: Family = Family::from_static("lock");

async fn table(store: &HbaseStore) -> Arc<dyn Table> {
    let groups = vec![
        LocalityGroup::on_disk("data", Layout::Versions),
        LocalityGroup::in_memory("lock", OnFull::Refuse { cells_max: 1 << 20 }),
    ];
    store.open_table("t", &TableSchema { groups }).await.expect("a table")
}

fn set() -> Mutation {
    Mutation::set(DATA, "q", Timestamp::ZERO, "v")
}

async fn change(table: &dyn Table, row: &str, mutation: Mutation) {
    let request = RowMutation::new(row).mutation(mutation);
    table.mutate_row(request).await.expect("a mutation");
}

async fn empty(table: &dyn Table, row: &str) {
    change(table, row, set()).await;
    change(table, row, Mutation::delete(DATA, "q", TimeRange::ALL)).await;
}

#[tokio::test]
async fn the_guard_of_a_row_that_stays_empty_is_dropped() {
    let fake = Fake::start().await;
    let store = fake.store("").await;
    let table = &*table(&store).await;
    // The rows lie in both regions.
    for row in ["a-empty", "c-empty", "a-changed", "c-changed"] {
        empty(table, row).await;
    }
    for row in ["a-full", "c-full"] {
        change(table, row, set()).await;
    }
    store.upkeep(Duration::ZERO).await.expect("a round");
    let all = ["a-changed", "a-empty", "a-full", "c-changed", "c-empty", "c-full"];
    assert_eq!(fake.guarded(), all, "the first round only looks");
    for row in ["a-changed", "c-changed"] {
        empty(table, row).await;
    }
    store.upkeep(Duration::ZERO).await.expect("a round");
    assert_eq!(fake.guarded(), ["a-changed", "a-full", "c-changed", "c-full"]);
    store.upkeep(Duration::ZERO).await.expect("a round");
    assert_eq!(fake.guarded(), ["a-full", "c-full"]);

    // A row without a guard is changed like a new one.
    let probe = Probe::new(DATA, "q", TimeRange::ALL);
    let request = ConditionalMutation {
        predicate: vec![probe],
        otherwise: vec![set()],
        ..ConditionalMutation::new("a-empty")
    };
    assert!(!table.check_and_mutate_row(request).await.expect("a change"));
    assert_eq!(fake.guarded(), ["a-empty", "a-full", "c-full"]);
}

#[tokio::test]
async fn a_table_is_compacted_once_in_a_pause() {
    let fake = Fake::start().await;
    let store = fake.store("").await;
    let table = table(&store).await;
    change(&*table, "a", Mutation::set(LOCK, "q", Timestamp::ZERO, "v")).await;
    store.reclaim().await.expect("a round");
    // The in-memory family and the guards', in each of the two regions.
    let all = ["lock", "_guard", "lock", "_guard"];
    assert_eq!(fake.compactions(), all);
    store.reclaim().await.expect("no round");
    assert!(fake.compactions().is_empty(), "the pause is not over");
    store.upkeep(Duration::ZERO).await.expect("a round");
    assert_eq!(fake.compactions(), all);
}

#[tokio::test]
async fn a_guard_is_kept_until_a_pause_after_its_row_was_found_empty() {
    let fake = Fake::start().await;
    let store = fake.store("").await;
    let table = &*table(&store).await;
    empty(table, "a").await;
    let pause = Duration::from_secs(3_600);
    store.upkeep(pause).await.expect("a round that finds the row");
    // A round that is due although the search ended a moment ago, as after a long search.
    for table in store.opened() {
        locked(&table.upkeep).last = None;
    }
    store.upkeep(pause).await.expect("a round");
    assert_eq!(fake.guarded(), ["a"], "a request from before the search may be alive");
    store.upkeep(Duration::ZERO).await.expect("a round");
    assert!(fake.guarded().is_empty(), "the row was kept in mind");
}

#[tokio::test]
async fn a_round_goes_on_after_a_drop_that_fails() {
    let fake = Fake::start().await;
    let store = fake.store("").await;
    let table = &*table(&store).await;
    empty(table, "a").await;
    store.upkeep(Duration::ZERO).await.expect("a round");
    fake.compactions();
    fake.next(&[Fault::Refused("org.apache.hadoop.hbase.security.AccessDeniedException")]);
    store.upkeep(Duration::ZERO).await.expect("a round without the drop");
    assert_eq!(fake.guarded(), ["a"], "the drop failed");
    assert!(!fake.compactions().is_empty(), "the round compacts all the same");
    store.upkeep(Duration::ZERO).await.expect("a round");
    assert!(fake.guarded().is_empty(), "the row was found again");
}

/// A guard may go when no request is alive that began before it was found.
#[test]
fn the_pause_is_never_shorter_than_the_life_of_a_request() {
    let seconds = Duration::from_secs;
    assert_eq!(crate::upkeep::pause(seconds(35)), seconds(300));
    assert_eq!(crate::upkeep::pause(seconds(530)), seconds(530));
}
