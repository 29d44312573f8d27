//! Defines the interface between the driver and a store.

use async_trait::async_trait;
use percolator::AbortReason;

use crate::check::Books;
use crate::request::{Answer, Request};
use crate::{Error, Result};

#[async_trait]
pub(crate) trait Backend: Send + Sync + std::fmt::Debug {
    async fn attempt(&self, request: &Request) -> Result<Answer, Failed>;

    /// Reserves trade numbers durably, and returns the first.
    async fn reserve(&self, count: u64) -> Result<u64>;

    /// Reads the facts that the checks need, as of one moment.
    async fn books(&self) -> Result<Books>;
}

/// A failed attempt, with the reason.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) why: Why,
    pub(crate) error: Error,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// Another transaction came first. Nothing was written, and the next attempt may succeed.
    Conflict,
    /// A passing fault of the store; nothing was written.
    Passing,
    /// The attempt may have been committed.
    Unknown,
    /// Every further attempt would fail too.
    Lasting,
}

impl From<percolator::Error> for Failed {
    fn from(error: percolator::Error) -> Self {
        let why = match &error {
            percolator::Error::Aborted { reason: AbortReason::Conflict(_), .. } => Why::Conflict,
            percolator::Error::Unknown { .. } => Why::Unknown,
            error if error.is_retryable() => Why::Passing,
            _ => Why::Lasting,
        };
        Failed { why, error: Error::Database(error) }
    }
}
