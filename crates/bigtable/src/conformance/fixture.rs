//! Provides shared helpers for the cases: tables with a family of each layout, and short forms
//! of requests.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::{Bytes, ConditionalMutation, Error, Family, FamilySchema, Layout, LocalityGroup};
use crate::{Mutation, OnFull, Page, PageLimit, Probe, Result, Row, RowKey, RowMutation, RowRange};
use crate::{Selection, Store, Table, TableSchema, TimeRange, Timestamp};

/// On disk, with the layout `Versions`.
pub(super) const PLAIN: Family = Family::from_static("plain");
/// A second family in the locality group of [`PLAIN`].
pub(super) const PLAIN_TOO: Family = Family::from_static("plain-too");
/// On disk, with the layout `NewestFirst`.
pub(super) const NEWEST: Family = Family::from_static("newest");
/// In memory, with a bound that no case reaches by accident.
pub(super) const MEMORY: Family = Family::from_static("memory");
/// In memory, with a bound that every case exceeds.
pub(super) const SPILL: Family = Family::from_static("spill");

/// A family of each layout, to test that the layout does not change results.
pub(super) static EACH: [Family; 4] = [PLAIN, NEWEST, MEMORY, SPILL];

/// The bound of [`SPILL`].
pub(super) const SPILL_CELLS_MAX: usize = 3;

/// The schema of one case's tables. Each case has its own groups, because bounds apply to all
/// tables of the store.
pub(super) fn schema(case: &str) -> TableSchema {
    let group = |suffix: &str, families: &[Family], layout| LocalityGroup {
        name: format!("{case}_{suffix}"),
        families: families.iter().map(|f| FamilySchema { family: f.clone() }).collect(),
        layout,
    };
    let (large, small) = (1_000_000, SPILL_CELLS_MAX);
    let memory = Layout::InMemory(OnFull::Refuse { cells_max: large });
    let spill = Layout::InMemory(OnFull::Spill { cells_max: small });
    TableSchema {
        groups: vec![
            group("plain", &[PLAIN, PLAIN_TOO], Layout::Versions),
            group("newest", &[NEWEST], Layout::NewestFirst),
            group("memory", &[MEMORY], memory),
            group("spill", &[SPILL], spill),
        ],
    }
}

/// The table of a case.
pub(super) async fn table(store: &dyn Store, case: &str) -> Arc<dyn Table> {
    ok("opening a table", store.open_table(case, &schema(case)).await)
}

#[track_caller]
pub(super) fn ok<T>(what: &str, result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{what} failed: {error}"),
    }
}

/// Checks that the request was refused as invalid.
#[track_caller]
pub(super) fn invalid<T: std::fmt::Debug>(what: &str, result: Result<T>) {
    match result {
        Err(Error::InvalidRequest(_)) => {}
        other => panic!("{what}: expected InvalidRequest, got {other:?}"),
    }
}

pub(super) fn ts(number: u64) -> Timestamp {
    Timestamp::new(number).expect("the suite's timestamps are small")
}

pub(super) fn from_to(from: u64, to: u64) -> TimeRange {
    TimeRange { from: ts(from), to: ts(to) }
}

pub(super) fn set(family: &Family, qualifier: &[u8], at: u64, value: &str) -> Mutation {
    let qualifier = Bytes::copy_from_slice(qualifier);
    Mutation::set(family.clone(), qualifier, ts(at), value.to_owned())
}

pub(super) fn delete(family: &Family, qualifier: &[u8], time: TimeRange) -> Mutation {
    Mutation::delete(family.clone(), Bytes::copy_from_slice(qualifier), time)
}

pub(super) fn probe(family: &Family, qualifier: &[u8], time: TimeRange) -> Probe {
    Probe::new(family.clone(), Bytes::copy_from_slice(qualifier), time)
}

/// Mutates a row. The store must accept it.
pub(super) fn mutate<'a>(
    table: &'a dyn Table,
    row: &[u8],
    mutations: impl IntoIterator<Item = Mutation>,
) -> BoxFuture<'a, ()> {
    let mutations = mutations.into_iter().collect();
    let request = RowMutation { mutations, ..RowMutation::new(RowKey::from(row)) };
    Box::pin(async move { ok("mutating a row", table.mutate_row(request).await) })
}

