//! Trade-Order, Trade-Result and Market-Feed.

use futures::future::OptionFuture;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Transaction};

use crate::generate::history::cash_name;
use crate::model::{kind, status};
use crate::request::{Accepted, Answer, Execution, Feed, Ordered, TradeOrder};
use crate::rules::{Fill, Lot, settle, settlement, share, taxed};
use crate::scale::DAY_MS;

use super::statements::Statements;
use super::together;

type Db<'a> = Transaction<'a>;

pub(super) async fn trade_order(
    db: &Db<'_>,
    sql: &Statements,
    order: &TradeOrder,
) -> Result<Answer, Error> {
    let mut answer = Answer::default();
    let (ca, tt) = (order.ca as i64, i16::from(order.tt));
    if order.maybe_done
        && let Some(accepted) = taken(db, sql, order).await?
    {
        answer.accepted.push(accepted);
        answer.unchanged = true;
        return Ok(answer);
    }
    let security = async {
        match &order.security {
            Ordered::Symbol(symb) => db.query_one(&sql.order_security, &[&(*symb as i32)]).await,
            Ordered::Issue { company, issue } => {
                db.query_one(&sql.order_issue, &[company, &i16::from(*issue)]).await
            }
        }
    };
    let executor = OptionFuture::from(
        order
            .executor_tax_id
            .as_ref()
            .map(|tax_id| async move { db.query_one(&sql.order_executor, &[&ca, tax_id]).await }),
    );
    let executor = async { executor.await.transpose() };
    let account = async { db.query_one(&sql.order_account, &[&ca]).await };
    let (account, security, executor) = together::three(account, security, executor).await?;
    let (c, b, tax_status): (i64, i32, i16) = (account.get(0), account.get(1), account.get(2));
    let (tier, broker): (i16, &str) = (account.get(3), account.get(6));
    let named = |row: &tokio_postgres::Row, at: usize| {
        format!("{} {}", row.get::<_, &str>(at), row.get::<_, &str>(at + 1))
    };
    let executor = executor.map_or_else(|| named(&account, 4), |row| named(&row, 0));
    let (symb, ex, last): (i32, i16, i64) = (security.get(0), security.get(1), security.get(2));
    let qty = order.qty as i32;
    let fees = async { db.query_one(&sql.order_fees, &[&tt, &tier, &ex, &ca, &symb, &qty]).await };
    let worth = OptionFuture::from(
        order.margin.then_some(async { db.query_one(&sql.order_worth, &[&ca]).await }),
    );
    let (fees, worth) = together::two(fees, async { worth.await.transpose() }).await?;
    let (is_sell, is_market): (bool, bool) = (fees.get(0), fees.get(1));
    let (charge, rate): (i64, i64) = (fees.get(2), fees.get(3));
    let position = fees.get::<_, Option<i64>>(4).unwrap_or_default();
    let price = if is_market { last } else { order.bid };
    let worth = worth.map_or(0, |row| row.get::<_, i64>(0));
    let closes = if is_sell { position > 0 } else { position < 0 };
    let owed = if closes && taxed(tax_status as u8).0 {
        estimated_tax(db, sql, (order, c, symb), price).await?
    } else {
        0
    };
    let commission = share(order.qty * price, rate);
    for says in [price, owed, commission, charge, worth, broker.len() as i64] {
        answer.item(says);
    }
    if order.roll_back {
        answer.unchanged = true;
        return Ok(answer);
    }
    let entry = Entry { symb, b, is_market, price, executor, charge, commission };
    enter(db, sql, order, &entry).await?;
    let at_once = is_market;
    answer.accepted.push(Accepted { t: order.t, symb: symb as u32, qty: order.qty, at_once });
    Ok(answer)
}

/// What an order that may have been committed has come to, if it was.
async fn taken(
    db: &Db<'_>,
    sql: &Statements,
    order: &TradeOrder,
) -> Result<Option<Accepted>, Error> {
    let row = db.query_opt(&sql.order_taken, &[&(order.t as i64)]).await?;
    Ok(row.map(|row| Accepted {
        t: order.t,
        symb: row.get::<_, i32>(0) as u32,
        qty: row.get(1),
        at_once: kind::is_market(row.get::<_, i16>(2) as u8),
    }))
}

/// What the trade of a customer would owe in taxes at this price.
async fn estimated_tax(
    db: &Db<'_>,
    sql: &Statements,
    (order, c, symb): (&TradeOrder, i64, i32),
    price: i64,
) -> Result<i64, Error> {
    let lots = lots(db, sql, order.ca as i64, symb).await?;
    let TradeOrder { t, lifo, qty, now, .. } = *order;
    let is_sell = kind::is_sell(order.tt);
    let settled = settle(&lots, Fill { t, is_sell, lifo, qty, price, dts: now });
    if settled.gain() == 0 {
        return Ok(0);
    }
    let rates: i64 = db.query_one(&sql.tax_rates, &[&c]).await?.get(0);
    Ok(share(settled.gain(), rates))
}

