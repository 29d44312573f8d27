//! Defines the options of a client, and the bounds of a transaction.

use std::sync::Arc;
use std::time::Duration;

use crate::Sampling;
use crate::watch::Watch;

/// Longest key in bytes of a row that a transaction writes, on every store.
pub const ROW_KEY_BYTES_MAX: usize = bigtable::ROW_KEY_BYTES_MAX - 1;
/// Largest number of cells that one transaction may write.
pub const TRANSACTION_CELLS_MAX: usize = 100_000;
/// Largest number of bytes, keys and values together, that one transaction may write.
pub const TRANSACTION_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The options of a client, set when it is opened. The defaults suit the embedded store.
///
/// ```
/// # use percolator_core::face as percolator;
/// use percolator::Options;
/// let lock_lifetime = std::time::Duration::from_secs(3);
/// let options = Options { lock_lifetime, ..Options::default() };
/// assert!(options.read_wait_max > options.lock_lifetime);
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a lock may stay unchanged before other clients take its owner for dead, even
    /// if the owner's liveness token exists. A commit that takes longer renews its primary
    /// lock. Default: 10 s.
    pub lock_lifetime: Duration,
    /// How long a transaction may keep renewing its primary lock. Default: 600 s.
    pub transaction_life_max: Duration,
    /// How long a read waits for a lock whose owner lives before it fails with
    /// [`Error::Locked`](crate::Error::Locked). Default: 30 s.
    pub read_wait_max: Duration,
    /// How long a commit tries to reach its primary before its outcome is
    /// [`Error::Unknown`](crate::Error::Unknown). Default: 30 s.
    pub commit_deadline: Duration,
    /// Values up to this length travel inside lock and write records, so that a read needs no
    /// lookup in the `data` family. A commit in one step writes no locks: there values of up to
    /// four times this length travel inside write records. Default: 256 bytes (so 1,024 bytes in
    /// one step).
    pub short_value_bytes_max: usize,
    /// Whether a transaction reads columns ahead. A read of one cell then also fetches, in the
    /// same request, the columns of its row that earlier transactions read after it. The
    /// transaction keeps them. This saves time if requests go over a network. In the embedded
    /// store a read costs less than columns fetched in vain. Default: `false`.
    pub read_ahead: bool,
    /// [`admit`](crate::Client::admit) waits while more changes than this wait for observers.
    /// `usize::MAX` means no bound. Default: 2,000 changes.
    pub backlog_max: usize,
    /// Whether `admit` counts all notifications in the store, or only the changes that wait
    /// for workers of this client. Other processes leave and handle a part of those in the
    /// store. [`over_network`](Options::over_network) sets it, because a loader in a cluster
    /// usually has no workers of its own. Default: `false`.
    pub backlog_of_store: bool,
    /// How long `admit` waits before it gives up. Default: 60 s.
    pub admit_wait_max: Duration,
    /// How often [`transact`](crate::Client::transact) runs its closure before it gives up.
    /// Default: 64 times.
    pub attempts_max: u32,
    /// Whether `commit` returns at the commit point or after the secondaries. Default: `Awaited`.
    pub secondaries: Secondaries,
    /// Whether a commit takes one step if it can, or always the paper's two phases. Default:
    /// `OneStep`.
    pub commit_path: CommitPath,
    /// The watcher that the client calls after each event: a commit, a lock that was found, an
    /// observer's run. See [`Watch`] for an example. Default: `None`.
    pub watch: Option<Arc<dyn Watch>>,
    /// Selects the transactions of which the client leaves a trace in the store, for
    /// [`Client::why`](crate::Client::why). A trace is written after the commit, in rows of a table
    /// of Percolator's own, and is kept for a day or a million transactions. Clients of one store
    /// should sample alike. Default: `Off`.
    pub trace: Sampling,
}

/// How a transaction commits.
///
/// ```
/// # use percolator_core::face as percolator;
/// use percolator::transaction::CommitPath;
/// use percolator::Options;
/// // The paper's protocol, to look at it or to compare with it.
/// let options = Options { commit_path: CommitPath::TwoPhases, ..Options::default() };
/// assert_ne!(options.commit_path, Options::default().commit_path);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitPath {
    /// In one step if store and oracle are in this process and the transaction has at most
    /// 1,000 rows and 8 MiB. Otherwise in two phases.
    OneStep,
    /// Prewrite, then commit (paper section 2.2).
    TwoPhases,
}

/// When the secondaries of a transaction are committed. A failure there never changes the
/// outcome: clients that find the locks roll them forward.
///
/// See [`Options`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secondaries {
    /// Before `commit` returns. Readers then find no locks of the transaction.
    Awaited,
    /// In a task of their own: `commit` returns at the commit point, which saves a request
    /// over a network. At most 256 transactions of a client do so at a time; further ones
    /// wait.
    Background,
}

/// How many times as long as in two phases a value in a write record may be after one step. A
/// lock would carry the value a second time.
const RECORD_VALUE_TIMES: usize = 4;

/// The longest lifetime that clients accept, whatever a lock says.
pub(crate) const LOCK_LIFETIME_MAX: Duration = Duration::from_secs(600);

impl Options {
    /// The defaults for a store whose requests go over a network.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// use percolator::transaction::Secondaries;
    /// use percolator::Options;
    /// assert_eq!(Options::over_network().secondaries, Secondaries::Background);
    /// ```
    pub fn over_network() -> Self {
        Options {
            secondaries: Secondaries::Background,
            backlog_of_store: true,
            ..Options::default()
        }
    }

    /// The longest value in a write record that a commit in one step writes.
    pub(crate) fn record_value_bytes_max(&self) -> usize {
        self.short_value_bytes_max.saturating_mul(RECORD_VALUE_TIMES)
    }

    /// The lifetime of this client's locks, capped at what other clients accept.
    pub(crate) fn lock_lifetime(&self) -> Duration {
        self.lock_lifetime.min(LOCK_LIFETIME_MAX)
    }
}

/// The lifetime that a lock states, capped at what clients accept.
pub(crate) fn believed_lifetime(lifetime_ms: u32) -> Duration {
    Duration::from_millis(u64::from(lifetime_ms)).min(LOCK_LIFETIME_MAX)
}

impl Default for Options {
    fn default() -> Self {
        Options {
            lock_lifetime: Duration::from_secs(10),
            transaction_life_max: Duration::from_secs(600),
            read_wait_max: Duration::from_secs(30),
            commit_deadline: Duration::from_secs(30),
            short_value_bytes_max: 256,
            read_ahead: false,
            backlog_max: 2_000,
            backlog_of_store: false,
            admit_wait_max: Duration::from_secs(60),
            attempts_max: 64,
            secondaries: Secondaries::Awaited,
            commit_path: CommitPath::OneStep,
            watch: None,
            trace: Sampling::Off,
        }
    }
}
