//! Tests how notifications differ if they lie in tables of their own, on stores without
//! locality groups (H47, H48, H49, H62). All other tests of notifications run over both
//! placements.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bigtable::layer::{StoreLayer, TableLayer};
use bigtable::{Page, PageLimit, Row, RowRange, Selection, Store};
use futures::lock::Mutex;
use percolator_core::{
    Client, Column, Error, Options, Registration, RowKey, Runtime, Services, Table, WorkerOptions,
    Workers,
};

use crate::faults::{Fault, FaultyStore, NOTIFY, NOTIFY_TABLE, Op};
use crate::notifications::{COUNT, observe, register};
use crate::stores::FLOOR;
use crate::world::{
    A, B, BAL, World, add, counting, get, get_column, is_aborted, observer, run_apart, run_both,
    set, writing,
};

async fn idle(client: &Client) {
    assert!(client.wait_idle(Some(Duration::from_secs(100))).await.unwrap().idle);
}

async fn count(client: &Client, table: &Table, row: &str) -> Option<String> {
    get_column(client, table, row, &COUNT).await
}

async fn left(world: &World, table: &Table) -> usize {
    world.cells(table, NOTIFY).await
}

#[test]
fn h48_all_notifications_are_there_before_the_commit_point() {
    run_apart(async |world| {
        let (worker, writer) = (world.client().await, world.process(Options::default(), 0).await);
        let table = worker.table("t").await.unwrap();
        register(&worker, "o").await;
        let prewritten =
            writing(&writer.client, &table, &[("a", "1"), ("b", "1"), ("c", "1")]).await;
        let prewritten = prewritten.prewrite().await.unwrap();
        assert_eq!(left(&world, &table).await, 0, "nothing at the start timestamp");
        let held = world.store.on(Op::CommitPrimary, "a", 1, Fault::Hold);
        let commit = world.beside(prewritten.commit_primary());
        held.arrived().await;
        assert_eq!(left(&world, &table).await, 3);
        held.release();
        // The writer dies before its secondaries are committed. Only the worker reads them.
        let commit_ts = commit.await.unwrap().unwrap().commit_ts();
        writer.crash();
        let raw = world.raw_table(&table).await;
        let family =
            bigtable::Selection::default().family(NOTIFY, bigtable::TimeRange::ALL, u32::MAX);
        let page = raw.scan(&bigtable::RowRange::all(), &family, Default::default()).await.unwrap();
        assert!(page.rows.is_empty(), "no row operation leaves one");
        assert_eq!(world.raw(&table, "c", NOTIFY, &BAL).await, [commit_ts]);
        let workers = observe(&worker, "o", counting(COUNT)).await;
        idle(&worker).await;
        for row in ["a", "b", "c"] {
            assert_eq!(count(&worker, &table, row).await.as_deref(), Some("1"));
        }
        workers.stop().await;
    });
}

#[test]
fn h48_a_transaction_that_cannot_notify_aborts() {
    for row in ["a", "b"] {
        run_apart(async |world| {
            let client = world.client().await;
            let table = client.table("t").await.unwrap();
            register(&client, "o").await;
            let lost = world.store.on(Op::Notify, row, 3, Fault::DropReply);
            set(&client, &table, &[("a", "1"), ("b", "1")]).await;
            assert_eq!(lost.count(), 3, "a lost reply is no reason to abort");
            world.store.on(Op::Notify, row, usize::MAX, Fault::Fail);
            let tx = writing(&client, &table, &[("a", "2"), ("b", "2")]).await;
            world.store.clear_trace();
            assert!(is_aborted(&tx.commit().await));
            assert_eq!(world.store.count(Op::CommitPrimary), 0);
            assert_eq!(get(&client, &table, "a").await.as_deref(), Some("1"));
            assert_eq!(get(&client, &table, "b").await.as_deref(), Some("1"));
        });
    }
}

#[test]
fn h47_a_worker_that_comes_before_the_commit_point_leaves_the_notification() {
    for secondary in [false, true] {
        run_apart(async |world| {
            let (worker, writer) = (world.client().await, world.client().await);
            let table = worker.table("t").await.unwrap();
            let workers = observe(&worker, "o", counting(COUNT)).await;
            let held = world.store.on(Op::CommitPrimary, "a", 1, Fault::Hold);
            let late = world.store.on(Op::Commit, "b", usize::from(secondary), Fault::Hold);
            let writer_ = (writer.clone(), table.clone());
            let commit = world.beside(async move {
                set(&writer_.0, &writer_.1, &[("a", "1"), ("b", "1")]).await
            });
            held.arrived().await;
            // The worker makes several passes. It sees both notifications and the locks above
            // them.
            world.sleep_ms(5_000).await;
            assert_eq!(left(&world, &table).await, 2);
            assert_eq!(worker.stats().observer_runs, 0);
            held.release();
            world.sleep_ms(5_000).await;
            late.release();
            commit.await.unwrap();
            idle(&worker).await;
            for row in ["a", "b"] {
                assert_eq!(count(&worker, &table, row).await.as_deref(), Some("1"));
            }
            assert_eq!((worker.stats().observer_runs, left(&world, &table).await), (2, 0));
            workers.stop().await;
        });
    }
}

