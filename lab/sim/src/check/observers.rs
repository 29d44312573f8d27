//! Checks observers: at most one committed run for each change, and no change forgotten (P6,
//! P7; H47 to H62).
//!
//! There must be a commit to the cell before the first committed run of an observer on it, and
//! between each two of its runs. Otherwise one change had two effects. At the end, the last
//! run began after the newest commit, or a notification is left that will start another run.

use std::collections::{BTreeMap, BTreeSet};

use bigtable::Timestamp;

use super::facts::Facts;
use super::findings::{name, report};
use super::property;
use crate::history::{Cell, Finding, History, Outcome, Record};

pub(super) fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let mut commits: BTreeMap<Cell, Vec<Record>> = BTreeMap::new();
    for record in &facts.records {
        commits.entry(record.cell).or_default().push(*record);
    }
    let mut runs: BTreeMap<(u8, Cell), Vec<Timestamp>> = BTreeMap::new();
    for run in &facts.history.runs {
        runs.entry((run.observer, run.cell)).or_default().push(run.start_ts);
    }
    for ((observer, cell), starts) in &mut runs {
        starts.sort();
        let of = commits.get(cell).map_or(&[][..], Vec::as_slice);
        once(*observer, cell, starts, of, findings);
    }
    let aborted: BTreeSet<_> = facts
        .txns
        .iter()
        .filter(|known| known.txn.outcome == Outcome::Aborted)
        .map(|known| known.txn.start_ts)
        .collect();
    for run in facts.history.runs.iter().filter(|run| aborted.contains(&run.start_ts)) {
        let facts =
            format!("the run {run:?} committed, but was reported to its worker as not committed");
        report(findings, property::NO_FALSE_ABORT, facts);
    }
    never_lost(facts, &commits, &runs, findings);
}

/// Checks that each run has a change of its own. `commits` are those of the cell, in order.
fn once(
    observer: u8,
    cell: &Cell,
    starts: &[Timestamp],
    commits: &[Record],
    findings: &mut Vec<Finding>,
) {
    let mut before = None;
    for s in starts {
        // The newest commit that this run saw must be one that the run before it did not see.
        let seen = commits.partition_point(|record| record.commit_ts <= *s);
        let newest = seen.checked_sub(1).map(|index| commits[index].commit_ts);
        if newest.is_none_or(|newest| before.is_some_and(|before| newest <= before)) {
            let facts = format!(
                "observer {observer} ran on {} at {s} without a commit since {before:?}",
                name(cell)
            );
            report(findings, property::OBSERVED_ONCE, facts);
        }
        before = Some(*s);
    }
}

/// Checks that each observer's last run saw the newest commit, or that another run will follow.
fn never_lost(
    facts: &Facts<'_>,
    commits: &BTreeMap<Cell, Vec<Record>>,
    runs: &BTreeMap<(u8, Cell), Vec<Timestamp>>,
    findings: &mut Vec<Finding>,
) {
    let notified: BTreeSet<_> = facts.history.notifications.iter().map(|(cell, _)| *cell).collect();
    let unseen = unseen_deletes(facts.history);
    for (observer, cell, ack) in &facts.history.observed {
        let newest = commits.get(cell).and_then(|of| of.last());
        let last = runs.get(&(*observer, *cell)).and_then(|starts| starts.last().copied());
        if *ack != last {
            let facts = format!(
                "observer {observer} last ran on {} at {last:?}, and has acknowledged {ack:?}",
                name(cell)
            );
            report(findings, property::OBSERVED_ONCE, facts);
        }
        let Some(newest) = newest else { continue };
        let seen = last.max(*ack).is_some_and(|seen| seen > newest.commit_ts);
        let hidden = unseen.contains(&(*observer, *newest));
        if !seen && !hidden && !notified.contains(cell) {
            let facts = format!(
                "observer {observer} last ran on {} at {last:?}, after which a commit at {} left no \
                 notification",
                name(cell),
                newest.commit_ts
            );
            report(findings, property::OBSERVED, facts);
        }
    }
}

/// Returns the deletes that an observer need not have seen. Such a delete was written before
/// the schema named the observer. Garbage collection, which did not know the observer then,
/// has dropped the delete, so an observer that registers later finds no cell. A delete written
/// after the observer was registered is kept until the observer has handled it.
fn unseen_deletes(history: &History) -> BTreeSet<(u8, Record)> {
    let collected: BTreeSet<_> = history.collected.iter().collect();
    let of = |(observer, since): &(u8, usize)| {
        let before = history.records.iter().take(*since).filter(|record| record.delete);
        let dropped = before.filter(|record| collected.contains(&(record.cell, record.start_ts)));
        dropped.map(|record| (*observer, *record)).collect::<Vec<_>>()
    };
    history.registered.iter().flat_map(of).collect()
}
