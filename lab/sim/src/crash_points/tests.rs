//! Tests all crash points, and that a broken protocol is found.

use bigtable::{ConditionalMutation, Family, Mutation};

use super::*;
use crate::names::{LOCK, NOTIFY, ROLLBACK, WRITE, is_set, sets};

fn output(scope: Scope) -> (usize, String) {
    let mut out = Vec::new();
    let inconsistent = run_some(&mut out, scope).unwrap();
    (inconsistent, String::from_utf8(out).unwrap())
}

#[test]
fn every_crash_point_ends_consistently() {
    // The subcommand and optimised tests play all pairs. An unoptimised test would take
    // minutes for them.
    let every = if cfg!(debug_assertions) { 16 } else { 1 };
    let inconsistent_max = usize::MAX;
    let (inconsistent, text) = output(Scope { tamper: |request| request, every, inconsistent_max });
    println!("{text}");
    assert_eq!(inconsistent, 0, "{text}");
}

/// Asserts that some case ends inconsistently, by this property.
#[track_caller]
fn shows(tamper: Tamper, property: &str) {
    let (inconsistent, text) = output(Scope { tamper, every: 1, inconsistent_max: 1 });
    assert!(inconsistent > 0 && text.contains(property), "{property}: {inconsistent}");
}

/// Takes all writes to the family out of the request.
pub(crate) fn without(mut request: ConditionalMutation, family: &Family) -> ConditionalMutation {
    let keep = |m: &Mutation| !is_set(m, family);
    request.then.retain(keep);
    request.otherwise.retain(keep);
    request
}

/// Makes a commit write its record whether the lock is there or not (H12).
pub(crate) fn blind_commit(mut request: ConditionalMutation) -> ConditionalMutation {
    if sets(&request.then, &WRITE) {
        request.otherwise = request.then.clone();
    }
    request
}

/// A late prewrite gets past the tomb (H01, H05).
#[test]
fn a_prewrite_that_ignores_tombs_shows() {
    fn tamper(mut request: ConditionalMutation) -> ConditionalMutation {
        request.predicate.retain(|probe| probe.family != ROLLBACK);
        request
    }
    shows(tamper, "tomb or record");
}

/// A rollback leaves no tomb (H02).
#[test]
fn rolling_back_without_a_tomb_shows() {
    shows(|request| without(request, &ROLLBACK), "whole transactions");
}

#[test]
fn a_blind_commit_shows() {
    shows(blind_commit, "tomb or record");
}

/// A prewrite that ignores locks replaces the lock of another transaction (H23).
#[test]
fn a_prewrite_that_ignores_locks_shows() {
    fn tamper(mut request: ConditionalMutation) -> ConditionalMutation {
        if sets(&request.otherwise, &LOCK) {
            request.predicate.retain(|probe| probe.family != LOCK);
        }
        request
    }
    shows(tamper, "no overlapping writers");
}

/// A commit leaves no notification (H48, H49).
#[test]
fn a_commit_without_notification_shows() {
    shows(|request| without(request, &NOTIFY), "observed");
}
