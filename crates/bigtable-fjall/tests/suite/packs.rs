//! Compares columns in the layout `NewestFirst` with a map. Their versions lie in packs that
//! are filled, moved, split and decoded. The bounds are so tight here that this happens often.

use std::collections::BTreeMap;

use bigtable::{Bytes, Qualifiers, RowKey, RowMutation};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Neighbours in the order of keys.
const ROWS: [&str; 3] = ["a", "a\0", "b"];
const QUALIFIERS: [&str; 2] = ["q", "q\0"];
const TIMES: u64 = 40;

#[derive(Debug, Clone)]
enum Step {
    Mutate(usize, Vec<Change>),
    /// Reads one row, or all rows: at most this many versions of each column above a time, and
    /// as many up to that time.
    Read(Option<usize>, u64, u32),
    Reopen,
}

#[derive(Debug, Clone)]
enum Change {
    /// Adds a version newer than all others.
    Push(usize, usize),
    Set(usize, u64, usize),
    Delete(usize, u64, u64),
}

/// The versions of each column, by row and qualifier.
#[derive(Default)]
struct Model {
    columns: BTreeMap<(usize, usize), BTreeMap<u64, Bytes>>,
    newest: u64,
    values: u64,
}

impl Model {
    /// A value that differs from all others, of at least this length.
    fn value(&mut self, length: usize) -> Bytes {
        self.values += 1;
        Bytes::from(format!("{}{}", self.values, "-".repeat(length)))
    }

    fn apply(&mut self, row: usize, change: &Change) -> Mutation {
        let set = |q: usize, at, value| Mutation::set(NEWEST, QUALIFIERS[q], ts(at), value);
        match *change {
            Change::Push(q, length) => {
                self.newest += 1;
                let (at, value) = (self.newest, self.value(length));
                self.columns.entry((row, q)).or_default().insert(at, value.clone());
                set(q, at, value)
            }
            Change::Set(q, at, length) => {
                let value = self.value(length);
                self.newest = self.newest.max(at);
                self.columns.entry((row, q)).or_default().insert(at, value.clone());
                set(q, at, value)
            }
            Change::Delete(q, from, to) => {
                let versions = self.columns.entry((row, q)).or_default();
                versions.retain(|at, _| *at < from || *at > to);
                let time = TimeRange { from: ts(from), to: ts(to) };
                Mutation::delete(NEWEST, QUALIFIERS[q], time)
            }
        }
    }

    fn rows(&self, only: Option<usize>, above: u64, versions_max: u32) -> Vec<Found> {
        let max = versions_max as usize;
        let mut found = Vec::new();
        for (&(row, q), versions) in &self.columns {
            if only.is_none_or(|only| only == row) {
                let newer = versions.range(above + 1..).rev().take(max);
                let older = versions.range(..=above).rev().take(max);
                let cell = |(at, value): (&u64, &Bytes)| (row, q, *at, value.clone());
                found.extend(newer.chain(older).map(cell));
            }
        }
        found
    }
}

/// A cell: the positions of its row and qualifier, its time and its value.
type Found = (usize, usize, u64, Bytes);

fn selection(above: u64, versions_max: u32) -> Selection {
    let (newer, older) = (TimeRange::above(ts(above)), TimeRange::up_to(ts(above)));
    // Select the older part first: the store must not depend on the order.
    Selection::default().family(NEWEST, older, versions_max).family(NEWEST, newer, versions_max)
}

fn found(rows: &[Row]) -> Vec<Found> {
    let position = |names: &[&str], name: &[u8]| names.iter().position(|n| n.as_bytes() == name);
    let mut found = Vec::new();
    for row in rows {
        let r = position(&ROWS, row.key.as_bytes()).expect("a row that was written");
        for cell in &row.cells {
            let q = position(&QUALIFIERS, &cell.qualifier).expect("a column that was written");
            found.push((r, q, cell.timestamp.as_u64(), cell.value.clone()));
        }
    }
    found
}

