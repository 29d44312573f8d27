//! Compares random operations on a family of each layout with a simple model. All answers must
//! be equal.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;

use super::fixture::*;
use crate::{Bytes, Cell, ColumnSelect, ConditionalMutation, Error, Family, Mutation, PageLimit};
use crate::{Probe, Qualifiers, Row, RowKey, RowRange, Selection, Store, Table, TimeRange};
use crate::{RowMutation, Syncing, Timestamp};

const SEEDS: u64 = 6;
const OPERATIONS: usize = 250;
/// Few rows, columns and times, so that operations often touch the same cells. Some keys are
/// prefixes of others.
const ROWS: [&[u8]; 7] = [b"a", b"a\0", b"a\0\0", b"aa", b"b", b"\0", b"\xff"];
const QUALIFIERS: [&[u8]; 5] = [b"", b"q", b"q\0", b"qq", b"\xff\0"];
const TIMES: u64 = 10;

/// A cell's place. Places sort in the order in which reads return cells.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    row: RowKey,
    family: Family,
    qualifier: Bytes,
    at: Reverse<Timestamp>,
}

/// All cells of a table in one map, as simply as possible.
#[derive(Default)]
struct Model(BTreeMap<Place, Bytes>);

impl Model {
    fn apply(&mut self, row: &RowKey, mutation: &Mutation) {
        match mutation.clone() {
            Mutation::Set { family, qualifier, timestamp, value } => {
                let at = Reverse(timestamp);
                self.0.insert(Place { row: row.clone(), family, qualifier, at }, value);
            }
            Mutation::Delete { family, qualifier, time } => self.0.retain(|place, _| {
                (&place.row, &place.family, &place.qualifier) != (row, &family, &qualifier)
                    || !time.contains(place.at.0)
            }),
        }
    }

    fn finds(&self, row: &RowKey, probe: &Probe) -> bool {
        let prefix = probe.value_prefix.clone().unwrap_or_default();
        let named = |qualifier: &Bytes| match &probe.qualifiers {
            Qualifiers::All => true,
            Qualifiers::Is(wanted) => wanted == qualifier,
        };
        self.0.iter().any(|(place, value)| {
            (&place.row, &place.family) == (row, &probe.family)
                && named(&place.qualifier)
                && probe.time.contains(place.at.0)
                && value.starts_with(&prefix)
        })
    }

    fn decide(&mut self, request: &ConditionalMutation) -> bool {
        let holds = request.predicate.iter().any(|probe| self.finds(&request.row, probe));
        let mutations = if holds { &request.then } else { &request.otherwise };
        mutations.iter().for_each(|mutation| self.apply(&request.row, mutation));
        holds
    }

    fn read(&self, row: &RowKey, select: &Selection) -> Row {
        let mut cells = Vec::new();
        let mut taken: BTreeMap<(usize, &Bytes), u32> = BTreeMap::new();
        for (place, value) in self.0.iter().filter(|(place, _)| place.row == *row) {
            for (index, column) in select.columns.iter().enumerate() {
                if selects(column, place) {
                    let taken = taken.entry((index, &place.qualifier)).or_default();
                    *taken += 1;
                    if *taken <= column.versions_max {
                        cells.push(Cell {
                            family: place.family.clone(),
                            qualifier: place.qualifier.clone(),
                            timestamp: place.at.0,
                            value: value.clone(),
                        });
                    }
                }
            }
        }
        Row { key: row.clone(), cells }
    }

    fn scan(&self, range: &RowRange, select: &Selection) -> Vec<Row> {
        let mut rows: Vec<_> = self.0.keys().map(|place| place.row.clone()).collect();
        rows.dedup();
        rows.retain(|row| range.contains(row));
        let rows = rows.iter().map(|row| self.read(row, select));
        rows.filter(|row| !row.cells.is_empty()).collect()
    }
}

fn selects(column: &ColumnSelect, place: &Place) -> bool {
    let qualifier = match &column.qualifiers {
        Qualifiers::All => true,
        Qualifiers::Is(qualifier) => *qualifier == place.qualifier,
    };
    column.family == place.family && qualifier && column.time.contains(place.at.0)
}

/// Whether any possible cell is selected twice.
fn overlaps(select: &Selection) -> bool {
    let columns = &select.columns;
    let pairs = (0..columns.len()).flat_map(|a| (0..a).map(move |b| (&columns[a], &columns[b])));
    pairs.into_iter().any(|(a, b)| {
        let same = match (&a.qualifiers, &b.qualifiers) {
            (Qualifiers::Is(a), Qualifiers::Is(b)) => a == b,
            (Qualifiers::All, _) | (_, Qualifiers::All) => true,
        };
        let both = TimeRange { from: a.time.from.max(b.time.from), to: a.time.to.min(b.time.to) };
        let empty = a.time.from > a.time.to || b.time.from > b.time.to;
        a.family == b.family && same && !empty && both.from <= both.to
    })
}

/// Random parts of requests.
impl Random {
    fn row(&mut self) -> RowKey {
        RowKey::from(*self.pick(&ROWS))
    }

    fn family(&mut self) -> Family {
        let all = [PLAIN, PLAIN_TOO, NEWEST, NEWEST, MEMORY, SPILL];
        self.pick(&all).clone()
    }

    fn qualifier(&mut self) -> Bytes {
        Bytes::from_static(QUALIFIERS[self.below(QUALIFIERS.len())])
    }

