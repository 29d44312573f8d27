//! Histories that the checkers must accept, write skew among them.

use super::*;

#[test]
fn nothing() {
    accepts(&History::default());
}

#[test]
fn serial_transactions() {
    accepts(&history(&[
        (1, Some(2), &[read_absent(X), write(X), read(X, 1)]),
        (3, Some(4), &[read(X, 1), scan(0, 9, 9, &[(X, 1)]), write(Y), delete(X), read_absent(X)]),
        (5, None, &[read_absent(X), read(Y, 3), scan(0, 9, 9, &[(Y, 3)])]),
    ]));
}

#[test]
fn concurrent_transactions_read_their_snapshots() {
    accepts(&history(&[
        (1, Some(2), &[write(X), write(Y)]),
        (3, Some(6), &[read(X, 1), write(X)]),
        (4, None, &[read(X, 1), read(Y, 1)]),
        (5, Some(8), &[read(Y, 1), write(Y)]),
        (7, None, &[read(X, 3), read(Y, 1)]),
    ]));
}

#[test]
fn g2_item_write_skew() {
    accepts(&history(&[
        (1, Some(2), &[write(X), write(Y)]),
        (3, Some(5), &[read(X, 1), read(Y, 1), write(X)]),
        (4, Some(6), &[read(X, 1), read(Y, 1), write(Y)]),
    ]));
}

#[test]
fn g2_predicate_write_skew() {
    accepts(&history(&[
        (1, Some(3), &[scan(0, 9, 9, &[]), write(X)]),
        (2, Some(4), &[scan(0, 9, 9, &[]), write(Y)]),
    ]));
}

#[test]
fn a_scan_overlays_own_writes_and_keeps_its_limit() {
    let z = Cell { row: 3, ..X };
    let other_column = Cell { column: 1, ..X };
    accepts(&history(&[
        (1, Some(2), &[write(X), write(Y), write(z), write(other_column)]),
        (3, None, &[delete(X), scan(0, 9, 1, &[(Y, 1)]), scan(0, 9, 2, &[(Y, 1), (z, 1)])]),
        (4, None, &[write(X), scan(0, 9, 2, &[(X, 4), (Y, 1)]), scan(2, 3, 9, &[(Y, 1)])]),
        (5, None, &[scan(3, 3, 9, &[]), scan(4, 2, 9, &[])]),
    ]));
}

#[test]
fn unknown_outcomes_of_both_kinds() {
    let mut history = history(&[(1, Some(2), &[write(X)]), (3, None, &[write(Y)])]);
    history.txns[0].outcome = Outcome::Unknown;
    history.txns[1].outcome = Outcome::Unknown;
    add(&mut history, txn(5, Outcome::Aborted, &[read(X, 1), read_absent(Y)]));
    accepts(&history);
}

#[test]
fn a_tomb_of_an_aborted_transaction() {
    let mut history = history(&[(1, None, &[write(X)]), (2, Some(3), &[write(X)])]);
    history.tombs.push((X, ts(1)));
    accepts(&history);
}

#[test]
fn simultaneous_calls_may_come_in_any_order() {
    let mut history = history(&[(2, Some(5), &[write(X)]), (4, None, &[read_absent(X)])]);
    let begin = &mut history.txns[1];
    (begin.begin_call, begin.begin_return) = (ms(5), ms(6));
    accepts(&history);
}

#[test]
fn observers_that_run_once_for_each_change_or_for_several() {
    accepts(&observed(&[(1, 2)], &[3]));
    accepts(&observed(&[(1, 2), (5, 6)], &[3, 7]));
    accepts(&observed(&[(1, 2), (5, 6)], &[7]));
    let mut waiting = observed(&[(1, 2), (5, 6)], &[3]);
    waiting.notifications.push((X, ts(6)));
    accepts(&waiting);
}

#[test]
fn garbage_collection_took_a_delete_before_anybody_observed_its_column() {
    let mut history = observed(&[], &[]);
    add(&mut history, txn(1, Outcome::Committed(ts(2)), &[delete(X)]));
    history.collected = vec![(X, ts(1))];
    history.registered = vec![(1, 1)];
    accepts(&history);
}

#[test]
fn views_of_the_past_at_timestamps_of_others() {
    let mut history = history(&[(1, Some(2), &[write(X)]), (5, Some(6), &[write(X)])]);
    history.views.push((ts(1), vec![read_absent(X)]));
    history.views.push((ts(2), vec![read(X, 1)]));
    history.views.push((ts(5), vec![read(X, 1)]));
    history.views.push((ts(6), vec![read(X, 5)]));
    accepts(&history);
}
