//! Delays requests of one process so that several go in one message, as `batch_delay` of
//! `bigtable-grpc` does (paper section 2.5). Conditional mutations join conditional mutations,
//! and reads of single rows join reads.
//!
//! Batching tests the protocol in two ways. A request leaves the process some time after the
//! protocol has sent it. And one fault of the network hits several transactions: their requests
//! are lost, late, doubled or answered together.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigtable::sync::locked;
use bigtable::{ConditionalMutation, Error, Result, Row};
use bytes::Bytes;
use futures::channel::oneshot;

use crate::codec::RowRead;
use crate::executor::Executor;
use crate::failures::unavailable;
use crate::failures::unknown;
use crate::remote_store::RemoteStore;
use crate::tally::Sometimes;

/// This many requests are sent without further waiting.
const ENTRIES_MAX: usize = 20;
/// Requests that are later than this are not sent: the process was paused meanwhile.
const LATE_MAX: Duration = Duration::from_millis(1);

/// The requests that wait in a process, by kind.
pub(crate) struct Gathers {
    pub(crate) mutations: Arc<Gathered<ConditionalMutation>>,
    pub(crate) reads: Arc<Gathered<RowRead>>,
}

impl Gathers {
    /// Returns `None` if the delay is zero, since no request waits then.
    pub(crate) fn new(executor: &Executor, delay: Duration) -> Option<Arc<Self>> {
        (!delay.is_zero()).then(|| {
            let mutations = Gathered::new(executor, delay);
            Arc::new(Gathers { mutations, reads: Gathered::new(executor, delay) })
        })
    }

    /// By how much waiting prolongs the life of a request.
    pub(crate) fn life(&self) -> Duration {
        self.mutations.delay + LATE_MAX
    }
}

/// A request that can join others to the same table.
pub(crate) trait Together: Sized + Send + 'static {
    type Answer: Send + 'static;
    /// The event to count when several requests went together.
    const GATHERED: Sometimes;

    /// Sends all requests in one message. Returns an answer for each.
    fn deliver(
        store: &RemoteStore,
        table: &Bytes,
        requests: Vec<Self>,
    ) -> impl Future<Output = Vec<Result<Self::Answer>>> + Send;

    /// The result of a request without an answer.
    fn unanswered() -> Error;
}

impl Together for ConditionalMutation {
    type Answer = bool;
    const GATHERED: Sometimes = Sometimes::Gathered;

    async fn deliver(store: &RemoteStore, table: &Bytes, requests: Vec<Self>) -> Vec<Result<bool>> {
        store.check_many(table, requests).await
    }

    fn unanswered() -> Error {
        unknown()
    }
}

impl Together for RowRead {
    type Answer = Row;
    const GATHERED: Sometimes = Sometimes::GatheredReads;

    async fn deliver(store: &RemoteStore, table: &Bytes, requests: Vec<Self>) -> Vec<Result<Row>> {
        store.read_many(table, requests).await
    }

    fn unanswered() -> Error {
        unavailable("no answer")
    }
}

/// The requests of one kind that wait in a process, by table.
pub(crate) struct Gathered<R: Together> {
    executor: Executor,
    delay: Duration,
    waiting: Mutex<BTreeMap<Bytes, Vec<Waiting<R>>>>,
}

/// Requests of one caller, with the channel for their results.
struct Waiting<R: Together> {
    requests: Vec<R>,
    tell: oneshot::Sender<Vec<Result<R::Answer>>>,
}

impl<R: Together> Gathered<R> {
    fn new(executor: &Executor, delay: Duration) -> Arc<Self> {
        let (executor, waiting) = (executor.clone(), Mutex::default());
        Arc::new(Gathered { executor, delay, waiting })
    }

    fn take(&self, table: &Bytes) -> Vec<Waiting<R>> {
        locked(&self.waiting).remove(table).unwrap_or_default()
    }

    /// Sends requests to a table, together with those of other callers.
    pub(crate) async fn send(
        self: &Arc<Self>,
        store: &RemoteStore,
        table: &Bytes,
        requests: Vec<R>,
    ) -> Vec<Result<R::Answer>> {
        let count = requests.len();
        let (tell, told) = oneshot::channel();
        let (is_first, is_full) = {
            let mut waiting = locked(&self.waiting);
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
        let unanswered = || (0..count).map(|_| Err(R::unanswered())).collect();
        told.await.unwrap_or_else(|_| unanswered())
    }

    /// Sends the requests that were due at `due`, unless it is too late for that.
    async fn deliver(
        &self,
        store: RemoteStore,
        table: &Bytes,
        all: Vec<Waiting<R>>,
        due: Duration,
    ) {
        if all.is_empty() {
            // The requests went with the batch before, which was full.
            return;
        }
        let late = self.executor.now() > due + LATE_MAX;
        if all.len() > 1 && !late {
            store.tally.happened(R::GATHERED);
        }
        let counts: Vec<usize> = all.iter().map(|waiting| waiting.requests.len()).collect();
        let (requests, tells): (Vec<_>, Vec<_>) =
            all.into_iter().map(|waiting| (waiting.requests, waiting.tell)).unzip();
        let requests: Vec<_> = requests.into_iter().flatten().collect();
        let still = || Err(unavailable("the process stood still"));
        let results = if late {
            requests.iter().map(|_| still()).collect()
        } else {
            R::deliver(&store, table, requests).await
        };
        let mut results = results.into_iter();
        for (count, tell) in counts.into_iter().zip(tells) {
            let _ = tell.send(results.by_ref().take(count).collect());
        }
    }
}
