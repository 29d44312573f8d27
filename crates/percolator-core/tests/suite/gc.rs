//! Tests garbage collection against requests that arrive late, long reads, crashes, and
//! transactions that go on meanwhile.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bigtable::{Row, Selection, Store, TimeRange, Timestamp};
use percolator_core::{
    AbortReason, Client, Error, GcOptions, Options, RowKey, Runtime, Secondaries, Snapshot, Table,
};

use crate::faults::{DATA, Fault, LOCK, NOTIFY, Op, ROLLBACK, WRITE, Weather};
use crate::world::{BAL, World, get, is_aborted, run, set, writing};

const NOW: Duration = Duration::ZERO;

/// All cells of a row, in every family.
async fn whole(world: &World, table: &Table, row: &str) -> Row {
    let mut select = Selection::default();
    for family in [DATA, LOCK, WRITE, ROLLBACK, NOTIFY] {
        select = select.family(family, TimeRange::ALL, u32::MAX);
    }
    world.raw_table(table).await.read_row(&RowKey::from(row), &select).await.unwrap()
}

async fn at(client: &Client, table: &Table, row: &str, ts: Timestamp) -> Option<String> {
    let value = client.snapshot_at(ts).await.unwrap().get(table, row, &BAL).await.unwrap();
    value.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

async fn delete(client: &Client, table: &Table, row: &str) -> Timestamp {
    let mut tx = client.begin().await.unwrap();
    tx.delete(table, row, &BAL).unwrap();
    tx.commit().await.unwrap()
}

/// Moves the floor and collection to the present, as if no transaction were open.
async fn force(world: &World, client: &Client) {
    let latest = world.oracle.peek().await.unwrap();
    world.store.raise_floor(latest).await.unwrap();
    client.gc(NOW).await.unwrap();
}

#[test]
fn what_is_overwritten_goes_and_what_is_read_stays() {
    run(async |world| {
        for short_value_bytes_max in [255, 0] {
            let options = Options { short_value_bytes_max, ..Options::default() };
            let client = world.client_with(options).await;
            let table = client.table(&format!("t{short_value_bytes_max}")).await.unwrap();
            for n in 0..5 {
                set(&client, &table, &[("a", &n.to_string())]).await;
            }
            set(&client, &table, &[("b", "once")]).await;
            let report = client.gc(NOW).await.unwrap();
            let long = if short_value_bytes_max == 0 { 4 } else { 0 };
            assert_eq!((report.counts.cells, report.counts.writes), (1, 4));
            assert_eq!(report.counts.values, long);
            assert_eq!(world.cells(&table, WRITE).await, 2);
            assert_eq!(world.cells(&table, DATA).await, if long > 0 { 2 } else { 0 });
            assert_eq!(get(&client, &table, "a").await.as_deref(), Some("4"));
            assert_eq!(at(&client, &table, "b", report.safe_point).await.as_deref(), Some("once"));
            world.audit(&table).await;
            // Nothing is new, so the next round does not even read.
            world.store.clear_trace();
            let again = client.gc(NOW).await.unwrap();
            assert!(again.safe_point > report.safe_point, "reading takes timestamps");
            assert_eq!(again.counts.writes, 0);
            world.store.clear_trace();
            client.gc(NOW).await.unwrap();
            assert_eq!(world.store.count(Op::Scan), 0, "an idle store is not scanned");
        }
    });
}

/// Some values of a cell lie in write records, and others apart.
#[test]
fn of_short_and_long_versions_of_a_cell_only_the_newest_stays() {
    for newest in [5, 6] {
        run(async move |world| {
            let client = world.client().await;
            let table = client.table("t").await.unwrap();
            let value = |n: usize| n.to_string().repeat(if n.is_multiple_of(2) { 10 } else { 300 });
            for n in 1..=newest {
                set(&client, &table, &[("a", &value(n))]).await;
            }
            let report = client.gc(NOW).await.unwrap();
            assert_eq!(report.counts.writes, newest as u64 - 1);
            assert_eq!(world.cells(&table, WRITE).await, 1);
            assert_eq!(world.cells(&table, DATA).await, newest % 2);
            assert_eq!(get(&client, &table, "a").await, Some(value(newest)));
            world.audit(&table).await;
        });
    }
}

#[test]
fn h04_prewrite_held_until_its_tomb_is_collected_is_rejected() {
    run(async |world| {
        let (owner, other) = (world.client().await, world.client().await);
        let table = owner.table("t").await.unwrap();
        set(&owner, &table, &[("p", "old"), ("s", "old")]).await;
        let held = world.store.on(Op::Prewrite, "p", 1, Fault::Hold);
        let tx = writing(&owner, &table, &[("p", "new"), ("s", "new")]).await;
        let s = tx.start_ts();
        let commit = world.beside(tx.commit());
        held.arrived().await;
        world.declare_dead(&owner);
        assert_eq!(get(&other, &table, "s").await.as_deref(), Some("old"));
        assert_eq!(world.raw(&table, "p", ROLLBACK, &BAL).await, [s]);
        let round = other.gc(NOW).await.unwrap();
        assert_eq!(round.counts.tombs, 1, "{round:?}");
        let before = whole(&world, &table, "p").await;
        held.release();
        let result = commit.await.unwrap();
        let too_old = matches!(result, Err(Error::Aborted { reason: AbortReason::TooOld, .. }));
        assert!(too_old, "{result:?}");
        // The owner's own abort may leave a tomb. Nothing else has changed, and the tomb is
        // collected, too.
        other.begin().await.unwrap();
        other.gc(NOW).await.unwrap();
        assert_eq!(whole(&world, &table, "p").await, before);
        assert_eq!(get(&other, &table, "s").await.as_deref(), Some("old"));
    });
}

#[test]
fn h06_a_committed_primary_is_kept_until_its_secondaries_are_rolled_forward() {
    run(async |world| {
        let (owner, other) = (world.client().await, world.client().await);
        let table = owner.table("t").await.unwrap();
        set(&owner, &table, &[("p", "old"), ("s", "old")]).await;
        let tx = writing(&owner, &table, &[("p", "new"), ("s", "new")]).await;
        let decided = tx.prewrite().await.unwrap().commit_primary().await.unwrap();
        let c = decided.commit_ts();
        // The owner's plan is gone, but its token still exists.
        drop(decided);
        // The newer write would hide the record that says "committed", and collection would
        // drop the record.
        set(&other, &table, &[("p", "newer")]).await;
        let round = other.gc(NOW).await.unwrap();
        assert!(round.safe_point > c && round.counts.locks == 1, "{round:?}");
        assert_eq!(world.raw(&table, "p", WRITE, &BAL).await.len(), 1);
        assert_eq!(at(&other, &table, "p", round.safe_point).await.as_deref(), Some("newer"));
        assert_eq!(at(&other, &table, "s", round.safe_point).await.as_deref(), Some("new"));
        world.audit(&table).await;
    });
}

#[test]
fn h06_a_living_owners_lock_ends_the_round_before_anything_is_dropped() {
    run(async |world| {
        let (owner, other) = (world.client().await, world.client().await);
        let table = owner.table("t").await.unwrap();
        for value in ["1", "2"] {
            set(&other, &table, &[("a", value)]).await;
        }
        let locked = writing(&owner, &table, &[("p", "1")]).await.prewrite().await.unwrap();
        other.begin().await.unwrap();
        // The owner is not registered, so only its lock blocks the round.
        let blocked = other.gc(NOW).await.unwrap();
        let lock = blocked.blocked_by.expect("the owner lives");
        assert_eq!((lock.owner, lock.cell.row), (owner.incarnation(), RowKey::from("p")));
        assert_eq!(blocked.counts.writes, 0);
        assert_eq!(world.raw(&table, "a", WRITE, &BAL).await.len(), 2);
        let too_old = locked.commit_primary().await.map(|d| d.commit_ts());
        assert!(is_aborted(&too_old), "the floor was raised: {too_old:?}");
        let status = other.gc_status(NOW).await.unwrap();
        assert!(status.last.unwrap().blocked);
        // Collect at the same safe point once more, though no timestamp was issued since.
        assert_eq!(other.gc(NOW).await.unwrap().counts.writes, 1);
        assert!(!other.gc_status(NOW).await.unwrap().last.unwrap().blocked);
    });
}

#[test]
fn h06_a_late_tomb_does_not_make_a_collected_commit_an_abort() {
    run(async |world| {
        let (owner, other) = (world.client().await, world.client().await);
        let table = owner.table("t").await.unwrap();
        let dropped = world.store.on(Op::CommitPrimary, "a", 1, Fault::DropReply);
        let tx = writing(&owner, &table, &[("a", "1")]).await;
        let s = tx.start_ts();
        let commit = world.beside(tx.commit());
        dropped.arrived().await;
        set(&other, &table, &[("a", "2")]).await;
        force(&world, &other).await;
        assert_eq!(world.raw(&table, "a", WRITE, &BAL).await.len(), 1, "the evidence is gone");
        let tomb = bigtable::Mutation::set(ROLLBACK, BAL.to_bytes(), s, "");
        let tomb = bigtable::RowMutation::new("a").mutation(tomb);
        world.raw_table(&table).await.mutate_row(tomb).await.unwrap();
        let result = commit.await.unwrap();
        assert!(matches!(result, Err(Error::Unknown { .. })), "{result:?}");
    });
}

#[test]
fn h12_a_held_secondary_commit_does_not_revive_a_deleted_value() {
    run(async |world| {
        let (owner, other) = (world.client().await, world.client().await);
        let table = owner.table("t").await.unwrap();
        let held = world.store.on(Op::Commit, "s", 1, Fault::Late);
        let tx = writing(&owner, &table, &[("p", "1"), ("s", "1")]).await;
        tx.commit().await.unwrap();
        assert_eq!(get(&other, &table, "s").await.as_deref(), Some("1"), "rolled forward");
        delete(&other, &table, "s").await;
        other.gc(NOW).await.unwrap();
        assert!(whole(&world, &table, "s").await.cells.is_empty(), "nothing is left of it");
        assert!(matches!(held.deliver().await[..], [Ok(false)]));
        assert!(whole(&world, &table, "s").await.cells.is_empty());
        assert_eq!(get(&other, &table, "s").await, None);
    });
}

#[test]
fn h35_a_reader_below_the_safe_point_gets_an_error_not_nothing() {
    run(async |world| {
        for short_value_bytes_max in [255, 0] {
            let options = Options { short_value_bytes_max, ..Options::default() };
            let (client, other) = (world.client_with(options).await, world.client().await);
            let table = client.table("t").await.unwrap();
            set(&client, &table, &[("a", "1")]).await;
            let reader = client.begin().await.unwrap();
            let past = client.snapshot().await.unwrap();
            set(&client, &table, &[("a", "2"), ("b", "2")]).await;
            // The reader belongs to another client and is not registered. Only the floor
            // protects it.
            assert_eq!(other.gc(NOW).await.unwrap().counts.writes, 1);
            for row in ["a", "b"] {
                let got = reader.get(&table, row, &BAL).await;
                assert!(matches!(got, Err(Error::TooOld { .. })), "{got:?}");
                assert!(matches!(past.get(&table, row, &BAL).await, Err(Error::TooOld { .. })));
            }
            let got = reader.scan(&table).collect().await;
            assert!(matches!(got, Err(Error::TooOld { .. })), "{got:?}");
            assert!(matches!(
                client.snapshot_at(past.timestamp()).await,
                Err(Error::TooOld { .. })
            ));
            delete(&client, &table, "a").await;
            delete(&client, &table, "b").await;
            other.gc(NOW).await.unwrap();
        }
    });
}

#[test]
fn h35_a_long_value_that_is_collected_between_two_reads_is_too_old() {
    run(async |world| {
        let options = Options { short_value_bytes_max: 0, ..Options::default() };
        let (client, other) = (world.client_with(options).await, world.client().await);
        let table = client.table("t").await.unwrap();
        set(&client, &table, &[("a", "1")]).await;
        let reader = client.begin().await.unwrap();
        set(&client, &table, &[("a", "2")]).await;
        // The first read of the row finds where the value is, and the second fetches it.
        let reads = AtomicUsize::new(0);
        let second = world.store.when(1, Fault::Hold, move |request| {
            let read = request.op == Op::Read && request.row == "a".into();
            read && reads.fetch_add(1, Ordering::SeqCst) == 1
        });
        let own = table.clone();
        let got = world.beside(async move { reader.get(&own, "a", &BAL).await });
        second.arrived().await;
        assert_eq!(other.gc(NOW).await.unwrap().counts.writes, 1);
        second.release();
        let got = got.await.unwrap();
        assert!(matches!(got, Err(Error::TooOld { .. })), "{got:?}");
    });
}

#[test]
fn h36_put_and_delete_read_right_at_every_live_moment_wherever_gc_crashes() {
    for (versions, crash_at) in [(3, 0..2), (1100, 0..4)] {
        for crash in crash_at {
            run(async |world| {
                let client = world.client().await;
                let table = client.table("t").await.unwrap();
                // There are many versions, so the row is dropped in steps, the oldest first.
                for n in 0..versions {
                    set(&client, &table, &[("a", &n.to_string())]).await;
                }
                delete(&client, &table, "a").await;
                let put = set(&client, &table, &[("a", "again")]).await;
                let deleted = delete(&client, &table, "a").await;
                let live = client.snapshot_at(deleted.previous()).await.unwrap();
                // Some requests get through, and then the collector is gone.
                let copies = world.store.on(Op::Collect, "a", crash, Fault::Duplicate);
                let caught = world.store.on(Op::Collect, "a", 1, Fault::Fail);
                let _ = client.gc(NOW).await;
                for (ts, want) in [(live.timestamp(), Some("again")), (deleted, None)] {
                    assert_eq!(at(&client, &table, "a", ts).await.as_deref(), want, "{crash}");
                }
                assert!(live.timestamp() >= put);
                assert_eq!(copies.count(), crash);
                caught.release();
                copies.release();
                // No reader needs the live value any more.
                drop(live);
                for _ in 0..9 {
                    let _ = client.gc(NOW).await;
                    assert_eq!(get(&client, &table, "a").await, None, "{crash}");
                    client.begin().await.unwrap();
                }
                assert!(whole(&world, &table, "a").await.cells.is_empty(), "{crash}");
                // Copies that come late must not remove newer writes.
                set(&client, &table, &[("a", "new")]).await;
                copies.deliver().await;
                assert_eq!(get(&client, &table, "a").await.as_deref(), Some("new"), "{crash}");
            });
        }
    }
}

#[test]
fn tombs_and_the_leftovers_of_crashed_transactions_go() {
    run(async |world| {
        let other = world.client().await;
        let table = other.table("t").await.unwrap();
        for row in ["a", "b", "c"] {
            let crashed = world.client().await;
            drop(writing(&crashed, &table, &[(row, "x"), ("z", "x")]).await.prewrite().await);
            drop(crashed);
            other.begin().await.unwrap();
            let report = other.gc(NOW).await.unwrap();
            assert_eq!(report.counts.locks, 2, "{row}: {report:?}");
        }
        // The sweep has left tombs below the safe point. The same round has dropped them.
        for family in [DATA, LOCK, WRITE, ROLLBACK, NOTIFY] {
            assert_eq!(world.cells(&table, family.clone()).await, 0, "{family}");
        }
    });
}

/// A request for the state of collection writes nothing, because a console sends one every
/// second.
#[test]
fn the_state_of_collection_is_looked_at_without_a_write() {
    run(async |world| {
        let (reader, client) = (world.client().await, world.client().await);
        let table = reader.table("t").await.unwrap();
        let first = set(&reader, &table, &[("a", "1")]).await;
        let registering = reader.collect_in_background(GcOptions::default());
        let long = reader.snapshot_at(first).await.unwrap();
        set(&reader, &table, &[("a", "2")]).await;
        world.runtime.sleep(Duration::from_secs(100)).await;
        // A registration that has lapsed stays until a round begins.
        world.declare_dead(&reader);
        let written = |world: &World| world.store.own_writes().len();
        let before = (written(&world), client.oracle().peek().await.unwrap());
        let status = client.gc_status(NOW).await.unwrap();
        assert_eq!((status.readers.len(), status.latest), (0, before.1));
        assert_eq!((written(&world), client.oracle().peek().await.unwrap()), before);
        drop((long, registering));
    });
}

#[test]
fn registered_readers_hold_the_safe_point_back() {
    run(async |world| {
        let (reader, collector) = (world.client().await, world.client().await);
        let table = reader.table("t").await.unwrap();
        let first = set(&reader, &table, &[("a", "1")]).await;
        let registering = reader.collect_in_background(GcOptions::default());
        let long = reader.snapshot_at(first).await.unwrap();
        set(&reader, &table, &[("a", "2")]).await;
        // This is long enough for a registration, and long enough for it to lapse if it is not
        // renewed.
        world.runtime.sleep(Duration::from_secs(100)).await;
        let report = collector.gc(NOW).await.unwrap();
        assert_eq!((report.safe_point, report.counts.writes), (first, 0));
        let status = collector.gc_status(NOW).await.unwrap();
        assert_eq!(status.readers[0].client, reader.incarnation());
        assert_eq!(long.get(&table, "a", &BAL).await.unwrap().as_deref(), Some(&b"1"[..]));
        // After the reader is closed, its registration is taken back.
        drop(long);
        world.runtime.sleep(Duration::from_secs(25)).await;
        assert_eq!(collector.gc(NOW).await.unwrap().counts.writes, 1);
        assert_eq!(collector.gc_status(NOW).await.unwrap().readers, []);
        drop(registering);
        // Within one client no registration is needed.
        let old = collector.begin().await.unwrap();
        set(&reader, &table, &[("a", "3")]).await;
        assert_eq!(collector.gc(NOW).await.unwrap().safe_point, old.start_ts());
        let prewritten = writing(&collector, &table, &[("b", "1")]).await;
        drop(old);
        let s = prewritten.start_ts();
        let prewritten = prewritten.prewrite().await.unwrap();
        world.client().await.begin().await.unwrap();
        assert_eq!(collector.gc(NOW).await.unwrap().safe_point, s, "also while it commits");
        prewritten.commit_primary().await.unwrap();
    });
}

/// A snapshot that is not held is registered only after a while.
#[test]
fn h35_a_held_snapshot_is_registered_from_the_beginning() {
    run(async |world| {
        let (reader, collector) = (world.client().await, world.client().await);
        let table = reader.table("t").await.unwrap();
        let first = set(&reader, &table, &[("a", "1")]).await;
        let registering = reader.collect_in_background(GcOptions::default());
        world.sleep_ms(1).await;
        let get = async |long: &Snapshot| long.get(&table, "a", &BAL).await;
        let latest = reader.snapshot().await.unwrap();
        let past = reader.held_snapshot(Some(first)).await.unwrap();
        set(&reader, &table, &[("b", "1")]).await;
        let new = reader.held_snapshot(None).await.unwrap();
        set(&reader, &table, &[("a", "2")]).await;
        assert_eq!(collector.gc(NOW).await.unwrap().safe_point, first);
        for long in [&past, &latest, &new] {
            assert_eq!(get(long).await.unwrap().as_deref(), Some(&b"1"[..]));
        }
        // One hold after the other ends, and each time the registration names what is left.
        drop(past);
        world.runtime.sleep(Duration::from_secs(100)).await;
        assert_eq!(collector.gc(NOW).await.unwrap().safe_point, latest.timestamp());
        drop(latest);
        world.runtime.sleep(Duration::from_secs(100)).await;
        assert_eq!(collector.gc(NOW).await.unwrap().safe_point, new.timestamp());
        assert_eq!(get(&new).await.unwrap().as_deref(), Some(&b"1"[..]));
        drop(new);
        world.runtime.sleep(Duration::from_secs(25)).await;
        assert_eq!(collector.gc_status(NOW).await.unwrap().readers, []);
        // Without a hold the collection of another client is faster.
        let young = reader.snapshot().await.unwrap();
        set(&reader, &table, &[("a", "3")]).await;
        collector.gc(NOW).await.unwrap();
        assert!(matches!(get(&young).await, Err(Error::TooOld { .. })));
        let asked = reader.held_snapshot(Some(first)).await;
        assert!(matches!(asked, Err(Error::TooOld { .. })), "{asked:?}");
        drop(registering);
    });
}

/// A client that is closed, or whose process ends, holds nothing.
#[test]
fn the_hold_of_a_dead_client_lapses() {
    run(async |world| {
        let collector = world.client().await;
        let table = collector.table("t").await.unwrap();
        let process = world.process(Options::default(), 0).await;
        let first = set(&collector, &table, &[("a", "1")]).await;
        let _registering = process.client.collect_in_background(GcOptions::default());
        let _held = process.client.held_snapshot(Some(first)).await.unwrap();
        set(&collector, &table, &[("a", "2")]).await;
        assert_eq!(collector.gc(NOW).await.unwrap().safe_point, first);
        process.crash();
        assert!(collector.gc(NOW).await.unwrap().safe_point > first);
    });
}

#[test]
fn h35_a_registration_is_renewed_while_a_round_of_its_own_client_takes_long() {
    run(async |world| {
        let (reader, other) = (world.client().await, world.client().await);
        let table = reader.table("t").await.unwrap();
        let mut cells: Vec<(String, String)> = Vec::new();
        for n in 0..40 {
            cells.push((format!("row{n:02}"), "1".to_owned()));
        }
        let cells: Vec<(&str, &str)> = cells.iter().map(|(r, v)| (&**r, &**v)).collect();
        let first = set(&reader, &table, &cells).await;
        let long = reader.snapshot_at(first).await.unwrap();
        set(&reader, &table, &cells).await;
        let second = Duration::from_secs(1);
        let options = GcOptions { retention: second, interval: second, ..GcOptions::default() };
        let _collecting = reader.collect_in_background(options);
        // Each request of the round takes seconds, and it has many.
        let slow = Duration::from_secs(8);
        world.store.set_weather(Weather { delay_max: slow, ..Weather::default() });
        for _ in 0..20 {
            set(&other, &table, &[("row00", "2")]).await;
            other.gc(NOW).await.unwrap();
            world.runtime.sleep(Duration::from_secs(20)).await;
        }
        assert_eq!(long.get(&table, "row00", &BAL).await.unwrap().as_deref(), Some(&b"1"[..]));
    });
}

#[test]
fn the_registration_of_a_dead_client_lapses() {
    run(async |world| {
        let collector = world.client().await;
        let table = collector.table("t").await.unwrap();
        for vanishes in [true, false] {
            let process = world.process(Options::default(), 0).await;
            let first = set(&collector, &table, &[("a", "1")]).await;
            let long = process.client.snapshot_at(first).await.unwrap();
            let _registering = process.client.collect_in_background(GcOptions::default());
            world.runtime.sleep(Duration::from_secs(25)).await;
            set(&collector, &table, &[("a", "2")]).await;
            assert_eq!(collector.gc(NOW).await.unwrap().safe_point, first);
            process.crash();
            if !vanishes {
                // The client hangs: its token exists, but it renews nothing.
                percolator_core::LockService::register(&*world.locks, process.client.incarnation())
                    .await
                    .unwrap();
                assert_eq!(collector.gc(NOW).await.unwrap().safe_point, first);
                world.runtime.sleep(Duration::from_secs(31)).await;
            }
            assert!(collector.gc(NOW).await.unwrap().safe_point > first, "vanishes: {vanishes}");
            let got = long.get(&table, "a", &BAL).await;
            assert!(matches!(got, Err(Error::TooOld { .. })), "{got:?}");
        }
    });
}

#[test]
fn the_safe_point_trails_the_present_by_the_retention_also_after_a_restart() {
    run(async |world| {
        let minute = Duration::from_secs(60);
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let collector = client.collect_in_background(GcOptions {
            retention: minute,
            interval: Duration::from_secs(1),
            ..GcOptions::default()
        });
        let mut commits = Vec::new();
        for n in 0..30 {
            commits.push(set(&client, &table, &[("a", &n.to_string())]).await);
            world.runtime.sleep(Duration::from_secs(10)).await;
        }
        // Versions that were newest a minute ago, and all later ones, can be read.
        let floor = world.store.floor();
        assert!(floor <= commits[24], "{floor} is not a minute old");
        assert!(floor > commits[20], "{floor} stays far behind");
        assert!(world.raw(&table, "a", WRITE, &BAL).await.len() <= 10);
        assert_eq!(at(&client, &table, "a", commits[25]).await.as_deref(), Some("25"));
        drop(collector);
        drop(client);
        // A short-lived process learns from its predecessors how old a timestamp is.
        let later = world.client().await;
        world.runtime.sleep(Duration::from_secs(30)).await;
        assert_eq!(later.gc(10 * minute).await.unwrap().safe_point, floor, "never back");
        let report = later.gc(minute).await.unwrap();
        assert!(report.safe_point > commits[24] && report.safe_point <= commits[28], "{report:?}");
    });
}

#[test]
fn an_idle_collector_asks_the_store_for_nothing_and_takes_no_timestamps() {
    run(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        for value in ["1", "2"] {
            set(&client, &table, &[("a", value)]).await;
        }
        let second = Duration::from_secs(1);
        let options = GcOptions { retention: second, interval: second, ..GcOptions::default() };
        let collector = client.collect_in_background(options);
        world.runtime.sleep(10 * second).await;
        assert_eq!(world.raw(&table, "a", WRITE, &BAL).await.len(), 1);
        world.store.clear_trace();
        let latest = world.oracle.peek().await.unwrap();
        world.runtime.sleep(1000 * second).await;
        assert_eq!(world.store.trace(), []);
        assert_eq!(world.oracle.peek().await.unwrap(), latest);
        drop(collector);
    });
}

