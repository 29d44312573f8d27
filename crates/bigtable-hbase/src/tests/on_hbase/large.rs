//! Tests a row that the server sends in many parts, and values above HBase's own limit.

use std::time::Duration;

use bigtable::{
    Family, Layout, LocalityGroup, Mutation, PageLimit, Row, RowKey, RowMutation, RowRange,
    Selection, Store, Table, TableSchema, TimeRange, Timestamp,
};
use bytes::Bytes;

use super::cluster;
use crate::{HbaseAddress, HbaseStore};

const DATA: Family = Family::from_static("data");
/// A large request takes long on a busy machine, and this test allows no request to fail.
const DEADLINE: Duration = Duration::from_secs(60);
/// The wide row has 24 MiB. An answer of the server has at most 2 MiB.
const REQUESTS: u16 = 24;
const CELLS_OF_REQUEST: u16 = 1_024;
const VALUE_BYTES: usize = 1 << 10;
const MIB: usize = 1 << 20;

async fn set(table: &dyn Table, row: &str, cells: impl Iterator<Item = (Bytes, Bytes)>) {
    let mutations = cells
        .map(|(qualifier, value)| Mutation::set(DATA, qualifier, Timestamp::ZERO, value))
        .collect();
    let request = RowMutation { mutations, ..RowMutation::new(row) };
    table.mutate_row(request).await.expect("a mutation");
}

/// The qualifier and the value of a cell of the wide row.
fn cell(number: u16) -> (Bytes, Bytes) {
    let name = number.to_be_bytes();
    (Bytes::copy_from_slice(&name), name.repeat(VALUE_BYTES / 2).into())
}

fn check_wide(row: &Row) {
    let found = row.cells.iter().map(|cell| (cell.qualifier.clone(), cell.value.clone()));
    let all = (0..REQUESTS * CELLS_OF_REQUEST).map(cell);
    assert!(found.eq(all), "{} cells, not all of them, or in another order", row.cells.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_rows_and_values_come_back_whole() {
    let Some(address) = cluster::address() else { return };
    let address = HbaseAddress { deadline: DEADLINE, ..address };
    let store = HbaseStore::connect(&address, cluster::options()).await.expect("a connection");
    let schema = TableSchema { groups: vec![LocalityGroup::on_disk("data", Layout::Versions)] };
    let table = &*store.open_table("t", &schema).await.expect("a table");
    let small = (Bytes::from_static(b"q"), Bytes::from_static(b"v"));
    for row in ["before", "z"] {
        set(table, row, std::iter::once(small.clone())).await;
    }
    for request in 0..REQUESTS {
        let first = request * CELLS_OF_REQUEST;
        set(table, "wide", (first..first + CELLS_OF_REQUEST).map(cell)).await;
    }
    // One part of the row is in files, the rest in memory.
    store.compact(None, false).await.expect("a flush");
    set(table, "wide", std::iter::once(cell(7))).await;

    let select = Selection::default().family(DATA, TimeRange::ALL, 1);
    check_wide(&table.read_row(&RowKey::from("wide"), &select).await.expect("a row"));
    let (mut left, mut rows) = (Some(RowRange::all()), Vec::new());
    while let Some(range) = left {
        let page = table.scan(&range, &select, PageLimit::default()).await.expect("a page");
        rows.extend(page.rows);
        left = page.resume;
    }
    let keys: Vec<_> = rows.iter().map(|row| row.key.as_bytes()).collect();
    assert_eq!(keys, [&b"before"[..], b"wide", b"z"]);
    check_wide(&rows[1]);

    // HBase's own limit is 10 MiB with the names.
    for mib in [10, 11, 24] {
        let value = Bytes::from((0..mib * MIB).map(|at| (at / 7) as u8).collect::<Vec<_>>());
        set(table, "value", std::iter::once((Bytes::from_static(b"q"), value.clone()))).await;
        let row = table.read_row(&RowKey::from("value"), &select).await.expect("a row");
        assert!(row.cells.iter().map(|cell| &cell.value).eq([&value]), "{mib} MiB");
    }
}
