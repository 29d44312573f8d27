//! Tests notifications and acknowledgements of strong observers (H47 to H55, H61, H62).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use percolator_core::{
    Client, Column, Holder, Incarnation, LockService, Observer, Options, ProcessLocks,
    Registration, Result, Runtime, Services, Table, WorkerOptions, Workers, async_trait,
};

use crate::faults::{Fault, NOTIFY, Op, Weather};
use crate::world::{
    A, B, BAL, World, add, counting, get, get_column, is_aborted, observer, run_both,
    run_both_seed, seeds, set, writing,
};

pub(crate) const COUNT: Column = Column::literal("f:count");
const OTHER: Column = Column::literal("f:other");

pub(crate) fn one_thread() -> WorkerOptions {
    WorkerOptions { threads: 1, ..WorkerOptions::default() }
}

/// Workers that run one strong observer of `t/bal`.
pub(crate) async fn observe(client: &Client, name: &str, observer: impl Observer) -> Workers {
    let registration = Registration::strong(name, "t", &BAL, observer);
    client.observe(vec![registration], one_thread()).await.unwrap()
}

/// Puts an observer into the schema without running it.
pub(crate) async fn register(client: &Client, name: &str) {
    observe(client, name, observer(|_, _| Box::pin(async { Ok(()) }))).await.stop().await;
}

/// Workers of one client for different columns each have hints of their own.
#[test]
fn h61_a_hint_is_not_taken_by_workers_that_have_no_observer_for_it() {
    run_both(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let rarely = Duration::from_secs(1000);
        let options = WorkerOptions { scan_period: rarely, idle_max: rarely, ..one_thread() };
        let mut all = Vec::new();
        for (name, column, count) in [("a", A, COUNT), ("b", B, Column::literal("f:other"))] {
            let strong = Registration::strong(name, "t", &column, counting(count));
            all.push(client.observe(vec![strong], options.clone()).await.unwrap());
        }
        world.sleep_ms(100).await;
        for n in 1..=20 {
            client.transact(async |mut tx| tx.set(&table, "r", &A, n.to_string())).await.unwrap();
            world.sleep_ms(100).await;
            let count = get_column(&client, &table, "r", &COUNT).await;
            assert_eq!(count, Some(n.to_string()), "the hint was lost");
        }
        drop(all);
    });
}

async fn idle(world: &World, client: &Client) {
    let report = client.wait_idle(Some(Duration::from_secs(100))).await.unwrap();
    assert!(report.idle && report.set_aside.is_empty(), "{report:?} at {:?}", world.runtime.now());
}

async fn count(client: &Client, table: &Table, row: &str) -> i64 {
    get_column(client, table, row, &COUNT).await.map_or(0, |count| count.parse().unwrap())
}

/// The exact interleaving: O (s=3) has read the cell, W (s=2) writes and commits at 4, and
/// then O clears.
#[test]
fn h47_clearing_a_notification_spares_the_one_of_a_concurrent_write() {
    for prewrites_only in [false, true] {
        run_both(async |world| {
            let (worker, writer) = (world.client().await, world.client().await);
            let table = worker.table("t").await.unwrap();
            register(&worker, "o").await;
            set(&writer, &table, &[("r", "0")]).await;
            // If the notification is in the row itself, the observer's commit removes it.
            let op = if world.is_apart(&NOTIFY) { Op::Clear } else { Op::CommitPrimary };
            let clear = world.store.on(op, "r", 1, Fault::Hold);
            let late = writing(&writer, &table, &[("r", "1")]).await;
            let s = late.start_ts();
            let workers = observe(&worker, "o", counting(COUNT)).await;
            clear.arrived().await;
            let prewritten = late.prewrite().await.unwrap();
            let commit_ts = if prewrites_only {
                clear.release();
                world.sleep_ms(1).await;
                let at_s = world.raw(&table, "r", NOTIFY, &BAL).await.contains(&s);
                assert_ne!(at_s, world.is_apart(&NOTIFY));
                prewritten.commit_primary().await.unwrap().commit_ts()
            } else {
                let decided = prewritten.commit_primary().await.unwrap();
                clear.release();
                decided.commit_ts()
            };
            assert!(world.raw(&table, "r", NOTIFY, &BAL).await.contains(&commit_ts));
            idle(&world, &worker).await;
            assert_eq!(count(&worker, &table, "r").await, 2);
            workers.stop().await;
        });
    }
}

