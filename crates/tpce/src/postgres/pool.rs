//! Connections, each with its prepared statements, and how errors are judged.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

use crate::Result;
use crate::backend::{Failed, Why};

use super::statements::Statements;
use super::told;

/// A connection.
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) sql: Statements,
}

/// Idle connections; there are as many as transactions ran at a time.
#[derive(Debug)]
pub(super) struct Pool {
    socket: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Pool {
    pub(super) fn new(socket: &Path) -> Self {
        Pool { socket: socket.to_owned(), idle: Mutex::default() }
    }

    pub(super) async fn take(&self) -> Result<Connection> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(connection) = idle {
            return Ok(connection);
        }
        let client = connect(&self.socket).await?;
        let sql = Statements::prepare(&client).await.map_err(told)?;
        Ok(Connection { client, sql })
    }

    pub(super) fn put(&self, connection: Connection) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
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
