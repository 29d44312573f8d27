//! Reads the facts that the checks need, as of one moment. PostgreSQL maintains its indices
//! itself, and its locks end with their connection. So the checks (d) and (h) have nothing to
//! check.

use serde::de::DeserializeOwned;
use tokio_postgres::{Client, Row};

use crate::check::{Balance, Books};
use crate::model::{Trade, TradeRequest, TradeState};
use crate::{Error, Result};

use super::pool::of_postgres;

pub(super) async fn read(client: &Client) -> Result<Books> {
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    client.batch_execute(begin).await.map_err(of_postgres)?;
    let books = facts(client).await;
    client.batch_execute("ROLLBACK").await.map_err(of_postgres)?;
    books
}

async fn facts(client: &Client) -> Result<Books> {
    let mut books = Books::default();
    for (ca, opening, now) in all(client, "ca, opening, bal", "customer_account").await? {
        books.accounts.insert(ca, Balance { opening, now });
    }
    for (ca, symb, qty) in all(client, "ca, symb, qty", "holding_summary").await? {
        books.positions.insert((ca, symb), qty);
    }
    let lots: Vec<(u64, u32, u64, i64)> = all(client, "ca, symb, t, qty", "holding").await?;
    for (ca, symb, t, qty) in lots {
        *books.held.entry((ca, symb)).or_default() += qty;
        if qty == 0 {
            books.empty_lots.push(format!("{ca} {symb} {t}"));
        }
    }
    // A row of this table is a trade and its state.
    let trades: Vec<(Trade, TradeState)> =
        all(client, "to_json(trade), to_json(trade)", "trade").await?;
    books.trades = trades.into_iter().map(|both| (both.0.t, both)).collect();
    for (t, seq, status) in all(client, "t, seq, status", "trade_history").await? {
        books.steps.entry(t).or_default().push((seq, status));
    }
    books.settled = all(client, "t, amt", "settlement").await?.into_iter().collect();
    books.cash = all(client, "t, amt", "cash_transaction").await?.into_iter().collect();
    for (t, moved) in all::<(_, i64)>(client, "t, after - before", "holding_history").await? {
        *books.moved.entry(t).or_default() += moved;
    }
    let requests: Vec<(u64, TradeRequest)> =
        all(client, "t, to_json(trade_request)", "trade_request").await?;
    books.requests = requests.into_iter().collect();
    let volumes: Vec<[i64; 1]> = all(client, "vol", "last_trade").await?;
    books.volume = volumes.into_iter().flatten().sum();
    Ok(books)
}

/// Reads these columns of all rows of a table, each row as an array of JSON.
async fn all<T: DeserializeOwned>(client: &Client, columns: &str, table: &str) -> Result<Vec<T>> {
    let rows = format!("SELECT json_build_array({columns})::text FROM {table}");
    let rows = client.query(&rows, &[]).await.map_err(of_postgres)?;
    let failed = |error| Error::Postgres(format!("reading the table {table}: {error}"));
    rows.iter().map(|row: &Row| serde_json::from_str(row.get(0)).map_err(failed)).collect()
}
