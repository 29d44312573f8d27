//! Tests that a row whose guard was dropped is changed like a new one.
//!
//! All guards have one timestamp. So the deletion of a guard must not hide guards that are written
//! after it, in memory or in files. No file may bring the earlier guard back.

use std::sync::Arc;
use std::time::Duration;

use bigtable::{
    ConditionalMutation, Family, Layout, LocalityGroup, Mutation, Probe, RowMutation, Store, Table,
    TableSchema, TimeRange, Timestamp,
};
use bytes::Bytes;

use super::cluster;
use crate::HbaseStore;
use crate::table::Wanted;

const DATA: Family = Family::from_static("data");
const ROWS: [&str; 3] = ["a", "b", "c"];
const ROUNDS: usize = 6;
/// Callers that race for a row.
const CALLERS: usize = 8;

fn set(value: String) -> Mutation {
    Mutation::set(DATA, "q", Timestamp::ZERO, value)
}

/// Writes the cell if there is none: a guarded request.
fn if_absent(row: &str, value: String) -> ConditionalMutation {
    ConditionalMutation {
        predicate: vec![Probe::new(DATA, "q", TimeRange::ALL)],
        otherwise: vec![set(value)],
        ..ConditionalMutation::new(row)
    }
}

/// The guard of a row; empty if it has none.
async fn guard(store: &HbaseStore, row: &str) -> Bytes {
    let tables = store.opened();
    let (table, until) = (&tables[0], store.client().deadline());
    let row = Bytes::copy_from_slice(row.as_bytes());
    let found = table.cells_and_guard(&row, &Wanted::default(), until).await;
    found.expect("an answer of the region's server").1
}

async fn empty(table: &dyn Table, row: &str) {
    let delete = Mutation::delete(DATA, "q", TimeRange::ALL);
    table.mutate_row(RowMutation::new(row).mutation(delete)).await.expect("a deletion");
}

/// Lets callers race for a row without a cell. Exactly one of them may write it.
async fn race(table: &Arc<dyn Table>, row: &str) {
    let calls = (0..CALLERS).map(|caller| {
        let request = if_absent(row, caller.to_string());
        async move { table.check_and_mutate_row(request).await.expect("a change") }
    });
    let held = futures::future::join_all(calls).await;
    let won = held.iter().filter(|found| !**found).count();
    assert_eq!(won, 1, "row {row}: {held:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_whose_guard_was_dropped_is_changed_like_a_new_one() {
    let Some(store) = cluster::store().await else { return };
    let schema = TableSchema { groups: vec![LocalityGroup::on_disk("data", Layout::Versions)] };
    let table = store.open_table("t", &schema).await.expect("a table");
    for round in 0..ROUNDS {
        for row in ROWS {
            race(&table, row).await;
            assert_eq!(guard(&store, row).await.len(), 16, "round {round}: the guard is hidden");
            empty(&*table, row).await;
        }
        // One row is changed between the round that finds it and the round that drops.
        store.upkeep(Duration::ZERO).await.expect("a round that looks");
        race(&table, ROWS[0]).await;
        let kept = guard(&store, ROWS[0]).await;
        store.upkeep(Duration::ZERO).await.expect("a round that drops");
        assert_eq!(
            guard(&store, ROWS[0]).await,
            kept,
            "round {round}: a row in use lost its guard"
        );
        for row in &ROWS[1..] {
            assert!(
                guard(&store, row).await.is_empty(),
                "round {round}: row {row} keeps its guard"
            );
        }
        empty(&*table, ROWS[0]).await;
        if round % 2 == 1 {
            store.compact(None, true).await.expect("a compaction of all files");
            for row in &ROWS[1..] {
                assert!(
                    guard(&store, row).await.is_empty(),
                    "round {round}: {row}'s guard is back"
                );
            }
        }
    }
}
