//! Tests several threads at the same time: one winner, whole rows, and what a read may see
//! during a mutation.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::scope;

use futures::executor::block_on;

use super::fixture::*;
use crate::TimeRange;
use crate::{ConditionalMutation, Error, Family, Glance, Glanced, Row, RowKey, RowRange};
use crate::{Selection, Store, Table};

const THREADS: u64 = 4;

pub(super) async fn one_winner(store: &dyn Store) {
    const ROUNDS: u64 = 30;
    let table = table(store, "threads_winner").await;
    for f in &EACH {
        let barrier = Barrier::new(THREADS as usize);
        let won: Vec<u64> = scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (table, barrier) = (&*table, &barrier);
                    scope.spawn(move || {
                        let mut won = 0;
                        for round in 0..ROUNDS {
                            barrier.wait();
                            won += u64::from(!block_on(lock(table, f, round, thread)));
                        }
                        won
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("a thread panicked")).collect()
        });
        assert_eq!(won.iter().sum::<u64>(), ROUNDS, "{f}: one winner in each round, not {won:?}");
        for round in 0..ROUNDS {
            let row = round.to_string();
            let locks = read(&*table, row.as_bytes(), &family(f, TimeRange::ALL, 9)).await;
            assert_eq!(locks.cells.len(), 1, "{f}: locks on row {row}: {:?}", shown(&locks));
        }
    }
}

/// Places a lock on a row, unless the row has one. Returns whether it had one.
async fn lock(table: &dyn Table, f: &Family, round: u64, thread: u64) -> bool {
    let free = vec![probe(f, b"lock", TimeRange::ALL)];
    let mine = vec![set(f, b"lock", thread, "mine")];
    decide(table, round.to_string().as_bytes(), free, vec![], mine).await
}

pub(super) async fn counter(store: &dyn Store) {
    const EACH_ADDS: u64 = 40;
    let table = table(store, "threads_counter").await;
    for f in &EACH {
        scope(|scope| {
            for _ in 0..THREADS {
                let table = &*table;
                scope.spawn(move || {
                    for _ in 0..EACH_ADDS {
                        block_on(add_one(table, f));
                    }
                });
            }
        });
        let got = newest(&*table, f, b"counter").await;
        assert_eq!(got, THREADS * EACH_ADDS, "{f}: what {THREADS} threads have counted");
    }
}

async fn newest(table: &dyn Table, f: &Family, row: &[u8]) -> u64 {
    let row = read(table, row, &column(f, b"n", TimeRange::ALL, 1)).await;
    row.newest(f, b"n").map_or(0, |cell| cell.timestamp.as_u64())
}

/// The counter is the newest version. Reads it, and writes the next unless another thread has
/// done so.
async fn add_one(table: &dyn Table, f: &Family) {
    loop {
        let next = newest(table, f, b"counter").await + 1;
        let taken = vec![probe(f, b"n", TimeRange::since(ts(next)))];
        if !decide(table, b"counter", taken, vec![], vec![set(f, b"n", next, "v")]).await {
            return;
        }
    }
}

/// One writer moves a row from version to version: each of its columns has exactly one
/// version, the same in all columns. Readers check each result, by reads and by scans.
async fn moving_row(table: Arc<dyn Table>, families: &[Family], check: impl Fn(&Row) + Sync) {
    const VERSIONS: u64 = 400;
    let select = families
        .iter()
        .fold(Selection::default(), |select, f| select.family(f.clone(), TimeRange::ALL, u32::MAX));
    let step = |version: u64| {
        let columns = families.iter().flat_map(|f| [(f, b"a"), (f, b"b")]);
        columns.flat_map(move |(f, q)| {
            [set(f, q, version, "v"), delete(f, q, TimeRange::below(ts(version)))]
        })
    };
    mutate(&*table, b"r", step(1)).await;
    let done = AtomicBool::new(false);
    scope(|scope| {
        for reader in 0..THREADS - 1 {
            let (table, select, check, done) = (&*table, &select, &check, &done);
            scope.spawn(move || {
                let mut last = 0;
                while !done.load(Ordering::SeqCst) {
                    let row = if reader == 0 {
                        let mut rows =
                            block_on(super::fixture::scan(table, &RowRange::all(), select));
                        assert_eq!(keys(&rows), ["r"], "the moving row is always there");
                        rows.remove(0)
                    } else {
                        block_on(read(table, b"r", select))
                    };
                    check(&row);
                    let on_disk = row.cells.iter().filter(|cell| cell.family == families[0]);
                    let now = on_disk.map(|cell| cell.timestamp.as_u64()).max().unwrap_or(0);
                    assert!(now >= last, "a later read went back from {last} to {now}");
                    last = now;
                }
            });
        }
        // The writer needs its own thread, because this thread already blocks on a future.
        let (table, done) = (&*table, &done);
        scope.spawn(move || {
            let _stop = Stop(done);
            for version in 2..=VERSIONS {
                block_on(mutate(table, b"r", step(version)));
            }
        });
    });
}