#[test]
fn h48_h61_cells_of_a_crashed_writer_are_handled_though_nobody_reads_them() {
    run_both(async |world| {
        let (worker, writer) = (world.client().await, world.process(Options::default(), 0).await);
        let table = worker.table("t").await.unwrap();
        let workers = observe(&worker, "o", counting(COUNT)).await;
        let tx = writing(&writer.client, &table, &[("a", "1"), ("b", "1"), ("c", "1")]).await;
        drop(tx.prewrite().await.unwrap().commit_primary().await.unwrap());
        writer.crash();
        idle(&world, &worker).await;
        for row in ["a", "b", "c"] {
            assert_eq!(count(&worker, &table, row).await, 1);
        }
        workers.stop().await;
    });
}

#[test]
fn h49_roll_forward_by_anyone_leaves_the_notification() {
    for by in ["reader", "scanner", "writer"] {
        run_both(async |world| {
            let (owner, other) = (world.client().await, world.client().await);
            let table = owner.table("t").await.unwrap();
            register(&owner, "o").await;
            let tx = writing(&owner, &table, &[("p", "1"), ("s", "1")]).await;
            let decided = tx.prewrite().await.unwrap().commit_primary().await.unwrap();
            let commit_ts = decided.commit_ts();
            drop(decided);
            match by {
                "reader" => drop(get(&other, &table, "s").await),
                "scanner" => drop(other.begin().await.unwrap().scan(&table).collect().await),
                _ => drop(writing(&other, &table, &[("s", "2")]).await.prewrite().await.unwrap()),
            }
            let notified = world.raw(&table, "s", NOTIFY, &BAL).await;
            assert!(notified.contains(&commit_ts), "{by}: {notified:?}");
            assert_eq!(world.raw(&table, "p", NOTIFY, &BAL).await, [commit_ts]);
        });
    }
}

#[test]
fn h50_a_write_between_an_observers_start_and_commit_makes_it_run_again_once() {
    run_both(async |world| {
        let (worker, writer) = (world.client().await, world.client().await);
        let table = worker.table("t").await.unwrap();
        register(&worker, "o").await;
        set(&writer, &table, &[("r", "1")]).await;
        let held = world.store.on(Op::Prewrite, "r", 1, Fault::Hold);
        let workers = observe(&worker, "o", counting(COUNT)).await;
        held.arrived().await;
        set(&writer, &table, &[("r", "2")]).await;
        held.release();
        idle(&world, &worker).await;
        assert_eq!(count(&worker, &table, "r").await, 2);
        assert_eq!(worker.stats().observer_runs, 2);
        workers.stop().await;
    });
}

#[test]
fn h51_h62_an_observer_that_crashes_anywhere_has_one_effect_for_each_change() {
    for op in [Op::Prewrite, Op::CommitPrimary, Op::Clear] {
        for fault in [Fault::Hold, Fault::HoldReply] {
            run_both(async |world| {
                if op == Op::Clear && !world.is_apart(&NOTIFY) {
                    // Here the clearing is a part of the observer's commit.
                    return;
                }
                let (writer, crashing) =
                    (world.client().await, world.process(Options::default(), 0).await);
                let table = writer.table("t").await.unwrap();
                register(&writer, "o").await;
                set(&writer, &table, &[("r", "1")]).await;
                let held = world.store.on(op, "r", 1, fault);
                let lost = observe(&crashing.client, "o", counting(COUNT)).await;
                held.arrived().await;
                crashing.crash();
                drop(lost);
                let workers = observe(&writer, "o", counting(COUNT)).await;
                idle(&world, &writer).await;
                // The advisory row lock ends with the token, and not only after its lifetime.
                assert!(world.runtime.now() < Duration::from_secs(10), "{op:?} {fault:?}");
                assert_eq!(count(&writer, &table, "r").await, 1, "{op:?} {fault:?}");
                assert_eq!(world.notified(&table, "r", &BAL).await, 0);
                workers.stop().await;
            });
        }
    }
}

