//! Tests the models, and that a broken protocol is found.

use bigtable::ConditionalMutation;

use super::*;
use crate::crash_points::tests::{blind_commit, without};
use crate::names::{LOCK, NOTIFY, ROLLBACK, WRITE, sets};

/// The subcommand and optimised tests explore every state. An unoptimised test would take minutes.
const STATES: usize = if cfg!(debug_assertions) { 1_000 } else { STATES_MAX };

#[test]
fn every_model_holds() {
    for model in models() {
        let mut out = Vec::new();
        let violations = print(&mut out, &model, STATES).unwrap().findings.len();
        let text = String::from_utf8(out).unwrap();
        println!("{text}");
        assert_eq!(violations, 0, "{text}");
    }
}

/// Asserts that the model has findings, one of them of this property.
#[track_caller]
fn shows(model: Model, tamper: world::Tamper, property: &str) {
    let explored = explore(&Model { tamper, ..model }, 100_000).unwrap();
    let found: Vec<_> = explored.findings.iter().map(|(finding, _)| finding.property).collect();
    assert!(found.contains(&property), "{found:?} after {} states", explored.states);
}

/// A rollback leaves no tomb (H02).
#[test]
fn rolling_back_without_a_tomb_shows() {
    shows(dying_writer(), |request| without(request, &ROLLBACK), "whole transactions");
}

#[test]
fn a_blind_commit_shows() {
    shows(dying_writer(), blind_commit, "tomb or record");
}

/// A prewrite does not look for newer writes (Figure 6, line 32).
#[test]
fn a_prewrite_that_ignores_newer_writes_shows() {
    fn tamper(mut request: ConditionalMutation) -> ConditionalMutation {
        if sets(&request.otherwise, &LOCK) {
            request.predicate.retain(|probe| probe.family != WRITE);
        }
        request
    }
    shows(two_writers(), tamper, "no overlapping writers");
}

/// A commit leaves no notification (H48).
#[test]
fn a_commit_without_notification_shows() {
    shows(two_observers(), |request| without(request, &NOTIFY), "observed");
    shows(observer_apart(), |request| without(request, &NOTIFY), "observed");
}
