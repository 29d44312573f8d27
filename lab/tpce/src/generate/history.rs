//! Generates the trades before the run, and their results: positions, lots, balances.
//!
//! Trades follow in order of time, by the same rules as in the run. So every check that must
//! hold after the run also holds before it. Each account first buys of its own securities.
//! Everything else is drawn as the emulator draws it.

use std::collections::BTreeMap;

use crate::Scale;
use crate::model::*;
use crate::rules::{Fill, Lot, settle, settlement, share, taxed};
use crate::scale::TRADE_EVERY_MS;

use super::customers;
use super::stream::{Purpose, Stream};

/// Time from the entry of a trade until it is submitted, and until it is completed.
const SUBMITTED_AFTER_MS: u64 = 100;
const COMPLETED_AFTER_MS: u64 = 200;

/// Generates the trades. It iterates over the rows of each trade, and then over the final rows.
#[derive(Debug)]
pub(super) struct History {
    scale: Scale,
    stream: Stream,
    /// The accounts and securities of the trades to make, the last first.
    plan: Vec<(u64, u32)>,
    made: u64,
    lots: BTreeMap<(u64, u32), Vec<Lot>>,
    accounts: BTreeMap<u64, CustomerAccount>,
}

impl History {
    pub(super) fn new(scale: Scale) -> Self {
        let mut stream = Stream::new(scale.seed, Purpose::History, 0);
        let accounts: BTreeMap<u64, CustomerAccount> = (1..=scale.customers)
            .flat_map(|c| scale.accounts(c))
            .map(|ca| (ca, account(scale, ca, &mut stream)))
            .collect();
        let mut plan: Vec<(u64, u32)> = accounts
            .keys()
            .flat_map(|ca| scale.securities_of(*ca).into_iter().map(|symb| (*ca, symb)))
            .collect();
        let opening = plan.clone();
        stream.shuffle(&mut plan);
        let trades = scale.trades() as usize;
        plan.truncate(trades * 4 / 5);
        while plan.len() < trades {
            plan.push(*stream.pick(&opening));
        }
        stream.shuffle(&mut plan);
        History { scale, stream, plan, made: 0, lots: BTreeMap::new(), accounts }
    }

    fn trade(&mut self, ca: u64, symb: u32) -> Vec<Row> {
        self.made += 1;
        let (scale, t) = (self.scale, self.made);
        let entered = (t - 1) * TRADE_EVERY_MS / scale.customers;
        let lots = self.lots.entry((ca, symb)).or_default();
        let stream = &mut self.stream;
        let is_sell = !lots.is_empty() && stream.percent(50);
        let tt = match (is_sell, stream.below(10)) {
            (false, 0..6) => kind::MARKET_BUY,
            (false, _) => kind::LIMIT_BUY,
            (true, 0..6) => kind::MARKET_SELL,
            (true, 6 | 7) => kind::LIMIT_SELL,
            (true, _) => kind::STOP_LOSS,
        };
        let dts = entered + COMPLETED_AFTER_MS;
        let price = scale.price(symb, dts);
        let qty = *stream.pick(&[100, 200, 400, 800]);
        let (lifo, is_cash) = (stream.percent(35), stream.percent(92));
        let fill = Fill { t, is_sell, lifo, qty, price, dts };
        let settled = settle(lots, fill);
        apply(lots, &settled.changed, settled.opened);
        let Some(account) = self.accounts.get_mut(&ca) else { return Vec::new() };
        let (taxable, withheld) = taxed(account.tax_status);
        let rates: i64 = Scale::tax_rates_of(account.c).into_iter().map(Scale::tax_rate).sum();
        let tax = if taxable { share(settled.gain(), rates) } else { 0 };
        let tier = Scale::tier(account.c);
        let charge = Scale::charge(tt, tier);
        let (from, _) = Scale::QUANTITIES
            .into_iter()
            .find(|(_, to)| qty <= i64::from(*to))
            .unwrap_or(Scale::QUANTITIES[3]);
        let rate = Scale::commission_rate(tier, tt, Scale::exchange_of(symb), from);
        let commission = share(qty * price, rate);
        let amt = settlement(fill, charge, commission, if withheld { tax } else { 0 });
        let (first, last) = customers::name(account.c);
        let executor = format!("{first} {last}");
        let trade = Trade { t, ca, symb, tt, qty, bid: price, executor, lifo, is_cash, entered };
        let state = TradeState { status: status::COMPLETED, dts, price, charge, commission, tax };
        let mut rows = steps(&trade, dts);
        rows.push(Row::Trade(trade, state));
        rows.extend(settled.history.iter().map(|(h, before, after)| {
            Row::HoldingHistory(HoldingHistory { t, h: *h, before: *before, after: *after })
        }));
        let cash_type = if is_cash { "Cash Account" } else { "Margin" }.to_owned();
        rows.push(Row::Settlement(Settlement { t, cash_type, due_day: scale.day(dts) + 2, amt }));
        if is_cash {
            account.bal += amt;
            let name = cash_name(is_sell, qty, symb);
            rows.push(Row::CashTransaction(CashTransaction { t, dts, amt, name }));
        }
        rows
    }
}

pub(crate) fn cash_name(is_sell: bool, qty: i64, symb: u32) -> String {
    format!("{} {qty} shares of {symb}", if is_sell { "Sell" } else { "Buy" })
}

fn account(scale: Scale, ca: u64, stream: &mut Stream) -> CustomerAccount {
    let c = Scale::owner(ca);
    let opening = stream.amount(100_000, 10_000_000);
    let (b, tax_status) = (scale.broker_of(c), scale.tax_status(ca));
    CustomerAccount { ca, b, c, name: format!("Account {ca}"), tax_status, opening, bal: opening }
}

/// The history of a completed trade's states.
fn steps(trade: &Trade, completed: u64) -> Vec<Row> {
    let mut states = vec![
        (trade.entered, status::PENDING),
        (trade.entered + SUBMITTED_AFTER_MS, status::SUBMITTED),
        (completed, status::COMPLETED),
    ];
    if kind::is_market(trade.tt) {
        states.remove(0);
    }
    let step = |(seq, (dts, status)): (usize, (u64, u8))| {
        Row::TradeHistory(TradeHistory { t: trade.t, seq: seq as u8, dts, status })
    };
    states.into_iter().enumerate().map(step).collect()
}

/// Changes lots by the rules, and keeps them in order of time.
fn apply(lots: &mut Vec<Lot>, changed: &[Lot], opened: Option<Lot>) {
    for now in changed {
        lots.retain_mut(|lot| {
            if lot.t == now.t {
                lot.qty = now.qty;
            }
            lot.qty != 0
        });
    }
    lots.extend(opened);
}

impl Iterator for History {
    type Item = Vec<Row>;

    fn next(&mut self) -> Option<Vec<Row>> {
        if let Some((ca, symb)) = self.plan.pop() {
            return Some(self.trade(ca, symb));
        }
        if let Some((_, account)) = self.accounts.pop_first() {
            return Some(vec![Row::CustomerAccount(account)]);
        }
        let ((ca, symb), lots) = self.lots.pop_first()?;
        let qty = lots.iter().map(|lot| lot.qty).sum();
        let mut rows: Vec<Row> = lots
            .into_iter()
            .map(|Lot { dts, t, qty, price }| {
                Row::Holding(Holding { ca, symb, dts, t, qty, price })
            })
            .collect();
        if qty != 0 {
            rows.push(Row::HoldingSummary(HoldingSummary { ca, symb, qty }));
        }
        Some(rows)
    }
}
