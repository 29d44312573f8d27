//! Statements that are sent together, without waiting for each other's answers.
//!
//! Invariant: of statements of one transaction, the error that comes out is the one that made the
//! transaction fail. PostgreSQL refuses whatever comes after it (25P02), and such a refusal may be
//! seen first: taken for the cause, it would hide a conflict, which is to be tried again. So all
//! answers are waited for, and then the cause is chosen.

use futures::future::{join, join3, join5};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

type Result<T> = std::result::Result<T, Error>;

pub(super) async fn two<A, B>(
    a: impl Future<Output = Result<A>>,
    b: impl Future<Output = Result<B>>,
) -> Result<(A, B)> {
    let (a, b) = join(a, b).await;
    both(a, b)
}

pub(super) async fn three<A, B, C>(
    a: impl Future<Output = Result<A>>,
    b: impl Future<Output = Result<B>>,
    c: impl Future<Output = Result<C>>,
) -> Result<(A, B, C)> {
    let (a, b, c) = join3(a, b, c).await;
    let ((a, b), c) = both(both(a, b), c)?;
    Ok((a, b, c))
}

pub(super) async fn five<A, B, C, D, E>(
    a: impl Future<Output = Result<A>>,
    b: impl Future<Output = Result<B>>,
    c: impl Future<Output = Result<C>>,
    d: impl Future<Output = Result<D>>,
    e: impl Future<Output = Result<E>>,
) -> Result<(A, B, C, D, E)> {
    let (a, b, c, d, e) = join5(a, b, c, d, e).await;
    let (((a, b), c), (d, e)) = both(both(both(a, b), c), both(d, e))?;
    Ok((a, b, c, d, e))
}

/// Two answers, or why the transaction failed.
fn both<A, B>(a: Result<A>, b: Result<B>) -> Result<(A, B)> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (Err(a), Err(b)) => Err(if distance(&b) < distance(&a) { b } else { a }),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

/// How far an error is from the cause: what PostgreSQL says of a statement, then what the
/// connection says once it is broken, then that an earlier statement has failed.
fn distance(error: &Error) -> u8 {
    match error.code() {
        Some(&SqlState::IN_FAILED_SQL_TRANSACTION) => 2,
        Some(_) => 0,
        None => 1,
    }
}
