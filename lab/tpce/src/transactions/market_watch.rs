//! Implements Market-Watch: the gain of a list of securities since a day.

use percolator::Result;

use crate::model::*;
use crate::request::{Answer, Watch, Watched};

use super::session::{Session, all};
use super::trade_order::positions;

/// Number of companies of an industry that are read.
const COMPANIES: usize = 20;

pub(super) async fn run(session: &mut Session, watch: &Watch) -> Result<Answer> {
    let mut answer = Answer::default();
    let symbols = match &watch.what {
        Watched::List { c } => {
            let list: WatchList = session.record(keys::watch_list(*c)).await?;
            let prefix = keys::watch_items(list.wl);
            let items: Vec<WatchItem> = session.records(prefix, usize::MAX).await?;
            items.into_iter().map(|item| item.symb).collect()
        }
        Watched::Account { ca } => {
            let held = positions(session, *ca, usize::MAX).await?;
            held.into_iter().map(|(symb, _)| symb).collect()
        }
        Watched::Industry { name } => industry(session, name).await?,
    };
    let rows = symbols.iter().map(|symb| keys::last_trade(*symb));
    let prices: Vec<Price> = session.need_many(rows, &PRICE).await?;
    let days = symbols.iter().map(|symb| keys::daily_market(*symb, watch.day));
    let rows = symbols.iter().map(|symb| keys::security(*symb)).chain(days);
    let packed = session.packed(rows).await?;
    let (securities, days) = packed.split_at(symbols.len());
    let (securities, days) = (all::<Security>(securities)?, all::<DailyMarket>(days)?);
    let (mut now, mut then) = (0, 0);
    for ((last, security), day) in prices.iter().zip(&securities).zip(&days) {
        now += security.num_out / 1000 * last.price;
        then += security.num_out / 1000 * day.close;
    }
    answer.item(now);
    answer.item(then);
    Ok(answer)
}

/// Reads the securities of the companies of an industry.
async fn industry(session: &mut Session, name: &str) -> Result<Vec<u32>> {
    let row = Key::of(index::INDUSTRY_BY_NAME).text(name).row();
    let ind: u32 = session.record(row).await?;
    let prefix = Key::of(index::COMPANY_BY_INDUSTRY).short(ind);
    let mut symbols = Vec::new();
    for co in session.index(prefix, COMPANIES, |mut rest| rest.short()).await? {
        let prefix = Key::of(index::SECURITY_BY_COMPANY).short(co);
        let security = |mut rest: Parts<'_>| rest.byte().and(rest.short());
        symbols.extend(session.index(prefix, usize::MAX, security).await?);
    }
    Ok(symbols)
}
