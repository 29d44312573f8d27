//! Tests hazards that fit into no other file: timestamps at the boundary, threads, tables
//! (H21, H29, H33, H44, H59, H68).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};

use futures::executor::block_on;
use percolator_core::testing::VirtualRuntime;
use percolator_core::{Error, Incarnation, Oracle, Runtime, Stamp, Timestamp, WindowOracle};

use crate::faults::LOCK;
use crate::world::{BAL, get, run, set, switch_off_named_mutant, writing};

fn after(ts: Timestamp) -> Timestamp {
    Timestamp::new(ts.as_u64() + 1).unwrap()
}

#[test]
fn h21_a_timestamp_that_was_not_issued_cannot_be_read_at() {
    run(async |world| {
        let client = world.client().await;
        let latest = client.oracle().peek().await.unwrap();
        for ts in [after(latest), Timestamp::MAX] {
            assert!(matches!(client.snapshot_at(ts).await, Err(Error::NotIssued { .. })));
        }
        client.snapshot_at(latest).await.unwrap();
    });
}

#[test]
fn h29_a_read_at_the_commit_timestamp_sees_the_commit() {
    run(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        set(&client, &table, &[("r", "old")]).await;
        let c = set(&client, &table, &[("r", "new")]).await;
        client.begin().await.unwrap();
        let before = Timestamp::new(c.as_u64() - 1).unwrap();
        for (ts, expected) in [(before, "old"), (c, "new"), (after(c), "new")] {
            let view = client.snapshot_at(ts).await.unwrap();
            let value = view.get(&table, "r", &BAL).await.unwrap();
            assert_eq!(value.as_deref(), Some(expected.as_bytes()), "at {ts}");
        }
    });
}

#[test]
fn h33_reads_and_scans_of_every_moment_equal_a_map() {
    run(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let mut map: BTreeMap<String, String> = BTreeMap::new();
        let mut moments = Vec::new();
        for n in 0..300 {
            let mut tx = client.begin().await.unwrap();
            for _ in 0..=world.runtime.random() % 3 {
                let row = format!("r{}", world.runtime.random() % 12);
                if world.runtime.random().is_multiple_of(4) {
                    tx.delete(&table, row.clone(), &BAL).unwrap();
                    map.remove(&row);
                } else {
                    tx.set(&table, row.clone(), &BAL, format!("{n}")).unwrap();
                    map.insert(row, format!("{n}"));
                }
            }
            moments.push((tx.commit().await.unwrap(), map.clone()));
        }
        for (ts, map) in moments {
            let view = client.snapshot_at(ts).await.unwrap();
            let rows = view.scan(&table).collect().await.unwrap();
            let pairs = rows.iter().map(|row| (row.row.as_bytes(), &row.cells[0].1[..]));
            assert!(pairs.eq(map.iter().map(|(row, value)| (row.as_bytes(), value.as_bytes()))));
            for n in 0..12 {
                let row = format!("r{n}");
                let value = view.get(&table, row.clone(), &BAL).await.unwrap();
                assert_eq!(value.as_deref(), map.get(&row).map(|value| value.as_bytes()));
            }
        }
    });
}

#[test]
fn h44_threads_that_race_for_small_windows_get_each_timestamp_once() {
    const EACH: usize = 3000;
    let store = bigtable::MemoryStore::new();
    let runtime: Arc<dyn Runtime> = Arc::new(VirtualRuntime::new(1));
    let lead = WindowOracle::lead(&store, Incarnation(1), runtime, 3);
    let oracle = futures::executor::block_on(lead).unwrap();
    let take = || {
        let next = || futures::executor::block_on(oracle.timestamp()).unwrap().timestamp;
        let taken: Vec<_> = (0..EACH).map(|_| next()).collect();
        assert!(taken.is_sorted(), "no thread sees timestamps go back");
        taken
    };
    let all: BTreeSet<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(all.len(), 4 * EACH);
}

/// Every raise of the schema's version is followed by a sweep at a timestamp of its own. A
/// transaction that does not know the version commits below it, so the sweep finds its writes.
#[test]
fn h59_an_old_version_comes_with_timestamps_below_the_sweep_s() {
    const RAISES: u64 = 2000;
    const ASKERS: usize = 3;
    switch_off_named_mutant();
    let store = bigtable::MemoryStore::new();
    let oracle = block_on(WindowOracle::open(&store, Incarnation(1))).unwrap();
    let (over, all_here) = (AtomicBool::new(false), Barrier::new(ASKERS + 1));
    // After the n-th of these sweeps, every timestamp must come with version n or a later one.
    let sweeps = Mutex::new(Vec::new());
    let ask = || {
        all_here.wait();
        let mut stamps = Vec::new();
        while !over.load(SeqCst) {
            stamps.push(block_on(oracle.timestamp()).unwrap());
            if stamps.len() >= 1000 {
                check_versions(&stamps, &sweeps.lock().unwrap());
                stamps.clear();
            }
        }
        check_versions(&stamps, &sweeps.lock().unwrap());
    };
    std::thread::scope(|scope| {
        let askers: Vec<_> = (0..ASKERS).map(|_| scope.spawn(ask)).collect();
        all_here.wait();
        for version in 1..=RAISES {
            block_on(oracle.raise_schema_version(version)).unwrap();
            let sweep = block_on(oracle.timestamp()).unwrap().timestamp;
            sweeps.lock().unwrap().push(sweep);
        }
        over.store(true, SeqCst);
        askers.into_iter().for_each(|asker| asker.join().unwrap());
    });
}

/// Checks stamps against `sweeps`: the timestamp of the sweep that followed the raise to
/// version 1, to version 2, and so on.
fn check_versions(stamps: &[Stamp], sweeps: &[Timestamp]) {
    for Stamp { timestamp, schema_version } in stamps {
        let swept = sweeps.partition_point(|sweep| sweep < timestamp) as u64;
        let facts = format!("version {schema_version} at {timestamp}, above sweep {swept}");
        assert!(*schema_version >= swept, "{facts}");
    }
}

#[test]
fn h68_a_primary_in_a_table_that_the_resolver_never_opened_decides() {
    run(async |world| {
        let (owner, other) = (world.client().await, world.client().await);
        let (a, b) = (owner.table("a").await.unwrap(), owner.table("b").await.unwrap());
        let mut tx = writing(&owner, &a, &[("p", "1")]).await;
        tx.set(&b, "s", &BAL, "1").unwrap();
        // The owner dies between its commit point and its secondaries.
        tx.prewrite().await.unwrap().commit_primary().await.unwrap();
        world.declare_dead(&owner);
        let seen = other.table("b").await.unwrap();
        assert_eq!(get(&other, &seen, "s").await.as_deref(), Some("1"));
        assert_eq!(world.cells(&b, LOCK).await, 0);
    });
}