/// An order as it is entered.
struct Entry {
    symb: i32,
    b: i32,
    is_market: bool,
    price: i64,
    executor: String,
    charge: i64,
    commission: i64,
}

async fn enter(
    db: &Db<'_>,
    sql: &Statements,
    order: &TradeOrder,
    entry: &Entry,
) -> Result<(), Error> {
    let (t, ca, tt, now) = (order.t as i64, order.ca as i64, i16::from(order.tt), order.now as i64);
    let Entry { symb, b, is_market, price, executor, charge, commission } = entry;
    let state = i16::from(if *is_market { status::SUBMITTED } else { status::PENDING });
    let TradeOrder { qty, lifo, margin, .. } = order;
    let is_cash = !margin;
    let trade: [&(dyn ToSql + Sync); 13] = [
        &t, &ca, symb, &tt, qty, price, executor, lifo, &is_cash, &now, &state, charge, commission,
    ];
    let trade = async { db.execute(&sql.insert_trade, &trade).await };
    let step = async { db.execute(&sql.insert_step, &[&t, &0_i16, &now, &state]).await };
    let request = OptionFuture::from((!is_market).then_some(async {
        db.execute(&sql.insert_request, &[&t, &tt, symb, qty, price, b]).await
    }));
    together::three(trade, step, async { request.await.transpose() }).await?;
    Ok(())
}

async fn lots(db: &Db<'_>, sql: &Statements, ca: i64, symb: i32) -> Result<Vec<Lot>, Error> {
    let rows = db.query(&sql.lots, &[&ca, &symb]).await?;
    let lot = |row: &tokio_postgres::Row| Lot {
        dts: row.get::<_, i64>(0) as u64,
        t: row.get::<_, i64>(1) as u64,
        qty: row.get(2),
        price: row.get(3),
    };
    Ok(rows.iter().map(lot).collect())
}

/// A trade that is to be completed.
struct Trade {
    ca: i64,
    symb: i32,
    is_sell: bool,
    is_market: bool,
    is_cash: bool,
    position: Option<i64>,
}

pub(super) async fn trade_result(
    db: &Db<'_>,
    sql: &Statements,
    execution: Execution,
) -> Result<Answer, Error> {
    let mut answer = Answer::default();
    let t = execution.t as i64;
    let row = db.query_one(&sql.result_trade, &[&t]).await?;
    if row.get::<_, i16>(6) == i16::from(status::COMPLETED) {
        answer.unchanged = true;
        return Ok(answer);
    }
    let (ca, symb, tt): (i64, i32, i16) = (row.get(0), row.get(1), row.get(2));
    let (qty, charge, c): (i64, i64, i64) = (row.get(3), row.get(7), row.get(8));
    let (tier, ex): (i16, i16) = (row.get(12), row.get(13));
    let trade = Trade {
        ca,
        symb,
        is_sell: row.get(10),
        is_market: row.get(11),
        is_cash: row.get(5),
        position: row.get(14),
    };
    let quantity = qty as i32;
    let rate = async { db.query_one(&sql.result_rate, &[&tier, &tt, &ex, &quantity]).await };
    let (held, rate) = together::two(lots(db, sql, ca, symb), rate).await?;
    let fill = Fill {
        t: execution.t,
        is_sell: trade.is_sell,
        lifo: row.get(4),
        qty,
        price: execution.price,
        dts: execution.now,
    };
    let settled = settle(&held, fill);
    let (taxable, withheld) = taxed(row.get::<_, i16>(9) as u8);
    let tax = if taxable && settled.gain() > 0 {
        share(settled.gain(), db.query_one(&sql.tax_rates, &[&c]).await?.get(0))
    } else {
        0
    };
    let commission = share(qty * execution.price, rate.get(0));
    let amt = settlement(fill, charge, commission, if withheld { tax } else { 0 });
    let lots = settle_lots(db, sql, &trade, t, &settled);
    let books = settle_books(db, sql, &trade, fill, [commission, tax, amt]);
    together::two(lots, books).await?;
    answer.item(amt);
    answer.item(tax);
    Ok(answer)
}

