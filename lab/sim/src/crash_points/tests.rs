//! All crash points; and that they show what a broken protocol does.

use bigtable::{ConditionalMutation, Mutation};

use super::*;
use crate::check::raw::{LOCK, NOTIFY, ROLLBACK, WRITE};

fn output(scope: Scope) -> (usize, String) {
    let mut out = Vec::new();
    let inconsistent = run_some(&mut out, scope).unwrap();
    (inconsistent, String::from_utf8(out).unwrap())
}

#[test]
fn every_crash_point_ends_consistently() {
    // All of them in the subcommand and in optimised tests; unoptimised they take minutes.
    let every = if cfg!(debug_assertions) { 16 } else { 1 };
    let inconsistent_max = usize::MAX;
    let (inconsistent, text) = output(Scope { tamper: |request| request, every, inconsistent_max });
    println!("{text}");
    assert_eq!(inconsistent, 0, "{text}");
}

/// Some case must end inconsistently, by this property.
#[track_caller]
fn shows(tamper: Tamper, property: &str) {
    let (inconsistent, text) = output(Scope { tamper, every: 1, inconsistent_max: 1 });
    assert!(inconsistent > 0 && text.contains(property), "{property}: {inconsistent}");
}

fn sets(mutations: &[Mutation], of: &bigtable::Family) -> bool {
    mutations.iter().any(|m| matches!(m, Mutation::Set { family, .. } if family == of))
}

/// H01, H05: a late prewrite gets past the tomb.
#[test]
fn a_prewrite_that_ignores_tombs_shows() {
    fn tamper(mut request: ConditionalMutation) -> ConditionalMutation {
        request.predicate.retain(|probe| probe.family != ROLLBACK);
        request
    }
    shows(tamper, "tomb or record");
}

/// H02: nobody leaves a tomb.
#[test]
fn rolling_back_without_a_tomb_shows() {
    fn tamper(mut request: ConditionalMutation) -> ConditionalMutation {
        let is_tomb =
            |m: &Mutation| matches!(m, Mutation::Set { family, .. } if *family == ROLLBACK);
        request.then.retain(|m| !is_tomb(m));
        request.otherwise.retain(|m| !is_tomb(m));
        request
    }
    shows(tamper, "whole transactions");
}

/// H12: commits whether the lock is there or not.
#[test]
fn a_blind_commit_shows() {
    fn tamper(mut request: ConditionalMutation) -> ConditionalMutation {
        if sets(&request.then, &WRITE) {
            request.otherwise = request.then.clone();
        }
        request
    }
    shows(tamper, "tomb or record");
}

/// H23: a prewrite that does not look at locks takes another's lock away.
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

/// H48, H49: a commit without its notification.
#[test]
fn a_commit_without_notification_shows() {
    fn tamper(mut request: ConditionalMutation) -> ConditionalMutation {
        let is_notify =
            |m: &Mutation| matches!(m, Mutation::Set { family, .. } if *family == NOTIFY);
        request.then.retain(|m| !is_notify(m));
        request
    }
    shows(tamper, "observed");
}
