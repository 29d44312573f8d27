//! Tests status rows: which clients write them, which list them, and what never sees them.

use std::time::Duration;

use bigtable::{RowRange, Selection, TimeRange};
use percolator_core::{Client, Error, ProcessInfo, Registration, Runtime, WorkerOptions};

use crate::faults::Fault;
use crate::notifications::one_thread;
use crate::world::{BAL, World, observer, run, set, writing};

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
fn a_client_that_says_more_of_its_process_still_writes_one_row() {
    run(async |world| {
        let (client, other) = (world.client().await, world.client().await);
        client.publish_status(process("client"));
        world.sleep_ms(1500).await;
        client.publish_status(process("loader"));
        world.sleep_ms(10_000).await;
        assert_eq!(listed(&other).await, [("loader".into(), true)]);
        let writes = |world: &World| {
            let of_client = client.incarnation().to_string();
            world
                .store
                .own_writes()
                .iter()
                .filter(|write| write.row == (&*of_client).into())
                .count()
        };
        let before = writes(&world);
        world.sleep_ms(20_000).await;
        assert_eq!(writes(&world) - before, 2, "one each ten seconds");
    });
}

/// Of failing cells and of waits a status names a few, and counts all.
#[test]
fn a_status_says_what_fails_and_who_waits() {
    run(async |world| {
        let (worker, other) = (world.client().await, world.client().await);
        let run = observer(|_, _| Box::pin(async { Err(Error::application("x".repeat(500))) }));
        let fails = Registration::strong("fails", "t", &BAL, run);
        let options = WorkerOptions { failure_delay: Duration::from_secs(3600), ..one_thread() };
        let workers = worker.observe(vec![fails], options).await.unwrap();
        let table = worker.table("t").await.unwrap();
        let rows: Vec<String> = (0..20).map(|n| format!("row{n:02}")).collect();
        let cells: Vec<(&str, &str)> = rows.iter().map(|row| (&**row, "1")).collect();
        set(&worker, &table, &cells).await;
        while worker.failing(100).len() < 20 {
            world.sleep_ms(100).await;
        }
        let held = writing(&other, &table, &[("locked", "1")]).await.prewrite().await.unwrap();
        let reader = worker.begin().await.unwrap();
        let (at, of) = (reader.start_ts(), table.clone());
        world.runtime.spawn(Box::pin(async move {
            drop(reader.get(&of, "locked", &BAL).await);
        }));
        worker.publish_status(process("worker"));
        world.sleep_ms(1500).await;
        let status = other.statuses().await.unwrap().remove(0);
        assert_eq!((status.failing_cells, status.lock_waits), (20, 1));
        assert!((1..20).contains(&status.failing.len()), "{:?}", status.failing);
        let first = &status.failing[0];
        assert_eq!((&*first.observer, &first.row, first.attempts), ("fails", &"row00".into(), 1));
        assert_eq!(first.error, "x".repeat(80));
        assert!(sizes(&world).await[0] <= 1024);
        // Others see it by the status, and the client itself sees all.
        assert_eq!(other.all_failing().await.unwrap(), status.failing);
        assert_eq!(worker.all_failing().await.unwrap().len(), 20);
        let waiters = other.lock_waiters().await.unwrap();
        assert_eq!((waiters.len(), waiters[0].at, &*waiters[0].cell.table), (1, at, "t"));
        assert!(waiters[0].waited >= Duration::from_millis(500), "{waiters:?}");
        drop(held.commit_primary().await.unwrap());
        world.sleep_ms(500).await;
        assert_eq!(worker.lock_waiters().await.unwrap(), []);
        workers.stop().await;
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

/// Counting stops after about so many cells, and says so.
#[test]
fn a_long_backlog_is_counted_in_part() {
    run(async |world| {
        let client = world.client().await;
        let run = observer(|_, _| Box::pin(async { Ok(()) }));
        let never = Registration::strong("never", "t", &BAL, run);
        let workers = client.observe(vec![never], one_thread()).await.unwrap();
        workers.stop().await;
        let (table, short) =
            (client.table("t").await.unwrap(), client.table("short").await.unwrap());
        let rows: Vec<String> = (0..3_000).map(|n| format!("row{n:04}")).collect();
        for rows in rows.chunks(500) {
            let cells: Vec<(&str, &str)> = rows.iter().map(|row| (&**row, "1")).collect();
            set(&client, &table, &cells).await;
        }
        set(&client, &short, &[("a", "1")]).await;
        let whole = client.backlog().await.unwrap();
        assert_eq!((whole.len(), whole[0].cells, whole[0].whole), (1, 3_000, true));
        let part = client.backlog_within(100).await.unwrap();
        assert!((100..3_000).contains(&part[0].cells) && !part[0].whole, "{part:?}");
        assert_eq!(client.backlog_within(3_001).await.unwrap(), whole);
    });
}
