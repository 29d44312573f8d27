//! Tests that the cells outside of a filter's scopes do not change its output.

use proptest::prelude::*;

use super::*;
use crate::time;

const TIMES: i64 = 4;

/// A row with every family, qualifier and time, and some equal values.
fn row() -> Vec<Cell> {
    let mut cells = Vec::new();
    for family in ["a", "b"] {
        for qualifier in ["x", "y"] {
            for at in (0..TIMES).rev() {
                cells.push(Cell {
                    family: family.into(),
                    qualifier: qualifier.into(),
                    micros: at * 1000,
                    value: format!("{}", at % 2).into(),
                    labels: Vec::new(),
                });
            }
        }
    }
    cells
}

/// The cells that at least one scope covers.
fn covered(scopes: &[Scope]) -> Vec<Cell> {
    let mut cells = row();
    let seen = |cell: &Cell, scope: &Scope| {
        let at = time::timestamp(cell.micros).unwrap();
        scope.family.as_ref().is_none_or(|family| **family == *cell.family)
            && scope.qualifier.as_ref().is_none_or(|q| *q == cell.qualifier)
            && scope.time.contains(at)
    };
    let all = row();
    cells.retain(|cell| {
        scopes.iter().any(|scope| {
            let newer = all.iter().filter(|other| {
                (&other.family, &other.qualifier) == (&cell.family, &cell.qualifier)
                    && other.micros > cell.micros
                    && seen(other, scope)
            });
            seen(cell, scope) && newer.count() < scope.versions_max as usize
        })
    });
    cells
}

fn leaf() -> impl Strategy<Value = Filter> {
    let exact = |text: &str| Pattern::new(text.as_bytes()).unwrap();
    let only = |text: &'static str| Interval {
        start: Bound::Included(Bytes::from(text)),
        end: Bound::Included(Bytes::from(text)),
    };
    let any = Interval { start: Bound::Unbounded, end: Bound::Unbounded };
    prop_oneof![
        prop_oneof![Just("a"), Just("b"), Just("a|b"), Just("c")]
            .prop_map(move |text| Filter::Family(exact(text))),
        prop_oneof![Just("x"), Just("y"), Just(".")]
            .prop_map(move |text| Filter::Qualifier(exact(text))),
        prop_oneof![Just(only("x")), Just(any)]
            .prop_map(|qualifiers| Filter::Columns { family: "a".to_owned(), qualifiers }),
        (0..TIMES * 1000, 0..TIMES * 1000).prop_map(|(a, b)| Filter::Times(a.min(b), a.max(b))),
        (0..TIMES * 1000).prop_map(|start| Filter::Times(start, 0)),
        prop_oneof![Just("0"), Just("1")].prop_map(move |text| Filter::Value(exact(text))),
        (1..4_u32).prop_map(Filter::ColumnLimit),
        (1..6_usize).prop_map(Filter::RowLimit),
        (0..3_usize).prop_map(Filter::RowOffset),
        prop_oneof![
            Just(Filter::Pass),
            Just(Filter::Strip),
            Just(Filter::Sink),
            Just(Filter::Block)
        ],
    ]
}

fn any_filter() -> impl Strategy<Value = Filter> {
    leaf().prop_recursive(3, 24, 4, |inner| {
        let some = proptest::collection::vec(inner.clone(), 2..4);
        let branch = proptest::option::of(inner.clone().prop_map(Box::new));
        prop_oneof![
            3 => some.clone().prop_map(Filter::Chain),
            2 => some.prop_map(Filter::Interleave),
            1 => (inner.prop_map(Box::new), branch.clone(), branch).prop_map(
                |(predicate, then, other)| Filter::Condition { predicate, then, other }
            ),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_filter_passes_the_same_cells_of_its_scopes_as_of_the_row(filter in any_filter()) {
        let scopes = scopes(&filter);
        let (whole, part) = (apply(&filter, b"r", row()), apply(&filter, b"r", covered(&scopes)));
        prop_assert_eq!(whole, part, "scopes {:?}", scopes);
    }
}
