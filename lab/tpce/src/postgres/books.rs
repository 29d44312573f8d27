//! Reads the facts that the checks need, as of one moment. PostgreSQL maintains its indices
//! itself, and its locks end with their connection. So the checks (d) and (h) have nothing to
//! check.

use tokio_postgres::{Client, Error, Row};

use crate::check::{Balance, Books};
use crate::model::{Trade, TradeRequest, TradeState};

pub(super) async fn read(client: &Client) -> Result<Books, Error> {
    client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    let books = facts(client).await;
    client.batch_execute("ROLLBACK").await?;
    books
}

async fn facts(client: &Client) -> Result<Books, Error> {
    let mut books = Books::default();
    let key = |row: &Row, at| row.get::<_, i64>(at) as u64;
    for row in client.query("SELECT ca, opening, bal FROM customer_account", &[]).await? {
        let balance = Balance { opening: row.get(1), now: row.get(2) };
        books.accounts.insert(key(&row, 0), balance);
    }
    for row in client.query("SELECT ca, symb, qty FROM holding_summary", &[]).await? {
        let position = (key(&row, 0), row.get::<_, i32>(1) as u32);
        books.positions.insert(position, row.get(2));
    }
    for row in client.query("SELECT ca, symb, t, qty FROM holding", &[]).await? {
        let (ca, symb, qty) = (key(&row, 0), row.get::<_, i32>(1) as u32, row.get::<_, i64>(3));
        *books.held.entry((ca, symb)).or_default() += qty;
        if qty == 0 {
            books.empty_lots.push(format!("{ca} {symb} {}", key(&row, 2)));
        }
    }
    for row in client.query("SELECT * FROM trade", &[]).await? {
        let trade = trade(&row);
        let state = TradeState {
            status: row.get::<_, i16>("status") as u8,
            dts: row.get::<_, i64>("dts") as u64,
            price: row.get("price"),
            charge: row.get("charge"),
            commission: row.get("commission"),
            tax: row.get("tax"),
        };
        books.trades.insert(trade.t, (trade, state));
    }
    for row in client.query("SELECT t, seq, status FROM trade_history", &[]).await? {
        let step = (row.get::<_, i16>(1) as u8, row.get::<_, i16>(2) as u8);
        books.steps.entry(key(&row, 0)).or_default().push(step);
    }
    for row in client.query("SELECT t, amt FROM settlement", &[]).await? {
        books.settled.insert(key(&row, 0), row.get(1));
    }
    for row in client.query("SELECT t, amt FROM cash_transaction", &[]).await? {
        books.cash.insert(key(&row, 0), row.get(1));
    }
    for row in client.query("SELECT t, after - before FROM holding_history", &[]).await? {
        *books.moved.entry(key(&row, 0)).or_default() += row.get::<_, i64>(1);
    }
    for row in client.query("SELECT t, tt, symb, qty, bid, b, sc FROM trade_request", &[]).await? {
        let request = TradeRequest {
            t: key(&row, 0),
            tt: row.get::<_, i16>(1) as u8,
            symb: row.get::<_, i32>(2) as u32,
            qty: row.get(3),
            bid: row.get(4),
            b: row.get::<_, i32>(5) as u32,
            sc: row.get::<_, i16>(6) as u8,
        };
        books.requests.insert(request.t, request);
    }
    let volume = "SELECT coalesce(sum(vol), 0)::bigint FROM last_trade";
    books.volume = client.query_one(volume, &[]).await?.get(0);
    Ok(books)
}

fn trade(row: &Row) -> Trade {
    Trade {
        t: row.get::<_, i64>("t") as u64,
        ca: row.get::<_, i64>("ca") as u64,
        symb: row.get::<_, i32>("symb") as u32,
        tt: row.get::<_, i16>("tt") as u8,
        qty: row.get("qty"),
        bid: row.get("bid"),
        executor: row.get("executor"),
        lifo: row.get("lifo"),
        is_cash: row.get("is_cash"),
        entered: row.get::<_, i64>("entered") as u64,
    }
}
