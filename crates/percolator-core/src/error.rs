//! Defines the errors of transactions. There is one variant for each reaction of the caller.
//!
//! A failed commit whose outcome is not known has a variant of its own ([`Error::Unknown`]),
//! because running it again might apply it twice.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bigtable::Timestamp;
use bytes::Bytes;

use crate::{CellName, Incarnation};

/// The result of an operation of Percolator.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
///
/// A commit that writes has three outcomes: its commit timestamp, [`Error::Aborted`] (none of its
/// writes is or will ever be visible), and [`Error::Unknown`]. Any other error means that the
/// commit did not begin. Weak notifications of an aborted transaction may remain, so a weak
/// observer may run although nothing was written.
///
/// ```
/// # use percolator_core::face as percolator;
/// use percolator::{Error, InvalidKind};
/// let error = Error::invalid(InvalidKind::RowKey, "an empty row key");
/// assert!(matches!(error, Error::Invalid { kind: InvalidKind::RowKey, .. }));
/// assert!(!error.is_retryable());
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The transaction did not commit and never will. If the error
    /// [is retryable](Error::is_retryable), run it again with a new start timestamp.
    #[error("transaction {start_ts} aborted: {reason}")]
    Aborted {
        /// The transaction.
        start_ts: Timestamp,
        /// Why.
        reason: AbortReason,
    },
    /// The primary could not be reached before the deadline. The transaction may have
    /// committed, or the next client that finds its locks may still roll it back. Read before
    /// repeating it.
    #[error(
        "the outcome of transaction {start_ts} is unknown (its primary is {primary}): {why}; read \
         what it wrote before running it again"
    )]
    Unknown {
        /// The transaction.
        start_ts: Timestamp,
        /// The cell whose row decides the outcome.
        primary: Box<CellName>,
        /// The reason why the outcome is unknown.
        why: String,
    },
    /// A read waited too long for a lock whose owner lives: try again later.
    #[error("{cell} stayed locked by transaction {lock_ts} (owner {owner}): try again later")]
    Locked {
        /// The locked cell.
        cell: Box<CellName>,
        /// The start timestamp of the transaction that holds it.
        lock_ts: Timestamp,
        /// Its owner.
        owner: Incarnation,
    },
    /// The snapshot lies below the garbage collection safe point: begin again.
    #[error("timestamp {asked} lies below the safe point {floor}: use a newer snapshot")]
    TooOld {
        /// The snapshot.
        asked: Timestamp,
        /// The safe point. If the client knows only that its own registration lapsed, the
        /// highest value that the safe point may have.
        floor: Timestamp,
    },
    /// The requested snapshot lies in the future.
    #[error("timestamp {asked} was not issued yet, the latest is {latest}: use one at or below it")]
    NotIssued {
        /// The snapshot.
        asked: Timestamp,
        /// The highest timestamp issued so far.
        latest: Timestamp,
    },
    /// The request is malformed, breaks a limit, or does not fit the observers' schema.
    #[error("invalid request: {what}")]
    Invalid {
        /// Which part of the request is invalid.
        kind: InvalidKind,
        /// The mistake, and a remedy.
        what: String,
    },
    /// A record in the store does not decode.
    #[error(
        "a {record} record of {} bytes cannot be decoded: the data is damaged, or a newer version \
         wrote it",
        bytes.len()
    )]
    Corrupt {
        /// Which kind of record.
        record: &'static str,
        /// Its bytes.
        bytes: Bytes,
    },
    /// The oracle could not issue timestamps.
    #[error("the timestamp oracle failed: {0}")]
    Oracle(String),
    /// An oracle refuses this process, or this process the oracle, for a certificate. Nothing was
    /// done. A person must change a certificate, so do not repeat the request at once. For the
    /// store it is [`bigtable::Error::Refused`].
    #[error("access refused: {0}")]
    Refused(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] bigtable::Error),
    /// The application's own code failed, inside a closure or an observer.
    #[error("{0}")]
    Application(Arc<dyn std::error::Error + Send + Sync>),
    /// New work was not admitted for too long: try again later. See
    /// [`Client::admit`](crate::Client::admit).
    #[error("no new work was admitted for {waited:?}: {why}")]
    Overloaded {
        /// How long the caller waited.
        waited: Duration,
        /// The reason for the wait, and what helps.
        why: String,
    },
    /// The database was [closed](crate::Client::close), here or through another handle: open it
    /// again.
    #[error("the database was closed: open it again")]
    Closed,
    /// An observer cannot do its work now, because the target that it feeds is out of reach.
    /// This is no fault of the change, which is never set aside for it, however often it
    /// happens.
    #[error("{0}")]
    Unavailable(String),
}