/// Mutates a row conditionally. The store must accept it.
pub(super) async fn decide(
    table: &dyn Table,
    row: &[u8],
    predicate: Vec<Probe>,
    then: Vec<Mutation>,
    otherwise: Vec<Mutation>,
) -> bool {
    let request = ConditionalMutation {
        predicate,
        then,
        otherwise,
        ..ConditionalMutation::new(RowKey::from(row))
    };
    ok("mutating a row conditionally", table.check_and_mutate_row(request).await)
}

/// Whether the probes find a cell.
pub(super) async fn finds(table: &dyn Table, row: &[u8], predicate: Vec<Probe>) -> bool {
    decide(table, row, predicate, vec![], vec![]).await
}

pub(super) async fn read(table: &dyn Table, row: &[u8], select: &Selection) -> Row {
    let row = RowKey::from(row);
    let read = ok("reading a row", table.read_row(&row, select).await);
    assert_eq!(read.key, row, "a row read by its key has another key");
    read
}

pub(super) fn column(family: &Family, qualifier: &[u8], time: TimeRange, max: u32) -> Selection {
    let qualifier = Bytes::copy_from_slice(qualifier);
    Selection::default().column(family.clone(), qualifier, time, max)
}

pub(super) fn family(family: &Family, time: TimeRange, max: u32) -> Selection {
    Selection::default().family(family.clone(), time, max)
}

/// All cells in the families of [`EACH`], and in [`PLAIN_TOO`].
pub(super) fn everything() -> Selection {
    EACH.iter().chain([&PLAIN_TOO]).fold(Selection::default(), |select, family| {
        select.family(family.clone(), TimeRange::ALL, u32::MAX)
    })
}

/// The cells of a row as "qualifier@time=value", in the order in which they were returned.
pub(super) fn shown(row: &Row) -> Vec<String> {
    let show = |bytes: &Bytes| RowKey::from(bytes.clone()).to_string();
    let cells = row.cells.iter();
    cells.map(|c| format!("{}@{}={}", show(&c.qualifier), c.timestamp, show(&c.value))).collect()
}

/// Like [`shown`], with families.
pub(super) fn shown_fully(row: &Row) -> Vec<String> {
    let cells = row.cells.iter().zip(shown(row));
    cells.map(|(cell, shown)| format!("{}:{shown}", cell.family)).collect()
}

/// A scan with more pages than this is taken to be endless.
const PAGES_MAX: usize = 10_000;

/// All rows of a range, page by page.
pub(super) async fn pages(
    table: &dyn Table,
    range: &RowRange,
    select: &Selection,
    limit: PageLimit,
) -> Vec<Page> {
    let mut pages: Vec<Page> = Vec::new();
    let mut next = Some(range.clone());
    while let Some(range) = next {
        let page = ok("scanning", table.scan(&range, select, limit).await);
        for row in &page.rows {
            assert!(range.contains(&row.key), "scan of {range:?} returned row {}", row.key);
            assert!(!row.cells.is_empty(), "scan returned row {} without a cell", row.key);
            let last = pages.iter().rev().find_map(|page| page.rows.last());
            let ordered = last.is_none_or(|last| last.key < row.key);
            assert!(ordered, "scan returned row {} after {:?}", row.key, last.map(|r| &r.key));
        }
        let ordered = page.rows.is_sorted_by(|a, b| a.key < b.key);
        assert!(ordered, "rows of a page out of order: {:?}", keys(&page.rows));
        let rows_max = limit.rows_max.max(1);
        assert!(page.rows.len() <= rows_max, "{} rows, asked for {rows_max}", page.rows.len());
        next = page.resume.clone();
        pages.push(page);
        assert!(pages.len() < PAGES_MAX, "the scan of {range:?} does not end");
    }
    pages
}

/// All rows of a range.
pub(super) async fn scan(table: &dyn Table, range: &RowRange, select: &Selection) -> Vec<Row> {
    let pages = pages(table, range, select, PageLimit::default()).await;
    pages.into_iter().flat_map(|page| page.rows).collect()
}

pub(super) fn keys(rows: &[Row]) -> Vec<String> {
    rows.iter().map(|row| row.key.to_string()).collect()
}

/// A small generator of pseudo-random numbers (splitmix64). The suite has its own, so that a
/// seed gives the same numbers everywhere.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(super) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}
