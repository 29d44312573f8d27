//! Closing a client: its workers, its commits in the background, its collectors.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use bigtable::sync::locked;
use futures::future::{Either, select};

use crate::gc::Slot;
use crate::observe::crew::Crew;
use crate::{Client, Error, Result};

/// What has to end before a client is closed.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    /// Nothing begins any more.
    closed: AtomicBool,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// Workers and collectors are not started any more.
    closing: bool,
    crews: Vec<Weak<Crew>>,
    collectors: Vec<Weak<Slot>>,
}

/// What closing has left behind.
///
/// See [`Client::close_within`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CloseReport {
    /// How many workers were still at a cell or at a batch. See
    /// [`Workers::stop_within`](crate::Workers::stop_within).
    pub runs_abandoned: usize,
    /// How many commits were not finished. Whoever meets their locks finishes them.
    pub commits_left: usize,
}

impl Closing {
    fn open(&self) -> MutexGuard<'_, Open> {
        locked(&self.open)
    }

    /// Notes workers that are about to start.
    pub(crate) fn add_crew(&self, crew: &Arc<Crew>) -> Result<()> {
        let mut open = self.open();
        if open.closing {
            return Err(Error::Closed);
        }
        open.crews.retain(|crew| crew.strong_count() > 0);
        open.crews.push(Arc::downgrade(crew));
        Ok(())
    }

    /// Notes a collector; one of a client that is being closed ends at once.
    pub(crate) fn add_collector(&self, collector: &Arc<Slot>) {
        let mut open = self.open();
        if open.closing {
            drop(open);
            return crate::gc::end(collector);
        }
        open.collectors.retain(|collector| collector.strong_count() > 0);
        open.collectors.push(Arc::downgrade(collector));
    }
}

impl Client {
    /// Ends everything that this client does in the background, and waits for it: workers finish
    /// the cell they are at, however long that takes; commits whose caller let go, and secondary
    /// rows, are committed; collectors end where they are. Then the client's liveness token is
    /// given up.
    ///
    /// From then on everything fails with [`Error::Closed`]: what clones of this client begin, and
    /// reads and commits of transactions that are open. A commit that another task is in the middle
    /// of is waited for; a caller that holds its future without polling it holds up `close`. Other
    /// clients of the same store go on. Closing a client that is closed does nothing. An observer
    /// must not await this: it would wait for itself.
    ///
    /// ```
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator_core::{Column, Error};
    /// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
    /// let open = client.begin().await?;
    /// client.close().await;
    /// assert!(matches!(client.begin().await, Err(Error::Closed)));
    /// assert!(matches!(open.get(&accounts, "Bob", &bal).await, Err(Error::Closed)));
    /// # Ok(()) });
    /// ```
    pub async fn close(&self) {
        self.end(None).await;
    }

    /// As [`close`](Client::close), but waits for so long at most, a second more for workers that
    /// block their thread, and returns what is left.
    pub async fn close_within(&self, longest: Duration) -> CloseReport {
        self.end(Some(longest)).await
    }

    async fn end(&self, longest: Option<Duration>) -> CloseReport {
        let runtime = self.runtime();
        let since = runtime.now();
        let left = || longest.map(|longest| (since + longest).saturating_sub(runtime.now()));
        let crews: Vec<Arc<Crew>> = {
            let mut open = self.closing().open();
            open.closing = true;
            open.crews.iter().filter_map(Weak::upgrade).collect()
        };
        // All at once, and then one after the other.
        crews.iter().for_each(|crew| crew.stop());
        let mut report = CloseReport::default();
        for crew in crews {
            report.runs_abandoned += crew.stop_within(&**runtime, left()).await;
        }
        self.closing().closed.store(true, Ordering::SeqCst);
        let finished = self.background().finished();
        match left() {
            None => finished.await,
            Some(left) => {
                if let Either::Right(_) = select(pin!(finished), runtime.sleep(left)).await {
                    report.commits_left = self.background().unfinished();
                }
            }
        }
        let collectors = std::mem::take(&mut self.closing().open().collectors);
        collectors.iter().filter_map(Weak::upgrade).for_each(|slot| crate::gc::end(&slot));
        self.locks().unregister(self.incarnation());
        report
    }

    /// # Errors
    /// [`Error::Closed`] once the client was closed.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closing().closed.load(Ordering::Relaxed) { Err(Error::Closed) } else { Ok(()) }
    }
}
