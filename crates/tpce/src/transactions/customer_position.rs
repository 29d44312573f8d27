//! Customer-Position: what a customer's accounts are worth, and the last trades of one of them.

use percolator::Result;

use crate::model::*;
use crate::request::{Answer, Position, Who};

use super::session::{Session, part};
use super::trade_order::positions;
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
    let prefix = Key::of(index::ACCOUNT_BY_CUSTOMER).long(c).row();
    let mut accounts = Vec::new();
    for found in session.rows(prefix, &[D], ACCOUNTS).await? {
        let mut parts = part(Parts::of(&found.row, index::ACCOUNT_BY_CUSTOMER), &found.row)?;
        accounts.push(part(parts.long().and(parts.long()), &found.row)?);
    }
    let rows: Vec<_> = accounts.iter().map(|ca| keys::account(*ca)).collect();
    let balances: Vec<i64> = session.need_many(&rows, &BAL).await?;
    for (ca, balance) in accounts.iter().zip(balances) {
        let held = positions(session, *ca, usize::MAX).await?;
        let rows: Vec<_> = held.iter().map(|(symb, _)| keys::last_trade(*symb)).collect();
        let prices: Vec<Price> = session.need_many(&rows, &PRICE).await?;
        let assets: i64 = held.iter().zip(prices).map(|((_, qty), last)| qty * last.price).sum();
        answer.item(balance + assets);
    }
    // The first account's history: which one does not matter to the cost.
    if let (true, Some(ca)) = (position.history, accounts.first()) {
        for t in newest(session, *ca, TRADES).await? {
            let prefix = keys::trade_histories(t);
            let steps: Vec<TradeHistory> = session.records(prefix, usize::MAX).await?;
            answer.item(steps.iter().map(|step| i64::from(step.status) + step.dts as i64).sum());
        }
    }
    Ok(answer)
}
