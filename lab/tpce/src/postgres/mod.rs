//! Runs the same brokerage in PostgreSQL, for a comparison on the same machine: the same rows,
//! the same requests, the same checks.
//!
//! ```text
//! server.rs     a server of its own, over a directory
//! load.rs       tables, rows by COPY, indices, functions
//! functions.rs  the transactions as functions of PL/pgSQL (functions/*.sql)
//! pool.rs       connections, and the classification of their errors
//! books.rs      the facts that the checks need
//! ```
//!
//! A transaction is one call of a function, so it waits for no round trip in the middle. If its
//! statements are sent one after another, it takes a quarter more processor time. Statements
//! work on sets wherever the request does. Transactions have snapshot isolation, as
//! Percolator's do.

mod books;
mod functions;
mod load;
mod pool;
mod server;

pub use server::{Missing, Server};

use async_trait::async_trait;

use crate::backend::{Backend, Failed};
use crate::check::Books;
use crate::request::{Answer, Request};
use crate::{Exchange, Result, Scale};

use pool::{Pool, of_postgres};

impl Exchange {
    /// Loads a brokerage into an empty PostgreSQL.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for an impossible scale, or an error of
    /// PostgreSQL.
    pub async fn load_postgres(server: &Server, scale: Scale) -> Result<Exchange> {
        scale.check()?;
        load::load(server, scale).await?;
        let pool = Pool::new(server.socket());
        Ok(Exchange::over(Box::new(OnPostgres { pool }), scale))
    }
}

/// Not prepared, because it is rare.
const RESERVE: &str = "UPDATE numbers SET next = next + $1 RETURNING next - $1";

#[derive(Debug)]
struct OnPostgres {
    pool: Pool,
}

#[async_trait]
impl Backend for OnPostgres {
    async fn attempt(&self, request: &Request) -> Result<Answer, Failed> {
        let connection = self.pool.take().await?;
        match connection.functions.attempt(&connection.client, request).await {
            Ok(answer) => {
                self.pool.put(connection);
                Ok(answer)
            }
            Err(error) => {
                // After an error a transaction may still be open, so a rollback makes sure that
                // none is.
                if connection.client.batch_execute("ROLLBACK").await.is_ok() {
                    self.pool.put(connection);
                }
                Err(error.into())
            }
        }
    }

    async fn reserve(&self, count: u64) -> Result<u64> {
        let connection = self.pool.take().await?;
        let row =
            connection.client.query_one(RESERVE, &[&(count as i64)]).await.map_err(of_postgres)?;
        self.pool.put(connection);
        Ok(row.get::<_, i64>(0) as u64)
    }

    async fn books(&self) -> Result<Books> {
        let connection = self.pool.take().await?;
        let books = books::read(&connection.client).await?;
        self.pool.put(connection);
        Ok(books)
    }
}

#[cfg(test)]
mod tests;