/// A lock service whose advisory locks exclude no other holder.
#[derive(Debug)]
struct EverybodyHolds(Arc<ProcessLocks>);

#[async_trait]
impl LockService for EverybodyHolds {
    async fn register(&self, owner: Incarnation) -> Result<()> {
        self.0.register(owner).await
    }

    fn unregister(&self, owner: Incarnation) {
        self.0.unregister(owner);
    }

    async fn is_alive(&self, owner: Incarnation) -> Result<bool> {
        self.0.is_alive(owner).await
    }

    async fn try_lock(&self, _: &[u8], _: Holder, _: Duration) -> Result<bool> {
        Ok(true)
    }

    async fn renew(&self, _: &[u8], _: Holder, _: Duration) -> Result<bool> {
        Ok(true)
    }

    fn unlock(&self, _: &[u8], _: Holder) {}
}

#[test]
fn h52_two_workers_on_one_notification_have_one_effect() {
    for seed in 0..seeds(20) {
        run_both_seed(seed, async |world| {
            let writer = world.client().await;
            let table = writer.table("t").await.unwrap();
            world
                .store
                .set_weather(Weather { delay_max: Duration::from_millis(2), ..Weather::default() });
            let mut all = Vec::new();
            for _ in 0..3 {
                let services = Services {
                    locks: Arc::new(EverybodyHolds(world.locks.clone())),
                    ..writer.services().clone()
                };
                let client = Client::open(services, Options::default()).await.unwrap();
                let options = WorkerOptions {
                    threads: 3,
                    scan_period: Duration::from_millis(3),
                    idle_max: Duration::from_millis(5),
                    ..WorkerOptions::default()
                };
                let strong = Registration::strong("o", "t", &BAL, counting(COUNT));
                let workers = client.observe(vec![strong], options).await.unwrap();
                all.push((client, workers));
            }
            for n in 1..=5 {
                set(&writer, &table, &[("r", &n.to_string())]).await;
                idle(&world, &writer).await;
                assert_eq!(count(&writer, &table, "r").await, n);
            }
            let runs: u64 = all.iter().map(|(client, _)| client.stats().observer_runs).sum();
            assert!(runs >= 5);
            for (_, workers) in all {
                workers.stop().await;
            }
        });
    }
}

#[test]
fn h53_two_observers_of_one_column_both_run_though_one_is_held_up() {
    run_both(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        // The observer makes two writes of a cell that a third client always writes too, so it
        // conflicts.
        let busy = observer(|tx, change| {
            Box::pin(async move {
                add(tx, &change.table, "shared", &OTHER, 1).await?;
                let (client, table) = (tx.client(), change.table.clone());
                if client.stats().conflicts < 3 {
                    client
                        .transact(async |mut tx| add(&mut tx, &table, "shared", &OTHER, 0).await)
                        .await?;
                }
                Ok(())
            })
        });
        let registrations = vec![
            Registration::strong("quick", "t", &BAL, counting(COUNT)),
            Registration::strong("slow", "t", &BAL, busy),
        ];
        let workers = client.observe(registrations, one_thread()).await.unwrap();
        set(&client, &table, &[("r", "1")]).await;
        idle(&world, &client).await;
        assert_eq!(count(&client, &table, "r").await, 1);
        assert_eq!(get_column(&client, &table, "shared", &OTHER).await.as_deref(), Some("1"));
        assert_eq!(client.stats().conflicts, 3);
        workers.stop().await;
    });
}

