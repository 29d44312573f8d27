//! What only reads: Trade-Status, Market-Watch, Security-Detail, Customer-Position, Broker-Volume.

use std::collections::BTreeMap;

use tokio_postgres::{Error, Transaction};

use crate::request::{Answer, Position, Watch, Watched, Who};

use super::statements::Statements;
use super::together;

pub(super) async fn trade_status(
    db: &Transaction<'_>,
    sql: &Statements,
    ca: u64,
) -> Result<Answer, Error> {
    let mut answer = Answer::default();
    let ca = ca as i64;
    let trades = async { db.query(&sql.status_trades, &[&ca]).await };
    let names = async { db.query_one(&sql.status_names, &[&ca]).await };
    let (trades, names) = together::two(trades, names).await?;
    let mut exchanges = BTreeMap::<i16, i64>::new();
    for row in &trades {
        answer.item(row.get(0));
        exchanges.insert(row.get(1), row.get::<_, &str>(2).len() as i64);
    }
    answer.item(exchanges.into_values().sum());
    answer.item(i64::from(names.get::<_, i32>(0)));
    Ok(answer)
}

pub(super) async fn market_watch(
    db: &Transaction<'_>,
    sql: &Statements,
    watch: &Watch,
) -> Result<Answer, Error> {
    let mut answer = Answer::default();
    let day = watch.day as i32;
    let row = match &watch.what {
        Watched::List { c } => db.query_one(&sql.watch_list, &[&(*c as i64), &day]).await?,
        Watched::Account { ca } => db.query_one(&sql.watch_account, &[&(*ca as i64), &day]).await?,
        Watched::Industry { name } => db.query_one(&sql.watch_industry, &[name, &day]).await?,
    };
    answer.item(row.get(0));
    answer.item(row.get(1));
    Ok(answer)
}

pub(super) async fn security_detail(
    db: &Transaction<'_>,
    sql: &Statements,
    symb: u32,
    from_day: u32,
    days: u32,
) -> Result<Answer, Error> {
    let mut answer = Answer::default();
    let symb = symb as i32;
    let (from, until) = (from_day as i32, (from_day + days) as i32);
    let security = async { db.query_one(&sql.detail_security, &[&symb]).await };
    let competitors = async { db.query(&sql.detail_competitors, &[&symb]).await };
    let quarters = async { db.query(&sql.detail_quarters, &[&symb]).await };
    let prices = async { db.query(&sql.detail_days, &[&symb, &from, &until]).await };
    let news = async { db.query(&sql.detail_news, &[&symb]).await };
    let (security, competitors, quarters, prices, news) =
        together::five(security, competitors, quarters, prices, news).await?;
    answer.item(i64::from(security.get::<_, i32>(1)));
    answer.item(i64::from(security.get::<_, i32>(2)));
    for row in &competitors {
        answer.item((row.get::<_, &str>(0).len() + row.get::<_, &str>(1).len()) as i64);
    }
    quarters.iter().for_each(|row| answer.item(row.get(0)));
    prices.iter().for_each(|row| answer.item(row.get(0)));
    news.iter().for_each(|row| answer.item(row.get::<_, &str>(0).len() as i64));
    answer.item(security.get(0));
    Ok(answer)
}

pub(super) async fn customer_position(
    db: &Transaction<'_>,
    sql: &Statements,
    position: &Position,
) -> Result<Answer, Error> {
    let mut answer = Answer::default();
    let customer = match &position.who {
        Who::Number(c) => db.query_one(&sql.position_customer, &[&(*c as i64)]).await?,
        Who::TaxId(tax_id) => db.query_one(&sql.position_by_tax_id, &[tax_id]).await?,
    };
    let (c, tier, name): (i64, i16, &str) = (customer.get(0), customer.get(1), customer.get(2));
    answer.item(i64::from(tier) + name.len() as i64);
    let accounts = db.query(&sql.position_accounts, &[&c]).await?;
    accounts.iter().for_each(|row| answer.item(row.get(1)));
    if let (true, Some(first)) = (position.history, accounts.first()) {
        let ca: i64 = first.get(0);
        let trades = db.query(&sql.position_history, &[&ca]).await?;
        trades.iter().for_each(|row| answer.item(row.get(1)));
    }
    Ok(answer)
}

pub(super) async fn broker_volume(
    db: &Transaction<'_>,
    sql: &Statements,
    brokers: &[String],
    sector: &str,
) -> Result<Answer, Error> {
    let mut answer = Answer::default();
    let rows = db.query(&sql.broker_volume, &[&brokers, &sector]).await?;
    rows.iter().for_each(|row| answer.item(row.get(1)));
    Ok(answer)
}