/// Writes what a trade did to lots and position.
async fn settle_lots(
    db: &Db<'_>,
    sql: &Statements,
    trade: &Trade,
    t: i64,
    settled: &crate::rules::Settled,
) -> Result<(), Error> {
    let Trade { ca, symb, is_sell, position, .. } = trade;
    let split = |gone: bool| settled.changed.iter().filter(move |lot| (lot.qty == 0) == gone);
    let gone: Vec<i64> = split(true).map(|lot| lot.t as i64).collect();
    let left: (Vec<i64>, Vec<i64>) = split(false).map(|lot| (lot.t as i64, lot.qty)).unzip();
    let changed = async {
        if !gone.is_empty() {
            db.execute(&sql.delete_lots, &[ca, symb, &gone]).await?;
        }
        if !left.0.is_empty() {
            db.execute(&sql.update_lots, &[ca, symb, &left.0, &left.1]).await?;
        }
        if let Some(Lot { dts, t, qty, price }) = settled.opened {
            let (dts, t) = (dts as i64, t as i64);
            db.execute(&sql.insert_lot, &[ca, symb, &dts, &t, &qty, &price]).await?;
        }
        Ok(())
    };
    let lots: Vec<i64> = settled.history.iter().map(|(h, _, _)| *h as i64).collect();
    let was: Vec<i64> = settled.history.iter().map(|(_, was, _)| *was).collect();
    let is: Vec<i64> = settled.history.iter().map(|(_, _, is)| *is).collect();
    let moves = async { db.execute(&sql.insert_moves, &[&t, &lots, &was, &is]).await };
    let delta: i64 = settled.history.iter().map(|(_, was, is)| is - was).sum();
    debug_assert_eq!(delta < 0, *is_sell);
    let now = position.unwrap_or_default() + delta;
    let position = async {
        match (position, now) {
            (_, 0) => db.execute(&sql.delete_position, &[ca, symb]).await,
            (Some(_), now) => db.execute(&sql.update_position, &[ca, symb, &now]).await,
            (None, now) => db.execute(&sql.insert_position, &[ca, symb, &now]).await,
        }
    };
    together::three(changed, moves, position).await?;
    Ok(())
}

/// Writes what a trade did to its state, its account and the books: commission, tax, amount.
async fn settle_books(
    db: &Db<'_>,
    sql: &Statements,
    trade: &Trade,
    fill: Fill,
    [commission, tax, amt]: [i64; 3],
) -> Result<(), Error> {
    let (t, now) = (fill.t as i64, fill.dts as i64);
    let state = async {
        db.execute(&sql.complete_trade, &[&t, &now, &fill.price, &commission, &tax]).await
    };
    let seq: i16 = if trade.is_market { 1 } else { 2 };
    let completed = i16::from(status::COMPLETED);
    let step = async { db.execute(&sql.insert_step, &[&t, &seq, &now, &completed]).await };
    let cash_type = if trade.is_cash { "Cash Account" } else { "Margin" };
    let due_day = (fill.dts / DAY_MS) as i32 + 2;
    let settlement =
        async { db.execute(&sql.insert_settlement, &[&t, &cash_type, &due_day, &amt]).await };
    let name = cash_name(fill.is_sell, fill.qty, trade.symb as u32);
    let cash = async {
        if trade.is_cash {
            let paid = async { db.execute(&sql.insert_cash, &[&t, &now, &amt, &name]).await };
            let balance = async { db.execute(&sql.add_balance, &[&trade.ca, &amt]).await };
            together::two(paid, balance).await?;
        }
        Ok(())
    };
    together::two(together::three(state, step, settlement), cash).await?;
    Ok(())
}

pub(super) async fn market_feed(
    db: &Db<'_>,
    sql: &Statements,
    feed: &Feed,
) -> Result<Answer, Error> {
    let mut answer = Answer::default();
    let ticks = feed.by_security();
    let symbols: Vec<i32> = ticks.iter().map(|tick| tick.symb as i32).collect();
    let prices: Vec<i64> = ticks.iter().map(|tick| tick.price).collect();
    let quantities: Vec<i64> = ticks.iter().map(|tick| tick.qty).collect();
    let now = feed.now as i64;
    let told = async { db.query(&sql.feed_prices, &[&symbols, &prices, &quantities, &now]).await };
    let triggered = async { db.query(&sql.feed_triggered, &[&symbols, &prices]).await };
    let (told, triggered) = together::two(told, triggered).await?;
    told.iter().for_each(|row| answer.item(row.get(0)));
    if triggered.is_empty() {
        return Ok(answer);
    }
    let trades: Vec<i64> = triggered.iter().map(|row| row.get(0)).collect();
    let submit = async { db.execute(&sql.feed_submit, &[&trades, &now]).await };
    let steps = async { db.execute(&sql.feed_steps, &[&trades, &now]).await };
    together::two(submit, steps).await?;
    let mut accepted: Vec<Accepted> = triggered
        .iter()
        .map(|row| Accepted {
            t: row.get::<_, i64>(0) as u64,
            symb: row.get::<_, i32>(1) as u32,
            qty: row.get(2),
            at_once: true,
        })
        .collect();
    // By security, type and price is how they come elsewhere; only that they are the same matters.
    accepted.sort_by_key(|order| order.t);
    answer.accepted = accepted;
    Ok(answer)
}
