//! Data-Maintenance.

use tokio_postgres::{Error, Transaction};

use crate::request::{Answer, Maintained, Maintenance};

use super::statements::Statements;

pub(super) async fn run(
    db: &Transaction<'_>,
    sql: &Statements,
    change: &Maintenance,
) -> Result<Answer, Error> {
    let (c, ca) = (change.c as i64, change.ca as i64);
    let (co, symb, day) = (change.co as i32, change.symb as i32, change.day as i32);
    let (tx, ni, ex) = (change.tx as i32, change.ni as i32, i16::from(change.ex));
    match change.table {
        Maintained::AccountPermission => db.execute(&sql.maintain_permission, &[&ca]).await?,
        Maintained::Address => db.execute(&sql.maintain_address, &[&c]).await?,
        Maintained::Company => db.execute(&sql.maintain_company, &[&co]).await?,
        Maintained::Customer => db.execute(&sql.maintain_customer, &[&c]).await?,
        Maintained::CustomerTaxrate => db.execute(&sql.maintain_taxrate_of, &[&c]).await?,
        Maintained::DailyMarket => db.execute(&sql.maintain_day, &[&symb, &day]).await?,
        Maintained::Exchange => db.execute(&sql.maintain_exchange, &[&ex]).await?,
        Maintained::Financial => db.execute(&sql.maintain_financial, &[&co]).await?,
        Maintained::NewsItem => db.execute(&sql.maintain_news, &[&ni]).await?,
        Maintained::Security => db.execute(&sql.maintain_security, &[&symb]).await?,
        Maintained::TaxRate => db.execute(&sql.maintain_taxrate, &[&tx]).await?,
        Maintained::WatchItem => db.execute(&sql.maintain_watch, &[&c, &symb]).await?,
    };
    Ok(Answer::default())
}
