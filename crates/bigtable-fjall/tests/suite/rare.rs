//! Tests scans of single columns of an in-memory group in which other columns have many cells.
//! After a scan that examined many cells in vain, the store lists the cells of its columns.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bigtable::{
    ConditionalMutation, Family, LocalityGroup, Mutation, OnFull, PageLimit, RowKey, RowRange,
};
use bigtable::{Selection, Store, Table, TableSchema, TimeRange};
use bigtable_fjall::{Durability, FjallStore};
use futures::executor::block_on;

use crate::{options, ts};

const WAITING: Family = Family::from_static("waiting");
const OFTEN: &str = "often";
const RARE: [&str; 2] = ["rare", "rarer"];

fn open(dir: &std::path::Path) -> (FjallStore, Arc<dyn Table>) {
    let store = FjallStore::open(dir, options(Durability::Buffered)).unwrap();
    let group = LocalityGroup::in_memory("waiting", OnFull::Spill { cells_max: 3000 });
    let table = block_on(store.open_table("t", &TableSchema { groups: vec![group] })).unwrap();
    (store, table)
}

fn row(number: u32) -> RowKey {
    RowKey::from(format!("{number:06}"))
}

/// The cells of the table: rows by column.
type Model = BTreeMap<&'static str, BTreeMap<RowKey, u64>>;

fn write(table: &dyn Table, model: &mut Model, number: u32, column: &'static str, at: Option<u64>) {
    let (row, of) = (row(number), model.entry(column).or_default());
    let change = match at {
        Some(at) => Mutation::set(WAITING, column, ts(at), Vec::new()),
        None => Mutation::delete(WAITING, column, TimeRange::ALL),
    };
    match at {
        Some(at) => of.insert(row.clone(), at),
        None => of.remove(&row),
    };
    let older = at.map(|at| Mutation::delete(WAITING, column, TimeRange::below(ts(at))));
    let otherwise = older.into_iter().chain([change]).collect();
    let request = ConditionalMutation { otherwise, ..ConditionalMutation::new(&row) };
    block_on(table.check_and_mutate_row(request)).unwrap();
}

/// Scans columns page by page, and compares the rows with the model.
fn check(table: &dyn Table, model: &Model, columns: &[&'static str], from: u32, rows_max: usize) {
    let mut select = Selection::default();
    for column in columns {
        select = select.column(WAITING, *column, TimeRange::ALL, 1);
    }
    let range = RowRange { start: Bound::Included(row(from)), end: Bound::Unbounded };
    let limit = PageLimit { rows_max, ..PageLimit::default() };
    let (mut next, mut found) = (Some(range), Vec::new());
    while let Some(range) = next {
        let page = block_on(table.scan(&range, &select, limit)).unwrap();
        assert!(page.rows.len() <= rows_max);
        for row in page.rows {
            let cell = |cell: &bigtable::Cell| {
                (row.key.clone(), cell.qualifier.clone(), cell.timestamp.as_u64())
            };
            found.extend(row.cells.iter().map(cell));
        }
        next = page.resume;
    }
    let of = columns.iter().flat_map(|column| {
        let rows = model.get(column).into_iter().flatten();
        rows.map(|(row, at)| (row.clone(), column.as_bytes().to_vec().into(), *at))
    });
    let mut expected: Vec<_> = of.filter(|(key, ..)| *key >= row(from)).collect();
    expected.sort();
    assert_eq!(found, expected, "{columns:?} from {from}, {rows_max} rows a page");
}

/// A selection may name a column twice, with times that do not overlap.
#[test]
fn a_listed_column_that_is_selected_twice_has_each_version_once() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, table) = open(dir.path());
    let mut model = Model::new();
    for number in 0..1000 {
        write(&*table, &mut model, number, OFTEN, Some(1));
    }
    for at in 1..7 {
        let cell = Mutation::set(WAITING, "rare", ts(at), Vec::new());
        let request =
            ConditionalMutation { otherwise: vec![cell], ..ConditionalMutation::new(row(500)) };
        block_on(table.check_and_mutate_row(request)).unwrap();
    }
    let select = Selection::default().column(WAITING, "rare", TimeRange::below(ts(4)), 2).column(
        WAITING,
        "rare",
        TimeRange { from: ts(4), to: ts(5) },
        2,
    );
    // The second scan reads the list that the first one has made.
    for _ in 0..2 {
        let page = block_on(table.scan(&RowRange::all(), &select, PageLimit::default())).unwrap();
        let times = page.rows[0].cells.iter().map(|cell| cell.timestamp.as_u64());
        assert_eq!(times.collect::<Vec<_>>(), [5, 4, 3, 2]);
    }
}

#[test]
fn a_column_with_few_cells_among_many_is_found_whatever_changes() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut table) = open(dir.path());
    let (mut model, mut state) = (Model::new(), 1_u32);
    let mut below = |bound: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % bound
    };
    for number in 0..1500 {
        write(&*table, &mut model, number, OFTEN, Some(1));
    }
    for step in 0..600 {
        // The rare columns come and go; sometimes none is left.
        for column in RARE {
            let number = below(2000);
            let at = (below(5) < 3).then_some(step + 2);
            write(&*table, &mut model, number, column, at);
        }
        if step % 100 == 99 {
            let gone: Vec<_> = model["rare"].keys().cloned().collect();
            for number in gone {
                let number = number.to_string().parse().unwrap();
                write(&*table, &mut model, number, "rare", None);
            }
        }
        let (from, rows_max) = (below(1000), 1 + below(50) as usize);
        let columns: &[&str] = match step % 4 {
            0 => &["rare"],
            1 => &["rarer"],
            2 => &RARE,
            _ => &["rare", OFTEN],
        };
        check(&*table, &model, columns, if step % 3 == 0 { 0 } else { from }, rows_max);
        // More cells than fit into memory, and then fewer again.
        if step == 300 {
            for number in 1500..4000 {
                write(&*table, &mut model, number, OFTEN, Some(1));
            }
        }
        if step == 400 {
            for number in 0..4000 {
                write(&*table, &mut model, number, OFTEN, None);
            }
        }
        if step == 500 {
            drop((table, store));
            (store, table) = open(dir.path());
        }
    }
    drop(store);
}