#[test]
fn h62_what_an_aborted_transaction_has_left_goes_and_runs_nothing() {
    run_apart(async |world| {
        let (worker, writer) = (world.client().await, world.process(Options::default(), 0).await);
        let table = worker.table("t").await.unwrap();
        let workers = observe(&worker, "o", counting(COUNT)).await;
        let held = world.store.on(Op::CommitPrimary, "a", 1, Fault::Hold);
        let (client, own) = (writer.client.clone(), table.clone());
        writer.spawn(async move {
            drop(writing(&client, &own, &[("a", "1"), ("b", "1")]).await.commit().await);
        });
        held.arrived().await;
        assert_eq!(left(&world, &table).await, 2);
        writer.crash();
        idle(&worker).await;
        assert_eq!((worker.stats().observer_runs, left(&world, &table).await), (0, 0));
        assert_eq!(get(&worker, &table, "a").await, None);
        workers.stop().await;
    });
}

#[test]
fn h62_a_late_copy_of_a_notification_is_found_stale() {
    run_apart(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let workers = observe(&client, "o", counting(COUNT)).await;
        let late = world.store.on(Op::Notify, "r", 1, Fault::Duplicate);
        set(&client, &table, &[("r", "1")]).await;
        idle(&client).await;
        late.deliver().await;
        assert_eq!(left(&world, &table).await, 1);
        idle(&client).await;
        assert_eq!(count(&client, &table, "r").await.as_deref(), Some("1"));
        workers.stop().await;
        // Without workers the late notification is garbage.
        set(&client, &table, &[("r", "2")]).await;
        let late = world.store.on(Op::Notify, "r", 1, Fault::Duplicate);
        set(&client, &table, &[("r", "3")]).await;
        let workers = observe(&client, "o", counting(COUNT)).await;
        idle(&client).await;
        workers.stop().await;
        late.deliver().await;
        if FLOOR {
            client.begin().await.unwrap();
            let report = client.gc(Duration::ZERO).await.unwrap();
            assert_eq!((report.counts.notifications, left(&world, &table).await), (1, 0));
        }
    });
}

#[test]
fn a_cell_that_is_written_while_nobody_looks_has_one_notification() {
    run_apart(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        register(&client, "o").await;
        let mut last = set(&client, &table, &[("r", "0")]).await;
        for n in 1..50 {
            last = set(&client, &table, &[("r", &n.to_string())]).await;
        }
        assert_eq!(world.raw(&table, "r", NOTIFY, &BAL).await, [last]);
        let history = client.cell_history(&table, "r", &BAL).await.unwrap();
        assert!(history[0].notify && history[0].timestamp == last);
        assert_eq!(client.backlog().await.unwrap()[0].cells, 1);
        let workers = observe(&client, "o", counting(COUNT)).await;
        idle(&client).await;
        assert_eq!(count(&client, &table, "r").await.as_deref(), Some("1"));
        workers.stop().await;
    });
}

#[test]
fn names_leave_room_for_the_tables_of_notifications_and_keys_for_their_shard() {
    run_apart(async |world| {
        let client = world.client().await;
        assert_eq!(client.table_names().await.unwrap(), [""; 0]);
        let invalid = |error: Error| assert!(matches!(error, Error::Invalid { .. }), "{error}");
        invalid(client.table(&"t".repeat(33)).await.unwrap_err());
        invalid(client.table("percolator.notify.t").await.unwrap_err());
        let table = client.table(&"t".repeat(32)).await.unwrap();
        let key = |length| RowKey::from(vec![b'r'; length]);
        let mut tx = client.begin().await.unwrap();
        invalid(tx.set(&table, key(bigtable::ROW_KEY_BYTES_MAX), &BAL, "1").unwrap_err());
        tx.set(&table, key(bigtable::ROW_KEY_BYTES_MAX - 1), &BAL, "1").unwrap();
        tx.commit().await.unwrap();
    });
}

/// The same store, as other software sees it that reports the opposite about its locality
/// groups.
#[derive(Debug)]
struct Other(Arc<FaultyStore>);

