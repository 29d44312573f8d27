//! Tests selections and predicates within the API's bounds, and beyond.

use bigtable::{Cell, Error, Family, Mutation, Probe, RequestSize, Row, RowKey, Selection};
use bigtable::{TimeRange, Timestamp};
use prost::Message;

use crate::client::filter::{of_predicate, of_selection};
use crate::client::wire::wire_mutations;
use crate::filter::FILTER_BYTES_MAX;
use crate::proto::data::CheckAndMutateRowRequest;
use crate::proto::data::row_filter::Filter;

const LOCK: Family = Family::from_static("lock");
const WRITE: Family = Family::from_static("write");

fn ts(number: u64) -> Timestamp {
    Timestamp::new(number).unwrap()
}

/// The probes of a prewrite of some cells at timestamp 7.
fn prewrite(cells: usize, qualifier_bytes: usize) -> Vec<Probe> {
    let probes = |n: usize| {
        let q = format!("{n:0qualifier_bytes$}");
        [
            Probe::new(WRITE, q.clone(), TimeRange::since(ts(7))),
            Probe::new(LOCK, q.clone(), TimeRange::below(ts(7))),
            Probe::new(LOCK, q, TimeRange::above(ts(7))),
        ]
    };
    (0..cells).flat_map(probes).collect()
}

#[test]
fn predicates_are_grouped_by_time() {
    let one = of_predicate(&prewrite(1, 4), false).unwrap().encoded_len();
    let many = of_predicate(&prewrite(51, 4), false).unwrap().encoded_len();
    assert!((many - one) / 50 < 100, "{} bytes for each cell", (many - one) / 50);
    let nothing = of_predicate(&[], false).unwrap();
    assert_eq!(nothing.filter, Some(Filter::BlockAllFilter(true)));
    let never = [Probe::new(LOCK, "q", TimeRange::EMPTY)];
    assert_eq!(of_predicate(&never, false).unwrap(), nothing);
}

#[test]
fn a_predicate_beyond_the_bound_is_coarse_or_refused() {
    let probes = prewrite(2000, 16);
    let coarse = of_predicate(&probes, true).unwrap();
    assert!(coarse.encoded_len() < 300);
    match of_predicate(&probes, false) {
        Err(Error::InvalidRequest(what)) => assert!(what.contains("fewer columns"), "{what}"),
        other => panic!("{other:?}"),
    }
}

/// The core compares `RequestSize` with the limits, and relies on it that no encoding is
/// longer.
#[test]
fn no_request_is_longer_than_its_size() {
    let times = [
        TimeRange::ALL,
        TimeRange::at(ts(7)),
        TimeRange::since(Timestamp::MAX),
        TimeRange::at(ts(1)),
    ];
    let prefixes = [None, Some(0), Some(31), Some(9000)];
    for q in [0, 1, 200, 9000, 16_384] {
        let qualifier = vec![0xff; q];
        let mutations = [
            Mutation::set(WRITE, qualifier.clone(), Timestamp::MAX, vec![0; 300]),
            Mutation::set(LOCK, qualifier.clone(), ts(0), vec![0; 70_000]),
            Mutation::delete(Family::from_static("rollback"), qualifier.clone(), times[1]),
            Mutation::delete(LOCK, qualifier.clone(), TimeRange::below(Timestamp::MAX)),
        ];
        let row = RequestSize::of_row(b"");
        for mutation in &mutations {
            let request = CheckAndMutateRowRequest {
                false_mutations: wire_mutations(std::slice::from_ref(mutation)),
                ..CheckAndMutateRowRequest::default()
            };
            assert!(request.encoded_len() <= row.and(mutation).bytes, "{q}: {mutation:?}");
        }
        for time in times {
            for prefix in prefixes {
                let mut probes = vec![
                    Probe::new(LOCK, qualifier.clone(), time),
                    Probe::family(LOCK, time),
                    Probe::family(WRITE, TimeRange::since(ts(9))),
                ];
                for probe in &mut probes {
                    probe.value_prefix = prefix.map(|n| vec![0xfe; n].into());
                }
                for probes in [&probes[..1], &probes[..2], &probes] {
                    let bytes = probes.iter().map(Probe::bytes_max).sum::<usize>();
                    match of_predicate(probes, false) {
                        Ok(filter) => assert!(filter.encoded_len() <= bytes, "{probes:?}"),
                        Err(_) => assert!(bytes > FILTER_BYTES_MAX, "{probes:?}"),
                    }
                }
            }
        }
    }
}

#[test]
fn a_selection_beyond_the_bound_reads_families_and_is_applied_here() {
    let column = |select: Selection, n: usize| {
        select.column(LOCK, format!("{n:0100}"), TimeRange::up_to(ts(5)), 2)
    };
    let select = (0..200).fold(Selection::default(), column);
    let reading = of_selection(&select).unwrap();
    assert!(reading.filter.encoded_len() < FILTER_BYTES_MAX);
    let cell = |qualifier: String, at: u64| Cell {
        family: LOCK,
        qualifier: qualifier.into(),
        timestamp: ts(at),
        value: "v".into(),
    };
    let cells = [
        (format!("{:0100}", 7), [6, 5, 4, 3]),
        (format!("{:0100}", 9), [9, 8, 7, 6]),
        ("other".to_owned(), [4, 3, 2, 1]),
    ];
    let cells = cells.iter().flat_map(|(q, times)| times.map(|at| cell(q.clone(), at)));
    let row = reading.pick(&select, Row::new(RowKey::from("r"), cells.collect()));
    let times: Vec<_> = row.cells.iter().map(|cell| cell.timestamp).collect();
    assert_eq!(times, [ts(5), ts(4)]);
    assert!(of_selection(&Selection::default()).is_none());
}
