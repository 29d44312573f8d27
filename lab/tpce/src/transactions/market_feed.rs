//! Implements Market-Feed: the market announces twenty prices, and submits the limit orders
//! that they trigger.

use percolator::Result;

use crate::model::*;
use crate::request::{Accepted, Answer, Feed};

use super::session::Session;

pub(super) async fn run(session: &mut Session, feed: &Feed) -> Result<Answer> {
    let mut answer = Answer::default();
    let ticks = feed.by_security();
    let rows: Vec<_> = ticks.iter().map(|tick| keys::last_trade(tick.symb)).collect();
    let lasts: Vec<(Price, i64)> = session.pairs(rows.clone(), &[PRICE, VOL]).await?;
    let mut triggered = Vec::new();
    for ((tick, row), (last, volume)) in ticks.iter().zip(rows).zip(lasts) {
        session.set(row.clone(), &PRICE, &Price { price: tick.price, dts: feed.now, ..last })?;
        session.set(row, &VOL, &(volume + tick.qty))?;
        answer.item(volume);
        let prefix = Key::of(index::REQUEST_BY_SECURITY).short(tick.symb);
        let order = |mut rest: Parts<'_>| Some((rest.byte()?, rest.long()?, rest.long()?));
        for (tt, limit, t) in session.index(prefix, usize::MAX, order).await? {
            if kind::is_triggered(tt, limit as i64, tick.price) {
                triggered.push(t);
            }
        }
    }
    let rows = triggered.iter().map(|t| keys::request(*t));
    let requests: Vec<TradeRequest> = session.need_many(rows, &D).await?;
    let rows = triggered.into_iter().map(keys::trade);
    let states: Vec<TradeState> = session.need_many(rows, &STATE).await?;
    for (request, mut state) in requests.into_iter().zip(states) {
        let TradeRequest { t, symb, qty, .. } = request;
        (state.status, state.dts) = (status::SUBMITTED, feed.now);
        session.set(keys::trade(t), &STATE, &state)?;
        let status = status::SUBMITTED;
        session.insert(&TradeHistory { t, seq: 1, dts: feed.now, status })?;
        session.remove(&request)?;
        answer.accepted.push(Accepted { t, symb, qty, at_once: true });
    }
    Ok(answer)
}