impl StoreLayer for Other {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    fn locality_groups(&self) -> bool {
        !self.inner().locality_groups()
    }
}

#[test]
fn a_client_that_opens_a_database_later_notifies_where_its_notifications_lie() {
    run_both(async |world| {
        let client = world.client().await;
        let services =
            Services { store: Arc::new(Other(world.store.clone())), ..client.services().clone() };
        let other = Client::open(services, Options::default()).await.unwrap();
        let table = client.table("t").await.unwrap();
        register(&client, "o").await;
        set(&client, &table, &[("mine", "1")]).await;
        let theirs = other.table("t").await.unwrap();
        set(&other, &theirs, &[("theirs", "1")]).await;
        assert_eq!(left(&world, &table).await, 2);
        let workers = observe(&other, "o", counting(COUNT)).await;
        idle(&client).await;
        for row in ["mine", "theirs"] {
            assert_eq!(count(&client, &table, row).await.as_deref(), Some("1"));
        }
        workers.stop().await;
    });
}

/// Counts the requests that read named rows of notifications, and holds back the pages of scans
/// while a test has the lock.
#[derive(Debug, Default)]
struct Gate {
    reads: AtomicUsize,
    pages: Mutex<()>,
}

#[derive(Debug)]
struct Gated(Arc<FaultyStore>, Arc<Gate>);

#[derive(Debug)]
struct GatedTable(Arc<dyn bigtable::Table>, Arc<Gate>);

impl StoreLayer for Gated {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    fn table(&self, table: Arc<dyn bigtable::Table>) -> Arc<dyn bigtable::Table> {
        if !table.name().starts_with(NOTIFY_TABLE) {
            return table;
        }
        Arc::new(GatedTable(table, self.1.clone()))
    }
}

impl TableLayer for GatedTable {
    fn inner(&self) -> &dyn bigtable::Table {
        &*self.0
    }

    async fn read_row(&self, row: &RowKey, select: &Selection) -> bigtable::Result<Row> {
        self.1.reads.fetch_add(1, Ordering::Relaxed);
        self.0.read_row(row, select).await
    }

    async fn read_rows(&self, rows: &[RowKey], select: &Selection) -> bigtable::Result<Vec<Row>> {
        self.1.reads.fetch_add(1, Ordering::Relaxed);
        self.0.read_rows(rows, select).await
    }

    async fn scan(
        &self,
        range: &RowRange,
        select: &Selection,
        limit: PageLimit,
    ) -> bigtable::Result<Page> {
        let page = self.0.scan(range, select, limit).await;
        drop(self.1.pages.lock().await);
        page
    }
}

/// Writes 64 cells that the observer `o` observes.
async fn dirty(world: &World) -> (Client, Table) {
    let client = world.client().await;
    let table = client.table("t").await.unwrap();
    register(&client, "o").await;
    for n in 0..64 {
        set(&client, &table, &[(&format!("r{n:02}"), "1")]).await;
    }
    (client, table)
}

/// Starts one worker of a client that learns of changes only by scanning.
async fn scanning(world: &World, like: &Client, gate: &Arc<Gate>) -> (Client, Workers) {
    let store = Arc::new(Gated(world.store.clone(), gate.clone()));
    let services = Services { store, ..like.services().clone() };
    let client = Client::open(services, Options::default()).await.unwrap();
    let options = WorkerOptions { threads: 1, ..WorkerOptions::default() };
    let registration = Registration::strong("o", "t", &BAL, counting(COUNT));
    let workers = client.observe(vec![registration], options).await.unwrap();
    (client, workers)
}

#[test]
fn a_scanner_passes_over_what_others_have_handled_eight_cells_at_a_time() {
    run_apart(async |world| {
        let (client, _) = dirty(&world).await;
        let gate = Arc::new(Gate::default());
        let held = gate.pages.lock().await;
        let (worker, workers) = scanning(&world, &client, &gate).await;
        world.sleep_ms(1_000).await;
        let others = observe(&client, "o", counting(COUNT)).await;
        idle(&client).await;
        others.stop().await;
        drop(held);
        world.sleep_ms(1_000).await;
        assert_eq!(worker.stats().observer_runs, 0);
        // 1 + 2 + 4 + 7 * 8 + 1 cells.
        let reads = gate.reads.load(Ordering::Relaxed);
        assert!((8..=11).contains(&reads), "{reads} requests for 64 notifications");
        workers.stop().await;
    });
}

