//! Implements Customer-Position: the value of a customer's accounts, and the last trades of
//! one.

use std::collections::{BTreeMap, BTreeSet};

use percolator::{Result, RowRange};

use crate::model::*;
use crate::request::{Answer, Position, Who};

use super::session::Session;
use super::trade_lookup::{STEPS_MAX, steps_of};
use super::trade_order::held;
use super::trade_status::newest;

const ACCOUNTS: usize = 10;
const TRADES: usize = 10;

pub(super) async fn run(session: &mut Session, position: &Position) -> Result<Answer> {
    let mut answer = Answer::default();
    let c = match &position.who {
        Who::Number(c) => *c,
        Who::TaxId(tax_id) => {
            session.record(Key::of(index::CUSTOMER_BY_TAX_ID).text(tax_id).row()).await?
        }
    };
    let (customer, tier): (Customer, u8) = session.pair(keys::customer(c), &[D, TIER]).await?;
    answer.item(i64::from(tier) + customer.last_name.len() as i64);
    let prefix = Key::of(index::ACCOUNT_BY_CUSTOMER).long(c);
    let accounts: Vec<u64> = session.index(prefix, ACCOUNTS, |mut rest| rest.long()).await?;
    let rows = accounts.iter().map(|ca| keys::account(*ca));
    let balances: Vec<i64> = session.need_many(rows, &BAL).await?;
    // A customer's accounts are adjacent, and so are their positions.
    if let (Some(first), Some(last)) = (accounts.first(), accounts.last()) {
        let range = RowRange::between(keys::positions(*first), keys::positions(*last + 1));
        let held = held(session, range, usize::MAX).await?;
        let symbols: BTreeSet<u32> = held.iter().map(|(_, symb, _)| *symb).collect();
        let rows = symbols.iter().map(|symb| keys::last_trade(*symb));
        let prices: Vec<Price> = session.need_many(rows, &PRICE).await?;
        let prices: BTreeMap<u32, Price> = symbols.into_iter().zip(prices).collect();
        for (ca, balance) in accounts.iter().zip(balances) {
            let of = held.iter().filter(|(holder, ..)| holder == ca);
            let assets: i64 = of.map(|(_, symb, qty)| qty * prices[symb].price).sum();
            answer.item(balance + assets);
        }
    }
    // The history of the first account; the choice does not change the cost.
    if let (true, Some(ca)) = (position.history, accounts.first()) {
        let trades = newest(session, *ca, TRADES).await?;
        let rows = trades.into_iter().flat_map(steps_of);
        let steps: Vec<Option<TradeHistory>> = session.many(rows, &D).await?;
        for steps in steps.chunks(STEPS_MAX.into()) {
            let steps = steps.iter().flatten();
            answer.item(steps.map(|step| i64::from(step.status) + step.dts as i64).sum());
        }
    }
    Ok(answer)
}
