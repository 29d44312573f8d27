//! What PostgreSQL says when it refuses something.

use crate::Error;

/// An error of PostgreSQL, with what it says itself: the client's own text leaves that out.
pub(super) fn of_postgres(error: tokio_postgres::Error) -> Error {
    match error.as_db_error() {
        Some(db) => Error::Postgres(db.to_string()),
        None => Error::Postgres(error.to_string()),
    }
}
