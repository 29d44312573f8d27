//! Keeps the ledger: the transactions that were begun, and their outcomes.
//!
//! Each line is a [`Line`] in JSON. A line that was cut short is no JSON, and is ignored.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A line of the ledger. Transactions have names.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Line {
    Begin(String, Work),
    /// The commit timestamp that the child received.
    Commit(String, u64),
    Unknown(String),
    /// The counts of a run so far.
    Stats(u64, Counts),
}

/// The work of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Moves money, counts it, and leaves a receipt.
    Transfer { from: usize, to: usize, amount: i64, counter: usize },
    /// Writes or deletes a cell without reading it.
    Blind { row: usize, delete: bool },
    /// Writes or deletes an observed cell, and counts the change beside it.
    Source { row: usize, delete: bool },
    /// Writes a cell and notifies a weak observer.
    Poke { row: usize },
}

/// The ledger as the child writes it.
#[derive(Debug)]
pub(crate) struct Writer(File);

impl Writer {
    /// Opens the ledger for appending. Starts a new line, since the last one may have been cut
    /// short.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(b"\n")?;
        Ok(Writer(file))
    }

    /// Appends a line with a single write.
    pub(crate) fn line(&self, line: &Line) -> io::Result<()> {
        (&self.0).write_all(format!("{}\n", serde_json::to_string(line)?).as_bytes())
    }
}

/// Events that the children have counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) rolled_forward: u64,
    pub(crate) rolled_back: u64,
    pub(crate) observer_runs: u64,
    pub(crate) conflicts: u64,
}

impl From<percolator::admin::Stats> for Counts {
    fn from(stats: percolator::admin::Stats) -> Self {
        let percolator::admin::Stats {
            rolled_forward, rolled_back, observer_runs, conflicts, ..
        } = stats;
        Counts { rolled_forward, rolled_back, observer_runs, conflicts }
    }
}

impl std::ops::Add for Counts {
    type Output = Counts;

    fn add(self, other: Counts) -> Counts {
        Counts {
            rolled_forward: self.rolled_forward + other.rolled_forward,
            rolled_back: self.rolled_back + other.rolled_back,
            observer_runs: self.observer_runs + other.observer_runs,
            conflicts: self.conflicts + other.conflicts,
        }
    }
}

/// The ledger as the judge reads it.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The transactions that were begun, by name.
    pub(crate) begun: BTreeMap<String, Work>,
    /// The acknowledged transactions, with the commit timestamps that the child received.
    pub(crate) committed: BTreeMap<String, u64>,
    /// The sum over all runs, from the last `stats` line of each.
    pub(crate) counts: Counts,
}

impl Ledger {
    /// Reads the ledger. A ledger that does not exist is empty.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let bytes = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            bytes => bytes?,
        };
        let mut ledger = Ledger::default();
        let mut counts = BTreeMap::new();
        for line in String::from_utf8_lossy(&bytes).lines() {
            match serde_json::from_str(line) {
                Ok(Line::Begin(id, work)) => ledger.begun.extend([(id, work)]),
                Ok(Line::Commit(id, ts)) => ledger.committed.extend([(id, ts)]),
                Ok(Line::Stats(run, so_far)) => counts.extend([(run, so_far)]),
                Ok(Line::Unknown(_)) | Err(_) => {}
            }
        }
        ledger.counts = counts.into_values().fold(Counts::default(), |a, b| a + b);
        Ok(ledger)
    }

    /// The number of transactions whose outcome the child does not know.
    pub(crate) fn unknown(&self) -> usize {
        self.begun.len() - self.committed.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_short_does_not_count() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("ledger");
        let work = Work::Transfer { from: 1, to: 2, amount: -3, counter: 4 };
        let counts = Counts { rolled_back: 2, observer_runs: 3, ..Counts::default() };
        let stats = |run, rolled_forward| Line::Stats(run, Counts { rolled_forward, ..counts });
        let first = Writer::open(&path).expect("the file opens");
        for line in [
            Line::Begin("1-0-1".to_owned(), work),
            Line::Begin("1-0-2".to_owned(), Work::Poke { row: 4 }),
            Line::Commit("1-0-1".to_owned(), 77),
            stats(1, 1),
            stats(1, 5),
        ] {
            first.line(&line).expect("the line is written");
        }
        (&first.0).write_all(br#"{"Commit":["1-0-2",7"#).expect("half a line is written");
        let second = Writer::open(&path).expect("the file opens");
        second.line(&stats(2, 1)).expect("the line is written");
        let ledger = Ledger::read(&path).expect("the ledger is read");
        assert_eq!(ledger.begun["1-0-1"], work);
        assert_eq!(ledger.committed, BTreeMap::from([("1-0-1".to_owned(), 77)]));
        assert_eq!(ledger.unknown(), 1);
        assert_eq!(ledger.counts.rolled_forward, 6);
    }
}
