//! Calls the transactions, each a function in PL/pgSQL, so that a transaction takes one round
//! trip. The functions return their results in arrays, from which this file builds the answers.

use std::collections::BTreeMap;

use tokio_postgres::types::{FromSql, ToSql};
use tokio_postgres::{Client, Error, Row, Statement};

use crate::TransactionType;
use crate::request::{
    Accepted, Answer, Execution, Feed, Lookup, Maintenance, Ordered, Position, Request, TradeOrder,
    Watch, Watched, Who,
};
use crate::scale::DAY_MS;

/// The indices, and the definitions of the functions, which are executed once.
pub(super) const DEFINITIONS: [&str; 5] = [
    include_str!("functions/indices.sql"),
    include_str!("functions/orders.sql"),
    include_str!("functions/questions.sql"),
    include_str!("functions/lookups.sql"),
    include_str!("functions/maintenance.sql"),
];

/// A transaction is a single statement, so the session sets its isolation.
pub(super) const ISOLATION: &str =
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ";

/// Number of parameters of each function, in the order of [`TransactionType::ALL`].
const PARAMETERS: [usize; 11] = [14, 4, 4, 1, 4, 3, 3, 2, 5, 5, 9];

/// The prepared calls of a connection, in the order of [`TransactionType::ALL`].
#[derive(Debug)]
pub(super) struct Functions(Vec<Statement>);

impl Functions {
    /// Prepares a call of every function. From then on the connection's transactions have
    /// snapshot isolation, as Percolator's do.
    pub(super) async fn prepare(client: &Client) -> Result<Self, Error> {
        client.batch_execute(ISOLATION).await?;
        let mut calls = Vec::with_capacity(PARAMETERS.len());
        for (kind, count) in TransactionType::ALL.into_iter().zip(PARAMETERS) {
            let parameters: Vec<String> = (1..=count).map(|n| format!("${n}")).collect();
            let call = format!("SELECT * FROM {}({})", kind.name(), parameters.join(", "));
            calls.push(client.prepare(&call).await?);
        }
        Ok(Functions(calls))
    }