#[test]
fn a_dropped_collector_lets_go_of_the_store_at_once() {
    run(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        for row in 0..600 {
            let row = row.to_string();
            set(&client, &table, &[(&row, "1")]).await;
            set(&client, &table, &[(&row, "2")]).await;
        }
        let second = Duration::from_secs(1);
        let options = GcOptions { retention: second, interval: second, ..GcOptions::default() };
        let caught = world.store.when(1, Fault::Hold, |request| request.op == Op::Collect);
        let collector = client.collect_in_background(options);
        caught.arrived().await;
        let incarnation = client.incarnation();
        drop((client, table));
        let alive = || percolator_core::LockService::is_alive(&*world.locks, incarnation);
        assert!(alive().await.unwrap(), "the collector is in the middle of a round");
        drop(collector);
        assert!(!alive().await.unwrap());
        // Another client can collect the garbage that the dropped collector has left.
        assert!(world.client().await.gc(NOW).await.unwrap().counts.writes > 300);
    });
}

#[test]
fn two_clients_collect_at_once() {
    for seed in 0..40 {
        crate::world::run_seed(seed, async |world| {
            let writer = world.client().await;
            let table = writer.table("t").await.unwrap();
            for n in 0..20 {
                let (row, value) = ((n % 4).to_string(), n.to_string());
                set(&writer, &table, &[(&row, &value)]).await;
            }
            delete(&writer, &table, "3").await;
            let crashed = world.client_with(Options {
                secondaries: Secondaries::Background,
                ..Options::default()
            });
            let crashed = crashed.await;
            let half = writing(&crashed, &table, &[("1", "x"), ("2", "x")]).await;
            drop(half.prewrite().await.unwrap().commit_primary().await.unwrap());
            world.store.set_weather(crate::faults::Weather {
                delay_max: Duration::from_millis(3),
                ..Default::default()
            });
            let rounds: Vec<_> = [world.client().await, world.client().await]
                .map(|client| world.beside(async move { client.gc(NOW).await }))
                .into_iter()
                .collect();
            for round in rounds {
                let report = round.await.unwrap().unwrap();
                assert!(report.blocked_by.is_none(), "seed {seed}: {report:?}");
            }
            for (row, want) in [("0", Some("16")), ("1", Some("x")), ("2", Some("x")), ("3", None)]
            {
                assert_eq!(get(&writer, &table, row).await.as_deref(), want, "seed {seed}");
            }
            writer.gc(NOW).await.unwrap();
            assert_eq!(world.cells(&table, WRITE).await, 3, "seed {seed}");
            assert_eq!(world.cells(&table, ROLLBACK).await, 0, "seed {seed}");
            world.audit(&table).await;
        });
    }
}