/// Stops the readers, even if the writer panics.
pub(super) struct Stop<'a>(pub(super) &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn versions(row: &Row, families: &[Family]) -> BTreeSet<u64> {
    let cells = row.cells.iter().filter(|cell| families.contains(&cell.family));
    cells.map(|cell| cell.timestamp.as_u64()).collect()
}

pub(super) async fn rows_are_whole(store: &dyn Store) {
    let families = [PLAIN, PLAIN_TOO, NEWEST];
    let table = table(store, "threads_whole").await;
    moving_row(table, &families, |row| {
        let versions = versions(row, &families);
        let whole = row.cells.len() == 6 && versions.len() == 1;
        assert!(whole, "half of a mutation was read: {:?}", shown_fully(row));
    })
    .await;
}

pub(super) async fn in_memory_is_never_later(store: &dyn Store) {
    let families = [PLAIN, NEWEST, MEMORY, SPILL];
    let table = table(store, "threads_memory").await;
    moving_row(table, &families, |row| {
        let on_disk = versions(row, &[PLAIN, NEWEST]);
        assert_eq!(on_disk.len(), 1, "the row on disk is half: {:?}", shown_fully(row));
        for f in [MEMORY, SPILL] {
            let in_memory = versions(row, std::slice::from_ref(&f));
            let shown = shown_fully(row);
            assert_eq!(in_memory.len(), 1, "{f} is half: {shown:?}");
            assert!(in_memory <= on_disk, "{f} is of a later moment than the rest: {shown:?}");
            assert_eq!(row.versions(&f, b"a").len(), 1, "{f} lacks a column: {shown:?}");
            assert_eq!(row.versions(&f, b"b").len(), 1, "{f} lacks a column: {shown:?}");
        }
    })
    .await;
}

pub(super) async fn reads_follow_writes(store: &dyn Store) {
    let table = table(store, "threads_follow").await;
    scope(|scope| {
        for thread in 0..THREADS {
            let table = &*table;
            scope.spawn(move || {
                let row = format!("row{thread}");
                for version in 1..=60 {
                    let sets = EACH.iter().map(|f| set(f, b"q", version, "v"));
                    block_on(mutate(table, row.as_bytes(), sets));
                    for f in &EACH {
                        let select = column(f, b"q", TimeRange::ALL, 1);
                        let got = block_on(read(table, row.as_bytes(), &select));
                        let want = [format!("q@{version}=v")];
                        assert_eq!(shown(&got), want, "{f}: a read after an acknowledged write");
                        let range = RowRange::row(row.as_str());
                        let got = block_on(super::fixture::scan(table, &range, &select));
                        assert_eq!(got.len(), 1, "{f}: a scan after an acknowledged write");
                        assert_eq!(shown(&got[0]), want, "{f}: a scan after a write");
                    }
                }
            });
        }
    });
}

/// Simulates garbage collection: the floor is raised, then the versions below it are deleted.
/// A read below the floor must be refused. It must never return that nothing exists.
pub(super) async fn floor_holds(store: &dyn Store) {
    const ROUNDS: u64 = 100;
    let table = table(store, "threads_floor").await;
    let base = store.floor().as_u64() + 1;
    let put = |at: u64| EACH.iter().map(move |f| set(f, b"q", at, "v"));
    mutate(&*table, b"r", put(base)).await;
    let done = AtomicBool::new(false);
    scope(|scope| {
        for thread in 0..THREADS - 1 {
            let (table, done) = (&*table, &done);
            scope.spawn(move || {
                while !done.load(Ordering::SeqCst) {
                    let s = store.floor().max(ts(base));
                    block_on(look_below(table, s.as_u64(), thread == 0));
                }
            });
        }
        let (table, done) = (&*table, &done);
        scope.spawn(move || {
            let _stop = Stop(done);
            for round in 1..=ROUNDS {
                block_on(mutate(table, b"r", put(base + round)));
                ok("raising the floor", block_on(store.raise_floor(ts(base + round))));
                let below = TimeRange::below(ts(base + round));
                block_on(mutate(table, b"r", EACH.iter().map(|f| delete(f, b"q", below))));
            }
        });
    });
}

