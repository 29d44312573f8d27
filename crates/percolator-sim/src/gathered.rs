//! Conditional mutations of one process that wait for each other and go in one request, as the client of a
//! store behind a network lets them (paper section 2.5, `batch_delay` of `bigtable-grpc`).
//!
//! What the protocol meets by this: its requests leave a while after it has sent them, and those of several
//! transactions are lost, late, doubled or answered together. Reads wait likewise there, but one that is lost
//! changes nothing, and one that is late is a slow message: they are not simulated.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bigtable::{ConditionalMutation, Result};
use bytes::Bytes;
use futures::channel::oneshot;

use crate::executor::Executor;
use crate::remote_store::{RemoteStore, unknown};
use crate::store::unavailable;
use crate::tally::Sometimes;

/// As many go at once without waiting any longer.
const ENTRIES_MAX: usize = 20;
/// What is later than this is not sent: the process was paused meanwhile.
const LATE_MAX: Duration = Duration::from_millis(1);

/// The requests of a process that wait, by table.
pub(crate) struct Gathered {
    executor: Executor,
    delay: Duration,
    waiting: Mutex<BTreeMap<Bytes, Vec<Waiting>>>,
}

/// Mutations of one caller, and who waits for what becomes of them.
struct Waiting {
    requests: Vec<ConditionalMutation>,
    tell: oneshot::Sender<Vec<Result<bool>>>,
}

impl Gathered {
    /// `None` where nothing waits.
    pub(crate) fn new(executor: &Executor, delay: Duration) -> Option<Arc<Self>> {
        let (executor, waiting) = (executor.clone(), Mutex::default());
        (!delay.is_zero()).then(|| Arc::new(Gathered { executor, delay, waiting }))
    }

    /// How much longer a request lives for having waited.
    pub(crate) fn life(&self) -> Duration {
        self.delay + LATE_MAX
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<Bytes, Vec<Waiting>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, table: &Bytes) -> Vec<Waiting> {
        self.waiting().remove(table).unwrap_or_default()
    }

    /// Sends mutations of a table together with those of others.
    pub(crate) async fn send(
        self: &Arc<Self>,
        store: &RemoteStore,
        table: &Bytes,
        requests: Vec<ConditionalMutation>,
    ) -> Vec<Result<bool>> {
        let count = requests.len();
        let (tell, told) = oneshot::channel();
        let (is_first, is_full) = {
            let mut waiting = self.waiting();
            let all = waiting.entry(table.clone()).or_default();
            all.push(Waiting { requests, tell });
            let entries: usize = all.iter().map(|waiting| waiting.requests.len()).sum();
            (all.len() == 1, entries >= ENTRIES_MAX)
        };
        let (gathered, store, table) = (self.clone(), store.clone(), table.clone());
        let (process, now) = (store.process, self.executor.now());
        if is_full {
            let all = self.take(&table);
            let sent = async move { gathered.deliver(store, &table, all, now).await };
            self.executor.spawn(process, Box::pin(sent));
        } else if is_first {
            let due = now + self.delay;
            let sent = async move {
                gathered.executor.sleep(gathered.delay).await;
                let all = gathered.take(&table);
                gathered.deliver(store, &table, all, due).await;
            };
            self.executor.spawn(process, Box::pin(sent));
        }
        told.await.unwrap_or_else(|_| vec![Err(unknown()); count])
    }

    /// Sends what was due then, unless it is too late for that.
    async fn deliver(&self, store: RemoteStore, table: &Bytes, all: Vec<Waiting>, due: Duration) {
        if all.len() > 1 {
            store.tally.happened(Sometimes::Gathered);
        }
        let late = self.executor.now() > due + LATE_MAX;
        let counts: Vec<usize> = all.iter().map(|waiting| waiting.requests.len()).collect();
        let (requests, tells): (Vec<_>, Vec<_>) =
            all.into_iter().map(|waiting| (waiting.requests, waiting.tell)).unzip();
        let requests: Vec<_> = requests.into_iter().flatten().collect();
        let results = match late {
            true => vec![Err(unavailable("the process stood still")); requests.len()],
            false => store.check_many(table, requests).await,
        };
        let mut results = results.into_iter();
        for (count, tell) in counts.into_iter().zip(tells) {
            let _ = tell.send(results.by_ref().take(count).collect());
        }
    }
}
