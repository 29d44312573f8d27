//! Connections, each with its prepared statements, and how errors are judged.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

use crate::Result;
use crate::backend::{Failed, Why};

use super::functions::{self, Functions};
use super::statements::Statements;
use super::{Bodies, told};

/// How many connections there are at most; whoever comes later waits for one. More would only make
/// the processes of the server wait for each other.
const CONNECTIONS_MAX: usize = 32;

/// A connection.
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) prepared: Prepared,
    _permit: OwnedSemaphorePermit,
}

/// What a connection has prepared for the bodies of transactions.
#[derive(Debug)]
pub(super) enum Prepared {
    Statements(Box<Statements>),
    Functions(Box<Functions>),
}

impl Prepared {
    async fn new(client: &Client, bodies: Bodies) -> Result<Self, tokio_postgres::Error> {
        Ok(match bodies {
            Bodies::Statements => {
                Prepared::Statements(Box::new(Statements::prepare(client).await?))
            }
            Bodies::Functions => {
                client.batch_execute(functions::ISOLATION).await?;
                Prepared::Functions(Box::new(Functions::prepare(client).await?))
            }
        })
    }
}

/// Idle connections; there are as many as transactions ran at a time.
#[derive(Debug)]
pub(super) struct Pool {
    socket: PathBuf,
    bodies: Bodies,
    idle: Mutex<Vec<(Client, Prepared)>>,
    permits: Arc<Semaphore>,
}

impl Pool {
    pub(super) fn new(socket: &Path, bodies: Bodies) -> Self {
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Pool { socket: socket.to_owned(), bodies, idle: Mutex::default(), permits }
    }

    pub(super) async fn take(&self) -> Result<Connection> {
        let permit = self.permits.clone().acquire_owned().await;
        let _permit = permit.expect("the semaphore is never closed");
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some((client, prepared)) = idle {
            return Ok(Connection { client, prepared, _permit });
        }
        let client = connect(&self.socket).await?;
        let prepared = Prepared::new(&client, self.bodies).await.map_err(told)?;
        Ok(Connection { client, prepared, _permit })
    }

    /// Takes a connection back; the next who waits gets it.
    pub(super) fn put(&self, connection: Connection) {
        let Connection { client, prepared, _permit } = connection;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push((client, prepared));
    }
}

/// A connection over the socket in a directory.
pub(super) async fn connect(socket: &Path) -> Result<Client> {
    let mut config = tokio_postgres::Config::new();
    config.host_path(socket).user("postgres").dbname("postgres");
    let (client, connection) = config.connect(NoTls).await.map_err(told)?;
    // Ends when the client is dropped; what goes wrong shows in the client's own answers.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(client)
}

impl From<tokio_postgres::Error> for Failed {
    fn from(error: tokio_postgres::Error) -> Self {
        let conflicts = [
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            // Two transactions that insert the same position.
            SqlState::UNIQUE_VIOLATION,
        ];
        let why = match error.code() {
            Some(code) if conflicts.contains(code) => Why::Conflict,
            _ => Why::Lasting,
        };
        Failed { why, error: told(error) }
    }
}

impl From<crate::Error> for Failed {
    fn from(error: crate::Error) -> Self {
        Failed { why: Why::Lasting, error }
    }
}