fn read(table: &dyn Table, only: Option<usize>, above: u64, versions_max: u32) -> Vec<Found> {
    let select = selection(above, versions_max);
    let Some(row) = only else {
        let page = block_on(table.scan(&RowRange::all(), &select, Default::default()));
        return found(&page.expect("the scan succeeds").rows);
    };
    let key = RowKey::from(ROWS[row]);
    let whole = found(&[block_on(table.read_row(&key, &select)).expect("the row is read")]);
    // A read by qualifier takes another path through the code for each column.
    let mut columns = Vec::new();
    for qualifier in QUALIFIERS {
        let mut select = select.clone();
        select.columns.iter_mut().for_each(|c| c.qualifiers = Qualifiers::Is(qualifier.into()));
        columns.push(block_on(table.read_row(&key, &select)).expect("the columns are read"));
    }
    assert_eq!(found(&columns), whole);
    whole
}

fn step() -> impl Strategy<Value = Step> {
    let q = 0..QUALIFIERS.len();
    let length = || prop_oneof![8 => 0..4usize, 2 => 20..60usize, 1 => 1000..1100usize];
    let at = || 0..TIMES;
    let change = prop_oneof![
        6 => (q.clone(), length()).prop_map(|(q, length)| Change::Push(q, length)),
        4 => (q.clone(), at(), length()).prop_map(|(q, at, length)| Change::Set(q, at, length)),
        1 => (q.clone(), at(), at()).prop_map(|(q, from, to)| Change::Delete(q, from, to)),
        1 => (q.clone(), at(), 0..6u64).prop_map(|(q, from, n)| Change::Delete(q, from, from + n)),
        1 => (q.clone(), at()).prop_map(|(q, at)| Change::Delete(q, at, at)),
        1 => (q, at()).prop_map(|(q, to)| Change::Delete(q, 0, to)),
    ];
    let row = || 0..ROWS.len();
    let of_row = proptest::option::weighted(0.7, row());
    let versions_max = prop_oneof![1..4u32, Just(u32::MAX)];
    prop_oneof![
        40 => (row(), vec(change, 1..6)).prop_map(|(row, changes)| Step::Mutate(row, changes)),
        30 => (of_row, at(), versions_max).prop_map(|(row, at, max)| Step::Read(row, at, max)),
        // Reopening is rare, because it takes long.
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn columns_agree_with_a_map(
        steps in vec(step(), 1..200), versions_max in 1..6usize, bytes_max in 20..200usize
    ) {
        let dir = tempfile::tempdir().unwrap();
        let schema = TableSchema {
            groups: vec![LocalityGroup::on_disk("newest", Layout::NewestFirst)],
        };
        let open = || {
            let options = Options {
                pack_versions_max: versions_max,
                pack_bytes_max: bytes_max,
                ..options(Durability::Buffered)
            };
            let store = FjallStore::open(dir.path(), options).expect("the store opens");
            block_on(store.open_table("t", &schema)).expect("the table opens")
        };
        let mut table = Some(open());
        let mut model = Model::default();
        for step in steps.iter().chain([&Step::Reopen]) {
            match step {
                Step::Mutate(row, changes) => {
                    let mutations = changes.iter().map(|change| model.apply(*row, change));
                    let mutations = mutations.collect();
                    let request = RowMutation { mutations, ..RowMutation::new(ROWS[*row]) };
                    let table = table.as_ref().expect("it is open");
                    block_on(table.mutate_row(request)).expect("the mutation is accepted");
                }
                Step::Read(row, above, versions_max) => {
                    let table = table.as_deref().expect("it is open");
                    let read = read(table, *row, *above, *versions_max);
                    prop_assert_eq!(read, model.rows(*row, *above, *versions_max));
                }
                Step::Reopen => {
                    drop(table.take());
                    table = Some(open());
                    let table = table.as_deref().expect("it is open");
                    prop_assert_eq!(read(table, None, 20, u32::MAX), model.rows(None, 20, u32::MAX));
                }
            }
        }
    }
}
