//! Tests versions and deletions while HBase flushes and compacts files. This question decided
//! for `NEW_VERSION_BEHAVIOR`.

use std::sync::Arc;
use std::time::Duration;

use bigtable::conformance::random_operations;
use bigtable::{
    Family, Layout, LocalityGroup, Mutation, RowKey, RowMutation, Selection, Store, Table,
    TableSchema, TimeRange, Timestamp,
};

use super::cluster;
use crate::store::Deletions;
use crate::{HbaseAddress, HbaseStore};

const DATA: Family = Family::from_static("data");

/// Flushes and compacts everything while the test holds the store, every other time with all
/// files. Returns the number of rounds.
async fn compact_all_the_time(store: Arc<HbaseStore>) -> u32 {
    let mut rounds = 0;
    while Arc::strong_count(&store) > 1 {
        // A region that is being created cannot be compacted yet.
        rounds += u32::from(store.compact(None, rounds % 2 == 1).await.is_ok());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    rounds
}

/// `MODEL_SEEDS` and `MODEL_OPERATIONS` make it longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_operations_agree_with_the_model_under_compactions() {
    let Some(store) = cluster::store().await else { return };
    let store = Arc::new(store);
    let compacting = tokio::spawn(compact_all_the_time(store.clone()));
    let number = |name, default: u32| match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    };
    let (seeds, operations) = (number("MODEL_SEEDS", 6), number("MODEL_OPERATIONS", 250));
    random_operations(&*store, seeds.into(), operations as usize).await;
    drop(store);
    let rounds = compacting.await.expect("the compacting task ends");
    assert!(rounds > 0, "nothing was merged meanwhile");
    println!(
        "{seeds} seeds of {operations} operations each, while files were merged {rounds} times"
    );
}

/// Deletes a column up to timestamp 9, then writes it at 5. Returns the value that a read
/// finds.
async fn written_below_a_deletion(store: &HbaseStore) -> Option<bigtable::Bytes> {
    let schema = TableSchema { groups: vec![LocalityGroup::on_disk("data", Layout::Versions)] };
    let table: Arc<dyn Table> = store.open_table("below", &schema).await.expect("a table");
    let ts = |number| Timestamp::new(number).expect("a small number");
    let delete = Mutation::delete(DATA, "q", TimeRange::up_to(ts(9)));
    let set = Mutation::set(DATA, "q", ts(5), "v");
    for mutation in [delete, set] {
        let request = RowMutation::new("r").mutation(mutation);
        table.mutate_row(request).await.expect("a mutation");
    }
    let select = Selection::default().column(DATA, "q", TimeRange::ALL, 1);
    let row = table.read_row(&RowKey::from("r"), &select).await.expect("a row");
    row.newest(&DATA, b"q").map(|cell| cell.value.clone())
}

/// Percolator writes such cells. Claims of locks and registrations of readers lie at timestamp
/// zero; they are deleted and written again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_new_version_behavior_shows_what_is_written_below_a_deletion() {
    let Some(address) = cluster::address() else { return };
    let of = async |deletions| {
        let namespace = format!("{}_{}", address.namespace, deletions as u8);
        let address = HbaseAddress { namespace, ..address.clone() };
        let opening = HbaseStore::open(&address, cluster::options(), deletions);
        opening.await.expect("a connection")
    };
    let store = of(Deletions::OfWhatWasThere).await;
    assert_eq!(written_below_a_deletion(&store).await.as_deref(), Some(&b"v"[..]));
    let store = of(Deletions::OfLaterCellsToo).await;
    assert_eq!(written_below_a_deletion(&store).await, None, "the classic rule has changed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_would_lose_cells_is_refused() {
    let Some(address) = cluster::address() else { return };
    let schema = TableSchema { groups: vec![LocalityGroup::on_disk("data", Layout::Versions)] };
    let classic = Deletions::OfLaterCellsToo;
    let opening = HbaseStore::open(&address, cluster::options(), classic);
    let classic = opening.await.expect("a store");
    classic.open_table("t", &schema).await.expect("a table");
    let store = HbaseStore::connect(&address, cluster::options()).await.expect("a store");
    let error = store.open_table("t", &schema).await.expect_err("the table loses cells");
    let namespace = &address.namespace;
    let mended = |family| format!("{{NAME => '{family}', NEW_VERSION_BEHAVIOR => 'true'}}");
    let (guard, data) = (mended("_guard"), mended("data"));
    let help = format!("alter '{namespace}:t.t', {guard}, {data}");
    assert!(error.to_string().contains(&help), "{error}");
}
