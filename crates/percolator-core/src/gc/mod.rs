//! Garbage collection: dropping versions that nobody can read any more.
//!
//! ```text
//! readers      who still reads the past, in this client and in others
//! safe_point   how far collection may go: below every reader, behind the present by a retention
//!   1. the safe point becomes the store's floor: below it nothing is read, locked or decided
//! sweep        2. every lock below it is resolved; one whose owner lives ends the round
//! collect      3. what its newest write hides is dropped, and why that races with nothing
//! notifications   stale ones, where they lie in a table of their own
//! background   rounds by themselves, with a small share of the machine
//! unfenced     all of this where the store cannot compare a floor
//! ```
//!
//! Invariants: the safe point never goes back; nothing is collected before the floor is durable and
//! the locks below it are resolved; a round that a crash cuts short is done again. Secondary
//! commits, roll-forward, rollback and tombs are never fenced: they finish what was decided.

mod background;
mod collect;
mod notifications;
mod pace;
mod readers;
mod safe_point;
mod sweep;
mod unfenced;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bigtable::Timestamp;
use bigtable::sync::locked;

use crate::mutants::{self, off};
use crate::{Client, LockView, Result, Runtime};

pub use background::{Collector, GcOptions};
pub(crate) use background::{Slot, end};
pub use readers::OldestReader;
pub(crate) use readers::{Open, OpenReaders};

use pace::Pace;
use readers::Watched;
use safe_point::Samples;
use unfenced::Registered;

/// What a client remembers for garbage collection.
#[derive(Debug, Default)]
pub(crate) struct Collection {
    pub(crate) readers: Arc<OpenReaders>,
    samples: Mutex<Samples>,
    /// Those of this life alone, for stores without a floor.
    lived: Mutex<Samples>,
    watched: Mutex<Watched>,
    registered: Registered,
    /// The longest life of a request of any client, as far as this one knows; for stores without a
    /// floor.
    longest_life: Mutex<Duration>,
}

impl Collection {
    /// For a store with a floor; or without one, and requests that live so long at most.
    pub(crate) fn new(runtime: &Arc<dyn Runtime>, life: Option<Duration>) -> Self {
        let readers = life.map(|life| OpenReaders::unfenced(runtime.clone(), life));
        let longest_life = Mutex::new(life.unwrap_or_default());
        Collection {
            readers: Arc::new(readers.unwrap_or_default()),
            longest_life,
            ..Collection::default()
        }
    }

    fn longest_life(&self) -> MutexGuard<'_, Duration> {
        locked(&self.longest_life)
    }

    fn lived(&self) -> MutexGuard<'_, Samples> {
        locked(&self.lived)
    }

    fn samples(&self) -> MutexGuard<'_, Samples> {
        locked(&self.samples)
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        locked(&self.watched)
    }
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a round did, in numbers.
        ///
        /// See [`Client::gc`].
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct GcCounts { $($(#[$doc])* pub $name: u64,)* }

        impl GcCounts {
            /// Names and numbers, in a fixed order.
            pub fn entries(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }

            fn fields(&mut self) -> Vec<&mut u64> {
                vec![$(&mut self.$name,)*]
            }
        }
    };
}

counts! {
    /// Locks that were rolled forward or back before collecting.
    locks,
    /// Cells of which something was dropped.
    cells,
    /// Committed versions dropped.
    writes,
    /// Values among them that were too long to be in the write record.
    values,
    /// Marks of transactions that were rolled back.
    tombs,
    /// Notifications of cells that were not dirty.
    notifications,
    /// Acknowledgements of cells that are gone.
    acknowledgements,
}

impl GcCounts {
    /// Whether anything was dropped from the store.
    fn dropped(&self) -> bool {
        GcCounts { locks: 0, ..*self } != GcCounts::default()
    }
}

/// What came of a round of garbage collection.
///
/// See [`Client::gc`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GcReport {
    /// Nothing below it can be read any more.
    pub safe_point: Timestamp,
    /// The lock whose living owner ended the round before anything was dropped, if there was one.
    pub blocked_by: Option<LockView>,
    /// What was done.
    pub counts: GcCounts,
}

/// The last round of garbage collection, as the store remembers it.
///
/// See [`Client::gc_status`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastRound {
    /// When it ended, in milliseconds since 1970.
    pub wall_ms: u64,
    /// Its safe point.
    pub safe_point: Timestamp,
    /// Up to where everything is collected.
    pub collected: Timestamp,
    /// Whether a living owner's lock ended it before it dropped anything.
    pub blocked: bool,
    /// What it did.
    pub counts: GcCounts,
}

/// Where garbage collection stands.
///
/// See [`Client::gc_status`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GcStatus {
    /// Nothing below it can be read any more; on a store without a floor, by who begins now.
    pub safe_point: Timestamp,
    /// The latest timestamp issued.
    pub latest: Timestamp,
    /// What the safe point of a round would be now.
    pub next: Timestamp,
    /// Who has something open, the oldest first. Of other clients those that have had it for a
    /// while: what is younger is protected by the retention.
    pub readers: Vec<OldestReader>,
    /// The last round that did something.
    pub last: Option<LastRound>,
}

