//! Implements Market-Watch: the gain of a list of securities since a day.

use percolator::Result;

use crate::model::*;
use crate::request::{Answer, Watch, Watched};

use super::session::{Session, all, part};
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
    let rows: Vec<_> = symbols.iter().map(|symb| keys::last_trade(*symb)).collect();
    let prices: Vec<Price> = session.need_many(&rows, &PRICE).await?;
    let days = symbols.iter().map(|symb| keys::daily_market(*symb, watch.day));
    let rows: Vec<_> = symbols.iter().map(|symb| keys::security(*symb)).chain(days).collect();
    let packed = session.packed(&rows).await?;
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
    let prefix = Key::of(index::COMPANY_BY_INDUSTRY).short(ind).row();
    let mut symbols = Vec::new();
    for found in session.rows(prefix, &[D], COMPANIES).await? {
        let mut parts = part(Parts::of(&found.row, index::COMPANY_BY_INDUSTRY), &found.row)?;
        let co = part(parts.short().and(parts.short()), &found.row)?;
        symbols.extend(issues(session, co).await?);
    }
    Ok(symbols)
}

/// Reads the securities of a company.
async fn issues(session: &mut Session, co: u32) -> Result<Vec<u32>> {
    let prefix = Key::of(index::SECURITY_BY_COMPANY).short(co).row();
    let rows = session.rows(prefix, &[D], usize::MAX).await?;
    let number = |row: &percolator::ScannedRow| {
        let mut parts = part(Parts::of(&row.row, index::SECURITY_BY_COMPANY), &row.row)?;
        part(parts.short().and(parts.byte()).and(parts.short()), &row.row)
    };
    rows.iter().map(number).collect()
}