#[test]
fn h53_a_program_without_one_of_the_observers_deletes_nothing() {
    for fails in [false, true] {
        run_both(async |world| {
            let (old, new) = (world.client().await, world.client().await);
            let table = old.table("t").await.unwrap();
            register(&new, "new").await;
            let first = observer(move |tx, change| {
                Box::pin(async move {
                    if fails {
                        Err(percolator_core::Error::application("never works"))
                    } else {
                        add(tx, &change.table, &change.row, &OTHER, 1).await
                    }
                })
            });
            let options = WorkerOptions { failures_max: 2, ..one_thread() };
            let registration = Registration::strong("old", "t", &BAL, first);
            let workers = old.observe(vec![registration], options).await.unwrap();
            set(&old, &table, &[("r", "1")]).await;
            world.sleep_ms(60_000).await;
            assert!(world.notified(&table, "r", &BAL).await > 0);
            let more = observe(&new, "new", counting(COUNT)).await;
            world.sleep_ms(10_000).await;
            assert_eq!(count(&new, &table, "r").await, 1);
            if !fails {
                assert_eq!(get_column(&old, &table, "r", &OTHER).await.as_deref(), Some("1"));
            }
            workers.stop().await;
            more.stop().await;
        });
    }
}

/// Several calls of `observe`, of one client or of several, share the observers of a column.
/// The observer that handles a change last clears its notification.
#[test]
fn h53_observers_of_one_column_that_run_apart_clear_together() {
    for apart in [false, true] {
        run_both(async |world| {
            let one = world.client().await;
            let other = if apart { world.client().await } else { one.clone() };
            let table = one.table("t").await.unwrap();
            let first = observe(&one, "first", counting(COUNT)).await;
            let second = observe(&other, "second", counting(OTHER)).await;
            for value in ["1", "2"] {
                set(&one, &table, &[("r", value), ("s", value)]).await;
                let report = one.wait_idle(Some(Duration::from_secs(20))).await.unwrap();
                assert!(report.idle, "apart: {apart}");
            }
            assert_eq!(world.notified(&table, "r", &BAL).await, 0);
            assert_eq!(count(&one, &table, "r").await, 2);
            assert_eq!(get_column(&one, &table, "r", &OTHER).await.as_deref(), Some("2"));
            first.stop().await;
            second.stop().await;
        });
    }
}

/// The sweep for a new observer notifies cells that the others have handled long before.
#[test]
fn h53_three_observers_that_run_apart_clear_what_one_of_them_had_to_handle() {
    run_both(async |world| {
        let clients = [world.client().await, world.client().await, world.client().await];
        let table = clients[0].table("t").await.unwrap();
        let mut workers = Vec::new();
        for (client, name) in clients.iter().zip(["first", "second", "third"]) {
            workers.push(observe(client, name, observer(|_, _| Box::pin(async { Ok(()) }))).await);
            set(client, &table, &[(name, "1")]).await;
            let report = client.wait_idle(Some(Duration::from_secs(20))).await.unwrap();
            assert!(report.idle, "with {name}");
        }
        assert_eq!(world.cells(&table, NOTIFY).await, 0);
        let runs = clients.each_ref().map(|client| client.stats().observer_runs);
        assert_eq!(runs, [3, 3, 3]);
        drop(workers);
    });
}

/// A transaction has aborted after it left its notifications. No observer has anything to
/// handle.
#[test]
fn h62_observers_that_run_apart_clear_what_an_aborted_transaction_has_left() {
    run_both(async |world| {
        let (one, other) = (world.client().await, world.client().await);
        let table = one.table("t").await.unwrap();
        let first = observe(&one, "first", counting(COUNT)).await;
        let second = observe(&other, "second", counting(OTHER)).await;
        set(&one, &table, &[("old", "1")]).await;
        idle(&world, &one).await;
        for row in ["old", "new"] {
            world.store.on(Op::CommitPrimary, row, 1, Fault::Refuse);
            let aborted = writing(&one, &table, &[(row, "2")]).await.commit().await;
            assert!(is_aborted(&aborted));
            let report = one.wait_idle(Some(Duration::from_secs(20))).await.unwrap();
            assert!(report.idle, "{row}");
        }
        assert_eq!(world.cells(&table, NOTIFY).await, 0);
        assert_eq!((one.stats().observer_runs, other.stats().observer_runs), (1, 1));
        first.stop().await;
        second.stop().await;
    });
}

