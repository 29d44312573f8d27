//! Implements Trade-Lookup: twenty trades with all their records.

use percolator::Result;

use crate::model::*;
use crate::request::{Answer, LOOKUP_TRADES, Lookup};

use super::session::{Session, cell, part};
use super::trade_status::newest;

/// Rows of an index that are read at a time in search of those before a time.
const PAGE: usize = 64;

pub(super) async fn run(session: &mut Session, lookup: &Lookup) -> Result<Answer> {
    let mut answer = Answer::default();
    if let Lookup::FirstOf { ca } = lookup {
        return first_of(session, *ca).await;
    }
    let trades = found(session, lookup).await?;
    for (trade, state) in details(session, &trades, &mut answer).await? {
        answer.item(trade.bid + state.price);
    }
    Ok(answer)
}

/// Finds the trades of a lookup of frames 1 to 3.
pub(super) async fn found(session: &mut Session, lookup: &Lookup) -> Result<Vec<u64>> {
    match lookup {
        Lookup::Listed(trades) => Ok(trades.clone()),
        Lookup::OfAccount { ca, until } => {
            until_then(session, Key::of(index::TRADE_BY_ACCOUNT).long(*ca), *until).await
        }
        Lookup::OfSecurity { symb, until } => {
            until_then(session, Key::of(index::TRADE_BY_SECURITY).short(*symb), *until).await
        }
        Lookup::FirstOf { .. } => Ok(Vec::new()),
    }
}

/// Finds the newest trades of an index that were entered up to a time.
async fn until_then(session: &mut Session, prefix: Key, until: u64) -> Result<Vec<u64>> {
    let prefix = prefix.row();
    let mut left = percolator::RowRange::prefix(prefix.clone());
    let mut trades = Vec::new();
    loop {
        let rows = session.rows_in(left.clone(), &[D], PAGE).await?;
        let Some(last) = rows.last() else { return Ok(trades) };
        for row in &rows {
            if cell::<u64>(row, &D)? <= until {
                let mut rest = part(Parts::of(&row.row, &prefix), &row.row)?;
                trades.push(part(rest.newest_first(), &row.row)?);
            }
        }
        if rows.len() < PAGE || trades.len() >= LOOKUP_TRADES {
            trades.truncate(LOOKUP_TRADES);
            return Ok(trades);
        }
        left = left.after(last.row.clone());
    }
}

/// Reads the records of trades: settlement, cash, history. Returns the trades themselves.
pub(super) async fn details(
    session: &mut Session,
    trades: &[u64],
    answer: &mut Answer,
) -> Result<Vec<(Trade, TradeState)>> {
    let rows = |key: fn(u64) -> percolator::RowKey| trades.iter().map(move |t| key(*t));
    let found: Vec<(Trade, TradeState)> = session.pairs(rows(keys::trade), &[D, STATE]).await?;
    let settlements: Vec<Option<Settlement>> = session.many(rows(keys::settlement), &D).await?;
    let cash: Vec<Option<CashTransaction>> = session.many(rows(keys::cash_transaction), &D).await?;
    let rows = trades.iter().flat_map(|t| steps_of(*t));
    let steps: Vec<Option<TradeHistory>> = session.many(rows, &D).await?;
    for steps in steps.chunks(STEPS_MAX.into()) {
        answer.item(steps.iter().flatten().map(|step| step.dts as i64).sum());
    }
    settlements.iter().flatten().for_each(|settlement| answer.item(settlement.amt));
    cash.iter().flatten().for_each(|cash| answer.item(cash.amt));
    Ok(found)
}

/// Most steps of a trade's history: pending, submitted, completed.
pub(super) const STEPS_MAX: u8 = 3;

/// The rows that a trade's history may have. They are so few that one request reads those of
/// many trades by key.
pub(super) fn steps_of(t: u64) -> impl Iterator<Item = percolator::RowKey> {
    (0..STEPS_MAX).map(move |seq| keys::trade_history(t, seq))
}

/// Implements frame 4: the history of the lots that an account's first trade changed.
async fn first_of(session: &mut Session, ca: u64) -> Result<Answer> {
    let mut answer = Answer::default();
    // The newest trade comes first, so the first trade is the last one.
    let Some(t) = newest(session, ca, usize::MAX).await?.pop() else { return Ok(answer) };
    let touched: Vec<HoldingHistory> =
        session.records(keys::holding_histories(t), usize::MAX).await?;
    let mut rows = Vec::new();
    for HoldingHistory { h, .. } in touched {
        let prefix = Key::of(index::HISTORY_BY_LOT).long(h);
        let trades = session.index(prefix, LOOKUP_TRADES, |mut rest| rest.long()).await?;
        rows.extend(trades.into_iter().map(|t| keys::holding_history(t, h)));
    }
    rows.truncate(LOOKUP_TRADES);
    let histories: Vec<HoldingHistory> = session.need_many(rows, &D).await?;
    histories.iter().for_each(|history| answer.item(history.after - history.before));
    Ok(answer)
}
