//! Broker-Volume: what the pending orders of some brokers in a sector are worth.

use std::collections::BTreeMap;

use percolator::Result;

use crate::model::*;
use crate::request::Answer;

use super::session::{Session, part};

pub(super) async fn run(session: &mut Session, brokers: &[String], sector: &str) -> Result<Answer> {
    let mut answer = Answer::default();
    let sc: u8 = session.record(Key::of(index::SECTOR_BY_NAME).text(sector).row()).await?;
    let by_name = |name: &String| Key::of(index::BROKER_BY_NAME).text(name).row();
    let rows: Vec<_> = brokers.iter().map(by_name).collect();
    let brokers: Vec<u32> = session.need_many(&rows, &D).await?;
    // Which sector a security belongs to, once for each.
    let mut sectors = BTreeMap::<u32, u8>::new();
    for b in brokers {
        let prefix = Key::of(index::REQUEST_BY_BROKER).short(b).row();
        let mut rows = Vec::new();
        for found in session.rows(prefix, &[D], usize::MAX).await? {
            let mut parts = part(Parts::of(&found.row, index::REQUEST_BY_BROKER), &found.row)?;
            rows.push(keys::request(part(parts.short().and(parts.long()), &found.row)?));
        }
        let requests: Vec<TradeRequest> = session.need_many(&rows, &D).await?;
        let mut volume = 0;
        for request in &requests {
            let of = match sectors.get(&request.symb) {
                Some(of) => *of,
                None => {
                    let of = sector_of(session, request.symb).await?;
                    sectors.insert(request.symb, of);
                    of
                }
            };
            volume += if of == sc { request.qty * request.bid } else { 0 };
        }
        // A broker without such orders is not in the answer.
        if volume > 0 {
            answer.item(volume);
        }
    }
    Ok(answer)
}

async fn sector_of(session: &mut Session, symb: u32) -> Result<u8> {
    let security: Security = session.record(keys::security(symb)).await?;
    let company: Company = session.record(keys::company(security.co)).await?;
    let industry: Industry = session.record(keys::industry(company.ind)).await?;
    Ok(industry.sc)
}