/// The part of a request that [`Error::Invalid`] is about.
///
/// See [`Error`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidKind {
    /// The key of a row: empty, or too long.
    RowKey,
    /// The name of a column: malformed, too long, or Percolator's own.
    Column,
    /// A table: its name is malformed or reserved, or another store has opened it.
    Table,
    /// A value is too long.
    Value,
    /// A transaction: it is too large for its limits or for the store's requests, or it is
    /// used wrongly.
    Transaction,
    /// Observers: the request does not fit the registered schema, or a name is invalid.
    Observer,
    /// Options and settings.
    Options,
}

impl Error {
    /// An invalid request: its invalid part, the mistake, and a remedy.
    pub fn invalid(kind: InvalidKind, what: impl Into<String>) -> Self {
        Error::Invalid { kind, what: what.into() }
    }

    /// Wraps an error of the application, to be returned from a closure or an observer. With a
    /// `From` conversion, as in the example, `?` does this by itself.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator::{Column, Error};
    ///
    /// #[derive(Debug)]
    /// struct NotEnough(u64);
    /// impl std::error::Error for NotEnough {}
    /// impl std::fmt::Display for NotEnough {
    ///     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    ///         write!(f, "{} are missing", self.0)
    ///     }
    /// }
    /// impl From<NotEnough> for Error {
    ///     fn from(error: NotEnough) -> Self {
    ///         Error::application(error)
    ///     }
    /// }
    /// fn withdraw(balance: u64, amount: u64) -> Result<u64, NotEnough> {
    ///     balance.checked_sub(amount).ok_or(NotEnough(amount - balance))
    /// }
    ///
    /// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
    /// let withdrawn = client.transact(async |mut tx| {
    ///     let left = withdraw(3, 10)?;
    ///     tx.set(&accounts, "Bob", &bal, left.to_be_bytes())
    /// }).await;
    /// let error = withdrawn.unwrap_err();
    /// assert_eq!(error.to_string(), "7 are missing");
    /// assert_eq!(error.of_application::<NotEnough>().map(|error| error.0), Some(7));
    /// # Ok(()) });
    /// ```
    pub fn application(
        error: impl Into<Box<dyn std::error::Error + Send + Sync + 'static>>,
    ) -> Self {
        Error::Application(Arc::from(error.into()))
    }

    /// The error that the application returned, if it is of this type.
    ///
    /// See [`application`](Error::application) for an example.
    pub fn of_application<E: std::error::Error + 'static>(&self) -> Option<&E> {
        match self {
            Error::Application(error) => error.downcast_ref(),
            _ => None,
        }
    }

    /// The message without the store's advice. The caller's message gives advice of its own,
    /// and the store's "repeat" would contradict it.
    pub(crate) fn without_advice(&self) -> String {
        match self {
            Error::Store(bigtable::Error::Unavailable { why }) => {
                format!("the store is unavailable ({why})")
            }
            Error::Store(bigtable::Error::Unknown { why }) => {
                format!("no reply came ({why})")
            }
            error => error.to_string(),
        }
    }

    pub(crate) fn aborted(start_ts: Timestamp, reason: AbortReason) -> Self {
        Error::Aborted { start_ts, reason }
    }

    /// Whether another transaction wrote or is writing one of the cells.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Error::Aborted { reason: AbortReason::Conflict(_), .. })
    }

    /// Whether the whole transaction may be run again with a new start timestamp, and may then
    /// succeed. Never true if the outcome of a transaction that writes is unknown.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Aborted { reason, .. } => reason.is_retryable(),
            Error::Locked { .. } | Error::TooOld { .. } => true,
            Error::Store(error) => is_passing(error),
            // Repeating might apply it twice.
            Error::Unknown { .. } => false,
            // Repeating gives the same answer.
            Error::NotIssued { .. }
            | Error::Invalid { .. }
            | Error::Corrupt { .. }
            | Error::Oracle(_)
            | Error::Refused(_)
            | Error::Application(_)
            | Error::Unavailable(_)
            | Error::Overloaded { .. }
            | Error::Closed => false,
        }
    }
}

