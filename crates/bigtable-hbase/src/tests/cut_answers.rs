//! Tests changes through a proxy that cuts connections, behind requests and in place of answers.
//! An acknowledged change must be there, a refused one must not, and none may be applied twice.

use std::sync::Arc;

use bigtable::{
    Bytes, ConditionalMutation, Error, Family, Layout, LocalityGroup, Mutation, Probe, RowKey,
    RowMutation, Selection, Store, Table, TableSchema, TimeRange, Timestamp,
};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::fake::Fake;
use super::proxy::Proxy;
use crate::HbaseStore;

const DATA: Family = Family::from_static("data");
const TASKS: u64 = 6;
const CHANGES: u64 = 60;
/// One frame in this many is the last of its connection.
const CUT_ONE_IN: u32 = 25;
/// The fewest cuts of each kind in a run.
const CUTS_MIN: u32 = 5;
/// Rows that all tasks change.
const SHARED: [&str; 3] = ["a", "b", "c"];
/// Bytes of a change's number in a list.
const ENTRY: usize = 8;

/// The outcome of a change, as its caller knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Applied,
    NotApplied,
    Unknown,
}

impl Outcome {
    fn of(result: Result<bool, Error>) -> Self {
        match result {
            Ok(true) => Outcome::Applied,
            Ok(false) | Err(Error::Unavailable { .. } | Error::Overloaded { .. }) => {
                Outcome::NotApplied
            }
            Err(Error::Unknown { .. }) => Outcome::Unknown,
            Err(other) => panic!("{other}"),
        }
    }
}

/// A change, by its number.
#[derive(Debug)]
struct Change {
    number: u64,
    row: String,
    /// The column of a list; `None` for a cell of its own.
    list: Option<List>,
    outcome: Outcome,
}

/// A column with the numbers of all changes that were applied to it, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    /// Changed under a condition at one timestamp, which goes to the server as a filter.
    Filtered,
    /// Changed under a condition at all timestamps, which needs the row's guard.
    Guarded,
}

impl List {
    fn qualifier(self) -> &'static str {
        match self {
            List::Filtered => "filtered",
            List::Guarded => "guarded",
        }
    }

    fn time(self) -> TimeRange {
        match self {
            List::Filtered => TimeRange::at(Timestamp::ZERO),
            List::Guarded => TimeRange::ALL,
        }
    }
}

fn set(qualifier: impl Into<Bytes>, value: Bytes) -> Mutation {
    Mutation::set(DATA, qualifier, Timestamp::ZERO, value)
}

fn cell_of(number: u64) -> Bytes {
    number.to_string().into()
}

async fn value(table: &dyn Table, row: &str, qualifier: Bytes) -> Result<Option<Bytes>, Error> {
    let select = Selection::default().column(DATA, qualifier.clone(), TimeRange::ALL, 1);
    let row = table.read_row(&RowKey::from(row), &select).await?;
    Ok(row.newest(&DATA, &qualifier).map(|cell| cell.value.clone()))
}

/// Puts a number in front of a list, if the list is as it was read.
async fn put(table: &dyn Table, row: &str, list: List, number: u64) -> Result<bool, Error> {
    let qualifier = Bytes::from_static(list.qualifier().as_bytes());
    let old = value(table, row, qualifier.clone()).await?.unwrap_or_default();
    let new: Bytes = [&number.to_be_bytes()[..], &old].concat().into();
    let probe = Probe::new(DATA, qualifier.clone(), list.time()).with_value_prefix(old);
    let request = ConditionalMutation {
        predicate: vec![probe],
        then: vec![set(qualifier, new)],
        ..ConditionalMutation::new(row)
    };
    table.check_and_mutate_row(request).await
}

/// Makes one change after the other.
async fn work(table: Arc<dyn Table>, task: u64, mut random: StdRng) -> Vec<Change> {
    let mut changes = Vec::new();
    for number in (task..).step_by(TASKS as usize).take(CHANGES as usize) {
        let list = *[Some(List::Filtered), Some(List::Guarded), None].choose(&mut random).unwrap();
        let row = match list {
            Some(_) => (*SHARED.choose(&mut random).unwrap()).to_owned(),
            None => format!("own {task}"),
        };
        let result = match list {
            Some(list) => put(&*table, &row, list, number).await,
            None => {
                let cell = set(cell_of(number), Bytes::from_static(b"there"));
                table.mutate_row(RowMutation::new(&row[..]).mutation(cell)).await.map(|()| true)
            }
        };
        changes.push(Change { number, row, list, outcome: Outcome::of(result) });
    }
    changes
}

/// Counts how often a change was applied.
async fn times_applied(table: &dyn Table, change: &Change) -> usize {
    let qualifier = change.list.map_or(cell_of(change.number), |list| list.qualifier().into());
    let found = value(table, &change.row, qualifier).await.expect("a read without cuts");
    match change.list {
        None => usize::from(found.is_some()),
        Some(_) => {
            let found = found.expect("a list that was begun");
            found.chunks(ENTRY).filter(|entry| **entry == change.number.to_be_bytes()).count()
        }
    }
}

async fn loses_and_repeats_nothing(mut store: HbaseStore) {
    let seed: u64 = rand::random();
    eprintln!("seed {seed}");
    let proxy = Proxy::new(seed);
    store.go_through(proxy.clone());
    let schema = TableSchema { groups: vec![LocalityGroup::on_disk("data", Layout::Versions)] };
    let table = store.open_table("cut", &schema).await.expect("a table");
    for row in SHARED {
        let lists = [List::Filtered, List::Guarded]
            .map(|list| set(list.qualifier(), Bytes::copy_from_slice(&u64::MAX.to_be_bytes())));
        let begun = lists.into_iter().fold(RowMutation::new(row), RowMutation::mutation);
        table.mutate_row(begun).await.expect("a list");
    }
    proxy.cut_one_in(CUT_ONE_IN);
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let random = StdRng::seed_from_u64(seed.wrapping_add(task + 1));
        tasks.spawn(work(table.clone(), task, random));
    }
    let changes: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    proxy.cut_one_in(0);

    let mut acknowledged = 0;
    for change in &changes {
        let times = times_applied(&*table, change).await;
        let sound = match change.outcome {
            Outcome::Applied => times == 1,
            Outcome::NotApplied => times == 0,
            Outcome::Unknown => times <= 1,
        };
        assert!(sound, "seed {seed}: applied {times} times: {change:?}");
        acknowledged += usize::from(change.outcome == Outcome::Applied);
    }
    let cuts = proxy.cuts();
    eprintln!("{acknowledged} of {} changes acknowledged, {cuts:?} cuts", changes.len());
    assert!(cuts.iter().all(|count| *count >= CUTS_MIN), "seed {seed}: {cuts:?} cuts");
    assert!(acknowledged >= changes.len() / 4, "seed {seed}: {acknowledged} acknowledged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_connections_lose_and_repeat_no_change() {
    let fake = Fake::start().await;
    loses_and_repeats_nothing(fake.store("").await).await;
}

pub(super) async fn run(store: HbaseStore) {
    loses_and_repeats_nothing(store).await;
}
