//! Implements Trade-Order: a customer, or a person with permission, orders a trade.

use percolator::{Error, Result, RowRange};

use crate::model::*;
use crate::request::{Accepted, Answer, Ordered, TradeOrder};
use crate::rules::{Fill, settle, share, taxed};

use super::session::{Session, cell, part};
use super::trade_result::{commission, lots, tax_rates};

/// Number of positions from which a margin account's value is estimated.
const POSITIONS: usize = 10;

pub(super) async fn run(session: &mut Session, order: &TradeOrder) -> Result<Answer> {
    let mut answer = Answer::default();
    if order.maybe_done
        && let Some(trade) = session.get::<Trade>(keys::trade(order.t), &D).await?
    {
        let Trade { t, symb, qty, tt, .. } = trade;
        answer.accepted.push(Accepted { t, symb, qty, at_once: kind::is_market(tt) });
        answer.unchanged = true;
        return Ok(answer);
    }
    let packed = session.packed([keys::account(order.ca), keys::trade_type(order.tt)]).await?;
    let account: CustomerAccount = decode(&packed[0])?;
    let trade_type: TradeType = decode(&packed[1])?;
    let (customer, tier): (Customer, u8) =
        session.pair(keys::customer(account.c), &[D, TIER]).await?;
    let broker: String = session.need(keys::broker(account.b), &NAME).await?;
    let mut executor = format!("{} {}", customer.first_name, customer.last_name);
    if let Some(tax_id) = &order.executor_tax_id {
        let row = keys::permission(order.ca, tax_id);
        let Some(permission) = session.get::<AccountPermission>(row, &D).await? else {
            return Err(Error::application(format!("{tax_id} may not trade for {}", order.ca)));
        };
        executor = format!("{} {}", permission.first_name, permission.last_name);
    }
    let (security, company) = security(session, &order.security).await?;
    let last: Price = session.need(keys::last_trade(security.symb), &PRICE).await?;
    let price = if trade_type.is_market { last.price } else { order.bid };
    let owed = estimated_tax(session, order, &account, security.symb, price).await?;
    let commission = commission(session, tier, order.tt, security.ex, order.qty, price).await?;
    let fee: Charge = session.record(keys::charge(order.tt, tier)).await?;
    let worth = if order.margin { worth(session, order.ca).await? } else { 0 };
    for says in [price, owed, commission, fee.charge, worth, broker.len() as i64] {
        answer.item(says);
    }
    if order.roll_back {
        answer.unchanged = true;
        return Ok(answer);
    }
    let TradeOrder { t, ca, tt, qty, lifo, now, .. } = *order;
    let symb = security.symb;
    let (is_cash, bid, at_once) = (!order.margin, price, trade_type.is_market);
    session.insert(&Trade { t, ca, symb, tt, qty, bid, executor, lifo, is_cash, entered: now })?;
    let status = if at_once { status::SUBMITTED } else { status::PENDING };
    let state = TradeState { status, dts: now, price: 0, charge: fee.charge, commission, tax: 0 };
    session.set(keys::trade(t), &STATE, &state)?;
    session.insert(&TradeHistory { t, seq: 0, dts: now, status })?;
    if !at_once {
        let sc = sector(session, &security, company).await?;
        session.insert(&TradeRequest { t, tt, symb, qty, bid, b: account.b, sc })?;
    }
    answer.accepted.push(Accepted { t, symb, qty, at_once });
    Ok(answer)
}

/// Reads the ordered security by its symbol, or as an issue of a company together with that
/// company.
async fn security(session: &mut Session, ordered: &Ordered) -> Result<(Security, Option<Company>)> {
    let symb = match ordered {
        Ordered::Symbol(symb) => *symb,
        Ordered::Issue { company, issue } => {
            let row = Key::of(index::COMPANY_BY_NAME).text(company).row();
            let co: u32 = session.record(row).await?;
            let prefix = Key::of(index::SECURITY_BY_COMPANY).short(co).byte(*issue);
            let found = session.index(prefix, 1, |mut rest| rest.short()).await?.pop();
            found.ok_or_else(|| Error::application(format!("{company} has no such issue")))?
        }
    };
    let security: Security = session.record(keys::security(symb)).await?;
    let company = match ordered {
        Ordered::Symbol(_) => Some(session.record(keys::company(security.co)).await?),
        Ordered::Issue { .. } => None,
    };
    Ok((security, company))
}

/// Reads the sector of a security's company, which may have been read before.
async fn sector(
    session: &mut Session,
    security: &Security,
    company: Option<Company>,
) -> Result<u8> {
    let company = match company {
        Some(company) => company,
        None => session.record(keys::company(security.co)).await?,
    };
    let industry: Industry = session.record(keys::industry(company.ind)).await?;
    Ok(industry.sc)
}

async fn estimated_tax(
    session: &mut Session,
    order: &TradeOrder,
    account: &CustomerAccount,
    symb: u32,
    price: i64,
) -> Result<i64> {
    let row = keys::position(order.ca, symb);
    let position: i64 = session.get(row, &QTY).await?.unwrap_or_default();
    let is_sell = kind::is_sell(order.tt);
    let closes = if is_sell { position > 0 } else { position < 0 };
    if !closes {
        return Ok(0);
    }
    let lots = lots(session, order.ca, symb).await?;
    let TradeOrder { t, lifo, qty, now, .. } = *order;
    let settled = settle(&lots, Fill { t, is_sell, lifo, qty, price, dts: now });
    let (taxable, _) = taxed(account.tax_status);
    if settled.gain() == 0 || !taxable {
        return Ok(0);
    }
    Ok(share(settled.gain(), tax_rates(session, account.c).await?))
}

/// Estimates the value of a margin account: its balance, and its first positions at the last
/// prices.
async fn worth(session: &mut Session, ca: u64) -> Result<i64> {
    let balance: i64 = session.need(keys::account(ca), &BAL).await?;
    let held = positions(session, ca, POSITIONS).await?;
    let rows = held.iter().map(|(symb, _)| keys::last_trade(*symb));
    let prices: Vec<Price> = session.need_many(rows, &PRICE).await?;
    Ok(balance + held.iter().zip(prices).map(|((_, qty), last)| qty * last.price).sum::<i64>())
}

/// Reads the securities that an account holds, and the quantity of each.
pub(super) async fn positions(
    session: &mut Session,
    ca: u64,
    limit: usize,
) -> Result<Vec<(u32, i64)>> {
    let held = held(session, RowRange::prefix(keys::positions(ca)), limit).await?;
    Ok(held.into_iter().map(|(_, symb, qty)| (symb, qty)).collect())
}

/// Reads the positions in a range of rows: account, security, quantity.
pub(super) async fn held(
    session: &mut Session,
    range: RowRange,
    limit: usize,
) -> Result<Vec<(u64, u32, i64)>> {
    let rows = session.rows_in(range, &[QTY], limit).await?;
    let position = |row: &percolator::ScannedRow| {
        let mut parts = part(Parts::of(&row.row, "HS:"), &row.row)?;
        let ca = part(parts.long(), &row.row)?;
        let symb = part(parts.short(), &row.row)?;
        Ok((ca, symb, cell(row, &QTY)?))
    };
    rows.iter().map(position).collect()
}
