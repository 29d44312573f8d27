//! Tests that a store has all its content after it was closed and opened again.

use bigtable::{Error, Layout, LocalityGroup, Mutation, OnFull, RowMutation, Store, TableSchema};
use bigtable::{Table, TimeRange};
use bigtable_fjall::{Durability, FjallStore};
use futures::executor::block_on;

use crate::{EACH, MEMORY, SPILL, contents, open, options, set, ts};

fn mutate(table: &dyn Table, row: u64, mutations: Vec<Mutation>) {
    let request = RowMutation { mutations, ..RowMutation::new(format!("row{row:03}")) };
    block_on(table.mutate_row(request)).expect("the mutation is accepted");
}

/// Adds, replaces and deletes in every family, differently in each round.
fn churn(table: &dyn Table, round: u64) {
    for row in 0..60 {
        for (index, f) in EACH.iter().enumerate() {
            let mut mutations = vec![
                set(f, round, &format!("{round}")),
                set(f, round + 100, &"large".repeat(1000 * (row as usize % 2))),
                set(f, 50, "the same in each round"),
            ];
            if (row + round + index as u64).is_multiple_of(3) {
                let time = TimeRange { from: ts(round), to: ts(round + 60) };
                mutations.push(Mutation::delete(f.clone(), "q", time));
            }
            if (row + round).is_multiple_of(7) {
                mutations.push(Mutation::delete(f.clone(), "q", TimeRange::ALL));
            }
            mutate(table, row, mutations);
        }
    }
}

#[test]
fn everything_survives() {
    for durability in [Durability::Buffered, Durability::Sync] {
        let dir = tempfile::tempdir().unwrap();
        let mut before = Vec::new();
        let mut pressure = 0.0;
        for round in 1..5 {
            let (store, table) = open(dir.path(), durability);
            assert_eq!(contents(&*table), before, "{durability:?}, round {round}");
            assert!((store.pressure() - pressure).abs() < 1e-9, "{durability:?}, round {round}");
            assert_eq!(store.floor(), ts((round - 1) * 10), "{durability:?}, round {round}");
            churn(&*table, round);
            block_on(store.raise_floor(ts(round * 10))).unwrap();
            before = contents(&*table);
            pressure = store.pressure();
        }
    }
}

#[test]
fn in_memory_groups_are_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = open(dir.path(), Durability::Buffered);
    for row in 0..100 {
        mutate(&*table, row, vec![set(&MEMORY, 5, "lock"), set(&SPILL, 5, "notify")]);
    }
    for row in 0..50 {
        let delete = |f| Mutation::delete(f, "q", TimeRange::at(ts(5)));
        mutate(&*table, row, vec![delete(MEMORY), delete(SPILL)]);
    }
    drop((store, table));
    let (store, table) = open(dir.path(), Durability::Buffered);
    let rows = contents(&*table);
    assert_eq!(rows.len(), 50);
    assert!(rows.iter().all(|row| row.cells.len() == 2), "{rows:?}");
    // The group has 50 cells and keeps 20 in memory, so the pressure is 2.5.
    assert!((store.pressure() - 2.5).abs() < 1e-9, "{}", store.pressure());
    for row in 50..100 {
        let delete = Mutation::delete(SPILL, "q", TimeRange::ALL);
        mutate(&*table, row, vec![delete]);
    }
    let rows = contents(&*table);
    assert!(rows.iter().all(|row| row.cells.len() == 1), "{rows:?}");
}

