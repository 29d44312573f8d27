//! Collects the facts that the checks need: those of a whole store as of one moment.

use std::collections::{BTreeMap, BTreeSet};

use percolator::{Column, Result, RowKey, ScannedRow};

use crate::model::*;

#[derive(Debug, Clone, Default)]
pub(crate) struct Books {
    pub(crate) accounts: BTreeMap<u64, Balance>,
    /// By account and security.
    pub(crate) positions: BTreeMap<(u64, u32), i64>,
    pub(crate) held: BTreeMap<(u64, u32), i64>,
    /// The keys of lots with a quantity of zero.
    pub(crate) empty_lots: Vec<String>,
    pub(crate) trades: BTreeMap<u64, (Trade, TradeState)>,
    /// The number and the state of each step.
    pub(crate) steps: BTreeMap<u64, Vec<(u8, u8)>>,
    pub(crate) settled: BTreeMap<u64, i64>,
    pub(crate) cash: BTreeMap<u64, i64>,
    /// The change of each trade to its account's lots.
    pub(crate) moved: BTreeMap<u64, i64>,
    pub(crate) requests: BTreeMap<u64, TradeRequest>,
    pub(crate) volume: i64,
    /// `None` if the store maintains its indices itself.
    pub(crate) indices: Option<Indices>,
    /// Cells that are still locked after all requests have ended.
    pub(crate) locks: Vec<String>,
}

/// An account's balance before the first trade, and now.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Balance {
    pub(crate) opening: i64,
    pub(crate) now: i64,
}

/// The rows of the indices that transactions maintain.
#[derive(Debug, Clone, Default)]
pub(crate) struct Indices {
    pub(crate) found: BTreeSet<RowKey>,
}

impl Indices {
    /// The prefixes of the indices that are checked.
    pub(crate) const CHECKED: [&'static str; 4] = [
        index::TRADE_BY_ACCOUNT,
        index::TRADE_BY_SECURITY,
        index::REQUEST_BY_SECURITY,
        index::REQUEST_BY_BROKER,
    ];
}

impl Books {
    pub(crate) fn note(&mut self, row: &ScannedRow) -> Result<()> {
        let key = row.row.as_bytes();
        let end = key.iter().position(|byte| *byte == b':').map_or(key.len(), |at| at + 1);
        let prefix = std::str::from_utf8(&key[..end]).unwrap_or_default();
        let indices = self.indices.get_or_insert_default();
        if Indices::CHECKED.contains(&prefix) {
            indices.found.insert(row.row.clone());
            return Ok(());
        }
        match prefix {
            "CA:" => {
                let account: CustomerAccount = need(row, &D)?;
                let balance = Balance { opening: account.opening, now: need(row, &BAL)? };
                self.accounts.insert(account.ca, balance);
            }
            "HS:" => {
                self.positions.insert(position(row, prefix), need(row, &QTY)?);
            }
            "H:" => {
                let (position, qty) = (position(row, prefix), need::<i64>(row, &QTY)?);
                *self.held.entry(position).or_default() += qty;
                if qty == 0 {
                    self.empty_lots.push(row.row.to_string());
                }
            }
            "T:" => {
                let trade: Trade = need(row, &D)?;
                self.trades.insert(trade.t, (trade, need(row, &STATE)?));
            }
            "TH:" => {
                let step: TradeHistory = need(row, &D)?;
                self.steps.entry(step.t).or_default().push((step.seq, step.status));
            }
            "SE:" => {
                let settlement: Settlement = need(row, &D)?;
                self.settled.insert(settlement.t, settlement.amt);
            }
            "CT:" => {
                let cash: CashTransaction = need(row, &D)?;
                self.cash.insert(cash.t, cash.amt);
            }
            "HH:" => {
                let HoldingHistory { t, before, after, .. } = need(row, &D)?;
                *self.moved.entry(t).or_default() += after - before;
            }
            "TR:" => {
                let request: TradeRequest = need(row, &D)?;
                self.requests.insert(request.t, request);
            }
            "LT:" => self.volume += need::<i64>(row, &VOL)?,
            _ => {}
        }
        Ok(())
    }
}

/// Account and security of a key. A key that is too short gives zeros, which match nothing.
fn position(row: &ScannedRow, prefix: &str) -> (u64, u32) {
    let parts = Parts::of(&row.row, prefix);
    parts.and_then(|mut parts| Some((parts.long()?, parts.short()?))).unwrap_or_default()
}

fn need<T: serde::de::DeserializeOwned>(row: &ScannedRow, column: &Column) -> Result<T> {
    crate::transactions::cell(row, column)
}
