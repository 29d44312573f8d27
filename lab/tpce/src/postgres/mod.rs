//! The same brokerage in PostgreSQL, for comparison on the same machine: the same rows, the same
//! requests, the same checks.
//!
//! ```text
//! server.rs      a server of its own, over a directory
//! load.rs        tables, rows by COPY, indices, functions
//! statements.rs  every statement, prepared once for each connection
//! together.rs    statements that are sent together, and which of their errors is the cause
//! functions.rs   the same transactions as functions of PL/pgSQL (functions/*.sql)
//! pool.rs        connections, and how their errors are judged
//! orders.rs      Trade-Order, Trade-Result, Market-Feed
//! questions.rs   what only reads
//! lookups.rs     Trade-Lookup, Trade-Update
//! maintenance.rs Data-Maintenance
//! books.rs       what the checks are about
//! ```
//!
//! Statements work on sets wherever the request does, several of them go out at once where none
//! needs another's answer, and transactions have snapshot isolation, as Percolator's do.

mod books;
mod functions;
mod load;
mod lookups;
mod maintenance;
mod orders;
mod pool;
mod questions;
mod server;
mod statements;
mod together;

pub use server::{Missing, Server};

use async_trait::async_trait;
use tokio_postgres::Client;

use crate::backend::{Backend, Failed};
use crate::check::Books;
use crate::request::{Answer, Request};
use crate::{Error, Exchange, Result, Scale};

use pool::{Connection, Pool, Prepared};
use statements::Statements;

/// Where the bodies of transactions run.
///
/// See [`Server`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bodies {
    /// In the client: statements that need no other's answer are sent together.
    Statements,
    /// In the server: a transaction is one call of a function of PL/pgSQL.
    Functions,
}

impl Exchange {
    /// Loads a brokerage into an empty PostgreSQL.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a scale that cannot be; those of PostgreSQL.
    pub async fn load_postgres(server: &Server, scale: Scale, bodies: Bodies) -> Result<Exchange> {
        scale.check()?;
        load::load(server, scale).await?;
        let pool = Pool::new(server.socket(), bodies);
        Ok(Exchange::over(Box::new(OnPostgres { pool }), scale))
    }
}

/// Rare enough that nobody prepares it.
const RESERVE: &str = "UPDATE numbers SET next = next + $1 RETURNING next - $1";

/// A brokerage in PostgreSQL.
#[derive(Debug)]
struct OnPostgres {
    pool: Pool,
}

#[async_trait]
impl Backend for OnPostgres {
    async fn attempt(&self, request: &Request) -> Result<Answer, Failed> {
        let mut connection = self.pool.take().await?;
        match attempt(&mut connection, request).await {
            Ok(answer) => {
                self.pool.put(connection);
                Ok(answer)
            }
            Err(error) => {
                // After an error nothing is known to be open any more; a rollback makes sure.
                if connection.client.batch_execute("ROLLBACK").await.is_ok() {
                    self.pool.put(connection);
                }
                Err(error.into())
            }
        }
    }

    async fn reserve(&self, count: u64) -> Result<u64> {
        let connection = self.pool.take().await?;
        let row = connection.client.query_one(RESERVE, &[&(count as i64)]).await.map_err(told)?;
        self.pool.put(connection);
        Ok(row.get::<_, i64>(0) as u64)
    }

    async fn books(&self) -> Result<Books> {
        let connection = self.pool.take().await?;
        let books = books::read(&connection.client).await.map_err(told)?;
        self.pool.put(connection);
        Ok(books)
    }
}

async fn attempt(
    connection: &mut Connection,
    request: &Request,
) -> Result<Answer, tokio_postgres::Error> {
    let Connection { client, prepared, .. } = connection;
    match prepared {
        Prepared::Statements(sql) => in_statements(client, sql, request).await,
        Prepared::Functions(functions) => functions.attempt(client, request).await,
    }
}

/// One attempt in statements, with its transaction around it.
async fn in_statements(
    client: &mut Client,
    sql: &Statements,
    request: &Request,
) -> Result<Answer, tokio_postgres::Error> {
    let transaction = client
        .build_transaction()
        .isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
        .start()
        .await?;
    let db = &transaction;
    let answer = match request {
        Request::TradeOrder(order) => orders::trade_order(db, sql, order).await?,
        Request::TradeResult(execution) => orders::trade_result(db, sql, *execution).await?,
        Request::MarketFeed(feed) => orders::market_feed(db, sql, feed).await?,
        Request::TradeStatus { ca } => questions::trade_status(db, sql, *ca).await?,
        Request::MarketWatch(watch) => questions::market_watch(db, sql, watch).await?,
        Request::SecurityDetail { symb, from_day, days } => {
            questions::security_detail(db, sql, *symb, *from_day, *days).await?
        }
        Request::CustomerPosition(position) => {
            questions::customer_position(db, sql, position).await?
        }
        Request::BrokerVolume { brokers, sector } => {
            questions::broker_volume(db, sql, brokers, sector).await?
        }
        Request::TradeLookup(lookup) => lookups::trade_lookup(db, sql, lookup).await?,
        Request::TradeUpdate(lookup) => lookups::trade_update(db, sql, lookup).await?,
        Request::DataMaintenance(change) => maintenance::run(db, sql, change).await?,
    };
    if answer.unchanged {
        transaction.rollback().await?
    } else {
        transaction.commit().await?
    }
    Ok(answer)
}

/// An error of PostgreSQL, with what it says itself: the client's own text leaves that out.
fn told(error: tokio_postgres::Error) -> Error {
    match error.as_db_error() {
        Some(db) => Error::Postgres(db.to_string()),
        None => Error::Postgres(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