#[test]
fn a_bound_may_change() {
    let schema = |cells_max| TableSchema {
        groups: vec![
            LocalityGroup::in_memory("memory", OnFull::Refuse { cells_max }),
            LocalityGroup::on_disk("plain", Layout::Versions),
        ],
    };
    let dir = tempfile::tempdir().unwrap();
    let opened = |cells_max| {
        let store = FjallStore::open(dir.path(), options(Durability::Buffered)).unwrap();
        block_on(store.open_table("t", &schema(cells_max))).unwrap()
    };
    let add = |table: &dyn Table, row: &str| {
        block_on(table.mutate_row(RowMutation::new(row).mutation(set(&MEMORY, 5, "v"))))
    };
    let table = opened(2);
    add(&*table, "a").unwrap();
    add(&*table, "b").unwrap();
    assert!(matches!(add(&*table, "c"), Err(Error::Overloaded { cells_max: 2, .. })));
    drop(table);
    let table = opened(3);
    add(&*table, "c").unwrap();
    assert!(matches!(add(&*table, "d"), Err(Error::Overloaded { cells_max: 3, .. })));
    drop(table);
    let table = opened(1);
    assert!(matches!(add(&*table, "d"), Err(Error::Overloaded { cells_max: 1, .. })));
    add(&*table, "a").unwrap();
}

#[test]
fn many_runs_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let small =
        bigtable_fjall::Options { write_buffer_bytes: 256 << 10, ..options(Durability::Buffered) };
    let opened = || {
        let store = FjallStore::open(dir.path(), small.clone()).unwrap();
        block_on(store.open_table("t", &crate::schema())).unwrap()
    };
    let table = opened();
    // Write enough that cells are written out as sorted runs and compacted, and that large
    // values move.
    for round in 1..=8 {
        for row in 0..60 {
            let large = "x".repeat(6000 + row as usize);
            mutate(&*table, row, EACH.iter().map(|f| set(f, round, &large)).collect());
        }
        let below = TimeRange::below(ts(round.max(2) - 1));
        for row in 0..60 {
            let old = EACH.iter().map(|f| Mutation::delete(f.clone(), "q", below));
            mutate(&*table, row, old.collect());
        }
    }
    let before = contents(&*table);
    assert_eq!(before.len(), 60);
    for row in &before {
        let times: Vec<_> = row.cells.iter().map(|cell| cell.timestamp.as_u64()).collect();
        assert_eq!(times, [8, 7, 8, 7, 8, 7, 8, 7], "row {}", row.key);
    }
    drop(table);
    assert!(contents(&*opened()) == before, "the rows have changed");
}

/// Requests in flight are answered, later ones are refused, and the directory is free.
#[test]
fn a_store_is_closed_under_its_handles_while_others_write() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..5 {
        let (store, table) = open(dir.path(), Durability::Buffered);
        let (began, begun) = std::sync::mpsc::channel();
        let write = |writer: u64, began: std::sync::mpsc::Sender<()>| {
            for n in 1.. {
                let cell = set(&EACH[0], 1000 * round + n % 1000, "x");
                let request = RowMutation::new(format!("{round}-{writer}-{n}")).mutation(cell);
                match block_on(table.mutate_row(request)) {
                    // The receiver is dropped after a while; that is no failure.
                    Ok(()) => drop(began.send(())),
                    Err(error) => {
                        assert!(error.to_string().contains("was closed"), "{error}");
                        return n - 1;
                    }
                }
            }
            unreachable!("the store is closed in the end")
        };
        let written: Vec<u64> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|writer| {
                    let (write, began) = (&write, began.clone());
                    scope.spawn(move || write(writer, began))
                })
                .collect();
            (0..20).for_each(|_| begun.recv().unwrap());
            store.close().unwrap();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        store.close().unwrap();
        assert!(block_on(store.table_names()).is_err());
        let (_store, again) = open(dir.path(), Durability::Buffered);
        let rows = contents(&*again);
        for (writer, written) in written.into_iter().enumerate() {
            let prefix = format!("{round}-{writer}-");
            let of = |row: &&bigtable::Row| row.key.as_bytes().starts_with(prefix.as_bytes());
            let found = rows.iter().filter(of).count() as u64;
            assert_eq!(found, written, "what was acknowledged is there, and nothing else");
        }
    }
}