/// Another program runs, or should run, a second observer of the column.
#[test]
fn h56_an_observer_that_failed_for_long_runs_soon_although_others_have_not_run() {
    run_both(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        register(&client, "other").await;
        let works = Arc::new(AtomicBool::new(false));
        let fails = observer({
            let works = works.clone();
            move |_, _| {
                let works = works.load(Ordering::Relaxed);
                Box::pin(async move {
                    let down = || percolator_core::Error::application("it is down");
                    works.then_some(()).ok_or_else(down)
                })
            }
        });
        let delay = Duration::from_secs(1);
        let options = WorkerOptions { failures_max: 2, failure_delay_max: delay, ..one_thread() };
        let registration = Registration::strong("o", "t", &BAL, fails);
        let workers = client.observe(vec![registration], options.clone()).await.unwrap();
        set(&client, &table, &[("r", "1")]).await;
        world.sleep_ms(1_000_000).await;
        works.store(true, Ordering::Relaxed);
        let (runs, failures) = (client.stats().observer_runs, client.stats().observer_failures);
        assert_eq!(runs, failures);
        let soon = delay + options.idle_max + Duration::from_secs(1);
        world.sleep_ms(soon.as_millis() as u64).await;
        assert_eq!(client.stats().observer_failures, failures);
        assert_eq!(client.stats().observer_runs, runs + 1, "it waits for longer than it should");
        workers.stop().await;
    });
}

/// Another client retires the observer while this program has nothing to do.
#[test]
fn cells_that_wait_for_an_observer_are_cleared_soon_after_another_client_retires_it() {
    run_both(async |world| {
        let (client, other) = (world.client().await, world.client().await);
        let table = client.table("t").await.unwrap();
        register(&other, "v1").await;
        let workers = observe(&client, "v2", counting(COUNT)).await;
        set(&client, &table, &[("r", "1")]).await;
        world.sleep_ms(1_000_000).await;
        assert_eq!(world.notified(&table, "r", &BAL).await, 1);
        assert_eq!(other.retire_observer("v1").await.unwrap(), 1);
        let report = other.wait_idle(Some(Duration::from_secs(5))).await.unwrap();
        assert!(report.idle, "the notification stays");
        assert_eq!(client.stats().observer_runs, 1);
        workers.stop().await;
    });
}

/// This client has had no chance to learn of the change, because it has begun no transaction
/// since.
#[test]
fn idle_reports_name_the_observers_that_are_missing_now() {
    run_both(async |world| {
        let (client, other) = (world.client().await, world.client().await);
        register(&other, "v1").await;
        let workers = observe(&client, "v2", counting(COUNT)).await;
        let missing = async || {
            let report = client.wait_idle(None).await.unwrap();
            report.missing.into_iter().map(|missing| missing.observer).collect::<Vec<_>>()
        };
        assert_eq!(missing().await, ["v1"]);
        other.retire_observer("v1").await.unwrap();
        assert_eq!(missing().await, [""; 0]);
        register(&other, "v3").await;
        assert_eq!(missing().await, ["v3"]);
        workers.stop().await;
    });
}