    fn timestamp(&mut self) -> Timestamp {
        ts(self.next() % TIMES)
    }

    fn time(&mut self) -> TimeRange {
        let (a, b) = (self.timestamp(), self.timestamp());
        match self.below(8) {
            0 | 1 => TimeRange::ALL,
            2 => TimeRange::at(a),
            3 => TimeRange::up_to(a),
            4 => TimeRange::since(a),
            5 => TimeRange { from: a, to: b },
            6 => TimeRange::below(a),
            _ => TimeRange { from: a.min(b), to: a.max(b) },
        }
    }

    fn mutations(&mut self) -> Vec<Mutation> {
        let count = self.below(5);
        let mutation = |random: &mut Random| {
            let (family, qualifier) = (random.family(), random.qualifier());
            if random.below(3) == 0 {
                Mutation::delete(family, qualifier, random.time())
            } else {
                let value = vec![b'a' + random.below(3) as u8; 1 + random.below(30)];
                Mutation::set(family, qualifier, random.timestamp(), value)
            }
        };
        (0..count).map(|_| mutation(self)).collect()
    }

    fn predicate(&mut self) -> Vec<Probe> {
        let count = self.below(4);
        let probe = |random: &mut Random| {
            let probe = match random.below(4) {
                0 => Probe::family(random.family(), random.time()),
                _ => Probe::new(random.family(), random.qualifier(), random.time()),
            };
            match random.below(3) {
                0 => probe.with_value_prefix(vec![b'a' + random.below(3) as u8; random.below(3)]),
                _ => probe,
            }
        };
        (0..count).map(|_| probe(self)).collect()
    }

    fn selection(&mut self) -> Selection {
        let count = 1 + self.below(5);
        let column = |random: &mut Random| ColumnSelect {
            family: random.family(),
            qualifiers: match random.below(3) {
                0 => Qualifiers::All,
                _ => Qualifiers::Is(random.qualifier()),
            },
            time: random.time(),
            versions_max: *random.pick(&[1, 1, 2, 3, u32::MAX]),
        };
        Selection { columns: (0..count).map(|_| column(self)).collect(), above: None }
    }

    fn range(&mut self) -> RowRange {
        let bound = |random: &mut Random| match random.below(4) {
            0 | 1 => Bound::Unbounded,
            2 => Bound::Included(random.row()),
            _ => Bound::Excluded(random.row()),
        };
        RowRange { start: bound(self), end: bound(self) }
    }
}

pub(super) async fn random_operations(store: &dyn Store) {
    some(store, SEEDS, OPERATIONS).await;
}

pub(super) async fn some(store: &dyn Store, seeds: u64, operations: usize) {
    for seed in 0..seeds {
        let name = format!("model{seed}");
        let table = ok("opening", store.open_table(&name, &schema("model")).await);
        let mut random = Random(seed);
        let mut model = Model::default();
        for step in 0..operations {
            one_operation(&*table, &mut model, &mut random, &format!("seed {seed}, step {step}"))
                .await;
        }
        let got = scan(&*table, &RowRange::all(), &everything()).await;
        assert_eq!(got, model.scan(&RowRange::all(), &everything()), "seed {seed}: what is left");
    }
}

async fn one_operation(table: &dyn Table, model: &mut Model, random: &mut Random, at: &str) {
    match random.below(10) {
        0..=2 => {
            let (row, mutations) = (random.row(), random.mutations());
            mutations.iter().for_each(|mutation| model.apply(&row, mutation));
            let sync = match random.below(40) {
                0 => Syncing::Always,
                1 => Syncing::MayBeLost,
                _ => Syncing::AsStore,
            };
            let request = RowMutation { row, mutations, sync };
            let got = table.mutate_row(request.clone()).await;
            assert!(got.is_ok(), "{at}: {request:?} gave {got:?}");
        }
        3..=5 => {
            let request = ConditionalMutation {
                predicate: random.predicate(),
                then: random.mutations(),
                otherwise: random.mutations(),
                ..ConditionalMutation::new(random.row())
            };
            let want = model.decide(&request);
            let got = table.check_and_mutate_row(request.clone()).await;
            assert!(
                matches!(got, Ok(got) if got == want),
                "{at}: {request:?}: {got:?}, not {want}"
            );
        }
        6 | 7 => {
            let (row, select) = (random.row(), random.selection());
            let got = table.read_row(&row, &select).await;
            if overlaps(&select) {
                let refused = matches!(got, Err(Error::InvalidRequest(_)));
                assert!(refused, "{at}: {select:?} overlaps, got {got:?}");
            } else {
                let got = ok("reading", got);
                assert_eq!(got, model.read(&row, &select), "{at}: row {row}, {select:?}");
            }
        }
        _ => {
            let (range, select) = (random.range(), random.selection());
            if !overlaps(&select) {
                let bytes_max = *random.pick(&[1, 50, 1 << 20]);
                let limit = PageLimit { rows_max: 1 + random.below(5), bytes_max };
                let pages = pages(table, &range, &select, limit).await;
                let got: Vec<_> = pages.into_iter().flat_map(|page| page.rows).collect();
                let want = model.scan(&range, &select);
                assert_eq!(got, want, "{at}: {range:?}, {select:?}, {limit:?}");
            }
        }
    }
}
