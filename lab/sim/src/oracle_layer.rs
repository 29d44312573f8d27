//! Puts a layer before an oracle. A layer decides what happens to requests for timestamps; all
//! other requests go through.

use std::fmt;
use std::sync::Arc;

use bigtable::Timestamp;
use percolator_core::{Oracle, Result, Stamp, async_trait};

/// A layer before an oracle.
#[async_trait]
pub(crate) trait OracleLayer: fmt::Debug + Send + Sync {
    async fn timestamp(&self, inner: &dyn Oracle) -> Result<Stamp>;

    /// Returns a timestamp from the oracle's memory. By default there is none.
    fn in_memory(&self, _inner: &dyn Oracle) -> Option<Stamp> {
        None
    }
}

/// An oracle behind a layer.
#[derive(Debug)]
pub(crate) struct Layered<L> {
    pub(crate) inner: Arc<dyn Oracle>,
    pub(crate) layer: L,
}

#[async_trait]
impl<L: OracleLayer> Oracle for Layered<L> {
    async fn timestamp(&self) -> Result<Stamp> {
        self.layer.timestamp(&*self.inner).await
    }

    fn issues_in_memory(&self) -> bool {
        self.inner.issues_in_memory()
    }

    fn timestamp_in_memory(&self) -> Option<Stamp> {
        self.layer.in_memory(&*self.inner)
    }

    async fn peek(&self) -> Result<Timestamp> {
        self.inner.peek().await
    }

    async fn schema_version(&self) -> Result<u64> {
        self.inner.schema_version().await
    }

    async fn raise_schema_version(&self, version: u64) -> Result<()> {
        self.inner.raise_schema_version(version).await
    }
}
