//! Implements Trade-Result: the market has executed a trade. Positions, lots, balance and
//! history change.
//!
//! As in the paper, the broker's commission and number of trades do not change. A broker serves
//! a hundred customers, and all their trades would conflict over the broker's row.

use percolator::{Error, Result};

use crate::generate::history::cash_name;
use crate::model::*;
use crate::request::{Answer, Execution};
use crate::rules::{Fill, Lot, settle, settlement, share, taxed};

use super::session::{Session, cell, part};

pub(super) async fn run(session: &mut Session, execution: Execution) -> Result<Answer> {
    let mut answer = Answer::default();
    let Execution { t, price, now } = execution;
    let (trade, mut state): (Trade, TradeState) = session.pair(keys::trade(t), &[D, STATE]).await?;
    // A trade is completed only once, however often it is attempted.
    if state.status == status::COMPLETED {
        answer.unchanged = true;
        return Ok(answer);
    }
    let Trade { ca, symb, qty, .. } = trade;
    let rows = [keys::trade_type(trade.tt), keys::account(ca), keys::security(symb)];
    let packed = session.packed(rows).await?;
    let trade_type: TradeType = decode(&packed[0])?;
    let account: CustomerAccount = decode(&packed[1])?;
    let security: Security = decode(&packed[2])?;
    let position: Option<i64> = session.get(keys::position(ca, symb), &QTY).await?;
    let tier: u8 = session.need(keys::customer(account.c), &TIER).await?;

    let held = lots(session, ca, symb).await?;
    let is_sell = trade_type.is_sell;
    let fill = Fill { t, is_sell, lifo: trade.lifo, qty, price, dts: now };
    let settled = settle(&held, fill);
    for lot in &settled.changed {
        let row = keys::lot(ca, symb, lot.dts, lot.t);
        if lot.qty == 0 {
            session.delete(row.clone(), &QTY)?;
            session.delete(row, &PRICE)?;
        } else {
            session.set(row, &QTY, &lot.qty)?;
        }
    }
    if let Some(Lot { dts, t, qty, price }) = settled.opened {
        session.insert(&Holding { ca, symb, dts, t, qty, price })?;
    }
    for (h, before, after) in &settled.history {
        session.insert(&HoldingHistory { t, h: *h, before: *before, after: *after })?;
    }
    match position.unwrap_or_default() + if is_sell { -qty } else { qty } {
        0 => session.delete(keys::position(ca, symb), &QTY)?,
        left => session.set(keys::position(ca, symb), &QTY, &left)?,
    }

    let (taxable, withheld) = taxed(account.tax_status);
    if taxable && settled.gain() > 0 {
        state.tax = share(settled.gain(), tax_rates(session, account.c).await?);
    }
    state.commission = commission(session, tier, trade.tt, security.ex, qty, price).await?;
    let withheld = if withheld { state.tax } else { 0 };
    let amt = settlement(fill, state.charge, state.commission, withheld);
    (state.status, state.dts, state.price) = (status::COMPLETED, now, price);
    session.set(keys::trade(t), &STATE, &state)?;
    // The history of a market order begins with submitted, that of a limit order with pending
    // before it.
    let seq = if trade_type.is_market { 1 } else { 2 };
    session.insert(&TradeHistory { t, seq, dts: now, status: status::COMPLETED })?;
    let cash_type = if trade.is_cash { "Cash Account" } else { "Margin" }.to_owned();
    let due_day = (now / crate::scale::DAY_MS) as u32 + 2;
    session.insert(&Settlement { t, cash_type, due_day, amt })?;
    if trade.is_cash {
        let balance: i64 = session.need(keys::account(ca), &BAL).await?;
        session.set(keys::account(ca), &BAL, &(balance + amt))?;
        let name = cash_name(is_sell, qty, symb);
        session.insert(&CashTransaction { t, dts: now, amt, name })?;
    }
    answer.item(amt);
    answer.item(state.tax);
    Ok(answer)
}

/// Reads the lots of a security in an account, the oldest first.
pub(super) async fn lots(session: &mut Session, ca: u64, symb: u32) -> Result<Vec<Lot>> {
    let rows = session.rows(keys::lots(ca, symb), &[PRICE, QTY], usize::MAX).await?;
    let lot = |row: &percolator::ScannedRow| {
        let mut parts = part(Parts::of(&row.row, "H:"), &row.row)?;
        let dts = part(parts.long().and(parts.short()).and(parts.long()), &row.row)?;
        let t = part(parts.long(), &row.row)?;
        Ok(Lot { dts, t, qty: cell(row, &QTY)?, price: cell(row, &PRICE)? })
    };
    rows.iter().map(lot).collect()
}

pub(super) async fn tax_rates(session: &mut Session, c: u64) -> Result<i64> {
    let taxes: Vec<CustomerTaxrate> =
        session.records(keys::customer_taxrates(c), usize::MAX).await?;
    let rows = taxes.iter().map(|tax| keys::tax_rate(tax.tx));
    let rates: Vec<TaxRate> = session.need_many(rows, &D).await?;
    Ok(rates.iter().map(|tax| tax.rate).sum())
}

pub(super) async fn commission(
    session: &mut Session,
    tier: u8,
    tt: u8,
    ex: u8,
    qty: i64,
    price: i64,
) -> Result<i64> {
    let rates: Vec<CommissionRate> =
        session.records(keys::commission_rates(tier, tt, ex), usize::MAX).await?;
    let found = rates.iter().find(|rate| qty <= i64::from(rate.to_qty));
    let rate =
        found.ok_or_else(|| Error::application("there is no commission rate for the trade"))?;
    Ok(share(qty * price, rate.rate))
}
