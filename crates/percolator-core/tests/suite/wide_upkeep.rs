//! Tests rows at the limits of one request (H70) after their transactions have ended: garbage
//! collection, and the notifications of observers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bigtable::{Mutation, RowKey, RowMutation, RowRange, Selection, TimeRange, Timestamp};
use percolator_core::{
    Batch, BatchObserver, COLUMN_BYTES_MAX, Change, Client, Column, Error, GcReport, Observer,
    Options, Registration, Result, Table, Transaction, WorkerOptions,
};

use crate::faults::{DATA, LOCK, NOTIFY, Op, WRITE};
use crate::notifications::one_thread;
use crate::wide::{Left, columns, is_there, leave, wide};
use crate::world::{BAL, World, observer, run_both_limited, run_limited};

/// Collects the versions that are hidden now. On a store without a floor this waits for a
/// retention, in virtual time.
async fn collect(world: &World, client: &Client) -> GcReport {
    let now = client.begin().await.unwrap().start_ts();
    let retention = client.retention_min();
    for _ in 0..10 {
        // The safe point goes up to this timestamp.
        client.begin().await.unwrap();
        let report = client.gc(retention).await.unwrap();
        if report.safe_point > now || report.blocked_by.is_some() {
            return report;
        }
        world.sleep_ms(retention.as_millis() as u64 / 2).await;
    }
    panic!("collection never goes beyond {now}");
}

/// As many columns of one row as one transaction may write.
fn most(world: &World) -> Vec<Column> {
    columns(world.store.inner_limits().mutations_max.unwrap() / 2, 12)
}

async fn delete(client: &Client, table: &Table, row: &str, columns: &[Column]) {
    let mut tx = client.begin().await.unwrap();
    for column in columns {
        tx.delete(table, row, column).unwrap();
    }
    tx.commit().await.unwrap();
}

#[test]
fn h70_a_wide_row_is_collected() {
    run_limited(async |world| {
        // Each value is stored beside its write record, so two cells of each column are
        // collected.
        let long = Options { short_value_bytes_max: 0, ..Options::default() };
        let client = world.client_with(long).await;
        let table = client.table("t").await.unwrap();
        let columns = most(&world);
        let count = columns.len();
        for _ in 0..2 {
            wide(&client, &table, "s", &columns).await.commit().await.unwrap();
        }
        assert_eq!(world.cells(&table, WRITE).await, 2 * (count + 1));
        collect(&world, &client).await;
        // The primary has one more cell.
        for family in [WRITE, DATA] {
            assert_eq!(world.cells(&table, family.clone()).await, count + 1, "{family:?}");
        }
        assert!(is_there(&client, &table, "s", &columns).await);
        delete(&client, &table, "s", &columns).await;
        collect(&world, &client).await;
        for family in [WRITE, DATA] {
            assert_eq!(world.cells(&table, family.clone()).await, 1, "{family:?}");
        }
        assert!(!is_there(&client, &table, "s", &columns).await);
    });
}

/// Each transaction keeps to the limits, but the row that they write together is many times as
/// large.
#[test]
fn h70_a_row_of_long_names_is_collected() {
    run_limited(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let columns = columns(400, COLUMN_BYTES_MAX);
        for _ in 0..2 {
            for some in columns.chunks(80) {
                wide(&client, &table, "s", some).await.commit().await.unwrap();
            }
        }
        assert!(world.cells(&table, WRITE).await > 2 * columns.len());
        collect(&world, &client).await;
        assert_eq!(world.cells(&table, WRITE).await, columns.len() + 1);
        for some in columns.chunks(80) {
            delete(&client, &table, "s", some).await;
        }
        collect(&world, &client).await;
        assert_eq!(world.cells(&table, WRITE).await, 1);
    });
}

