//! Counts how often an operation on the embedded store allocates: reads and writes of single
//! cells, raw and in transactions.
//!
//! The counts are the same on every machine.
//! `cargo test -p percolator --test allocations -- --nocapture` prints them. A change that
//! adds an allocation to one of these paths fails here.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that tells what it has counted"
)]

use std::sync::Arc;

use bigtable::{
    Family, Layout, LocalityGroup, Mutation, OnFull, RowMutation, Selection, Store, TableSchema,
    TimeRange, Timestamp,
};
use bigtable_fjall::{Durability, FjallStore};
use percolator::transaction::CommitPath;
use percolator::{Bytes, Client, Column, Options, Percolator, RowKey, Table};
use tokio::runtime::Runtime;

/// How often each operation runs: often enough to hide the occasional reservation of
/// timestamps.
const OPERATIONS: usize = 2000;
/// The number of cells.
const CELLS: usize = 100;
const QUALIFIER: &[u8] = b"v";
const COLUMN: Column = Column::literal("v");
const NEWEST: Family = Family::from_static("newest");
const LOCKS: Family = Family::from_static("locks");

/// The same cells as raw rows, and as tables of a client for each commit path.
struct Bed {
    keys: Vec<RowKey>,
    value: Bytes,
    raw: Arc<dyn bigtable::Table>,
    one_step: (Client, Table),
    two_phases: (Client, Table),
}

impl Bed {
    async fn create(store: Arc<dyn Store>) -> Bed {
        let locks = LocalityGroup::in_memory("locks", OnFull::Refuse { cells_max: CELLS });
        let newest = LocalityGroup::on_disk("newest", Layout::NewestFirst);
        let schema = TableSchema { groups: vec![locks, newest] };
        let raw = store.open_table("raw", &schema).await.unwrap();
        let db = Percolator::over(store, Options::default()).await.unwrap();
        let client = async |commit_path, name: &str| {
            let options = Options { commit_path, ..Options::default() };
            let client = Client::open(db.services().clone(), options).await.unwrap();
            let table = client.table(name).await.unwrap();
            (client, table)
        };
        Bed {
            keys: (0..CELLS).map(|cell| RowKey::from(format!("{cell:024}"))).collect(),
            value: Bytes::from(vec![b'v'; 100]),
            raw,
            one_step: client(CommitPath::OneStep, "one").await,
            two_phases: client(CommitPath::TwoPhases, "two").await,
        }
    }

    fn key(&self, number: usize) -> &RowKey {
        &self.keys[number % CELLS]
    }

    fn set(&self, family: &Family, number: usize) -> Mutation {
        let version = Timestamp::new(number as u64 + 1).unwrap();
        Mutation::set(family.clone(), QUALIFIER, version, self.value.clone())
    }

    async fn raw_get(&self, number: usize) {
        let newest = Selection::default().column(NEWEST, QUALIFIER, TimeRange::ALL, 1);
        let row = self.raw.read_row(self.key(number), &newest).await.unwrap();
        assert_eq!(row.newest(&NEWEST, QUALIFIER).unwrap().value, self.value);
    }

    async fn raw_set(&self, number: usize) {
        let row = RowMutation::new(self.key(number)).mutation(self.set(&NEWEST, number));
        self.raw.mutate_row(row).await.unwrap();
    }

    /// Sends the mutations of a two-phase commit: a lock, then the write and the unlock.
    async fn two_mutations(&self, number: usize) {
        let row = || RowMutation::new(self.key(number));
        self.raw.mutate_row(row().mutation(self.set(&LOCKS, number))).await.unwrap();
        let version = Timestamp::new(number as u64 + 1).unwrap();
        let unlock = Mutation::delete(LOCKS, QUALIFIER, TimeRange::at(version));
        let commit = row().mutation(self.set(&NEWEST, number)).mutation(unlock);
        self.raw.mutate_row(commit).await.unwrap();
    }

    async fn get(&self, (client, table): &(Client, Table)) {
        let snapshot = client.snapshot().await.unwrap();
        for number in 0..OPERATIONS {
            let value = snapshot.get(table, self.key(number), &COLUMN).await.unwrap();
            assert_eq!(value.unwrap(), self.value);
        }
    }

    async fn tx(&self, (client, table): &(Client, Table), number: usize) {
        let mut tx = client.begin().await.unwrap();
        tx.set(table, self.key(number), &COLUMN, self.value.clone()).unwrap();
        tx.commit().await.unwrap();
    }
}

/// Allocations per operation on this thread, which does all the work of one caller.
fn each(runtime: &Runtime, all: impl Future<Output = ()>) -> f64 {
    let counted = allocation_counter::measure(|| runtime.block_on(all));
    counted.count_total as f64 / OPERATIONS as f64
}

async fn every(mut operation: impl AsyncFnMut(usize)) {
    for number in 0..OPERATIONS {
        operation(number).await;
    }
}

#[test]
fn an_operation_allocates_no_more_often_than_it_did() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let options =
        bigtable_fjall::Options { durability: Durability::Buffered, ..Default::default() };
    let store = Arc::new(FjallStore::open(dir.path().join("db"), options).unwrap());
    let bed = runtime.block_on(Bed::create(store));
    // Give every column older versions, as in a repository that changes.
    let (one_step, two_phases) = (&bed.one_step, &bed.two_phases);
    runtime.block_on(async {
        every(async |n| bed.raw_set(n).await).await;
        every(async |n| bed.tx(one_step, n).await).await;
        every(async |n| bed.tx(two_phases, n).await).await;
    });
    let raw_get = each(&runtime, every(async |n| bed.raw_get(n).await));
    let get = each(&runtime, bed.get(one_step));
    let raw_set = each(&runtime, every(async |n| bed.raw_set(n + OPERATIONS).await));
    let tx = each(&runtime, every(async |n| bed.tx(one_step, n).await));
    let two_mutations =
        each(&runtime, every(async |n| bed.two_mutations(n + 2 * OPERATIONS).await));
    let two_phases = each(&runtime, every(async |n| bed.tx(two_phases, n).await));
    println!("allocations for each operation on one cell, over the embedded store");
    for (name, count, most) in [
        ("raw get", raw_get, 4.5),
        ("get at a snapshot", get, 1.5),
        ("raw write", raw_set, 8.0),
        ("transaction in one step", tx, 21.0),
        ("what two phases put and remove", two_mutations, 23.0),
        ("transaction in two phases", two_phases, 42.0),
    ] {
        println!("  {name:<32} {count:>6.2}, at most {most}");
        assert!(count <= most, "{name}: {count}");
    }
}
