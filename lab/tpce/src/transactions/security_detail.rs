//! Implements Security-Detail: everything about a security and its company.

use percolator::{Result, RowRange};

use crate::model::*;
use crate::request::Answer;

use super::session::{Session, all};

/// Most rows that are read of each kind.
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
    let rows = [keys::company(security.co), keys::exchange(security.ex)];
    let packed = session.packed(rows).await?;
    let company: Company = decode(&packed[0])?;
    let exchange: Exchange = decode(&packed[1])?;
    let rows = [keys::address(company.ad), keys::address(exchange.ad)];
    let addresses: Vec<Address> = session.need_many(rows, &D).await?;
    let (last, volume): (Price, i64) = session.pair(keys::last_trade(symb), &[PRICE, VOL]).await?;

    let co = security.co;
    let competitors: Vec<Competitor> = session.records(keys::competitors(co), COMPETITORS).await?;
    let quarters: Vec<Financial> = session.records(keys::financials(co), QUARTERS).await?;
    let range = RowRange::between(
        keys::daily_market(symb, from_day),
        keys::daily_market(symb, from_day + days),
    );
    let prices: Vec<DailyMarket> = session.records_in(range, usize::MAX).await?;
    let xrefs: Vec<NewsXref> = session.records(keys::news_xrefs(co), NEWS).await?;
    // The rows named by the rows above.
    let zip_codes = addresses.iter().map(|address| keys::zip_code(address.zc));
    let companies = competitors.iter().map(|other| keys::company(other.comp));
    let industries = competitors.iter().map(|other| keys::industry(other.ind));
    let news = xrefs.iter().map(|xref| keys::news_item(xref.ni));
    let rows = zip_codes.chain(companies).chain(industries).chain(news);
    let packed = session.packed(rows).await?;
    let (zip_codes, packed) = packed.split_at(addresses.len());
    let (companies, packed) = packed.split_at(competitors.len());
    let (industries, news) = packed.split_at(competitors.len());
    let (zip_codes, companies) = (all::<ZipCode>(zip_codes)?, all::<Company>(companies)?);
    let (industries, news) = (all::<Industry>(industries)?, all::<NewsItem>(news)?);

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
