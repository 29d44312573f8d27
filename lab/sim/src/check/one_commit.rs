//! Checks that each transaction has one commit timestamp, and each version one writer (P5,
//! H20, H29).

use std::collections::BTreeMap;

use super::facts::Facts;
use super::findings::{name, report};
use super::property;
use crate::history::Finding;

pub(super) fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let mut commits = BTreeMap::new();
    let mut versions = BTreeMap::new();
    for record in &facts.records {
        let c = *commits.entry(record.start_ts).or_insert(record.commit_ts);
        if c != record.commit_ts {
            let (s, other) = (record.start_ts, record.commit_ts);
            let facts = format!("transaction {s} has records at {c} and at {other}");
            report(findings, property::ONE_COMMIT, facts);
        }
        let s = *versions.entry((record.cell, record.commit_ts)).or_insert(record.start_ts);
        if s != record.start_ts {
            let (cell, c, other) = (name(&record.cell), record.commit_ts, record.start_ts);
            let facts = format!("the record of {cell} at {c} pointed at {s} and at {other}");
            report(findings, property::ONE_COMMIT, facts);
        }
    }
}
