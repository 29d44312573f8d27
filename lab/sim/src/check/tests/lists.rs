//! Tests the list-append check on the anomalies that it can name.

use super::properties;
use crate::check::list_append::{ListOp, ListTxn, anomaly, check};
use crate::history::Outcome;
use bigtable::Timestamp;

fn append(key: u64, element: u64) -> ListOp {
    ListOp::Append { key, element }
}

fn read(key: u64, list: &[u64]) -> ListOp {
    ListOp::Read { key, list: list.to_vec() }
}

fn txns(of: &[&[ListOp]]) -> Vec<ListTxn> {
    let outcome = Outcome::Committed(Timestamp::ZERO);
    of.iter().map(|ops| ListTxn { ops: ops.to_vec(), outcome }).collect()
}

#[track_caller]
fn finds(of: &[&[ListOp]], property: &'static str) {
    let findings = check(&txns(of));
    assert_eq!(properties(&findings), [property], "{findings:#?}");
}

#[test]
fn serial_and_concurrent_histories_are_accepted() {
    let of: &[&[ListOp]] = &[
        &[append(1, 1), append(1, 2), read(1, &[1, 2])],
        &[read(1, &[1, 2]), append(1, 3), read(1, &[1, 2, 3]), append(2, 4)],
        &[read(1, &[1, 2]), read(2, &[])],
        &[read(2, &[4]), read(1, &[1, 2, 3]), append(1, 5)],
    ];
    assert_eq!(check(&txns(of)), []);
}

#[test]
fn write_skew_is_accepted() {
    let of: &[&[ListOp]] = &[
        &[read(1, &[]), read(2, &[]), append(1, 1)],
        &[read(1, &[]), read(2, &[]), append(2, 2)],
        &[read(1, &[1]), read(2, &[2])],
    ];
    assert_eq!(check(&txns(of)), []);
}

#[test]
fn g0() {
    finds(
        &[
            &[append(1, 1), append(2, 2)],
            &[append(1, 3), append(2, 4)],
            &[read(1, &[1, 3]), read(2, &[4, 2])],
        ],
        anomaly::G0,
    );
}

#[test]
fn g1a() {
    let mut of = txns(&[&[append(1, 1)], &[read(1, &[1])]]);
    of[0].outcome = Outcome::Aborted;
    assert_eq!(properties(&check(&of)), [anomaly::G1A]);
    of[0].outcome = Outcome::Unknown;
    assert_eq!(check(&of), []);
}

#[test]
fn g1b() {
    finds(&[&[append(1, 1), append(1, 2)], &[read(1, &[1])]], anomaly::G1B);
}

#[test]
fn g1c() {
    finds(&[&[append(1, 1), read(2, &[2])], &[append(2, 2), read(1, &[1])]], anomaly::G1C);
}

#[test]
fn read_skew() {
    finds(
        &[&[append(1, 1), append(2, 2)], &[read(1, &[1]), read(2, &[])], &[read(2, &[2])]],
        anomaly::G_SINGLE,
    );
}

#[test]
fn lost_update() {
    finds(
        &[&[read(1, &[]), append(1, 1)], &[read(1, &[]), append(1, 2)], &[read(1, &[1, 2])]],
        anomaly::G_SINGLE,
    );
}

/// No transaction has read the second one's append; its commit alone proves the lost update.
#[test]
fn lost_update_that_was_not_read() {
    finds(
        &[&[read(1, &[]), append(1, 1)], &[read(1, &[]), append(1, 2)], &[read(1, &[1])]],
        anomaly::G_SINGLE,
    );
}

#[test]
fn long_fork() {
    finds(
        &[
            &[append(1, 1)],
            &[append(2, 2)],
            &[read(1, &[1]), read(2, &[])],
            &[read(1, &[]), read(2, &[2])],
        ],
        anomaly::G_NONADJACENT,
    );
}

#[test]
fn reads_that_contradict_themselves_or_one_another() {
    let twice: &[&[ListOp]] = &[&[append(1, 1)], &[read(1, &[]), read(1, &[1])]];
    finds(twice, anomaly::INTERNAL);
    finds(&[&[append(1, 1), read(1, &[])]], anomaly::INTERNAL);
    let forked: &[&[ListOp]] =
        &[&[append(1, 1)], &[append(1, 2)], &[read(1, &[1])], &[read(1, &[2])]];
    finds(forked, anomaly::INCOMPATIBLE_ORDER);
}

#[test]
fn elements_out_of_nowhere_and_twice() {
    finds(&[&[read(1, &[7])]], anomaly::GARBAGE);
    finds(&[&[append(1, 1)], &[read(1, &[1, 1])]], anomaly::GARBAGE);
    finds(&[&[append(1, 1)], &[append(1, 1)]], anomaly::GARBAGE);
}
