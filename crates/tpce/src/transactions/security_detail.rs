//! Security-Detail: everything about a security and its company.

use percolator::{Result, RowRange};

use crate::model::*;
use crate::request::Answer;

use super::session::Session;

/// Of each at most so many.
const COMPETITORS: usize = 3;
const QUARTERS: usize = 20;
const NEWS: usize = 2;

pub(super) async fn run(
    session: &mut Session,
    symb: u32,
    from_day: u32,
    days: u32,
) -> Result<Answer> {
    let mut answer = Answer::default();
    let security: Security = session.record(keys::security(symb)).await?;
    let company: Company = session.record(keys::company(security.co)).await?;
    let exchange: Exchange = session.record(keys::exchange(security.ex)).await?;
    let rows = [keys::address(company.ad), keys::address(exchange.ad)];
    let addresses: Vec<Address> = session.need_many(&rows, &D).await?;
    let rows: Vec<_> = addresses.iter().map(|address| keys::zip_code(address.zc)).collect();
    let zip_codes: Vec<ZipCode> = session.need_many(&rows, &D).await?;
    let (last, volume): (Price, i64) = session.pair(keys::last_trade(symb), &[PRICE, VOL]).await?;

    let co = security.co;
    let competitors: Vec<Competitor> = session.records(keys::competitors(co), COMPETITORS).await?;
    let rows: Vec<_> = competitors.iter().map(|other| keys::company(other.comp)).collect();
    let companies: Vec<Company> = session.need_many(&rows, &D).await?;
    let rows: Vec<_> = competitors.iter().map(|other| keys::industry(other.ind)).collect();
    let industries: Vec<Industry> = session.need_many(&rows, &D).await?;
    let quarters: Vec<Financial> = session.records(keys::financials(co), QUARTERS).await?;
    let range = RowRange::between(
        keys::daily_market(symb, from_day),
        keys::daily_market(symb, from_day + days),
    );
    let prices: Vec<DailyMarket> = session.records_in(range).await?;
    let xrefs: Vec<NewsXref> = session.records(keys::news_xrefs(co), NEWS).await?;
    let rows: Vec<_> = xrefs.iter().map(|xref| keys::news_item(xref.ni)).collect();
    let news: Vec<NewsItem> = session.need_many(&rows, &D).await?;

    for (address, zip_code) in addresses.iter().zip(&zip_codes) {
        answer.item((address.line1.len() + zip_code.town.len()) as i64);
    }
    for (company, industry) in companies.iter().zip(&industries) {
        answer.item((company.name.len() + industry.name.len()) as i64);
    }
    quarters.iter().for_each(|quarter| answer.item(quarter.revenue));
    prices.iter().for_each(|day| answer.item(day.close));
    news.iter().for_each(|item| answer.item(item.item.len() as i64));
    answer.item(last.price + volume + security.num_out + company.description.len() as i64);
    Ok(answer)
}