/// A new version of a program gives its observer another name.
#[test]
fn an_observer_that_nobody_runs_any_more_is_named_and_its_cells_are_visited_ever_more_rarely() {
    run_both(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        register(&client, "v1").await;
        let workers = observe(&client, "v2", counting(COUNT)).await;
        let cells: Vec<String> = (0..20).map(|n| format!("{n:02}")).collect();
        let cells: Vec<(&str, &str)> = cells.iter().map(|row| (row.as_str(), "1")).collect();
        set(&client, &table, &cells).await;
        let report = client.wait_idle(Some(Duration::from_secs(1))).await.unwrap();
        assert!(!report.idle);
        let missing: Vec<&str> = report.missing.iter().map(|m| m.observer.as_str()).collect();
        assert_eq!(missing, ["v1"]);
        let before = client.stats().begun;
        world.sleep_ms(300_000).await;
        let begun = client.stats().begun - before;
        // Each visit begins two transactions: after 1, 2, 4, ... seconds.
        assert!(begun < 20 * 2 * 10, "{begun} transactions in five minutes");
        // When another process changes such a cell, the change is handled as soon as any
        // other.
        let writer = world.client().await;
        set(&writer, &table, &[("10", "2")]).await;
        world.sleep_ms(3_000).await;
        assert_eq!(count(&client, &table, "10").await, 2);
        assert_eq!(client.retire_observer("v1").await.unwrap(), 1);
        let report = client.wait_idle(Some(Duration::from_secs(20))).await.unwrap();
        assert!(report.idle && report.missing.is_empty());
        assert_eq!(client.stats().observer_runs, 21);
        workers.stop().await;
    });
}

#[test]
fn h54_an_observer_that_writes_nothing_runs_once() {
    run_both(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let workers = observe(&client, "o", observer(|_, _| Box::pin(async { Ok(()) }))).await;
        set(&client, &table, &[("a", "1"), ("b", "1")]).await;
        client.transact(async |mut tx| tx.delete(&table, "c", &BAL)).await.unwrap();
        idle(&world, &client).await;
        world.sleep_ms(30_000).await;
        assert_eq!(client.stats().observer_runs, 3, "a deletion notifies too");
        assert_eq!(world.cells(&table, NOTIFY).await, 0);
        workers.stop().await;
    });
}

#[test]
fn h55_an_observer_of_its_own_column_runs_until_it_writes_no_more() {
    run_both(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let countdown = observer(|tx, change| {
            Box::pin(async move {
                let left = crate::world::number(
                    tx.get(&change.table, &*change.row.to_string(), &BAL).await?,
                );
                match left {
                    0 => Ok(()),
                    left => tx.set(&change.table, &change.row, &BAL, (left - 1).to_string()),
                }
            })
        });
        let workers = observe(&client, "o", countdown).await;
        set(&client, &table, &[("r", "7")]).await;
        idle(&world, &client).await;
        assert_eq!(get(&client, &table, "r").await.as_deref(), Some("0"));
        assert_eq!(client.stats().observer_runs, 8);
        workers.stop().await;
    });
}

/// One row among many is dirty, without a hint, and tablets are cut at random. One pass of an
/// idle worker finds it.
#[test]
fn h61_a_scan_alone_finds_a_dirty_row_within_the_longest_pause() {
    for seed in 0..seeds(50) {
        run_both_seed(seed, async |world| {
            let (worker, writer) = (world.client().await, world.client().await);
            let table = worker.table("t").await.unwrap();
            let random = |n: u64| world.runtime.random() % n;
            let mut boundaries: Vec<_> =
                (0..random(30)).map(|_| format!("row-{:04}", random(1000)).into()).collect();
            boundaries.sort();
            boundaries.dedup();
            world.store.set_boundaries(boundaries);
            let workers = observe(&worker, "o", counting(COUNT)).await;
            world.sleep_ms(20_000 + random(5000)).await;
            let row = format!("row-{:04}", random(1000));
            set(&writer, &table, &[(&row, "1")]).await;
            world.sleep_ms(WorkerOptions::default().idle_max.as_millis() as u64 + 50).await;
            assert_eq!(count(&worker, &table, &row).await, 1, "seed {seed}");
            workers.stop().await;
        });
    }
}

