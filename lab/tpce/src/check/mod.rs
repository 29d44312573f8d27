//! Runs the nine checks at the end of a run. A run that fails one is no result.
//!
//! ```text
//! a  positions are the sums of their lots, and none is empty
//! b  a completed trade has one settlement, a legal history, and a cash transaction if paid in cash
//! c  a balance is the opening balance and the account's cash transactions, to the cent
//! d  the indices that transactions maintain have a row for each record, and no other
//! e  pending orders are those of pending trades
//! f  the volumes of all securities add up to the quantities of the Market-Feeds
//! g  a trade changed its account's lots by the traded quantity
//! h  no lock is left
//! i  trades and completions are those that the driver saw committed: none is lost, none is twice
//! ```

mod books;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use percolator::RowKey;

use crate::Scale;
use crate::floor::Ledger;
use crate::model::*;

pub(crate) use books::Balance;
pub(crate) use books::Books;
use books::Indices;

/// Most reported violations of each check.
const REPORTED_MAX: usize = 5;

/// A violation of one of the checks.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let scale = tpce::Scale { trades_per_customer: 2, ..tpce::Scale::new(20, 1) };
/// let db = percolator::Percolator::in_memory().await?;
/// assert!(tpce::Exchange::load(db, scale).await?.check().await?.is_empty());
/// # Ok::<(), tpce::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The check that found it, `a` to `i`.
    pub check: char,
    /// A description of the violation.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}) {}", self.check, self.what)
    }
}

/// The comparison of several drivers' logs with the store.
///
/// See [`Exchange::audit`](crate::Exchange::audit).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Audit {
    /// The violations that the nine checks found.
    pub violations: Vec<Violation>,
    /// Number of orders and completions that the store acknowledged to a driver.
    pub acknowledged: u64,
    /// Number of acknowledged ones that are missing in the store.
    pub lost: u64,
    /// Number of transactions that a driver began, and whose end it does not know.
    pub in_doubt: u64,
}

/// Runs all checks, and counts lost and doubtful transactions.
pub(crate) fn audit(books: &Books, ledger: &Ledger, scale: Scale) -> Audit {
    let (present, completed) = since(books, scale);
    let lost = |here: &BTreeSet<u64>, there| here.difference(there).count() as u64;
    let Ledger { ordered, completed: told, doubt, .. } = ledger;
    Audit {
        violations: all(books, ledger, scale),
        acknowledged: (ordered.len() + told.len()) as u64,
        lost: lost(ordered, &present) + lost(told, &completed),
        in_doubt: (doubt.ordered.len() + doubt.completed.len() + doubt.fed.len()) as u64,
    }
}

pub(crate) fn all(books: &Books, ledger: &Ledger, scale: Scale) -> Vec<Violation> {
    let mut found = Found::default();
    positions(books, &mut found);
    completed(books, &mut found);
    balances(books, &mut found);
    indices(books, &mut found);
    pending(books, &mut found);
    volumes(books, ledger, &mut found);
    moved(books, &mut found);
    for lock in &books.locks {
        found.add('h', || format!("{lock} is still locked"));
    }
    committed(books, ledger, scale, &mut found);
    found.violations
}

#[derive(Debug, Default)]
struct Found {
    violations: Vec<Violation>,
    counts: BTreeMap<char, usize>,
}

impl Found {
    fn add(&mut self, check: char, what: impl FnOnce() -> String) {
        let count = self.counts.entry(check).or_default();
        *count += 1;
        match *count {
            ..=REPORTED_MAX => self.violations.push(Violation { check, what: what() }),
            count if count == REPORTED_MAX + 1 => {
                self.violations.push(Violation { check, what: "and more".to_owned() });
            }
            _ => {}
        }
    }
}

/// (a)
fn positions(books: &Books, found: &mut Found) {
    for ((ca, symb), qty) in &books.positions {
        let held = books.held.get(&(*ca, *symb)).copied().unwrap_or_default();
        if *qty != held || *qty == 0 {
            found
                .add('a', || format!("account {ca} has {qty} of security {symb}, its lots {held}"));
        }
    }
    for ((ca, symb), held) in &books.held {
        if !books.positions.contains_key(&(*ca, *symb)) {
            found
                .add('a', || format!("account {ca} has lots of {held} of {symb}, and no position"));
        }
    }
    for lot in &books.empty_lots {
        found.add('a', || format!("lot {lot} is empty"));
    }
}

/// (b)
fn completed(books: &Books, found: &mut Found) {
    for (t, (trade, state)) in &books.trades {
        let mut steps = books.steps.get(t).cloned().unwrap_or_default();
        steps.sort_unstable();
        let numbered = steps.iter().enumerate().all(|(i, (seq, _))| i == usize::from(*seq));
        let states: Vec<u8> = steps.iter().map(|(_, state)| *state).collect();
        if !numbered || !is_legal(trade.tt, &states) || states.last() != Some(&state.status) {
            found.add('b', || {
                format!("trade {t} in state {}: its history is {steps:?}", state.status)
            });
        }
        let is_completed = state.status == status::COMPLETED;
        if books.settled.contains_key(t) != is_completed {
            found.add('b', || format!("trade {t} in state {}: its settlement", state.status));
        }
        if books.cash.contains_key(t) != (is_completed && trade.is_cash) {
            found.add('b', || format!("trade {t} in state {}: its cash", state.status));
        }
    }
    for t in books.steps.keys().chain(books.settled.keys()).chain(books.cash.keys()) {
        if !books.trades.contains_key(t) {
            found.add('b', || format!("trade {t} does not exist, but records of it do"));
        }
    }
}

