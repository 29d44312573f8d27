//! Tests status rows: which clients write them, which list them, and what never sees them.

use std::time::Duration;

use bigtable::{RowRange, Selection, TimeRange};
use percolator_core::{Client, ProcessInfo, Registration};

use crate::faults::Fault;
use crate::notifications::one_thread;
use crate::world::{BAL, World, observer, run, set};

const TABLE: &str = "percolator.status";

fn process(role: &str) -> ProcessInfo {
    ProcessInfo { role: role.to_owned(), host: "h".into(), pid: 7, version: "1".into() }
}

async fn listed(client: &Client) -> Vec<(String, bool)> {
    let statuses = client.statuses().await.unwrap();
    let mut listed: Vec<_> = statuses.into_iter().map(|s| (s.process.role, s.alive)).collect();
    listed.sort();
    listed
}

/// The sizes of all status rows.
async fn sizes(world: &World) -> Vec<usize> {
    let groups = vec![bigtable::LocalityGroup::on_disk("system", bigtable::Layout::Versions)];
    let schema = bigtable::TableSchema { groups };
    let table = world.store.inner.open_table(TABLE, &schema).await.unwrap();
    let family = bigtable::Family::from_static("system");
    let select = Selection::default().family(family, TimeRange::ALL, u32::MAX);
    let page = table.scan(&RowRange::all(), &select, Default::default()).await.unwrap();
    page.rows.iter().flat_map(|row| &row.cells).map(|cell| cell.value.len()).collect()
}

#[test]
fn clients_that_publish_their_status_are_listed_until_their_tokens_are_gone() {
    run(async |world| {
        let (a, b, silent) = (world.client().await, world.client().await, world.client().await);
        assert_eq!(listed(&silent).await, []);
        let named = |name: String| {
            let run = observer(|_, _| Box::pin(async { Ok(()) }));
            Registration::strong(name, "t", &BAL, run)
        };
        let registrations =
            (0..50).map(|n| named(format!("observer-{n:02}-with-a-long-name"))).collect();
        let workers = a.observe(registrations, one_thread()).await.unwrap();
        let table = a.table("t").await.unwrap();
        set(&a, &table, &[("r", "1")]).await;
        a.wait_idle(None).await.unwrap();
        a.publish_status(process(&"ä".repeat(100)));
        b.publish_status(process("loader"));
        world.sleep_ms(1500).await;
        let statuses = silent.statuses().await.unwrap();
        let of = |client: &Client| {
            let is = |status: &&percolator_core::Status| status.client == client.incarnation();
            statuses.iter().find(is).unwrap()
        };
        assert_eq!(of(&a).process, process(&"ä".repeat(32)));
        assert_eq!(of(&a).observers[0], "observer-00-with-a-long-name");
        assert!((10..50).contains(&of(&a).observers.len()));
        let committed = |(name, value): &(String, u64)| name == "committed" && *value > 0;
        assert!(of(&a).counters.iter().any(committed), "{:?}", of(&a));
        assert_eq!(of(&b).observers, [""; 0]);
        let sizes = sizes(&world).await;
        assert!(sizes.len() == 2 && sizes.iter().all(|size| *size <= 1024), "{sizes:?}");
        assert!(sizes.iter().any(|size| *size > 900), "{sizes:?}");
        world.declare_dead(&a);
        assert_eq!(listed(&silent).await, [("loader".into(), true), ("ä".repeat(32), false)]);
        drop(workers);
    });
}

#[test]
fn the_living_remove_the_rows_of_the_dead() {
    run(async |world| {
        let (dead, living) = (world.process(Default::default(), 0).await, world.client().await);
        dead.client.publish_status(process("dead"));
        world.sleep_ms(1500).await;
        dead.crash();
        assert_eq!(listed(&living).await, [("dead".to_owned(), false)]);
        living.publish_status(process("living"));
        world.sleep_ms(1500).await;
        assert_eq!(listed(&living).await, [("living".to_owned(), true)]);
    });
}

#[test]
fn a_closed_or_dropped_client_writes_no_status_any_more() {
    run(async |world| {
        let (client, other) = (world.client().await, world.client().await);
        client.publish_status(process("closed"));
        world.sleep_ms(1500).await;
        let before = other.statuses().await.unwrap()[0].written_ms;
        client.close().await;
        world.sleep_ms(60_000).await;
        let after = &other.statuses().await.unwrap()[0];
        assert!(!after.alive && after.written_ms == before);
    });
}

/// A status takes no timestamp, `wait_idle` does not wait for it, and it is no garbage.
#[test]
fn nothing_else_sees_a_status() {
    run(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        set(&client, &table, &[("r", "1")]).await;
        let before = client.oracle().peek().await.unwrap();
        client.publish_status(process("worker"));
        world.sleep_ms(60_000).await;
        assert_eq!(client.statuses().await.unwrap().len(), 1);
        assert!(client.wait_idle(Some(Duration::ZERO)).await.unwrap().idle);
        assert!(client.backlog().await.unwrap().is_empty());
        assert_eq!(client.table_names().await.unwrap(), ["t"]);
        client.gc(Duration::ZERO).await.unwrap();
        assert_eq!(client.statuses().await.unwrap().len(), 1);
        assert_eq!(client.oracle().peek().await.unwrap(), before);
    });
}

#[test]
fn a_round_that_fails_is_not_the_last() {
    run(async |world| {
        let client = world.client().await;
        let refused = world.store.when(1, Fault::Fail, |request| request.table == TABLE);
        client.publish_status(process("worker"));
        refused.arrived().await;
        let first = client.statuses().await.unwrap()[0].written_ms;
        world.sleep_ms(11_000).await;
        assert!(client.statuses().await.unwrap()[0].written_ms > first);
    });
}