/// Collection drops nothing below a lock. It settles all locks of a row together, as the
/// number of reads shows.
#[test]
fn h70_collection_settles_the_locks_of_a_wide_row() {
    run_limited(async |world| {
        let columns = most(&world);
        for left in [Left::Prewritten, Left::Decided] {
            let (owner, other) = (world.client().await, world.client().await);
            let table = owner.table("t").await.unwrap();
            let tx = wide(&owner, &table, "s", &columns).await;
            leave(&world, &owner, tx, left).await;
            assert!(world.cells(&table, LOCK).await >= columns.len());
            world.store.clear_trace();
            let report = collect(&world, &other).await;
            assert!(report.blocked_by.is_none(), "{left:?}: {report:?}");
            assert_eq!(world.cells(&table, LOCK).await, 0, "after {left:?}");
            let reads = world.store.count(Op::Read);
            assert!(reads < 20, "{reads} reads for one row after {left:?}");
            assert_eq!(is_there(&other, &table, "s", &columns).await, left == Left::Decided);
            world.audit(&table).await;
        }
    });
}

#[test]
fn h70_a_writer_settles_the_locks_of_a_wide_row() {
    run_limited(async |world| {
        let columns = most(&world);
        let (owner, other) = (world.client().await, world.client().await);
        let table = owner.table("t").await.unwrap();
        let tx = wide(&owner, &table, "s", &columns).await;
        leave(&world, &owner, tx, Left::Decided).await;
        let tx = wide(&other, &table, "s", &columns).await;
        world.store.clear_trace();
        tx.commit().await.unwrap();
        let reads = world.store.count(Op::Read);
        assert!(reads < 20, "{reads} reads for one row");
        assert_eq!(world.cells(&table, LOCK).await, 0);
        world.audit(&table).await;
    });
}

/// Leaves one more notification than one request can delete. No worker ran meanwhile.
async fn notify_too_often(world: &World, client: &Client, table: &Table) -> usize {
    let known = Registration::weak("o", "t", &BAL, Counting(Arc::default()));
    client.observe(vec![known], one_thread()).await.unwrap().stop().await;
    let mut tx = client.begin().await.unwrap();
    tx.notify(table, "r", &BAL).unwrap();
    tx.commit().await.unwrap();
    add_notifications(world, table, &notified_row(world, table).await).await;
    let count = world.cells(table, NOTIFY).await;
    assert_eq!(count, world.store.inner_limits().mutations_max.unwrap() + 1);
    count
}

/// The key of the only row with notifications.
async fn notified_row(world: &World, table: &Table) -> RowKey {
    let store = world.raw_table_of(table, &NOTIFY).await;
    let select = Selection::default().family(NOTIFY, TimeRange::ALL, u32::MAX);
    let page = store.scan(&RowRange::all(), &select, Default::default()).await.unwrap();
    let [row] = &page.rows[..] else { panic!("{} rows", page.rows.len()) };
    row.key.clone()
}

/// Leaves as many notifications as a request has mutations.
async fn add_notifications(world: &World, table: &Table, row: &RowKey) {
    let store = world.raw_table_of(table, &NOTIFY).await;
    let most = world.store.inner_limits().mutations_max.unwrap();
    let mut versions: Vec<Timestamp> = Vec::new();
    for _ in 0..most {
        versions.push(world.oracle.timestamp().await.unwrap().timestamp);
    }
    for some in versions.chunks(10_000) {
        let set = |at: &Timestamp| Mutation::set(NOTIFY, BAL.to_bytes(), *at, "");
        let mutations = some.iter().map(set).collect();
        let request = RowMutation { mutations, ..RowMutation::new(row.clone()) };
        store.mutate_row(request).await.unwrap();
    }
}

#[test]
fn h70_more_notifications_than_one_request_can_delete_are_cleared() {
    for batched in [false, true] {
        run_limited(async |world| cleared(&world, batched).await);
    }
}

async fn cleared(world: &World, batched: bool) {
    let client = world.client().await;
    let table = client.table("t").await.unwrap();
    let count = notify_too_often(world, &client, &table).await;
    let runs = Arc::new(AtomicUsize::new(0));
    let counting = Counting(runs.clone());
    let registration = if batched {
        Registration::batched("o", "t", &BAL, Batch::default(), counting)
    } else {
        Registration::weak("o", "t", &BAL, counting)
    };
    let workers = client.observe(vec![registration], one_thread()).await.unwrap();
    let report = client.wait_idle(Some(Duration::from_secs(100))).await.unwrap();
    assert!(report.idle && report.set_aside.is_empty(), "batched {batched}: {report:?}");
    assert_eq!(world.cells(&table, NOTIFY).await, 0, "{count} notifications");
    assert_eq!(runs.load(SeqCst), 1, "{count} notifications of one cell are one change");
    workers.stop().await;
}

