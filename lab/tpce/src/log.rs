//! The log of one of several drivers over one brokerage: what it began, and what it was told is
//! done.
//!
//! Several processes drive one store, and any of them may be killed. What a run may be held to is
//! then what each of them had written down: a line *before* the first attempt of a transaction that
//! the checks are about, and one after it was committed, *before* it counts. What was begun and not
//! done is in doubt, and may be in the store or not; all else must be as the logs say.
//!
//! ```text
//! 81234567890123 begun trade_order 17401 0
//! 81234570481007 done trade_order 17401 0
//! 81234571100214 done trade_status 0 0
//! ```
//!
//! A process that is killed leaves whole lines, but perhaps the last. The log is not synced: it
//! outlives its process, not the machine.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use crate::floor::Ledger;
use crate::request::{Request, TransactionType};
use crate::{Error, Result};

/// The log of a driver that has [joined](crate::Exchange::join) others.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("log");
/// let log = tpce::Log::create(&path, || std::time::Duration::ZERO)?;
/// assert!(tpce::Log::read(&path)?.is_empty());
/// # Ok::<(), tpce::Error>(())
/// ```
#[derive(Debug)]
pub struct Log {
    file: File,
    /// A time that all processes of this machine share.
    clock: fn() -> Duration,
}

/// A line of a [`Log`].
///
/// ```
/// let line = "1000000000 done trade_result 7 0";
/// let entry: tpce::Entry = line.parse()?;
/// assert_eq!((entry.at.as_secs(), entry.kind), (1, tpce::TransactionType::TradeResult));
/// # Ok::<(), tpce::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// When it was written, by the clock of the log.
    pub at: Duration,
    /// Whether the transaction was done, or only begun.
    pub done: bool,
    /// Its type.
    pub kind: TransactionType,
    /// The trade, of an order or a result.
    trade: u64,
    /// The shares that a Market-Feed tells.
    shares: i64,
}

impl Log {
    /// A new log, with the time by a clock that all processes of this machine share.
    ///
    /// # Errors
    /// [`Error::Log`] when there is such a file, or none can be written.
    pub fn create(path: &Path, clock: fn() -> Duration) -> Result<Self> {
        let file = File::options().append(true).create_new(true).open(path);
        let file = file.map_err(|error| Error::Log(format!("{}: {error}", path.display())))?;
        Ok(Log { file, clock })
    }

    /// What a log says so far.
    ///
    /// # Errors
    /// [`Error::Log`] when it cannot be read, or holds something else.
    pub fn read(path: &Path) -> Result<Vec<Entry>> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| Error::Log(format!("{}: {error}", path.display())))?;
        // A line without its end was being written when the process was killed, or is right now:
        // what it is about has not gone on.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(str::parse).collect()
    }

    /// Notes that a request is about to be tried, if the checks are about it.
    pub(crate) fn begun(&self, request: &Request) -> Result<()> {
        match noted(request) {
            Some((trade, shares)) => self.write("begun", request, trade, shares),
            None => Ok(()),
        }
    }

    /// Notes that a request is done.
    pub(crate) fn done(&self, request: &Request) -> Result<()> {
        let (trade, shares) = noted(request).unwrap_or_default();
        self.write("done", request, trade, shares)
    }

    fn write(&self, what: &str, request: &Request, trade: u64, shares: i64) -> Result<()> {
        let (at, kind) = ((self.clock)().as_nanos(), request.kind().name());
        let line = format!("{at} {what} {kind} {trade} {shares}\n");
        (&self.file).write_all(line.as_bytes()).map_err(|error| Error::Log(error.to_string()))
    }
}

/// The trade or the shares of a request that the checks are about.
fn noted(request: &Request) -> Option<(u64, i64)> {
    match request {
        Request::TradeOrder(order) if !order.roll_back => Some((order.t, 0)),
        Request::TradeResult(execution) => Some((execution.t, 0)),
        Request::MarketFeed(feed) => Some((0, feed.shares())),
        _ => None,
    }
}

impl std::str::FromStr for Entry {
    type Err = Error;