#[test]
fn a_scanner_reads_each_cell_again_right_before_it_runs_an_observer_there() {
    run_apart(async |world| {
        let (client, table) = dirty(&world).await;
        let gate = Arc::new(Gate::default());
        let (worker, workers) = scanning(&world, &client, &gate).await;
        idle(&client).await;
        for n in 0..64 {
            assert_eq!(count(&client, &table, &format!("r{n:02}")).await.as_deref(), Some("1"));
        }
        assert_eq!(worker.stats().observer_runs, 64);
        assert!(gate.reads.load(Ordering::Relaxed) >= 64);
        workers.stop().await;
    });
}

/// Two observers of one row follow one commit. The later one waits for the other, and then needs
/// neither the notification nor a row lock.
#[test]
fn a_hint_that_waits_for_another_column_of_its_row_is_followed_without_more_requests() {
    run_apart(async |world| {
        let (gate, like) = (Arc::new(Gate::default()), world.client().await);
        let store = Arc::new(Gated(world.store.clone(), gate.clone()));
        let services = Services { store, ..like.services().clone() };
        let client = Client::open(services, Options::default()).await.unwrap();
        let table = client.table("t").await.unwrap();
        let rarely = Duration::from_secs(1000);
        let (scan_period, idle_max) = (rarely, rarely);
        let options =
            WorkerOptions { threads: 2, scan_period, idle_max, ..WorkerOptions::default() };
        let other = Column::literal("f:other");
        // The observer that comes first keeps the other one waiting.
        let slow = |counter: Column| {
            let runtime = world.runtime.clone();
            observer(move |tx, change| {
                let (counter, runtime) = (counter.clone(), runtime.clone());
                Box::pin(async move {
                    runtime.sleep(Duration::from_millis(5)).await;
                    add(tx, &change.table, &change.row, &counter, 1).await
                })
            })
        };
        let a = Registration::strong("a", "t", &A, slow(COUNT));
        let b = Registration::strong("b", "t", &B, slow(other.clone()));
        let workers = client.observe(vec![a, b], options).await.unwrap();
        world.sleep_ms(1_000).await;
        gate.reads.store(0, Ordering::Relaxed);
        let mut tx = client.begin().await.unwrap();
        tx.set(&table, "r", &A, "1").unwrap();
        tx.set(&table, "r", &B, "1").unwrap();
        tx.commit().await.unwrap();
        world.sleep_ms(1_000).await;
        for column in [&COUNT, &other] {
            assert_eq!(get_column(&client, &table, "r", column).await.as_deref(), Some("1"));
        }
        assert_eq!((client.stats().observer_runs, left(&world, &table).await), (2, 0));
        assert_eq!(gate.reads.load(Ordering::Relaxed), 0, "reads of notifications");
        workers.stop().await;
    });
}

/// An observer runs for long and asks for its row lock. Another observer of the row waits for it.
#[test]
fn a_hint_waits_for_a_run_of_its_row_that_has_taken_the_row_lock() {
    run_apart(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let slow = || {
            let (runtime, running, most) = (world.runtime.clone(), running.clone(), most.clone());
            observer(move |_, _| {
                let (runtime, running, most) = (runtime.clone(), running.clone(), most.clone());
                Box::pin(async move {
                    most.fetch_max(1 + running.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
                    runtime.sleep(Duration::from_millis(500)).await;
                    running.fetch_sub(1, Ordering::Relaxed);
                    Ok(())
                })
            })
        };
        let a = Registration::strong("a", "t", &A, slow());
        let b = Registration::strong("b", "t", &B, slow());
        let rarely = Duration::from_secs(1000);
        let (scan_period, idle_max) = (rarely, rarely);
        let options =
            WorkerOptions { threads: 2, scan_period, idle_max, ..WorkerOptions::default() };
        let workers = client.observe(vec![a, b], options).await.unwrap();
        world.sleep_ms(1_000).await;
        let mut tx = client.begin().await.unwrap();
        tx.set(&table, "r", &A, "1").unwrap();
        tx.set(&table, "r", &B, "1").unwrap();
        tx.commit().await.unwrap();
        world.sleep_ms(3_000).await;
        assert_eq!((client.stats().observer_runs, most.load(Ordering::Relaxed)), (2, 1));
        workers.stop().await;
    });
}

/// The table of notifications has a longer name than the table of data.
#[test]
fn a_table_whose_notifications_would_have_too_long_a_name_leaves_nothing() {
    run_apart(async |world| {
        let client = world.client().await;
        let name = "t".repeat(bigtable::TABLE_NAME_BYTES_MAX);
        let refused = client.table(&name).await.map(drop);
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
        assert_eq!(client.table_names().await.unwrap(), Vec::<String>::new());
    });
}
