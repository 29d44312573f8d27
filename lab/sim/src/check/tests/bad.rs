//! Histories that the checkers must reject, each by the property that it breaks.

use super::*;
use crate::check::property as p;

#[test]
fn anomalies_of_two_transactions() {
    let both = [write(X), write(Y)];
    let cases: [(&str, [Steps<'_>; 2], &str); 5] = [
        ("G0, a dirty write", [(1, Some(3), &both), (2, Some(4), &both)], p::NO_CONFLICT),
        (
            "G1a, a read of an aborted write",
            [(1, None, &[write(X)]), (2, None, &[read(X, 1)])],
            p::SNAPSHOT_READ,
        ),
        (
            "G1b, a read of the version before the delete of the same transaction",
            [(1, Some(2), &[write(X), delete(X)]), (3, None, &[read(X, 1)])],
            p::SNAPSHOT_READ,
        ),
        (
            "G1c, two transactions that read each other",
            [(1, Some(3), &[read(Y, 2), write(X)]), (2, Some(4), &[read(X, 1), write(Y)])],
            p::SNAPSHOT_READ,
        ),
        ("a commit before its start", [(3, Some(2), &[write(X)]), (4, None, &[])], p::TIMESTAMPS),
    ];
    for (what, txns, by) in cases {
        assert_eq!(properties(&check(&history(&txns))), [by], "{what}");
    }
}

/// Changes one thing in a history that is sound.
type Change = fn(&mut History);

#[test]
fn one_wrong_fact_about_a_commit() {
    let changes: [(&str, Change, &str); 10] = [
        ("the secondary was rolled back", |it| it.records.truncate(1), p::WHOLE),
        ("a delete in place of a value", |it| it.records[0].delete = true, p::WHOLE),
        ("no record", |it| it.records.clear(), p::NO_LOST_COMMIT),
        (
            "committed at another timestamp",
            |it| it.txns[0].outcome = Outcome::Committed(ts(3)),
            p::NO_LOST_COMMIT,
        ),
        ("aborted", |it| it.txns[0].outcome = Outcome::Aborted, p::NO_FALSE_ABORT),
        ("two commit timestamps", |it| it.records[1].commit_ts = ts(3), p::ONE_COMMIT),
        ("a tomb and a record", |it| it.tombs.push((X, ts(1))), p::TOMB_OR_RECORD),
        ("a lock that is left", |it| it.locks.push((X, ts(1))), p::NO_LOCK_LEFT),
        ("a lock after the end", |it| it.locked_again.push((X, ts(1))), p::TOMB_OR_RECORD),
        ("a timestamp of no oracle", |it| it.stamps.truncate(1), p::ORACLE),
    ];
    for (what, change, by) in changes {
        let mut history = history(&[(1, Some(2), &[write(X), write(Y)])]);
        change(&mut history);
        assert_eq!(properties(&check(&history)), [by], "{what}");
    }
}

#[test]
fn one_wrong_fact_about_a_run() {
    rejects(&observed(&[(1, 2)], &[3, 5]), &[p::OBSERVED_ONCE]);
    rejects(&observed(&[(1, 5)], &[3, 6]), &[p::OBSERVED_ONCE]);
    let mut other = observed(&[(1, 2)], &[3]);
    other.observed[0].2 = Some(ts(4));
    rejects(&other, &[p::OBSERVED_ONCE]);
    let mut aborted = observed(&[(1, 2)], &[3]);
    aborted.txns[1].outcome = Outcome::Aborted;
    rejects(&aborted, &[p::NO_FALSE_ABORT]);
}

#[test]
fn p4_lost_update() {
    let increment = [read(X, 1), write(X)];
    let history =
        history(&[(1, Some(2), &[write(X)]), (3, Some(5), &increment), (4, Some(6), &increment)]);
    rejects(&history, &[p::NO_CONFLICT]);
}

#[test]
fn g_single_read_skew() {
    let both = [write(X), write(Y)];
    let history =
        history(&[(1, Some(2), &both), (3, Some(5), &both), (4, None, &[read(X, 1), read(Y, 3)])]);
    rejects(&history, &[p::SNAPSHOT_READ]);
}

#[test]
fn long_fork() {
    let history = history(&[
        (1, Some(3), &[write(X)]),
        (2, Some(4), &[write(Y)]),
        (5, None, &[read(X, 1), read_absent(Y)]),
        (6, None, &[read_absent(X), read(Y, 2)]),
    ]);
    rejects(&history, &[p::SNAPSHOT_READ]);
}

#[test]
fn phantom() {
    let setup: Steps<'_> = (1, Some(2), &[write(X), write(Y)]);
    for (what, seen) in [
        ("missing", scan(0, 9, 9, &[(X, 1)])),
        ("late", scan(0, 9, 9, &[(X, 1), (Y, 1), (Cell { row: 3, ..X }, 5)])),
        ("out of range", scan(2, 9, 9, &[(X, 1), (Y, 1)])),
        ("beyond the limit", scan(0, 9, 1, &[(X, 1), (Y, 1)])),
        ("short of the limit", scan(0, 9, 2, &[(X, 1)])),
        ("twice", scan(0, 9, 9, &[(X, 1), (X, 1), (Y, 1)])),
        ("out of order", scan(0, 9, 9, &[(Y, 1), (X, 1)])),
    ] {
        let late = write(Cell { row: 3, ..X });
        let history = history(&[setup, (5, Some(6), &[late]), (4, None, &[seen])]);
        assert_eq!(properties(&check(&history)), [p::SNAPSHOT_SCAN], "{what}");
    }
}

#[test]
fn own_writes_unseen() {
    rejects(&history(&[(1, None, &[write(X), read_absent(X)])]), &[p::OWN_WRITES]);
    rejects(&history(&[(1, None, &[delete(X), read(X, 1)])]), &[p::OWN_WRITES]);
    let scans = [write(X), scan(0, 9, 9, &[])];
    rejects(&history(&[(1, None, &scans)]), &[p::SNAPSHOT_SCAN]);
}

#[test]
fn a_record_of_a_cell_that_was_not_written() {
    let mut history = history(&[(1, Some(2), &[write(X)])]);
    let record = Record { cell: Y, ..history.records[0] };
    history.records.push(record);
    rejects(&history, &[p::WHOLE]);
    history.records[1] = Record { start_ts: ts(7), commit_ts: ts(8), ..record };
    rejects(&history, &[p::WHOLE]);
}

#[test]
fn a_timestamp_used_twice() {
    let start = history(&[(1, Some(2), &[write(X)]), (1, None, &[])]);
    rejects(&start, &[p::TIMESTAMPS, p::ORACLE]);
    let commit = history(&[(1, Some(4), &[write(X)]), (2, Some(4), &[write(Y)])]);
    rejects(&commit, &[p::TIMESTAMPS, p::ORACLE]);
    let both = history(&[(1, Some(3), &[write(X)]), (3, None, &[])]);
    rejects(&both, &[p::TIMESTAMPS, p::ORACLE]);
}

/// A transaction begins, at a lower timestamp, after a commit was acknowledged to another client.
#[test]
fn real_time_inversion() {
    let mut of_a_commit = history(&[(2, Some(5), &[write(X)]), (4, None, &[read_absent(X)])]);
    let begin = &mut of_a_commit.txns[1];
    (begin.begin_call, begin.begin_return) = (ms(6), ms(7));
    rejects(&of_a_commit, &[p::REAL_TIME]);
    let mut of_two_starts = history(&[(2, None, &[]), (1, None, &[])]);
    let begin = &mut of_two_starts.txns[1];
    (begin.begin_call, begin.begin_return) = (ms(3), ms(4));
    rejects(&of_two_starts, &[p::REAL_TIME]);
}

#[test]
fn a_record_overwritten_by_another() {
    let mut history = history(&[(1, Some(4), &[write(X)]), (2, Some(3), &[write(Y)])]);
    history.records[1] = Record { cell: X, commit_ts: ts(4), start_ts: ts(2), delete: false };
    let by = [p::ONE_COMMIT, p::NO_LOST_COMMIT, p::WHOLE, p::TIMESTAMPS];
    rejects(&history, &by);
}

#[test]
fn an_observer_was_lost() {
    rejects(&observed(&[(1, 2)], &[]), &[p::OBSERVED]);
    rejects(&observed(&[(1, 2), (5, 8)], &[3]), &[p::OBSERVED]);
    // A write committed between the run's start and its commit: the acknowledgement must not
    // cover it (H50).
    let mut covered = observed(&[(1, 2), (10, 14)], &[13]);
    covered.records.iter_mut().filter(|r| r.cell != X).for_each(|r| r.commit_ts = ts(15));
    covered.txns[2].outcome = Outcome::Committed(ts(15));
    covered.stamps.clear();
    rejects(&covered, &[p::OBSERVED]);
}

/// Garbage collection may drop an unseen delete only if no observer of the column was
/// registered when the delete was written.
#[test]
fn a_delete_that_its_observer_never_saw() {
    let mut history = observed(&[], &[]);
    add(&mut history, txn(1, Outcome::Committed(ts(2)), &[delete(X)]));
    history.registered = vec![(1, 0)];
    rejects(&history, &[p::OBSERVED]);
    history.collected = vec![(X, ts(1))];
    rejects(&history, &[p::OBSERVED]);
    // The observer was registered all along, the delete is kept, and no run handled it.
    history.registered = vec![(1, 1)];
    history.collected.clear();
    rejects(&history, &[p::OBSERVED]);
}

#[test]
fn a_run_whose_acknowledgement_is_gone() {
    let mut history = observed(&[], &[]);
    add(&mut history, txn(1, Outcome::Committed(ts(2)), &[delete(X)]));
    history.runs.push(Run { observer: 1, cell: X, start_ts: ts(3) });
    history.collected = vec![(X, ts(1))];
    history.registered = vec![(1, 1)];
    rejects(&history, &[p::OBSERVED_ONCE]);
}

#[test]
fn the_oracle_goes_back() {
    let mut history = history(&[(1, None, &[]), (2, None, &[])]);
    history.stamps = vec![(ts(2), ms(0), ms(1)), (ts(1), ms(2), ms(3))];
    rejects(&history, &[p::ORACLE]);
    history.stamps = vec![(ts(1), ms(0), ms(1)), (ts(2), ms(2), ms(3)), (ts(2), ms(3), ms(4))];
    rejects(&history, &[p::ORACLE]);
}

/// Garbage collection took a version that an older snapshot still reads.
#[test]
fn a_version_collected_too_early() {
    let mut history = history(&[(1, Some(2), &[write(X)]), (5, Some(6), &[write(X)])]);
    history.views.push((ts(4), vec![read_absent(X)]));
    rejects(&history, &[p::SNAPSHOT_READ]);
}