/// True if a trade of this type may go through these states in this order.
fn is_legal(tt: u8, states: &[u8]) -> bool {
    let whole: &[&[u8]] = if kind::is_market(tt) {
        &[&[status::SUBMITTED, status::COMPLETED]]
    } else {
        &[
            &[status::PENDING, status::SUBMITTED, status::COMPLETED],
            &[status::PENDING, status::SUBMITTED, status::CANCELLED],
        ]
    };
    !states.is_empty() && whole.iter().any(|whole| whole.starts_with(states))
}

/// (c)
fn balances(books: &Books, found: &mut Found) {
    let mut paid = BTreeMap::<u64, i64>::new();
    for (t, amt) in &books.cash {
        if let Some((trade, _)) = books.trades.get(t) {
            *paid.entry(trade.ca).or_default() += amt;
        }
    }
    for (ca, balance) in &books.accounts {
        let due = balance.opening + paid.remove(ca).unwrap_or_default();
        if balance.now != due {
            found.add('c', || {
                format!("account {ca} has {} cents and should have {due}", balance.now)
            });
        }
    }
    for ca in paid.keys() {
        found.add('c', || format!("cash was paid from account {ca}, which does not exist"));
    }
}

/// (d)
fn indices(books: &Books, found: &mut Found) {
    let Some(Indices { found: rows }) = &books.indices else { return };
    let mut wanted = BTreeSet::<RowKey>::new();
    let trades = books.trades.values().flat_map(|(trade, _)| trade.index_rows());
    let requests = books.requests.values().flat_map(|request| request.index_rows());
    wanted.extend(trades.chain(requests).map(|(row, _)| row));
    for row in wanted.difference(rows) {
        found.add('d', || format!("index row {row} is missing"));
    }
    for row in rows.difference(&wanted) {
        found.add('d', || format!("index row {row} belongs to no record"));
    }
}

/// (e)
fn pending(books: &Books, found: &mut Found) {
    for (t, (_, state)) in &books.trades {
        let is_pending = state.status == status::PENDING;
        if books.requests.contains_key(t) != is_pending {
            found.add('e', || format!("trade {t} in state {}: its pending order", state.status));
        }
    }
    for t in books.requests.keys().filter(|t| !books.trades.contains_key(t)) {
        found
            .add('e', || format!("an order of trade {t} is pending, but the trade does not exist"));
    }
}

/// (f)
fn volumes(books: &Books, ledger: &Ledger, found: &mut Found) {
    // Each feed in doubt may have been committed or not.
    let mut possible = BTreeSet::from([ledger.fed]);
    for shares in &ledger.doubt.fed {
        possible.extend(possible.clone().into_iter().map(|sum| sum + shares));
    }
    if !possible.contains(&books.volume) {
        let (told, doubtful) = (ledger.fed, ledger.doubt.fed.len());
        found.add('f', || {
            let more = match doubtful {
                0 => String::new(),
                n => format!(", and {n} feeds are in doubt"),
            };
            format!("{told} shares were reported as traded{more}; the volumes are {}", books.volume)
        });
    }
}

/// The trades of the run, and those among them that were completed.
fn since(books: &Books, scale: Scale) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let new = || books.trades.range(scale.trades() + 1..);
    let done = |(t, (_, state)): (&u64, &(Trade, TradeState))| {
        (state.status == status::COMPLETED).then_some(*t)
    };
    (new().map(|(t, _)| *t).collect(), new().filter_map(done).collect())
}

/// (g)
fn moved(books: &Books, found: &mut Found) {
    for (t, (trade, state)) in &books.trades {
        let traded = match (state.status == status::COMPLETED, kind::is_sell(trade.tt)) {
            (false, _) => 0,
            (true, true) => -trade.qty,
            (true, false) => trade.qty,
        };
        let moved = books.moved.get(t).copied().unwrap_or_default();
        if moved != traded {
            found.add('g', || format!("trade {t} traded {traded} and moved {moved}"));
        }
    }
    for t in books.moved.keys().filter(|t| !books.trades.contains_key(t)) {
        found.add('g', || format!("trade {t} moved lots, but does not exist"));
    }
}

/// (i)
fn committed(books: &Books, ledger: &Ledger, scale: Scale, found: &mut Found) {
    let (present, completed) = since(books, scale);
    let before = books.trades.len() - present.len();
    if before as u64 != scale.trades() {
        found.add('i', || format!("{before} trades of {} before the run", scale.trades()));
    }
    let Ledger { ordered, completed: told, doubt, .. } = ledger;
    for (what, here, doubtful, there) in [
        ("taken", ordered, &doubt.ordered, &present),
        ("completed", told, &doubt.completed, &completed),
    ] {
        for t in here.difference(there) {
            found.add('i', || format!("trade {t} was {what}, and is lost"));
        }
        for t in there.difference(here).filter(|t| !doubtful.contains(t)) {
            found.add('i', || format!("trade {t} was {what}, but no driver has logged it"));
        }
    }
}