/// Reads at `s`: either the read is refused, or every family has the version at `s`.
async fn look_below(table: &dyn Table, s: u64, conditionally: bool) {
    for f in [PLAIN, NEWEST, MEMORY, SPILL] {
        if conditionally {
            let request = ConditionalMutation {
                predicate: vec![probe(&f, b"q", TimeRange::up_to(ts(s)))],
                above: Some(ts(s)),
                ..ConditionalMutation::new("r")
            };
            match table.check_and_mutate_row(request).await {
                Ok(found) => assert!(found, "{f}: a predicate at {s} found nothing"),
                Err(Error::TooOld { .. }) => {}
                Err(error) => panic!("{f}: a predicate at {s} failed: {error}"),
            }
        }
        let select = column(&f, b"q", TimeRange::up_to(ts(s)), 1).above(ts(s));
        match table.read_row(&"r".into(), &select).await {
            Ok(row) => assert_eq!(row.cells.len(), 1, "{f}: a read at {s} found nothing"),
            Err(Error::TooOld { .. }) => {}
            Err(error) => panic!("{f}: a read at {s} failed: {error}"),
        }
    }
}

/// Glances at a column's newest version. Returns `None` if the glance has no result.
fn glance_at(table: &dyn Table, family: &Family, guard: &Family, s: u64) -> Option<u64> {
    let row = RowKey::from("r");
    let at = Glance { row: &row, qualifier: b"q", family, guard, s: ts(s) };
    match table.glance(at) {
        Ok(Glanced::Nothing) => None,
        Ok(Glanced::Absent) => Some(0),
        Ok(Glanced::Newest(at, _)) => Some(at.as_u64()),
        // Collection has raised the floor meanwhile.
        Err(Error::TooOld { .. }) => None,
        Err(error) => panic!("a glance at {family} under {guard} at {s}: {error}"),
    }
}

/// Simulates commits and garbage collection. Each round places a lock, issues a timestamp, and
/// replaces the lock by a version at that timestamp. Then it raises the floor to the
/// timestamp, and deletes older versions. A glance at an issued timestamp must return its
/// version, or be refused, or show nothing.
pub(super) async fn glances_miss_nothing(store: &dyn Store) {
    const ROUNDS: u64 = 150;
    let table = table(store, "threads_glance").await;
    let families = [PLAIN, NEWEST, SPILL];
    let base = 2 * (store.floor().as_u64() + 1);
    let (issued, done) = (AtomicU64::new(0), AtomicBool::new(false));
    scope(|scope| {
        for _ in 0..THREADS - 1 {
            let (table, issued, done, families) = (&*table, &issued, &done, &families);
            scope.spawn(move || {
                while !done.load(Ordering::SeqCst) {
                    let s = issued.load(Ordering::SeqCst);
                    for family in families.iter().filter(|_| s > 0) {
                        let found = glance_at(table, family, &MEMORY, s);
                        assert!(found.is_none_or(|at| at == s), "{family} at {s}: {found:?}");
                    }
                }
            });
        }
        let (table, issued, done, families) = (&*table, &issued, &done, &families);
        scope.spawn(move || {
            let _stop = Stop(done);
            for round in 1..=ROUNDS {
                let (lock, commit) = (base + 2 * round, base + 2 * round + 1);
                block_on(mutate(table, b"r", [set(&MEMORY, b"q", lock, "lock")]));
                issued.store(commit, Ordering::SeqCst);
                let writes = families.iter().map(|f| set(f, b"q", commit, "v"));
                let unlock = delete(&MEMORY, b"q", TimeRange::at(ts(lock)));
                block_on(mutate(table, b"r", writes.chain([unlock])));
                if round.is_multiple_of(4) {
                    ok("raising the floor", block_on(store.raise_floor(ts(commit))));
                    let below = TimeRange::below(ts(commit));
                    let old = families.iter().map(|f| delete(f, b"q", below));
                    block_on(mutate(table, b"r", old));
                }
            }
        });
    });
}