#[test]
fn what_finishes_a_decision_is_never_fenced() {
    run(async |world| {
        let (owner, other) = (world.client().await, world.client().await);
        let table = owner.table("t").await.unwrap();
        let pair = |a: &'static str, b: &'static str| [(a, "1"), (b, "1")];
        let committed = writing(&owner, &table, &pair("a", "b")).await.prewrite().await.unwrap();
        let committed = committed.commit_primary().await.unwrap();
        let aborted = writing(&owner, &table, &pair("c", "d")).await.prewrite().await.unwrap();
        let crashed = writing(&other, &table, &pair("e", "f")).await;
        let s = crashed.start_ts();
        drop(crashed.prewrite().await.unwrap());
        world.declare_dead(&other);
        let latest = owner.begin().await.unwrap().start_ts();
        world.store.raise_floor(latest.next()).await.unwrap();
        // A secondary commit is not fenced.
        committed.commit_secondaries().await;
        assert_eq!(world.raw(&table, "b", WRITE, &BAL).await.len(), 1);
        // An owner's abort is not fenced, nor is the rollback of its other rows.
        assert!(is_aborted(&aborted.commit_primary().await.map(|d| d.commit_ts())));
        // A tomb is not fenced, nor is a rollback by the client that finds the lock.
        owner.begin().await.unwrap();
        assert_eq!(get(&owner, &table, "f").await, None);
        assert_eq!(world.raw(&table, "e", ROLLBACK, &BAL).await, [s]);
        assert_eq!(world.cells(&table, LOCK).await, 0);
        assert_eq!(get(&owner, &table, "b").await.as_deref(), Some("1"));
    });
}

