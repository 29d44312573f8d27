//! Implements the oracle for a client process: it batches the requests of its callers.
//!
//! Only one request is in flight, however many callers there are. A caller that arrives
//! meanwhile joins the next request. One request asks for a timestamp for every waiting
//! caller. So more callers get more timestamps a second, from no more requests. No caller gets
//! a timestamp that was issued before it asked, because it joins a request that has not left
//! yet (H09).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use percolator_core::{Error, Oracle, Result, Stamp, Timestamp};

use crate::oracle::batch::Ticket;
use crate::oracle::drive::Driver;
use crate::oracle::queue::{Queue, Want};
use crate::{Address, Tls};

/// Most addresses of oracle processes.
const ADDRESSES_MAX: usize = 64;

/// The options of a client of the oracle.
///
/// ```
/// use percolator_rpc::oracle::RemoteOracleOptions;
/// let options = RemoteOracleOptions::default();
/// assert!(options.attempt < options.deadline);
/// ```
#[derive(Debug, Clone)]
pub struct RemoteOracleOptions {
    /// Shortest time that a caller waits before it gets the error that no oracle answers. The
    /// wait may be longer by up to `attempt`. Default: 10 s.
    pub deadline: Duration,
    /// Longest time for one connection attempt, and for one request. Default: 1 s.
    pub attempt: Duration,
    /// Most waiting callers; further ones fail at once. Default: 1,000,000 callers.
    pub callers_max: usize,
    /// Certificates for mutual TLS. `None` means plain text. Default: `None`.
    pub tls: Option<Tls>,
}

impl Default for RemoteOracleOptions {
    fn default() -> Self {
        RemoteOracleOptions {
            deadline: Duration::from_secs(10),
            attempt: Duration::from_secs(1),
            callers_max: 1_000_000,
            tls: None,
        }
    }
}

/// Asks the oracle process that leads, among those at the given addresses.
///
/// See [`OracleServer`](crate::oracle::OracleServer) for an example.
#[derive(Debug)]
pub struct RemoteOracle {
    queue: Arc<Queue>,
}

impl RemoteOracle {
    /// Starts a client of the oracle processes at these addresses, as a task of the current
    /// tokio runtime. It connects at the first request.
    ///
    /// # Errors
    /// [`crate::Error::Settings`] for no or too many addresses, or for an option of zero.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(
        addresses: Vec<Address>,
        options: RemoteOracleOptions,
    ) -> Result<Self, crate::Error> {
        let bad = |what: String, remedy: &str| Err(crate::Error::settings(what, remedy));
        if addresses.is_empty() || addresses.len() > ADDRESSES_MAX {
            let what = format!("{} addresses of oracle processes were given", addresses.len());
            return bad(what, "give 1 to 64");
        }
        if options.callers_max == 0 || options.attempt.is_zero() {
            return bad(format!("{options:?}"), "give room for a caller, and time for an attempt");
        }
        let queue = Arc::new(Queue::new(options.callers_max));
        tokio::spawn(Driver::new(queue.clone(), addresses, options).run());
        Ok(RemoteOracle { queue })
    }

    fn ask(&self, want: Want) -> Ticket<'_> {
        Ticket::new(&self.queue, want)
    }
}

impl Drop for RemoteOracle {
    fn drop(&mut self) {
        self.queue.end(&Error::Oracle("the oracle's client was dropped".to_owned()));
    }
}

#[async_trait]
impl Oracle for RemoteOracle {
    async fn timestamp(&self) -> Result<Stamp> {
        let given = self.ask(Want::Timestamp).await?;
        let timestamp = Timestamp::new(given.first).expect("answers are checked");
        Ok(Stamp { timestamp, schema_version: given.schema_version })
    }

    async fn peek(&self) -> Result<Timestamp> {
        let given = self.ask(Want::Look).await?;
        Ok(Timestamp::new(given.latest).expect("answers are checked"))
    }

    async fn schema_version(&self) -> Result<u64> {
        Ok(self.ask(Want::Look).await?.schema_version)
    }

    async fn raise_schema_version(&self, version: u64) -> Result<()> {
        // Every version is at least zero, so `Raise(0)` is valid and raises nothing.
        self.ask(Want::Raise(version)).await.map(drop)
    }
}
