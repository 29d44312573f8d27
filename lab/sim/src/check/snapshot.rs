//! Checks snapshot isolation by one sweep over all start and commit timestamps in order.
//!
//! At a start, each read of the transaction must return the newest version committed up to there,
//! or the transaction's own earlier write. At a commit, the newest version of each written cell
//! must be older than the transaction's start. Together these two are the definition of snapshot
//! isolation: "reads from the latest commit before my start" and "no two committed writers of a
//! cell overlap". Reads of aborted and read-only transactions are checked in the same way.

use std::collections::BTreeMap;

use bigtable::Timestamp;

use super::facts::{Facts, TxnFacts};
use super::findings::{name, report};
use super::property;
use crate::history::{Cell, Finding, Op};

/// A cell, ordered so that the rows of a column are adjacent: table, column, row.
type Key = (u8, u8, u16);

/// The newest committed version of a cell.
#[derive(Debug, Clone, Copy)]
struct Version {
    writer: Timestamp,
    commit_ts: Timestamp,
    delete: bool,
}

/// The order of events at one timestamp: a read at `c` sees the commit at `c`, so commits come
/// first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Commit(usize),
    Start(usize),
    View(usize),
}

pub(super) fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let mut events = Vec::new();
    for (index, known) in facts.txns.iter().enumerate() {
        events.push((known.txn.start_ts, Event::Start(index)));
        events.extend(known.committed.map(|c| (c, Event::Commit(index))));
    }
    let views = &facts.history.views;
    events.extend(views.iter().enumerate().map(|(i, (ts, _))| (*ts, Event::View(i))));
    events.sort();
    let mut sweep = Sweep { latest: BTreeMap::new(), findings };
    for (ts, event) in events {
        match event {
            Event::Commit(index) => sweep.commit(&facts.txns[index], ts),
            Event::Start(index) => sweep.start(ts, &facts.txns[index].txn.ops),
            Event::View(index) => sweep.start(ts, &views[index].1),
        }
    }
}

struct Sweep<'a> {
    latest: BTreeMap<Key, Version>,
    findings: &'a mut Vec<Finding>,
}

impl Sweep<'_> {
    fn commit(&mut self, known: &TxnFacts<'_>, commit_ts: Timestamp) {
        let s = known.txn.start_ts;
        for (cell, delete) in &known.writes {
            let version = Version { writer: s, commit_ts, delete: *delete };
            let before = self.latest.insert(key(cell), version);
            if let Some(before) = before.filter(|before| before.commit_ts >= s) {
                let facts = format!(
                    "transactions {} (committed at {}) and {s} (committed at {commit_ts}) both \
                     wrote {}",
                    before.writer,
                    before.commit_ts,
                    name(cell)
                );
                report(self.findings, property::NO_CONFLICT, facts);
            }
        }
    }

    /// Checks the reads of the transaction that began at `s`.
    fn start(&mut self, s: Timestamp, ops: &[Op]) {
        // The transaction's writes so far: its own start timestamp, or `None` for a delete.
        let mut own: BTreeMap<Key, Option<Timestamp>> = BTreeMap::new();
        for op in ops {
            match op {
                Op::Write { cell, delete } => {
                    own.insert(key(cell), (!delete).then_some(s));
                }
                Op::Read { cell, writer } => self.read(s, &own, cell, *writer),
                Op::Scan { from, to, limit, found } => {
                    let expected = self.expected(&own, from, *to, *limit);
                    let got: Vec<_> = found.iter().map(|(c, writer)| (key(c), *writer)).collect();
                    if got != expected {
                        let facts = format!(
                            "transaction {s} scanned {} to row {to}, limit {limit}: expected \
                             {expected:?} (table, column, row; writer), found {got:?}",
                            name(from)
                        );
                        report(self.findings, property::SNAPSHOT_SCAN, facts);
                    }
                }
            }
        }
    }

    fn read(
        &mut self,
        s: Timestamp,
        own: &BTreeMap<Key, Option<Timestamp>>,
        cell: &Cell,
        writer: Option<Timestamp>,
    ) {
        let (expected, property) = match own.get(&key(cell)) {
            Some(own) => (*own, property::OWN_WRITES),
            None => {
                let latest = self.latest.get(&key(cell)).and_then(live);
                (latest, property::SNAPSHOT_READ)
            }
        };
        if writer != expected {
            let facts = format!(
                "transaction {s} read {}: expected the version of {expected:?}, found {writer:?}",
                name(cell)
            );
            report(self.findings, property, facts);
        }
    }

    /// Returns the rows that a scan has to return.
    fn expected(
        &self,
        own: &BTreeMap<Key, Option<Timestamp>>,
        from: &Cell,
        to: u16,
        limit: usize,
    ) -> Vec<(Key, Timestamp)> {
        let first = key(from);
        let end = (first.0, first.1, to);
        if first >= end {
            return Vec::new();
        }
        let removed = own.range(first..end).filter(|(_, writer)| writer.is_none()).count();
        let committed = self.latest.range(first..end);
        let mut rows: BTreeMap<Key, Timestamp> = committed
            .filter_map(|(key, version)| Some((*key, live(version)?)))
            .take(limit.saturating_add(removed))
            .collect();
        for (key, writer) in own.range(first..end) {
            match writer {
                Some(writer) => rows.insert(*key, *writer),
                None => rows.remove(key),
            };
        }
        rows.into_iter().take(limit).collect()
    }
}

fn live(version: &Version) -> Option<Timestamp> {
    (!version.delete).then_some(version.writer)
}

fn key(cell: &Cell) -> Key {
    (cell.table, cell.column, cell.row)
}