/// Once the floor has passed `s`, a missing record proves nothing about a commit that was
/// requested before (H06).
#[test]
fn h07_h06_too_old_after_a_lost_reply_is_not_called_aborted() {
    run(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let dropped = world.store.on(Op::CommitPrimary, "a", 1, Fault::DropReply);
        let tx = writing(&client, &table, &[("a", "1")]).await;
        let commit = world.beside(tx.commit());
        dropped.arrived().await;
        // Do what a garbage collector may do once a newer value has been committed.
        let floor = client.begin().await.unwrap().start_ts();
        bigtable::Store::raise_floor(&*world.store, floor).await.unwrap();
        let erase = bigtable::Mutation::delete(WRITE, BAL.to_bytes(), bigtable::TimeRange::ALL);
        let erase = bigtable::RowMutation::new("a").mutation(erase);
        world.raw_table(&table).await.mutate_row(erase).await.unwrap();
        let result = commit.await.unwrap();
        assert!(matches!(result, Err(Error::Unknown { .. })), "{result:?}");
    });
}

#[test]
fn a_commit_below_the_floor_is_aborted_as_too_old() {
    run(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let early = writing(&client, &table, &[("a", "1")]).await;
        let tx = writing(&client, &table, &[("b", "1"), ("c", "1")]).await;
        let prewritten = tx.prewrite().await.unwrap();
        let floor = client.begin().await.unwrap().start_ts();
        bigtable::Store::raise_floor(&*world.store, floor).await.unwrap();
        for result in
            [early.commit().await, prewritten.commit_primary().await.map(|d| d.commit_ts())]
        {
            let error = result.unwrap_err();
            assert!(matches!(
                error,
                Error::Aborted { reason: percolator_core::AbortReason::TooOld, .. }
            ));
            assert!(error.is_retryable());
        }
        assert_eq!(world.cells(&table, LOCK).await, 0);
    });
}
