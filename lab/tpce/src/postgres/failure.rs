//! Converts errors of PostgreSQL.

use crate::Error;

/// An error with the server's own message, which the client's text leaves out.
pub(super) fn of_postgres(error: tokio_postgres::Error) -> Error {
    match error.as_db_error() {
        Some(db) => Error::Postgres(db.to_string()),
        None => Error::Postgres(error.to_string()),
    }
}