/// While hints keep the workers busy, a pass looks at a few pages, and the next pass goes on
/// after them. This holds for every worker, even while other workers are at rows of some
/// pages.
#[test]
fn h61_what_has_no_hint_is_found_although_hints_wait() {
    for threads in [1, 16] {
        run_both(async |world| {
            let (worker, writer) = (world.client().await, world.client().await);
            let table = worker.table("t").await.unwrap();
            let runtime = world.runtime.clone();
            let slow = observer(move |tx, change| {
                let (table, row) = (change.table.clone(), change.row.clone());
                let sleep = runtime.sleep(Duration::from_millis(200));
                Box::pin(async move {
                    sleep.await;
                    tx.set(&table, row, &COUNT, "1")
                })
            });
            let options = WorkerOptions { threads, ..WorkerOptions::default() };
            let strong = Registration::strong("o", "t", &BAL, slow);
            let workers = worker.observe(vec![strong], options).await.unwrap();
            let name = |n: usize| format!("h-{n:04}");
            let hinted: Vec<String> = (0..6000).map(name).collect();
            let cells: Vec<(&str, &str)> = hinted.iter().map(|row| (row.as_str(), "1")).collect();
            set(&worker, &table, &cells).await;
            // These are in ten places among the others. A process without workers writes them,
            // so there are no hints.
            let quiet = |n: usize| format!("{}-quiet", name(600 * n + 300));
            let quiet: Vec<String> = (0..10).map(quiet).collect();
            let cells: Vec<(&str, &str)> = quiet.iter().map(|row| (row.as_str(), "1")).collect();
            set(&writer, &table, &cells).await;
            // Six passes of 1,024 rows are one round. The hints keep the workers busy for at
            // least 75 seconds.
            world.sleep_ms(10_000).await;
            for row in &quiet {
                let count = count(&worker, &table, row).await;
                assert_eq!(count, 1, "{row} was not found by {threads} threads");
            }
            assert!(worker.hints_waiting() > 4_000);
            workers.stop().await;
        });
    }
}

/// Without hints several workers must share the dirty cells that they find, and not queue
/// behind the first worker.
#[test]
fn h61_workers_that_only_scan_work_side_by_side() {
    run_both(async |world| {
        let (worker, writer) = (world.client().await, world.client().await);
        let table = worker.table("t").await.unwrap();
        register(&worker, "o").await;
        let rows: Vec<String> = (0..100).map(|n| format!("{n:03}")).collect();
        let cells: Vec<(&str, &str)> = rows.iter().map(|row| (row.as_str(), "1")).collect();
        set(&writer, &table, &cells).await;
        let runtime = world.runtime.clone();
        let slow = observer(move |_, _| {
            let sleep = runtime.sleep(Duration::from_secs(1));
            Box::pin(async move {
                sleep.await;
                Ok(())
            })
        });
        let options = WorkerOptions { threads: 10, ..WorkerOptions::default() };
        let before = world.runtime.now();
        let strong = Registration::strong("o", "t", &BAL, slow);
        let workers = worker.observe(vec![strong], options).await.unwrap();
        idle(&world, &worker).await;
        let took = world.runtime.now() - before;
        assert!(took < Duration::from_secs(40), "100 seconds of work for 10 workers: {took:?}");
        workers.stop().await;
    });
}

#[test]
fn h62_the_notification_of_a_rolled_back_transaction_goes_and_runs_nothing() {
    run_both(async |world| {
        let (worker, writer) = (world.client().await, world.process(Options::default(), 0).await);
        let table = worker.table("t").await.unwrap();
        let workers = observe(&worker, "o", counting(COUNT)).await;
        let tx = writing(&writer.client, &table, &[("a", "1"), ("b", "1")]).await;
        drop(tx.prewrite().await.unwrap());
        let notified = if world.is_apart(&NOTIFY) { 0 } else { 2 };
        assert_eq!(world.cells(&table, NOTIFY).await, notified);
        writer.crash();
        assert_eq!(get(&worker, &table, "a").await, None);
        assert_eq!(world.notified(&table, "a", &BAL).await, 0, "it went with the lock");
        idle(&world, &worker).await;
        assert_eq!(world.cells(&table, NOTIFY).await, 0);
        assert_eq!(worker.stats().observer_runs, 0);
        workers.stop().await;
    });
}
