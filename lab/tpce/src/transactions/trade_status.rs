//! Implements Trade-Status: the fifty newest trades of an account.

use std::collections::BTreeSet;

use percolator::Result;

use crate::model::*;
use crate::request::Answer;

use super::session::{Session, all};

const TRADES: usize = 50;

pub(super) async fn run(session: &mut Session, ca: u64) -> Result<Answer> {
    let mut answer = Answer::default();
    let trades = newest(session, ca, TRADES).await?;
    let rows = trades.into_iter().map(keys::trade);
    let trades: Vec<(Trade, TradeState)> = session.pairs(rows, &[D, STATE]).await?;
    let symbols: BTreeSet<u32> = trades.iter().map(|(trade, _)| trade.symb).collect();
    let rows = [keys::account(ca)].into_iter();
    let rows = rows.chain((0..5).map(keys::trade_type)).chain((0..5).map(keys::status_type));
    let rows = rows.chain(symbols.into_iter().map(keys::security));
    let packed = session.packed(rows).await?;
    let account: CustomerAccount = decode(&packed[0])?;
    let types: Vec<TradeType> = all(&packed[1..6])?;
    let states: Vec<StatusType> = all(&packed[6..11])?;
    let securities: Vec<Security> = all(&packed[11..])?;
    let exchanges: BTreeSet<u8> = securities.iter().map(|security| security.ex).collect();
    let rows = [keys::customer(account.c)].into_iter();
    let rows = rows.chain(exchanges.into_iter().map(keys::exchange));
    let packed = session.packed(rows).await?;
    let customer: Customer = decode(&packed[0])?;
    let exchanges: Vec<Exchange> = all(&packed[1..])?;
    let broker: String = session.need(keys::broker(account.b), &NAME).await?;
    for (trade, state) in &trades {
        let names =
            types[usize::from(trade.tt)].name.len() + states[usize::from(state.status)].name.len();
        answer.item(trade.qty + state.charge + names as i64);
    }
    answer.item(exchanges.iter().map(|exchange| exchange.name.len() as i64).sum());
    answer.item((customer.last_name.len() + broker.len()) as i64);
    Ok(answer)
}

pub(super) async fn newest(session: &mut Session, ca: u64, limit: usize) -> Result<Vec<u64>> {
    let prefix = Key::of(index::TRADE_BY_ACCOUNT).long(ca);
    session.index(prefix, limit, |mut rest| rest.newest_first()).await
}
