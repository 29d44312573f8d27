//! What can go wrong with a run.

/// The result of an operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a run failed. A violation of a check is not an error: see
/// [`Exchange::check`](crate::Exchange::check).
///
/// ```
/// assert!(tpce::Scale::new(1, 1).check().is_err());
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting that cannot be.
    #[error("{0}")]
    Invalid(String),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] percolator::Error),
    /// A transaction failed as often as it may.
    #[error("a {kind} transaction failed {attempts} times, the last time with: {last}")]
    Exhausted {
        /// The transaction's type.
        kind: &'static str,
        /// How often it was tried.
        attempts: u32,
        /// What happened the last time.
        last: Box<Error>,
    },
    /// More requests wait than may: the store does not keep up with the rate.
    #[error("{waiting} requests wait: the store does not keep up; offer fewer a second")]
    Saturated {
        /// How many.
        waiting: usize,
    },
    /// The [log](crate::Log) of a driver cannot be written or read.
    #[error("the log of a driver: {0}")]
    Log(String),
    /// PostgreSQL failed.
    #[error("PostgreSQL: {0}")]
    Postgres(String),
}
