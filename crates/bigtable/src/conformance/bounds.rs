//! Tests the bounds of in-memory locality groups: refusing, spilling, and pressure.

use std::sync::Arc;

use super::fixture::*;
use crate::{ConditionalMutation, Error, Family, FamilySchema, Layout, LocalityGroup, Mutation};
use crate::{
    OnFull, PageLimit, Result, RowMutation, RowRange, Store, Table, TableSchema, TimeRange,
};

/// The bounded family of these tables. [`PLAIN`] is the other family.
const BOUNDED: Family = Family::from_static("bounded");
const CELLS_MAX: usize = 10;

async fn bounded(store: &dyn Store, name: &str, case: &str, on_full: OnFull) -> Arc<dyn Table> {
    let group = |suffix: &str, family: Family, layout| LocalityGroup {
        name: format!("{case}_{suffix}"),
        families: vec![FamilySchema { family }],
        layout,
    };
    let schema = TableSchema {
        groups: vec![
            group("bounded", BOUNDED, Layout::InMemory(on_full)),
            group("plain", PLAIN, Layout::Versions),
        ],
    };
    ok("opening a table", store.open_table(name, &schema).await)
}

async fn refusing_table(store: &dyn Store, case: &str) -> Arc<dyn Table> {
    bounded(store, case, case, OnFull::Refuse { cells_max: CELLS_MAX }).await
}

async fn spilling_table(store: &dyn Store, case: &str) -> Arc<dyn Table> {
    bounded(store, case, case, OnFull::Spill { cells_max: CELLS_MAX }).await
}

async fn try_mutate(table: &dyn Table, row: &str, mutations: Vec<Mutation>) -> Result<()> {
    table.mutate_row(RowMutation { mutations, ..RowMutation::new(row) }).await
}

#[track_caller]
fn overloaded<T: std::fmt::Debug>(what: &str, got: Result<T>) {
    match got {
        Err(Error::Overloaded { cells_max: CELLS_MAX, .. }) => {}
        got => panic!("{what}: expected Overloaded by a bound of {CELLS_MAX}, got {got:?}"),
    }
}

async fn cells(table: &dyn Table) -> usize {
    let select = family(&BOUNDED, TimeRange::ALL, u32::MAX);
    scan(table, &RowRange::all(), &select).await.iter().map(|row| row.cells.len()).sum()
}

async fn fill(table: &dyn Table) {
    for n in 0..CELLS_MAX {
        let mutations = vec![set(&BOUNDED, b"q", 1, "v")];
        ok("filling", try_mutate(table, &format!("{n}"), mutations).await);
    }
}

pub(super) async fn refusing(store: &dyn Store) {
    let table = &*refusing_table(store, "bounds_refuse").await;
    fill(table).await;
    let add = |row: &'static str| try_mutate(table, row, vec![set(&BOUNDED, b"new", 1, "v")]);
    overloaded("a cell beyond the bound", add("x").await);
    overloaded("a new column of an old row", add("0").await);
    let version = vec![set(&BOUNDED, b"q", 2, "v")];
    overloaded("a new version of an old column", try_mutate(table, "0", version).await);
    let replace = vec![set(&BOUNDED, b"q", 1, "new")];
    ok("replacing a cell", try_mutate(table, "0", replace).await);
    let got = read(table, b"0", &family(&BOUNDED, TimeRange::ALL, 9)).await;
    assert_eq!(shown(&got), ["q@1=new"], "the replaced cell");
    let elsewhere = vec![set(&PLAIN, b"q", 1, "v")];
    ok("adding to another group", try_mutate(table, "x", elsewhere).await);
    let none = vec![delete(&BOUNDED, b"none", TimeRange::ALL)];
    ok("deleting nothing", try_mutate(table, "0", none).await);
    overloaded("deleting nothing makes no room", add("x").await);
    let one = vec![delete(&BOUNDED, b"q", TimeRange::at(ts(1)))];
    ok("deleting a cell", try_mutate(table, "3", one).await);
    ok("adding where there is room", add("x").await);
    overloaded("adding where there is none again", add("y").await);
    assert_eq!(cells(table).await, CELLS_MAX, "cells in the group");
}

pub(super) async fn refusing_a_whole_request(store: &dyn Store) {
    let table = &*refusing_table(store, "bounds_whole").await;
    fill(table).await;
    let request = || {
        vec![
            set(&PLAIN, b"q", 1, "refused"),
            set(&BOUNDED, b"q", 1, "refused"),
            set(&BOUNDED, b"new", 1, "refused"),
        ]
    };
    overloaded("a request that adds one cell", try_mutate(table, "0", request()).await);
    let conditional = ConditionalMutation {
        predicate: vec![probe(&BOUNDED, b"q", TimeRange::ALL)],
        then: request(),
        ..ConditionalMutation::new("0")
    };
    overloaded("the same, conditionally", table.check_and_mutate_row(conditional.clone()).await);
    let batch = vec![conditional.clone(), ConditionalMutation { row: "x".into(), ..conditional }];
    let mut got = table.check_and_mutate_rows(batch).await;
    assert!(matches!(got.pop(), Some(Ok(false))), "the branch that adds nothing is not refused");
    got.into_iter().for_each(|got| overloaded("the same, in a batch", got));
    let got = read(table, b"0", &everything_bounded()).await;
    assert_eq!(shown_fully(&got), ["bounded:q@1=v"], "nothing of a refused request is applied");
    // The cells at the end of the request count, not those during it.
    let moved = vec![delete(&BOUNDED, b"q", TimeRange::ALL), set(&BOUNDED, b"new", 1, "v")];
    ok("deleting one cell and adding one", try_mutate(table, "0", moved).await);
    let undone = vec![set(&BOUNDED, b"x", 1, "v"), delete(&BOUNDED, b"x", TimeRange::ALL)];
    ok("adding one cell and deleting it", try_mutate(table, "0", undone).await);
    assert_eq!(cells(table).await, CELLS_MAX, "cells in the group");
}

