//! Keeps the log of one of several drivers over one brokerage: the transactions that it began,
//! and those that the store acknowledged.
//!
//! Several processes drive one store, and any of them may be killed. The logs then define what
//! the store must hold. For a transaction that the checks cover, a driver writes a line
//! *before* the first attempt. It writes another line after the commit, *before* the
//! transaction counts. A transaction that was begun and not done is in doubt: it may be in the
//! store or not. Everything else must be as the logs say.
//!
//! ```text
//! 81234567890123 begun trade_order 17401 0
//! 81234570481007 done trade_order 17401 0
//! 81234571100214 done trade_status 0 0
//! ```
//!
//! A killed process leaves complete lines, except perhaps the last. The log is not synced: it
//! survives its process, but not a crash of the machine.

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
    /// A clock that all processes of this machine share.
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
    /// The time of writing, by the log's clock.
    pub at: Duration,
    /// True if the transaction was done, false if it was only begun.
    pub done: bool,
    /// The type of the transaction.
    pub kind: TransactionType,
    /// The trade of an order or a result; otherwise 0.
    trade: u64,
    /// The shares in a Market-Feed; otherwise 0.
    shares: i64,
}

impl Log {
    /// Creates a log. `clock` is a clock that all processes of this machine share.
    ///
    /// # Errors
    /// [`Error::Log`] if the file exists already or cannot be created.
    pub fn create(path: &Path, clock: fn() -> Duration) -> Result<Self> {
        let file = File::options().append(true).create_new(true).open(path);
        let file = file.map_err(|error| Error::Log(format!("{}: {error}", path.display())))?;
        Ok(Log { file, clock })
    }

    /// Reads the entries of a log so far.
    ///
    /// # Errors
    /// [`Error::Log`] if the file cannot be read, or is not a log.
    pub fn read(path: &Path) -> Result<Vec<Entry>> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| Error::Log(format!("{}: {error}", path.display())))?;
        // The last line may be incomplete: the process was killed while it wrote the line, or
        // is writing it now. The transaction of that line has not gone on, so the line is left
        // out.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(str::parse).collect()
    }

    /// Writes that a request is about to be attempted, if the checks cover it.
    pub(crate) fn begun(&self, request: &Request) -> Result<()> {
        match noted(request) {
            Some((trade, shares)) => self.write("begun", request, trade, shares),
            None => Ok(()),
        }
    }

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

/// The trade or the shares of a request that the checks cover.
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
        read().ok_or_else(|| Error::Log(format!("{line:?} is not a line of a driver's log")))
    }
}

impl Entry {
    /// True if a customer made the request, false if the market did.
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
    /// Collects the known commits of several drivers, and the transactions in doubt.
    pub(crate) fn of(logs: &[Vec<Entry>]) -> Self {
        let mut ledger = Ledger::default();
        for log in logs {
            // Only one Market-Feed runs at a time, so a beginning one shows that the last has
            // ended.
            let mut feed = None;
            for entry in log {
                match (entry.kind, entry.done) {
                    (TransactionType::TradeOrder, false) => {
                        ledger.doubt.ordered.insert(entry.trade);
                    }
                    // An order that the customer rolled back has the number 0.
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