/// Why a transaction aborted.
///
/// ```
/// # use percolator_core::face as percolator;
/// use percolator::AbortReason;
/// assert!(AbortReason::RolledBack.is_retryable());
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AbortReason {
    /// Another transaction wrote or is writing one of the cells.
    #[error("{0}")]
    Conflict(Box<Conflict>),
    /// Another client took this transaction's owner for dead and rolled it back.
    #[error("another client took its owner for dead and rolled it back")]
    RolledBack,
    /// Its start timestamp fell below the garbage collection safe point.
    #[error("the garbage collection safe point passed its start timestamp")]
    TooOld,
    /// The store refused or failed a prewrite.
    #[error("the store failed before the commit point: {0}")]
    Store(bigtable::Error),
    /// The oracle could not issue a commit timestamp.
    #[error("no commit timestamp: {0}")]
    Oracle(String),
}

impl AbortReason {
    /// Whether the transaction may succeed when run again.
    pub fn is_retryable(&self) -> bool {
        match self {
            AbortReason::Conflict(_) | AbortReason::RolledBack | AbortReason::TooOld => true,
            AbortReason::Store(error) => is_passing(error),
            AbortReason::Oracle(_) => false,
        }
    }
}

/// Whether a failure of the store may pass. A request with an unknown outcome counts as
/// passing: it was never the request that commits, for that one reports [`Error::Unknown`].
/// The new run does not depend on it.
pub(crate) fn is_passing(error: &bigtable::Error) -> bool {
    error.is_retryable() || matches!(error, bigtable::Error::Unknown { .. })
}

/// The cell that two transactions both wanted, and the transaction that won.
///
/// ```
/// # use percolator_core::face as percolator;
/// # percolator_core::doc_test(|client| async move {
/// use percolator::{AbortReason, Column, Error};
/// let (table, bal) = (client.table("accounts").await?, Column::literal("bal"));
/// let (mut first, mut second) = (client.begin().await?, client.begin().await?);
/// first.set(&table, "Bob", &bal, "3")?;
/// second.set(&table, "Bob", &bal, "4")?;
/// let winner = first.commit().await?;
/// let Err(Error::Aborted { reason: AbortReason::Conflict(conflict), .. }) = second.commit().await
/// else { panic!("the second must lose") };
/// assert_eq!(conflict.cell.to_string(), "accounts/Bob/bal");
/// assert_eq!(conflict.winner_commit_ts, Some(winner));
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The cell.
    pub cell: CellName,
    /// The winner's start timestamp.
    pub winner_start_ts: Timestamp,
    /// The winner's commit timestamp, if it has committed.
    pub winner_commit_ts: Option<Timestamp>,
    /// The winner's owner, if it still holds its lock.
    pub winner_owner: Option<Incarnation>,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Conflict { cell, winner_start_ts, winner_commit_ts, winner_owner } = self;
        write!(f, "conflict on {cell} with transaction {winner_start_ts}")?;
        if let Some(commit_ts) = winner_commit_ts {
            write!(f, ", committed at {commit_ts}")?;
        }
        if let Some(owner) = winner_owner {
            write!(f, ", still locked by {owner}")?;
        }
        Ok(())
    }
}
