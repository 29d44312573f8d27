//! Implements Data-Maintenance: once a minute, a change to one of twelve tables that nothing
//! else changes.

use percolator::{Result, RowKey};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::*;
use crate::request::{Answer, Maintained, Maintenance};

use super::session::Session;

pub(super) async fn run(session: &mut Session, change: &Maintenance) -> Result<Answer> {
    let Maintenance { c, ca, co, symb, day, tx, ex, ni, .. } = *change;
    match change.table {
        Maintained::AccountPermission => {
            let held = session.records::<AccountPermission>(keys::permissions(ca), 1).await?;
            for mut permission in held {
                permission.acl = if permission.acl == "0000" { "0011" } else { "0000" }.to_owned();
                session.insert(&permission)?;
            }
        }
        Maintained::Address => {
            let customer: Customer = session.record(keys::customer(c)).await?;
            edit(session, keys::address(customer.ad), |it: &mut Address| toggle(&mut it.line2))
                .await?;
        }
        Maintained::Company => {
            edit(session, keys::company(co), |it: &mut Company| toggle(&mut it.rating)).await?;
        }
        Maintained::Customer => {
            edit(session, keys::customer(c), |it: &mut Customer| toggle(&mut it.email)).await?;
        }
        Maintained::CustomerTaxrate => {
            let prefix = keys::customer_taxrates(c);
            if let Some(old) = session.records::<CustomerTaxrate>(prefix, 1).await?.pop() {
                session.remove(&old)?;
                // The rate of the next country; after the last one, that of the first.
                session.insert(&CustomerTaxrate { tx: old.tx % 160 + 1, ..old })?;
            }
        }
        Maintained::DailyMarket => {
            let row = keys::daily_market(symb, day);
            edit(session, row, |it: &mut DailyMarket| it.vol += 1).await?;
        }
        Maintained::Exchange => {
            edit(session, keys::exchange(ex), |it: &mut Exchange| it.closes ^= 1).await?;
        }
        Maintained::Financial => {
            let row = keys::financial(co, 2000, 1);
            edit(session, row, |it: &mut Financial| it.start_day ^= 1).await?;
        }
        Maintained::NewsItem => {
            edit(session, keys::news_item(ni), |it: &mut NewsItem| it.dts += 1).await?;
        }
        Maintained::Security => {
            edit(session, keys::security(symb), |it: &mut Security| it.start_day ^= 1).await?;
        }
        Maintained::TaxRate => {
            edit(session, keys::tax_rate(tx), |it: &mut TaxRate| toggle(&mut it.name)).await?;
        }
        Maintained::WatchItem => {
            let prefix = keys::watch_items(c);
            let items: Vec<WatchItem> = session.records(prefix, usize::MAX).await?;
            let watched = |symb: u32| items.iter().any(|item| item.symb == symb);
            if let (Some(old), false) = (items.first(), watched(symb)) {
                session.remove(old)?;
                session.insert(&WatchItem { symb, ..*old })?;
            }
        }
    }
    Ok(Answer::default())
}

async fn edit<T: Serialize + DeserializeOwned>(
    session: &mut Session,
    row: RowKey,
    change: impl FnOnce(&mut T),
) -> Result<()> {
    let mut record: T = session.record(row.clone()).await?;
    change(&mut record);
    session.set(row, &D, &record)
}

fn toggle(text: &mut String) {
    match text.strip_suffix('*') {
        Some(unmarked) => *text = unmarked.to_owned(),
        None => text.push('*'),
    }
}
