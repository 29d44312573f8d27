//! Implements Broker-Volume: the value of the pending orders of some brokers in a sector.
//!
//! A pending order contains its sector, and its index begins with broker and sector. That keeps
//! scans short: hundreds of orders come and go each second, and a scan passes deleted ones
//! until they are collected.

use std::collections::BTreeMap;

use percolator::Result;

use crate::model::*;
use crate::request::Answer;

use super::session::Session;

pub(super) async fn run(session: &mut Session, brokers: &[String], sector: &str) -> Result<Answer> {
    let mut answer = Answer::default();
    let sc: u8 = session.record(Key::of(index::SECTOR_BY_NAME).text(sector).row()).await?;
    let by_name = |name: &String| Key::of(index::BROKER_BY_NAME).text(name).row();
    let brokers: Vec<u32> = session.need_many(brokers.iter().map(by_name), &D).await?;
    let mut trades = Vec::new();
    for b in brokers {
        let prefix = Key::of(index::REQUEST_BY_BROKER).short(b).byte(sc);
        trades.extend(session.index(prefix, usize::MAX, |mut rest| rest.long()).await?);
    }
    let rows = trades.into_iter().map(keys::request);
    let requests: Vec<TradeRequest> = session.need_many(rows, &D).await?;
    // A broker without such orders is left out of the answer.
    let mut volumes = BTreeMap::<u32, i64>::new();
    for request in requests {
        *volumes.entry(request.b).or_default() += request.qty * request.bid;
    }
    volumes.into_values().filter(|volume| *volume > 0).for_each(|volume| answer.item(volume));
    Ok(answer)
}