fn everything_bounded() -> crate::Selection {
    family(&BOUNDED, TimeRange::ALL, 9).family(PLAIN, TimeRange::ALL, 9)
}

pub(super) async fn refusing_over_all_tables(store: &dyn Store) {
    let on_full = OnFull::Refuse { cells_max: CELLS_MAX };
    let first = bounded(store, "bounds_first", "bounds_all", on_full).await;
    let second = bounded(store, "bounds_second", "bounds_all", on_full).await;
    fill(&*first).await;
    let add = || vec![set(&BOUNDED, b"q", 1, "v")];
    overloaded("the bound holds over all tables", try_mutate(&*second, "r", add()).await);
    let room = vec![delete(&BOUNDED, b"q", TimeRange::ALL)];
    ok("making room in one table", try_mutate(&*first, "0", room).await);
    ok("using it in the other", try_mutate(&*second, "r", add()).await);
    overloaded("and no more", try_mutate(&*first, "0", add()).await);
}

pub(super) async fn spilling(store: &dyn Store) {
    let table = &*spilling_table(store, "bounds_spill").await;
    for n in 0..5 * CELLS_MAX {
        // Write from both ends, so that cells in memory and spilled cells alternate.
        let n = if n % 2 == 0 { n } else { 100 - n };
        let mutations = vec![set(&BOUNDED, b"q", 1, "v"), set(&BOUNDED, b"q", 2, "w")];
        ok("adding beyond the bound", try_mutate(table, &format!("{n:03}"), mutations).await);
    }
    assert_eq!(cells(table).await, 10 * CELLS_MAX, "a scan sees all cells");
    let newest = family(&BOUNDED, TimeRange::ALL, 1);
    for rows_max in [1, 7, 1000] {
        let limit = PageLimit { rows_max, ..PageLimit::default() };
        let pages = pages(table, &RowRange::all(), &newest, limit).await;
        let rows: usize = pages.iter().map(|page| page.rows.len()).sum();
        assert_eq!(rows, 5 * CELLS_MAX, "a scan by {rows_max} rows sees all rows");
    }
    for n in 0..5 * CELLS_MAX {
        let n = if n % 2 == 0 { n } else { 100 - n };
        let row = format!("{n:03}");
        let got = read(table, row.as_bytes(), &newest).await;
        assert_eq!(shown(&got), ["q@2=w"], "row {row} is read");
        let predicate = vec![probe(&BOUNDED, b"q", TimeRange::at(ts(1)))];
        assert!(finds(table, row.as_bytes(), predicate).await, "row {row} is probed");
        mutate(table, row.as_bytes(), [set(&BOUNDED, b"q", 2, "x")]).await;
        let got = read(table, row.as_bytes(), &newest).await;
        assert_eq!(shown(&got), ["q@2=x"], "row {row} is replaced");
        mutate(table, row.as_bytes(), [delete(&BOUNDED, b"q", TimeRange::up_to(ts(1)))]).await;
        let got = read(table, row.as_bytes(), &family(&BOUNDED, TimeRange::ALL, 9)).await;
        assert_eq!(shown(&got), ["q@2=x"], "a version of row {row} is deleted");
    }
    assert_eq!(cells(table).await, 5 * CELLS_MAX, "cells after one version of each was deleted");
}

pub(super) async fn spilled_drains(store: &dyn Store) {
    let table = &*spilling_table(store, "bounds_drain").await;
    let count = 8 * CELLS_MAX;
    // Drain from the front and from the back, in the order of insertion and in the opposite
    // order.
    for round in 0..4 {
        let row = |n: usize| format!("{:03}", if round % 2 == 0 { n } else { count - n });
        for n in 0..count {
            mutate(table, row(n).as_bytes(), [set(&BOUNDED, b"q", 1, "v")]).await;
        }
        for n in 0..count {
            let n = if round < 2 { n } else { count - 1 - n };
            mutate(table, row(n).as_bytes(), [delete(&BOUNDED, b"q", TimeRange::ALL)]).await;
            let want = if round < 2 { count - 1 - n } else { n };
            assert_eq!(
                cells(table).await,
                want,
                "round {round}: cells after deleting row {}",
                row(n)
            );
        }
        mutate(table, b"again", [set(&BOUNDED, b"q", 1, "v")]).await;
        assert_eq!(cells(table).await, 1, "round {round}: a cell after all has drained");
        mutate(table, b"again", [delete(&BOUNDED, b"q", TimeRange::ALL)]).await;
    }
}

pub(super) async fn pressure(store: &dyn Store) {
    let before = store.pressure();
    let table = &*refusing_table(store, "bounds_pressure").await;
    for n in 1..=CELLS_MAX {
        mutate(table, b"r", [set(&BOUNDED, b"q", n as u64, "v")]).await;
        let (got, want) = (store.pressure(), n as f64 / CELLS_MAX as f64);
        assert!(got >= want - 1e-9, "pressure {got} with {n} of {CELLS_MAX} cells");
        if before == 0.0 {
            assert!(got <= want + 1e-9, "pressure {got} with {n} of {CELLS_MAX} cells");
        }
    }
    mutate(table, b"r", [delete(&BOUNDED, b"q", TimeRange::ALL)]).await;
    let after = store.pressure();
    assert!((after - before).abs() < 1e-9, "pressure {after} after draining, {before} before");
}