    fn from_str(line: &str) -> Result<Self> {
        let read = || {
            let mut words = line.split(' ');
            let at = Duration::from_nanos(words.next()?.parse().ok()?);
            let done = match words.next()? {
                "begun" => false,
                "done" => true,
                _ => return None,
            };
            let name = words.next()?;
            let kind = TransactionType::ALL.into_iter().find(|kind| kind.name() == name)?;
            let (trade, shares) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            words.next().is_none().then_some(Entry { at, done, kind, trade, shares })
        };
        read().ok_or_else(|| Error::Log(format!("{line:?} is no line of a log")))
    }
}

impl Entry {
    /// Whether a customer asked for it, rather than the market.
    pub fn is_customers(&self) -> bool {
        !matches!(
            self.kind,
            TransactionType::TradeResult
                | TransactionType::MarketFeed
                | TransactionType::DataMaintenance
        )
    }
}

impl Ledger {
    /// What several drivers know to be committed, and what is in doubt.
    pub(crate) fn of(logs: &[Vec<Entry>]) -> Self {
        let mut ledger = Ledger::default();
        for log in logs {
            // There is one Market-Feed at a time, so one that begins shows that the last has ended.
            let mut feed = None;
            for entry in log {
                match (entry.kind, entry.done) {
                    (TransactionType::TradeOrder, false) => {
                        ledger.doubt.ordered.insert(entry.trade);
                    }
                    // One that the customer took back has no number here.
                    (TransactionType::TradeOrder, true) if entry.trade > 0 => {
                        ledger.ordered.insert(entry.trade);
                    }
                    (TransactionType::TradeResult, false) => {
                        ledger.doubt.completed.insert(entry.trade);
                    }
                    (TransactionType::TradeResult, true) => {
                        ledger.completed.insert(entry.trade);
                    }
                    (TransactionType::MarketFeed, false) => {
                        ledger.doubt.fed.extend(feed.replace(entry.shares));
                    }
                    (TransactionType::MarketFeed, true) => {
                        ledger.fed += feed.take().unwrap_or_default();
                    }
                    _ => {}
                }
            }
            ledger.doubt.fed.extend(feed);
        }
        let Ledger { ordered, completed, doubt, .. } = &mut ledger;
        doubt.ordered.retain(|t| !ordered.contains(t));
        doubt.completed.retain(|t| !completed.contains(t));
        ledger
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(lines: &[&str]) -> Vec<Entry> {
        lines.iter().map(|line| line.parse().unwrap()).collect()
    }

    #[test]
    fn what_was_begun_and_not_done_is_in_doubt() {
        let killed = entries(&[
            "1 begun trade_order 5 0",
            "2 begun trade_order 6 0",
            "3 done trade_order 5 0",
            "3 done trade_order 0 0",
            "4 begun market_feed 0 700",
            "5 begun market_feed 0 800",
            "6 done market_feed 0 800",
            "7 begun market_feed 0 900",
            "8 begun trade_result 5 0",
        ]);
        let other = entries(&["9 begun trade_result 5 0", "9 done trade_result 5 0"]);
        let ledger = Ledger::of(&[killed.clone(), other]);
        assert_eq!(ledger.ordered, [5].into());
        assert_eq!(ledger.completed, [5].into());
        assert_eq!(ledger.fed, 800);
        assert_eq!(ledger.doubt.ordered, [6].into());
        assert!(ledger.doubt.completed.is_empty(), "another driver completed it");
        assert_eq!(ledger.doubt.fed, [700, 900]);
        assert_eq!(Ledger::of(&[killed]).doubt.completed, [5].into());
    }

    #[test]
    fn a_line_without_its_end_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        for (text, lines) in [("", 0), ("1 done tr", 0), ("1 done trade_order 7 0\n2 do", 1)] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(Log::read(&path).unwrap().len(), lines, "{text:?}");
        }
        assert!(Log::create(&path, || Duration::ZERO).is_err(), "it is there");
    }

    #[test]
    fn other_lines_are_refused() {
        for line in
            ["", "1 done", "x done trade_order 1 0", "1 done nothing 1 0", "1 done trade_order 1"]
        {
            assert!(line.parse::<Entry>().is_err(), "{line:?}");
        }
    }
}