    async fn call(
        &self,
        db: &Client,
        kind: TransactionType,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Row, Error> {
        db.query_one(&self.0[kind as usize], parameters).await
    }

    /// Runs one attempt. It is committed when it returns an answer.
    pub(super) async fn attempt(&self, db: &Client, request: &Request) -> Result<Answer, Error> {
        match request {
            Request::TradeOrder(order) => self.trade_order(db, order).await,
            Request::TradeResult(execution) => self.trade_result(db, *execution).await,
            Request::MarketFeed(feed) => self.market_feed(db, feed).await,
            Request::TradeStatus { ca } => self.trade_status(db, *ca).await,
            Request::MarketWatch(watch) => self.market_watch(db, watch).await,
            Request::SecurityDetail { symb, from_day, days } => {
                self.security_detail(db, *symb, *from_day, *days).await
            }
            Request::CustomerPosition(position) => self.customer_position(db, position).await,
            Request::BrokerVolume { brokers, sector } => {
                let row = self.call(db, request.kind(), &[brokers, sector]).await?;
                Ok(said(array(&row, "o_volumes")))
            }
            Request::TradeLookup(lookup) => {
                let row = self.look_up(db, request.kind(), lookup).await?;
                let mut answer = looked_up(&row);
                let (bids, prices) = (array::<i64>(&row, "o_bid"), array::<i64>(&row, "o_price"));
                bids.iter().zip(&prices).for_each(|(bid, price)| answer.item(bid + price));
                Ok(answer)
            }
            Request::TradeUpdate(lookup) => {
                let row = self.look_up(db, request.kind(), lookup).await?;
                let mut answer = looked_up(&row);
                array(&row, "o_price").into_iter().for_each(|price| answer.item(price));
                Ok(answer)
            }
            Request::DataMaintenance(change) => self.data_maintenance(db, change).await,
        }
    }

    async fn trade_order(&self, db: &Client, order: &TradeOrder) -> Result<Answer, Error> {
        let (t, ca, tt, now) =
            (order.t as i64, order.ca as i64, i16::from(order.tt), order.now as i64);
        let (symb, company, issue) = match &order.security {
            Ordered::Symbol(symb) => (Some(*symb as i32), None, None),
            Ordered::Issue { company, issue } => (None, Some(company), Some(i16::from(*issue))),
        };
        let TradeOrder { qty, bid, margin, lifo, roll_back, maybe_done, .. } = order;
        let by = &order.executor_tax_id;
        let parameters: [&(dyn ToSql + Sync); 14] = [
            &t, &ca, by, &symb, &company, &issue, &tt, qty, bid, margin, lifo, roll_back,
            maybe_done, &now,
        ];
        let row = self.call(db, TransactionType::TradeOrder, &parameters).await?;
        let taken: bool = row.get("o_taken");
        let mut answer = Answer { unchanged: taken || *roll_back, ..Answer::default() };
        if !taken {
            for name in ["o_price", "o_owed", "o_commission", "o_charge", "o_worth"] {
                answer.item(row.get(name));
            }
            answer.item(row.get::<_, &str>("o_broker").len() as i64);
        }
        if taken || !*roll_back {
            let (symb, qty) = (row.get::<_, i32>("o_symb") as u32, row.get("o_qty"));
            let at_once = row.get("o_is_market");
            answer.accepted.push(Accepted { t: order.t, symb, qty, at_once });
        }
        Ok(answer)
    }

    async fn trade_result(&self, db: &Client, execution: Execution) -> Result<Answer, Error> {
        let Execution { t, price, now } = execution;
        let due_day = (now / DAY_MS) as i32 + 2;
        let (t, now) = (t as i64, now as i64);
        let row =
            self.call(db, TransactionType::TradeResult, &[&t, &price, &now, &due_day]).await?;
        let mut answer = Answer { unchanged: row.get("o_unchanged"), ..Answer::default() };
        if !answer.unchanged {
            answer.item(row.get("o_amt"));
            answer.item(row.get("o_tax"));
        }
        Ok(answer)
    }

    async fn market_feed(&self, db: &Client, feed: &Feed) -> Result<Answer, Error> {
        let ticks = feed.by_security();
        let symbols: Vec<i32> = ticks.iter().map(|tick| tick.symb as i32).collect();
        let prices: Vec<i64> = ticks.iter().map(|tick| tick.price).collect();
        let quantities: Vec<i64> = ticks.iter().map(|tick| tick.qty).collect();
        let now = feed.now as i64;
        let row = self
            .call(db, TransactionType::MarketFeed, &[&symbols, &prices, &quantities, &now])
            .await?;
        let mut answer = said(array(&row, "o_volumes"));
        let (symbols, quantities) = (array::<i32>(&row, "o_symb"), array::<i64>(&row, "o_qty"));
        let orders = array::<i64>(&row, "o_t").into_iter().zip(symbols).zip(quantities);
        answer.accepted = orders
            .map(|((t, symb), qty)| Accepted { t: t as u64, symb: symb as u32, qty, at_once: true })
            .collect();
        // Sorted, because each store returns them in its own order.
        answer.accepted.sort_by_key(|order| order.t);
        Ok(answer)
    }

    async fn trade_status(&self, db: &Client, ca: u64) -> Result<Answer, Error> {
        let row = self.call(db, TransactionType::TradeStatus, &[&(ca as i64)]).await?;
        let mut answer = said(array(&row, "o_figures"));
        let (numbers, names) = (array::<i16>(&row, "o_ex"), array::<&str>(&row, "o_exchanges"));
        let lengths = names.iter().map(|name| name.len() as i64);
        let exchanges: BTreeMap<i16, i64> = numbers.into_iter().zip(lengths).collect();
        answer.item(exchanges.into_values().sum());
        answer.item(i64::from(row.get::<_, i32>("o_names")));
        Ok(answer)
    }

    async fn market_watch(&self, db: &Client, watch: &Watch) -> Result<Answer, Error> {
        let (c, ca, industry) = match &watch.what {
            Watched::List { c } => (Some(*c as i64), None, None),
            Watched::Account { ca } => (None, Some(*ca as i64), None),
            Watched::Industry { name } => (None, None, Some(name)),
        };
        let day = watch.day as i32;
        let row = self.call(db, TransactionType::MarketWatch, &[&c, &ca, &industry, &day]).await?;
        Ok(said([row.get("o_now"), row.get("o_then")]))
    }

    async fn security_detail(
        &self,
        db: &Client,
        symb: u32,
        from_day: u32,
        days: u32,
    ) -> Result<Answer, Error> {
        let (symb, from, until) = (symb as i32, from_day as i32, (from_day + days) as i32);
        let row = self.call(db, TransactionType::SecurityDetail, &[&symb, &from, &until]).await?;
        let mut answer = said(
            ["o_address", "o_exchange_address"].map(|name| i64::from(row.get::<_, i32>(name))),
        );
        let length = |text: &&str| text.len() as i64;
        let (names, industries) =
            (array::<&str>(&row, "o_competitors"), array::<&str>(&row, "o_industries"));
        for (name, industry) in names.iter().zip(&industries) {
            answer.item(length(name) + length(industry));
        }
        array(&row, "o_revenue").into_iter().for_each(|revenue| answer.item(revenue));
        array(&row, "o_close").into_iter().for_each(|close| answer.item(close));
        array(&row, "o_items").iter().for_each(|item| answer.item(length(item)));
        answer.item(row.get("o_security"));
        Ok(answer)
    }

    async fn customer_position(&self, db: &Client, position: &Position) -> Result<Answer, Error> {
        let (c, tax_id) = match &position.who {
            Who::Number(c) => (Some(*c as i64), None),
            Who::TaxId(tax_id) => (None, Some(tax_id)),
        };
        let history = &position.history;
        let row = self.call(db, TransactionType::CustomerPosition, &[&c, &tax_id, history]).await?;
        let name: &str = row.get("o_name");
        let mut answer = said([i64::from(row.get::<_, i16>("o_tier")) + name.len() as i64]);
        array(&row, "o_worth").into_iter().for_each(|worth| answer.item(worth));
        array(&row, "o_steps").into_iter().for_each(|steps| answer.item(steps));
        Ok(answer)
    }

    async fn data_maintenance(&self, db: &Client, change: &Maintenance) -> Result<Answer, Error> {
        let (c, ca) = (change.c as i64, change.ca as i64);
        let (co, symb, day) = (change.co as i32, change.symb as i32, change.day as i32);
        let (tx, ni, ex) = (change.tx as i32, change.ni as i32, i16::from(change.ex));
        let table = change.table.name();
        let parameters: [&(dyn ToSql + Sync); 9] =
            [&table, &c, &ca, &co, &symb, &day, &tx, &ni, &ex];
        self.call(db, TransactionType::DataMaintenance, &parameters).await?;
        Ok(Answer::default())
    }

    async fn look_up(
        &self,
        db: &Client,
        kind: TransactionType,
        lookup: &Lookup,
    ) -> Result<Row, Error> {
        let number = |number: u64| number as i64;
        let (frame, listed, ca, symb, until): (i16, Option<Vec<i64>>, _, _, _) = match lookup {
            Lookup::Listed(trades) => {
                (1, Some(trades.iter().copied().map(number).collect()), None, None, None)
            }
            Lookup::OfAccount { ca, until } => {
                (2, None, Some(number(*ca)), None, Some(number(*until)))
            }
            Lookup::OfSecurity { symb, until } => {
                (3, None, None, Some(*symb as i32), Some(number(*until)))
            }
            Lookup::FirstOf { ca } => (4, None, Some(number(*ca)), None, None),
        };
        self.call(db, kind, &[&frame, &listed, &ca, &symb, &until]).await
    }
}

/// The answer of Trade-Lookup and Trade-Update, without the prices.
fn looked_up(row: &Row) -> Answer {
    let mut answer = said(array(row, "o_moves"));
    array(row, "o_steps").into_iter().for_each(|steps| answer.item(steps));
    for amounts in ["o_amt", "o_cash"] {
        // Trades that are not completed have no amounts.
        array::<Option<i64>>(row, amounts).into_iter().flatten().for_each(|amt| answer.item(amt));
    }
    answer
}

fn said(items: impl IntoIterator<Item = i64>) -> Answer {
    let mut answer = Answer::default();
    items.into_iter().for_each(|says| answer.item(says));
    answer
}

/// Reads an array column, which is null if there were no rows.
fn array<'a, T: FromSql<'a>>(row: &'a Row, name: &str) -> Vec<T> {
    row.get::<_, Option<Vec<T>>>(name).unwrap_or_default()
}
