//! Tests garbage collection of observed columns: notifications, acknowledgements, deletions.

use std::time::Duration;

use percolator_core::{Client, Column, Registration, Table, WorkerOptions, Workers};

use crate::faults::{NOTIFY, WRITE};
use crate::world::{A, B, BAL, World, counting, get_column, observer, run_both, set, writing};

const NOW: Duration = Duration::ZERO;

async fn observe(client: &Client, name: &'static str, counter: Column) -> Workers {
    let counting = Registration::strong(name, "t", &BAL, counting(counter));
    client.observe(vec![counting], WorkerOptions::default()).await.unwrap()
}

async fn delete(client: &Client, table: &Table, row: &str) {
    let mut tx = client.begin().await.unwrap();
    tx.delete(table, row, &BAL).unwrap();
    tx.commit().await.unwrap();
}

/// How many versions of a column's write record exist, and how many of its acknowledgements.
async fn left(world: &World, table: &Table, row: &str, observer: &str) -> (usize, usize) {
    let ack = bigtable::Selection::default().family(WRITE, bigtable::TimeRange::ALL, u32::MAX);
    let raw = world.raw_table(table).await;
    let found = raw.read_row(&row.into(), &ack).await.unwrap();
    let acks = found.versions(&WRITE, format!("ack:{observer}/bal").as_bytes()).len();
    (found.versions(&WRITE, b"bal").len(), acks)
}

#[test]
fn h49_the_sweep_rolls_forward_with_the_notification() {
    run_both(async |world| {
        let (owner, other) = (world.client().await, world.client().await);
        let table = owner.table("t").await.unwrap();
        let workers = observe(&other, "count", A).await;
        workers.stop().await;
        let tx = writing(&owner, &table, &[("p", "1"), ("s", "1")]).await;
        let s = tx.start_ts();
        let decided = tx.prewrite().await.unwrap().commit_primary().await.unwrap();
        let c = decided.commit_ts();
        drop(decided);
        let notified = if world.is_apart(&NOTIFY) { c } else { s };
        assert_eq!(world.raw(&table, "s", NOTIFY, &BAL).await, [notified]);
        let report = other.gc(NOW).await.unwrap();
        assert_eq!((report.counts.locks, report.counts.notifications), (1, 0));
        assert_eq!(world.raw(&table, "s", NOTIFY, &BAL).await, [c]);
        let workers = observe(&other, "count", A).await;
        assert!(other.wait_idle(None).await.unwrap().idle);
        for row in ["p", "s"] {
            assert_eq!(get_column(&other, &table, row, &A).await.as_deref(), Some("1"));
        }
        workers.stop().await;
    });
}

#[test]
fn acknowledgements_of_dead_cells_go_when_every_observer_has_acknowledged() {
    run_both(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let first = observe(&client, "first", A).await;
        set(&client, &table, &[("a", "1")]).await;
        client.wait_idle(None).await.unwrap();
        // The program of the second observer stops before the deletion.
        observe(&client, "second", B).await.stop().await;
        first.stop().await;
        let first = observe(&client, "first", A).await;
        delete(&client, &table, "a").await;
        while get_column(&client, &table, "a", &A).await.as_deref() != Some("2") {
            world.sleep_ms(10).await;
        }
        let report = client.gc(NOW).await.unwrap();
        assert_eq!(report.counts.acknowledgements, 0, "{report:?}");
        assert_eq!(left(&world, &table, "a", "first").await, (1, 1), "the deletion is waited for");
        assert!(world.notified(&table, "a", &BAL).await > 0);
        first.stop().await;
        let both = vec![
            Registration::strong("first", "t", &BAL, counting(A)),
            Registration::strong("second", "t", &BAL, counting(B)),
        ];
        let workers = client.observe(both, WorkerOptions::default()).await.unwrap();
        assert!(client.wait_idle(None).await.unwrap().idle);
        let report = client.gc(NOW).await.unwrap();
        assert_eq!(report.counts.acknowledgements, 2, "{report:?}");
        assert_eq!(left(&world, &table, "a", "first").await, (0, 0));
        assert_eq!(left(&world, &table, "a", "second").await, (0, 0));
        // The cell is written again. Each observer runs once more, and only once.
        set(&client, &table, &[("a", "2")]).await;
        assert!(client.wait_idle(None).await.unwrap().idle);
        assert_eq!(get_column(&client, &table, "a", &A).await.as_deref(), Some("3"));
        let runs = get_column(&client, &table, "a", &B).await;
        assert!(matches!(runs.as_deref(), Some("2" | "3")), "{runs:?}");
        workers.stop().await;
    });
}

#[test]
fn acknowledgements_of_living_cells_stay() {
    run_both(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let workers = observe(&client, "count", A).await;
        for n in 1..=3 {
            set(&client, &table, &[("a", "1")]).await;
            client.wait_idle(None).await.unwrap();
            assert_eq!(get_column(&client, &table, "a", &A).await, Some(n.to_string()));
        }
        client.gc(NOW).await.unwrap();
        assert_eq!(left(&world, &table, "a", "count").await, (1, 1));
        workers.stop().await;
        // The observer is registered again. It does not run again for changes that it has
        // acknowledged.
        let workers = observe(&client, "count", A).await;
        client.wait_idle(None).await.unwrap();
        assert_eq!(get_column(&client, &table, "a", &A).await.as_deref(), Some("3"));
        workers.stop().await;
    });
}

#[test]
fn an_acknowledgement_that_is_younger_than_the_safe_point_goes_with_a_later_round() {
    run_both(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let workers = observe(&client, "count", A).await;
        set(&client, &table, &[("a", "1")]).await;
        client.wait_idle(None).await.unwrap();
        workers.stop().await;
        delete(&client, &table, "a").await;
        let open = client.begin().await.unwrap();
        let workers = observe(&client, "count", A).await;
        client.wait_idle(None).await.unwrap();
        let report = client.gc(NOW).await.unwrap();
        assert_eq!(report.safe_point, open.start_ts());
        assert_eq!(left(&world, &table, "a", "count").await, (0, 1), "{report:?}");
        drop(open);
        client.gc(NOW).await.unwrap();
        assert_eq!(left(&world, &table, "a", "count").await, (0, 0));
        assert_eq!(get_column(&client, &table, "a", &A).await.as_deref(), Some("2"));
        workers.stop().await;
    });
}

#[test]
fn stale_notifications_go_and_dirty_ones_stay() {
    run_both(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let failing = observer(|_, _| {
            Box::pin(async { Err(percolator_core::Error::application("not now")) })
        });
        let failing = Registration::strong("fail", "t", &BAL, failing);
        let workers = client.observe(vec![failing], WorkerOptions::default()).await.unwrap();
        set(&client, &table, &[("dirty", "1")]).await;
        workers.stop().await;
        // Notifications of a column without observers.
        let versions = [percolator_core::Timestamp::new(1).unwrap()];
        for version in versions {
            let set = bigtable::Mutation::set(NOTIFY, A.to_bytes(), version, "");
            let raw = world.raw_table_of(&table, &NOTIFY).await;
            // The key begins with the shard of "orphan" if notifications lie apart.
            let row = if world.is_apart(&NOTIFY) { "[orphan" } else { "orphan" };
            raw.mutate_row(bigtable::RowMutation::new(row).mutation(set)).await.unwrap();
        }
        client.begin().await.unwrap();
        let report = client.gc(NOW).await.unwrap();
        assert_eq!(report.counts.notifications, 1, "{report:?}");
        assert!(world.notified(&table, "dirty", &BAL).await > 0);
        assert_eq!(world.notified(&table, "orphan", &A).await, 0);
    });
}