impl Client {
    /// Collects garbage once: versions that were overwritten or deleted more than `retention` ago
    /// and that nobody has open. Goes as fast as it can;
    /// [`collect_in_background`](Client::collect_in_background) is for every day.
    ///
    /// ```
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator_core::{Column, Error};
    /// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
    /// let then = client.snapshot().await?.timestamp();
    /// for balance in ["$10", "$3", "$7"] {
    ///     client.transact(async |mut tx| tx.set(&accounts, "Bob", &bal, balance)).await?;
    /// }
    /// let report = client.gc(std::time::Duration::ZERO).await?;
    /// assert!(report.safe_point > then && report.blocked_by.is_none());
    /// assert_eq!(report.counts.writes, 2);
    /// assert!(matches!(client.snapshot_at(then).await, Err(Error::TooOld { .. })));
    /// # Ok(()) });
    /// ```
    ///
    /// A retention protects the transactions of other clients that are younger. Older ones of a
    /// client that collects in the background hold the safe point back; those of a client that does
    /// not, as [`open`](Client::open) returns it, fail with
    /// [`Error::TooOld`](crate::Error::TooOld). So no retention should be shorter than the longest
    /// transaction.
    ///
    /// On a store without a floor no retention is shorter than
    /// [`retention_min`](Client::retention_min), and a client that collects for the first time
    /// watches for so long before it does.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for too short a retention; those of store, oracle
    /// and lock service. The next round goes on where this one ended.
    pub async fn gc(&self, retention: Duration) -> Result<GcReport> {
        self.check_retention(retention)?;
        self.sample().await?;
        self.ripen(retention).await?;
        self.round(retention, Pace::full()).await
    }

    /// Where garbage collection stands. Changes no table, and no timestamp is issued; notes when
    /// the latest one was, and takes back registrations that have lapsed.
    ///
    /// ```
    /// # percolator_core::doc_test(|client| async move {
    /// let open = client.begin().await?;
    /// client.begin().await?;
    /// let status = client.gc_status(std::time::Duration::ZERO).await?;
    /// assert_eq!(status.next, open.start_ts());
    /// assert!(status.last.is_none());
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`gc`](Client::gc).
    pub async fn gc_status(&self, retention: Duration) -> Result<GcStatus> {
        let latest = self.sample().await?;
        let mut readers = self.oldest_readers(latest).await?;
        readers.sort_by_key(|reader| reader.oldest);
        let next = readers.iter().map(|reader| reader.oldest).min().unwrap_or(latest);
        let safe_point = self.safe_point().await?;
        let last = self.last_round().await?;
        // Where there is no floor, who began to read below the safe point goes on doing so.
        let lowest = match self.unfenced() {
            None => safe_point,
            Some(_) => last.as_ref().map_or(Timestamp::ZERO, |last| last.collected),
        };
        let next = next.min(self.beyond_retention(retention, latest)).max(lowest);
        Ok(GcStatus { safe_point, latest, next, readers, last })
    }

    async fn round(&self, retention: Duration, mut pace: Pace) -> Result<GcReport> {
        self.learn_longest_life().await?;
        self.check_retention(retention)?;
        let announced = self.announce(retention).await?;
        let GcStatus { next, last, .. } = self.gc_status(retention).await?;
        let safe_point = next.min(announced);
        let collected = last.map_or(Timestamp::ZERO, |last| last.collected);
        let mut report = GcReport { safe_point, blocked_by: None, counts: GcCounts::default() };
        if safe_point <= collected {
            return Ok(report);
        }
        let store = &self.services().store;
        self.raise_safe_point(safe_point).await?;
        let counts = &mut report.counts;
        if !off(mutants::GC_BEFORE_LOCKS) {
            report.blocked_by = self.sweep_locks(safe_point, &mut pace, counts).await?;
        }
        let blocked = report.blocked_by.is_some();
        if !blocked {
            self.store_swept(safe_point).await?;
            self.collect_tables(safe_point, &mut pace, counts).await?;
        }
        let counts = report.counts;
        let collected = if blocked { collected } else { safe_point };
        let wall_ms = self.runtime().wall_ms();
        self.store_round(&LastRound { wall_ms, safe_point, collected, blocked, counts }).await?;
        tracing::info!(
            target: "percolator::gc", event = "gc_round", safe_point = safe_point.as_u64(), blocked,
            ?counts,
        );
        if counts.dropped() {
            store.reclaim().await?;
        }
        Ok(report)
    }

    /// Where the store has no floor: stores how far the round may go before anybody's registration
    /// is read, so that who registers after that finds it. Returns it.
    async fn announce(&self, retention: Duration) -> Result<Timestamp> {
        if self.unfenced().is_none() {
            return Ok(Timestamp::MAX);
        }
        let latest = self.sample().await?;
        let reach = self.beyond_retention(retention, latest);
        self.raise_safe_point(reach).await?;
        Ok(reach)
    }

    pub(crate) fn readers(&self) -> &Arc<OpenReaders> {
        &self.collection().readers
    }
}