/// Counts its runs.
struct Counting(Arc<AtomicUsize>);

impl Observer for Counting {
    async fn observe(&self, _: &mut Transaction, _: &Change) -> Result<()> {
        self.0.fetch_add(1, SeqCst);
        Ok(())
    }
}

impl BatchObserver for Counting {
    async fn observe(&self, _: &mut Transaction, changes: &[Change]) -> Result<()> {
        self.0.fetch_add(changes.len(), SeqCst);
        Ok(())
    }
}

#[test]
fn h70_more_notifications_than_one_request_can_delete_are_set_aside_and_replayed() {
    run_limited(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let (broken, runs) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        let (is_broken, ran) = (broken.clone(), runs.clone());
        let failing = observer(move |_, _| {
            let result = if is_broken.load(SeqCst) {
                Err(Error::application("it was told to fail"))
            } else {
                Ok(())
            };
            ran.fetch_add(usize::from(result.is_ok()), SeqCst);
            Box::pin(async { result })
        });
        notify_too_often(&world, &client, &table).await;
        let options = WorkerOptions { failures_max: 1, ..one_thread() };
        let registration = Registration::weak("o", "t", &BAL, failing);
        let workers = client.observe(vec![registration], options).await.unwrap();
        let report = client.wait_idle(Some(Duration::from_secs(100))).await.unwrap();
        assert_eq!(report.set_aside.len(), 1, "{report:?}");
        assert_eq!(world.cells(&table, NOTIFY).await, 0);
        broken.store(false, SeqCst);
        assert_eq!(client.replay(None).await.unwrap(), 1);
        let report = client.wait_idle(Some(Duration::from_secs(100))).await.unwrap();
        assert!(report.idle && report.set_aside.is_empty(), "{report:?}");
        assert_eq!((runs.load(SeqCst), world.cells(&table, NOTIFY).await), (1, 0));
        workers.stop().await;
    });
}

#[test]
fn h70_more_notifications_than_a_commit_can_delete_are_cleared_behind_it() {
    run_both_limited(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let runs = Arc::new(AtomicUsize::new(0));
        let register = || Registration::strong("o", "t", &BAL, Counting(runs.clone()));
        client.observe(vec![register()], one_thread()).await.unwrap().stop().await;
        write(&client, &table).await;
        add_notifications(&world, &table, &notified_row(&world, &table).await).await;
        let workers = client.observe(vec![register()], one_thread()).await.unwrap();
        let report = client.wait_idle(Some(Duration::from_secs(100))).await.unwrap();
        assert!(report.idle && report.set_aside.is_empty(), "{report:?}");
        assert_eq!(world.cells(&table, NOTIFY).await, 0);
        assert_eq!(runs.load(SeqCst), 1);
        workers.stop().await;
    });
}

#[test]
fn h70_more_notifications_than_one_request_can_delete_are_collected() {
    run_both_limited(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let register = || Registration::strong("o", "t", &BAL, Counting(Arc::default()));
        client.observe(vec![register()], one_thread()).await.unwrap().stop().await;
        write(&client, &table).await;
        let row = notified_row(&world, &table).await;
        let workers = client.observe(vec![register()], one_thread()).await.unwrap();
        assert!(client.wait_idle(Some(Duration::from_secs(100))).await.unwrap().idle);
        workers.stop().await;
        // The observer has acknowledged every change that these notifications can stand for.
        for _ in 0..2 {
            add_notifications(&world, &table, &row).await;
        }
        collect(&world, &client).await;
        assert_eq!(world.cells(&table, NOTIFY).await, 0);
    });
}

async fn write(client: &Client, table: &Table) {
    let mut tx = client.begin().await.unwrap();
    tx.set(table, "r", &BAL, "$1").unwrap();
    tx.commit().await.unwrap();
}
