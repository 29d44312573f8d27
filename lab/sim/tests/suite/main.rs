//! Runs some worlds twice: nothing is found wrong, and both runs are the same, event by event.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod hazards;

use std::collections::BTreeSet;

use percolator_sim::{Regression, Totals, regressions, run_seed, run_traced, run_watched};

const SEEDS: u64 = 50;

#[test]
fn nothing_is_found_wrong_and_the_same_seed_gives_the_same_run() {
    let mut totals = Totals::default();
    let mut hashes = std::collections::BTreeSet::new();
    for seed in 0..SEEDS {
        let (first, second) = (run_seed(seed, false), run_seed(seed, false));
        assert!(first.findings.is_empty(), "seed {seed}: {:?}", first.findings);
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_eq!(first.totals, second.totals, "seed {seed}");
        hashes.insert(first.hash);
        totals.add(&first.totals);
    }
    assert_eq!(hashes.len() as u64, SEEDS, "different seeds give different runs");
    assert!((1..SEEDS).contains(&totals.by_priority), "{totals:?}");
    assert!(totals.committed > 10 * SEEDS && totals.skews > 0, "{totals:?}");
    assert!(totals.faults.iter().filter(|count| **count > 0).count() > 10, "{totals:?}");
}

/// The kinds of events that occur in these worlds.
const KINDS: [&str; 17] = [
    "collected",
    "committed",
    "conflicted",
    "ended",
    "failed",
    "found alive",
    "found committed",
    "found dead",
    "found rolled back",
    "interrupted",
    "notified",
    "ran",
    "rolled back",
    "rolled forward",
    "sampled",
    "set aside",
    "unknown",
];

#[test]
fn a_watcher_changes_nothing_and_sees_what_the_store_shows() {
    let mut kinds = BTreeSet::new();
    for seed in 0..SEEDS {
        let (alone, (watched, events)) = (run_seed(seed, false), run_watched(seed));
        assert_eq!(watched.hash, alone.hash, "seed {seed}");
        assert_eq!(watched.totals, alone.totals, "seed {seed}");
        assert!(events.wrong.is_empty(), "seed {seed}: {:?}", events.wrong);
        kinds.extend(events.kinds);
    }
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), KINDS);
}

#[test]
fn a_trace_in_the_store_breaks_nothing() {
    for seed in 0..SEEDS {
        let findings = run_traced(seed).findings;
        assert!(findings.is_empty(), "seed {seed}: {findings:?}");
    }
}

#[test]
fn seeds_that_once_showed_something_show_nothing() {
    let known = regressions();
    let seeds: std::collections::BTreeSet<_> = known.iter().map(|known| known.seed).collect();
    assert_eq!(seeds.len(), known.len(), "each once");
    for Regression { seed, note } in known {
        let findings = run_seed(seed, false).findings;
        assert!(findings.is_empty(), "seed {seed} ({note}): {findings:?}");
    }
}

#[test]
fn a_trace_that_is_kept_is_the_trace_that_is_hashed() {
    let (kept, hashed) = (run_seed(3, true), run_seed(3, false));
    assert_eq!(kept.hash, hashed.hash);
    assert!(kept.trace.len() > 1000 && hashed.trace.is_empty());
}

/// Returns the hash of all histories that `percolator-sim run` prints.
fn printed_hash(seeds: &str, jobs: &str) -> String {
    let program = env!("CARGO_BIN_EXE_percolator-sim");
    let arguments = ["run", "--seeds", seeds, "--jobs", jobs];
    let ran = std::process::Command::new(program).args(arguments).output().unwrap();
    let text = String::from_utf8(ran.stdout).unwrap();
    let hash = text.lines().find_map(|line| line.strip_prefix("hash of all histories "));
    hash.unwrap_or_else(|| panic!("no hash is printed: {text}")).to_owned()
}

#[test]
fn the_hash_of_all_histories_depends_on_the_seeds_alone() {
    let hash = printed_hash("0..20", "1");
    assert_eq!(hash.len(), 16);
    assert_eq!(hash, printed_hash("0..20", "2"));
    assert_ne!(hash, printed_hash("0..21", "2"));
    assert_ne!(hash, printed_hash("20..40", "2"));
}
