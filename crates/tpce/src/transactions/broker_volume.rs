//! Broker-Volume: what the pending orders of some brokers in a sector are worth.

use std::collections::{BTreeMap, BTreeSet};

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
    let mut rows = Vec::new();
    for b in brokers {
        let prefix = Key::of(index::REQUEST_BY_BROKER).short(b).row();
        for found in session.rows(prefix, &[D], usize::MAX).await? {
            let mut parts = part(Parts::of(&found.row, index::REQUEST_BY_BROKER), &found.row)?;
            rows.push(keys::request(part(parts.short().and(parts.long()), &found.row)?));
        }
    }
    let requests: Vec<TradeRequest> = session.need_many(&rows, &D).await?;
    let sectors = sectors(session, &requests).await?;
    // A broker without such orders is not in the answer.
    let mut volumes = BTreeMap::<u32, i64>::new();
    for request in requests.iter().filter(|request| sectors[&request.symb] == sc) {
        *volumes.entry(request.b).or_default() += request.qty * request.bid;
    }
    volumes.into_values().filter(|volume| *volume > 0).for_each(|volume| answer.item(volume));
    Ok(answer)
}

/// Which sector each security belongs to.
async fn sectors(session: &mut Session, of: &[TradeRequest]) -> Result<BTreeMap<u32, u8>> {
    let symbols: BTreeSet<u32> = of.iter().map(|request| request.symb).collect();
    let rows: Vec<_> = symbols.iter().map(|symb| keys::security(*symb)).collect();
    let securities: Vec<Security> = session.need_many(&rows, &D).await?;
    let rows: Vec<_> = securities.iter().map(|security| keys::company(security.co)).collect();
    let companies: Vec<Company> = session.need_many(&rows, &D).await?;
    let rows: Vec<_> = companies.iter().map(|company| keys::industry(company.ind)).collect();
    let industries: Vec<Industry> = session.need_many(&rows, &D).await?;
    Ok(symbols.into_iter().zip(industries.into_iter().map(|industry| industry.sc)).collect())
}
