//! Keeps connections, each with its prepared calls, and classifies their errors.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

use crate::backend::{Failed, Why};
use crate::{Error, Result};

use super::functions::Functions;

/// Most connections; further callers wait. With more, the server's processes would only wait
/// for each other.
const CONNECTIONS_MAX: usize = 32;

pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) functions: Functions,
    _permit: OwnedSemaphorePermit,
}

/// The idle connections. There are as many connections as there were transactions at a time.
#[derive(Debug)]
pub(super) struct Pool {
    socket: PathBuf,
    idle: Mutex<Vec<(Client, Functions)>>,
    permits: Arc<Semaphore>,
}

impl Pool {
    pub(super) fn new(socket: &Path) -> Self {
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Pool { socket: socket.to_owned(), idle: Mutex::default(), permits }
    }

    pub(super) async fn take(&self) -> Result<Connection> {
        let permit = self.permits.clone().acquire_owned().await;
        let _permit = permit.expect("the semaphore is never closed");
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some((client, functions)) = idle {
            return Ok(Connection { client, functions, _permit });
        }
        let client = connect(&self.socket).await?;
        let functions = Functions::prepare(&client).await.map_err(of_postgres)?;
        Ok(Connection { client, functions, _permit })
    }

    pub(super) fn put(&self, connection: Connection) {
        let Connection { client, functions, _permit } = connection;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push((client, functions));
    }
}

pub(super) async fn connect(socket: &Path) -> Result<Client> {
    let mut config = tokio_postgres::Config::new();
    config.host_path(socket).user("postgres").dbname("postgres");
    let (client, connection) = config.connect(NoTls).await.map_err(of_postgres)?;
    // The task ends when the client is dropped. Its errors also appear in the client's own
    // results.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(client)
}

/// An error with the server's own message, which the client's text leaves out.
pub(super) fn of_postgres(error: tokio_postgres::Error) -> Error {
    match error.as_db_error() {
        Some(db) => Error::Postgres(db.to_string()),
        None => Error::Postgres(error.to_string()),
    }
}

impl From<tokio_postgres::Error> for Failed {
    fn from(error: tokio_postgres::Error) -> Self {
        let conflicts = [
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            // Two transactions have inserted the same position.
            SqlState::UNIQUE_VIOLATION,
        ];
        let why = match error.code() {
            Some(code) if conflicts.contains(code) => Why::Conflict,
            _ => Why::Lasting,
        };
        Failed { why, error: of_postgres(error) }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed { why: Why::Lasting, error }
    }
}
