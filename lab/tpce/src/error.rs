//! Defines the errors of a run.

/// The result of an operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a run failed. A violation of a check is no error: see
/// [`Exchange::check`](crate::Exchange::check).
///
/// ```
/// assert!(tpce::Scale::new(1, 1).check().is_err());
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An impossible setting.
    #[error("{0}")]
    Invalid(String),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] percolator::Error),
    /// A transaction used up its attempts.
    #[error("a {kind} transaction failed {attempts} times, the last time with: {last}")]
    Exhausted {
        /// The transaction's type.
        kind: &'static str,
        /// Number of attempts.
        attempts: u32,
        /// The error of the last attempt.
        last: Box<Error>,
    },
    /// Too many requests wait: the store does not keep up with the rate.
    #[error("{waiting} requests wait: the store does not keep up; offer fewer a second")]
    Saturated {
        /// Number of waiting requests.
        waiting: usize,
    },
    /// The [log](crate::Log) of a driver cannot be written or read.
    #[error("a driver's log is unusable: {0}")]
    Log(String),
    /// PostgreSQL failed.
    #[error("PostgreSQL: {0}")]
    Postgres(String),
}
