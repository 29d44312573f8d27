//! Tests the store on disk, in one binary.

mod backups;
mod conformance;
mod contention;
mod damage;
mod edits;
#[cfg(target_os = "linux")]
#[path = "../failing_sync/mod.rs"]
mod failing;
#[cfg(target_os = "linux")]
mod failing_sync;
mod failures;
mod full;
mod glance;
mod kill;
mod opening;
mod packs;
mod pending;
mod power_cut;
mod rare;
mod reopening;
mod repair;
mod rows;
mod whole;

use std::path::Path;
use std::sync::Arc;

use bigtable::{Error, Family, Layout, LocalityGroup, Mutation, OnFull, Row, RowRange, Selection};
use bigtable::{Store, Table, TableSchema, TimeRange, Timestamp};
use bigtable_fjall::{Durability, FjallStore, Options};
use futures::executor::block_on;

const PLAIN: Family = Family::from_static("plain");
const NEWEST: Family = Family::from_static("newest");
const MEMORY: Family = Family::from_static("memory");
const SPILL: Family = Family::from_static("spill");
static EACH: [Family; 4] = [PLAIN, NEWEST, MEMORY, SPILL];

fn options(durability: Durability) -> Options {
    #[cfg(mutants)]
    if let Ok(name) = std::env::var("PERCOLATOR_MUTANT") {
        assert!(bigtable_fjall::mutants::switch_off(&name), "there is no mutant {name}");
    }
    Options { durability, ..Options::default() }
}

fn schema() -> TableSchema {
    TableSchema {
        groups: vec![
            LocalityGroup::on_disk("plain", Layout::Versions),
            LocalityGroup::on_disk("newest", Layout::NewestFirst),
            LocalityGroup::in_memory("memory", OnFull::Refuse { cells_max: 100_000 }),
            LocalityGroup::in_memory("spill", OnFull::Spill { cells_max: 20 }),
        ],
    }
}

fn open(dir: &Path, durability: Durability) -> (FjallStore, Arc<dyn Table>) {
    let store = FjallStore::open(dir, options(durability)).expect("the store opens");
    let table = block_on(store.open_table("t", &schema())).expect("the table opens");
    (store, table)
}

fn ts(number: u64) -> Timestamp {
    Timestamp::new(number).expect("a small number")
}

fn set(family: &Family, at: u64, value: &str) -> Mutation {
    Mutation::set(family.clone(), "q", ts(at), value.to_owned())
}

fn everything() -> Selection {
    let all = |select: Selection, f: &Family| select.family(f.clone(), TimeRange::ALL, u32::MAX);
    EACH.iter().fold(Selection::default(), all)
}

/// All rows of a table, with all their cells.
fn contents(table: &dyn Table) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut next = Some(RowRange::all());
    while let Some(range) = next {
        let page = block_on(table.scan(&range, &everything(), Default::default()));
        let mut page = page.expect("the scan succeeds");
        rows.append(&mut page.rows);
        next = page.resume;
    }
    rows
}

/// The parts of an [`Error::Files`].
fn files_error<T: std::fmt::Debug>(result: Result<T, Error>) -> (String, String) {
    match result {
        Err(Error::Files { problem, remedy, .. }) => (problem, remedy),
        other => panic!("expected Error::Files, got {other:?}"),
    }
}
