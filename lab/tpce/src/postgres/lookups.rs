//! Trade-Lookup and Trade-Update.

use tokio_postgres::{Error, Transaction};

use crate::request::{Answer, Lookup};

use super::statements::Statements;
use super::together;

pub(super) async fn trade_lookup(
    db: &Transaction<'_>,
    sql: &Statements,
    lookup: &Lookup,
) -> Result<Answer, Error> {
    let mut answer = Answer::default();
    if let Lookup::FirstOf { ca } = lookup {
        let moves = db.query(&sql.lookup_moves, &[&(*ca as i64)]).await?;
        moves.iter().for_each(|row| answer.item(row.get(0)));
        return Ok(answer);
    }
    let trades = found(db, sql, lookup).await?;
    for row in details(db, sql, &trades, &mut answer).await? {
        answer.item(row.get::<_, i64>(1) + row.get::<_, i64>(2));
    }
    Ok(answer)
}

pub(super) async fn trade_update(
    db: &Transaction<'_>,
    sql: &Statements,
    lookup: &Lookup,
) -> Result<Answer, Error> {
    let mut answer = Answer::default();
    let trades = found(db, sql, lookup).await?;
    for row in details(db, sql, &trades, &mut answer).await? {
        answer.item(row.get::<_, i64>(2));
    }
    let update = match lookup {
        Lookup::Listed(_) => &sql.update_executors,
        Lookup::OfAccount { .. } => &sql.update_settlements,
        Lookup::OfSecurity { .. } | Lookup::FirstOf { .. } => &sql.update_cash,
    };
    db.execute(update, &[&trades]).await?;
    Ok(answer)
}

async fn found(db: &Transaction<'_>, sql: &Statements, lookup: &Lookup) -> Result<Vec<i64>, Error> {
    let rows = match lookup {
        Lookup::Listed(trades) => return Ok(trades.iter().map(|t| *t as i64).collect()),
        Lookup::OfAccount { ca, until } => {
            db.query(&sql.lookup_account, &[&(*ca as i64), &(*until as i64)]).await?
        }
        Lookup::OfSecurity { symb, until } => {
            db.query(&sql.lookup_security, &[&(*symb as i32), &(*until as i64)]).await?
        }
        Lookup::FirstOf { .. } => Vec::new(),
    };
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

async fn details(
    db: &Transaction<'_>,
    sql: &Statements,
    trades: &[i64],
    answer: &mut Answer,
) -> Result<Vec<tokio_postgres::Row>, Error> {
    let found = async { db.query(&sql.lookup_trades, &[&trades]).await };
    let steps = async { db.query(&sql.lookup_steps, &[&trades]).await };
    let (found, steps) = together::two(found, steps).await?;
    steps.iter().for_each(|row| answer.item(row.get(1)));
    for row in &found {
        for amount in [row.get::<_, Option<i64>>(4), row.get(6)] {
            amount.into_iter().for_each(|amount| answer.item(amount));
        }
    }
    Ok(found)
}
