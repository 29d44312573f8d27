//! Keeps the ledger: the transactions that were begun, and their outcomes.
//!
//! Lines are `begin ID WORK`, `commit ID TIMESTAMP`, `unknown ID` and `stats RUN COUNTS`. Each
//! line ends with ` .`. A line without this end was cut short and is ignored.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// The work of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Transfer { from, to, amount, counter } => {
                write!(f, "transfer {from} {to} {amount} {counter}")
            }
            Work::Blind { row, delete } => write!(f, "blind {row} {delete}"),
            Work::Source { row, delete } => write!(f, "source {row} {delete}"),
            Work::Poke { row } => write!(f, "poke {row}"),
        }
    }
}

impl Work {
    /// Parses the output of `Display`.
    pub(crate) fn parse(text: &str) -> Option<Work> {
        let words: Vec<&str> = text.split(' ').collect();
        Some(match words[..] {
            ["transfer", from, to, amount, counter] => Work::Transfer {
                from: from.parse().ok()?,
                to: to.parse().ok()?,
                amount: amount.parse().ok()?,
                counter: counter.parse().ok()?,
            },
            ["blind", row, delete] => {
                Work::Blind { row: row.parse().ok()?, delete: delete.parse().ok()? }
            }
            ["source", row, delete] => {
                Work::Source { row: row.parse().ok()?, delete: delete.parse().ok()? }
            }
            ["poke", row] => Work::Poke { row: row.parse().ok()? },
            _ => return None,
        })
    }
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
    pub(crate) fn line(&self, text: fmt::Arguments<'_>) -> io::Result<()> {
        (&self.0).write_all(format!("{text} .\n").as_bytes())
    }
}

/// Events that the children have counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { rolled_forward, rolled_back, observer_runs, conflicts } = self;
        write!(f, "{rolled_forward} {rolled_back} {observer_runs} {conflicts}")
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
        let mut counts: BTreeMap<String, Counts> = BTreeMap::new();
        for line in String::from_utf8_lossy(&bytes).lines() {
            let Some(line) = line.strip_suffix(" .") else { continue };
            let mut words = line.splitn(3, ' ');
            match (words.next(), words.next(), words.next()) {
                (Some("begin"), Some(id), Some(work)) => {
                    ledger.begun.extend(Work::parse(work).map(|work| (id.to_owned(), work)));
                }
                (Some("commit"), Some(id), Some(ts)) => {
                    ledger.committed.extend(ts.parse().ok().map(|ts: u64| (id.to_owned(), ts)));
                }
                (Some("stats"), Some(run), Some(numbers)) => {
                    counts.extend(parse_counts(numbers).map(|counts| (run.to_owned(), counts)));
                }
                _ => {}
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

fn parse_counts(text: &str) -> Option<Counts> {
    let numbers: Vec<u64> = text.split(' ').map_while(|n| n.parse().ok()).collect();
    match numbers[..] {
        [rolled_forward, rolled_back, observer_runs, conflicts] => {
            Some(Counts { rolled_forward, rolled_back, observer_runs, conflicts })
        }
        _ => None,
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
        let first = Writer::open(&path).expect("the file opens");
        first.line(format_args!("begin 1-0-1 {work}")).expect("the line is written");
        first.line(format_args!("begin 1-0-2 poke 4")).expect("the line is written");
        first.line(format_args!("commit 1-0-1 77")).expect("the line is written");
        first.line(format_args!("stats 1 1 2 3 4")).expect("the line is written");
        first.line(format_args!("stats 1 5 2 3 4")).expect("the line is written");
        (&first.0).write_all(b"commit 1-0-2 7").expect("half a line is written");
        let second = Writer::open(&path).expect("the file opens");
        second.line(format_args!("stats 2 1 1 1 1")).expect("the line is written");
        let ledger = Ledger::read(&path).expect("the ledger is read");
        assert_eq!(ledger.begun["1-0-1"], work);
        assert_eq!(ledger.committed, BTreeMap::from([("1-0-1".to_owned(), 77)]));
        assert_eq!(ledger.unknown(), 1);
        assert_eq!(ledger.counts.rolled_forward, 6);
    }
}
