//! The timestamp oracle (paper section 2.3).
//!
//! Timestamps rise strictly, and none is issued twice, not even across restarts. Every reply
//! also carries the version of the observer schema. So a client that holds a timestamp knows
//! which columns were observed when it was issued, and notifies them (H59).

mod election;
mod lease;
mod record;
mod window;
mod window_oracle;

use std::fmt::Debug;

use async_trait::async_trait;
use bigtable::Timestamp;

use crate::Result;

pub use election::{OracleNode, OracleOptions, OracleRole};
pub use window_oracle::{TIMESTAMPS_MAX, WindowOracle};

/// A timestamp, and the version of the observer schema that was in force when it was issued.
///
/// ```
/// # percolator_core::doc_test(|client| async move {
/// let (a, b) = (client.oracle().timestamp().await?, client.oracle().timestamp().await?);
/// assert!(a.timestamp < b.timestamp);
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The timestamp.
    pub timestamp: Timestamp,
    /// The version. Registering an observer raises it, and it never goes back.
    pub schema_version: u64,
}

/// Consecutive timestamps, issued in one request.
///
/// ```
/// # use percolator_core::face as percolator;
/// # futures::executor::block_on(async {
/// # use percolator::admin::Incarnation;
/// # use percolator::cluster::WindowOracle;
/// # let store = bigtable::MemoryStore::new();
/// let oracle = WindowOracle::open(&store, Incarnation(1)).await?;
/// let range = oracle.timestamps(3).await?;
/// let (first, last) = (range.stamp(0).unwrap(), range.stamp(2).unwrap());
/// assert_eq!(last.timestamp.as_u64(), first.timestamp.as_u64() + 2);
/// assert_eq!(range.stamp(3), None);
/// # Ok::<(), percolator::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StampRange {
    /// The lowest of the timestamps.
    pub first: Timestamp,
    /// How many timestamps there are.
    pub count: u32,
    /// Like [`Stamp::schema_version`], for all of them.
    pub schema_version: u64,
}

impl StampRange {
    /// The timestamp at `index`, counted from zero.
    pub fn stamp(&self, index: u32) -> Option<Stamp> {
        let timestamp = self.first.as_u64().checked_add(u64::from(index))?;
        let timestamp = Timestamp::new(timestamp).filter(|_| index < self.count)?;
        Some(Stamp { timestamp, schema_version: self.schema_version })
    }
}

/// Issues timestamps.
///
/// See [`Stamp`] for an example. [`WindowOracle`] is the oracle of a single process.
#[async_trait]
pub trait Oracle: Send + Sync + Debug {
    /// Issues a timestamp that is higher than every one whose reply was sent before this
    /// request was made.
    ///
    /// # Errors
    /// [`Error::Oracle`](crate::Error::Oracle) if no timestamp can be issued.
    async fn timestamp(&self) -> Result<Stamp>;

    /// Whether [`timestamp_in_memory`](Oracle::timestamp_in_memory) ever returns a timestamp.
    fn issues_in_memory(&self) -> bool {
        false
    }

    /// Like [`timestamp`](Oracle::timestamp), without waiting. `None` if the oracle cannot do
    /// that, or not at this moment.
    fn timestamp_in_memory(&self) -> Option<Stamp> {
        None
    }

    /// Returns the highest timestamp issued so far, without issuing one.
    ///
    /// # Errors
    /// As [`timestamp`](Oracle::timestamp).
    async fn peek(&self) -> Result<Timestamp>;

    /// Returns the version of the observer schema that timestamps issued now would carry.
    ///
    /// # Errors
    /// As [`timestamp`](Oracle::timestamp).
    async fn schema_version(&self) -> Result<u64>;

    /// Raises the schema version durably: every later reply carries at least this version.
    ///
    /// # Errors
    /// As [`timestamp`](Oracle::timestamp).
    async fn raise_schema_version(&self, version: u64) -> Result<()>;
}
