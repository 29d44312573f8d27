//! Delaying conditional mutations and reads, so that those of several callers go in one request
//! (paper section 2.5: lock operations are delayed, "to collect them into batches", and so is every
//! read).
//!
//! The first request that comes waits for the delay of the options, and takes all with it that came
//! meanwhile; as many as the server takes in one request are sent at once. What is sent is
//! sent to its end, whatever becomes of its callers, because it is nobody's alone. So it is sent by
//! the runtime that opened the store: that of a caller may end while others wait.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigtable::sync::locked;
use bigtable::{ConditionalMutation, Error, Result};
use cluster_net::Moment;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::batch;
use super::table::GrpcTable;

/// How late what has gathered may be sent. If it is later, the process was stopped meanwhile, and
/// what its callers knew before may hold no more: of a store without a floor, that what they have
/// open is registered. Then it is not sent at all. How long a request lives counts on it.
pub(super) const LATE_MAX: Duration = Duration::from_secs(1);

/// Why nobody tells an answer, and what to do about it.
pub(super) const RUNTIME_ENDED: &str =
    "the tokio runtime that opened the store has ended; open the store in one that outlives it";

/// A request that can go together with others of its table.
pub(super) trait Together: Sized + Send + 'static {
    /// What the caller waits for.
    type Answer: Debug + Send + 'static;

    /// Sends what has gathered, as far as it goes in one request, and tells the answers.
    fn deliver(table: GrpcTable, gathered: Vec<Waiting<Self>>) -> impl Future<Output = ()> + Send;

    /// What a request comes to whose answer nobody will tell.
    fn given_up() -> Error;
}

/// A request, and who waits for its answer.
#[derive(Debug)]
pub(super) struct Waiting<R: Together> {
    pub(super) request: R,
    tell: oneshot::Sender<Result<R::Answer>>,
}

impl<R: Together> Waiting<R> {
    pub(super) fn tell(self, answer: Result<R::Answer>) {
        // Whoever has given up does not want to know.
        let _ = self.tell.send(answer);
    }
}

/// The requests of one kind and table that wait.
#[derive(Debug)]
pub(super) struct Gather<R: Together> {
    delay: Duration,
    /// Most that wait.
    entries_max: usize,
    /// That of the store, which sends them.
    runtime: Handle,
    waiting: Mutex<Vec<Waiting<R>>>,
}

impl<R: Together> Gather<R> {
    pub(super) fn new(delay: Duration, entries_max: usize, runtime: &Handle) -> Arc<Self> {
        let (runtime, waiting) = (runtime.clone(), Mutex::default());
        Arc::new(Gather { delay, entries_max, runtime, waiting })
    }

    fn take(&self) -> Vec<Waiting<R>> {
        std::mem::take(&mut *locked(&self.waiting))
    }

    /// Sends a request together with those of others, and waits for its answer.
    pub(super) async fn send(self: &Arc<Self>, table: &GrpcTable, request: R) -> Result<R::Answer> {
        self.push(table, request).await.map_err(|_| R::given_up()).flatten()
    }

    /// Sends these requests together with those of others, and waits for their answers.
    pub(super) async fn send_all(
        self: &Arc<Self>,
        table: &GrpcTable,
        requests: Vec<R>,
    ) -> Vec<Result<R::Answer>> {
        let answers: Vec<_> = requests.into_iter().map(|r| self.push(table, r)).collect();
        let mut results = Vec::with_capacity(answers.len());
        for answer in answers {
            results.push(answer.await.map_err(|_| R::given_up()).flatten());
        }
        results
    }

    fn push(
        self: &Arc<Self>,
        table: &GrpcTable,
        request: R,
    ) -> oneshot::Receiver<Result<R::Answer>> {
        let (tell, answer) = oneshot::channel();
        let mut waiting = locked(&self.waiting);
        waiting.push(Waiting { request, tell });
        let count = waiting.len();
        let full = (count >= self.entries_max).then(|| std::mem::take(&mut *waiting));
        drop(waiting);
        let now = Due::now();
        if let Some(full) = full {
            self.runtime.spawn(deliver(table.clone(), full, now));
        } else if count == 1 {
            let (pause, table, delay) = (Pause(Some(self.clone())), table.clone(), self.delay);
            self.runtime.spawn(async move {
                tokio::time::sleep(delay).await;
                deliver(table, pause.over(), now.later(delay)).await;
            });
        }
        answer
    }
}

/// When something is to be sent, on the clock of the timer that wakes its sender, which stands
/// still while the machine sleeps, and on one that does not.
#[derive(Debug, Clone, Copy)]
struct Due {
    timer: Instant,
    moment: Moment,
}

impl Due {
    fn now() -> Self {
        Due { timer: Instant::now(), moment: Moment::now() }
    }

    fn later(self, by: Duration) -> Self {
        Due { timer: self.timer + by, moment: self.moment.later(by) }
    }

    /// How late it is, on the clock that says more.
    fn elapsed(self) -> Duration {
        self.timer.elapsed().max(self.moment.elapsed())
    }
}

/// Sends what has gathered, unless it is too late for that. Then it can be repeated.
async fn deliver<R: Together>(table: GrpcTable, gathered: Vec<Waiting<R>>, due: Due) {
    let late = due.elapsed();
    if late <= LATE_MAX {
        return R::deliver(table, gathered).await;
    }
    for waiting in gathered {
        let why = format!("this process stood still for {late:?}; the request was not sent");
        waiting.tell(Err(Error::Unavailable { why }));
    }
}

/// The delay while requests gather. If it is dropped before it is over, because the runtime ends,
/// nobody will send what has gathered: then those who wait are told so.
struct Pause<R: Together>(Option<Arc<Gather<R>>>);

impl<R: Together> Pause<R> {
    /// What has gathered.
    fn over(mut self) -> Vec<Waiting<R>> {
        self.0.take().map(|gather| gather.take()).unwrap_or_default()
    }
}

impl<R: Together> Drop for Pause<R> {
    fn drop(&mut self) {
        if let Some(gather) = self.0.take() {
            drop(gather.take());
        }
    }
}

impl Together for ConditionalMutation {
    type Answer = bool;

    async fn deliver(table: GrpcTable, gathered: Vec<Waiting<Self>>) {
        let (requests, told): (Vec<_>, Vec<_>) =
            gathered.into_iter().map(|waiting| (waiting.request, waiting.tell)).unzip();
        let results = match table.limits.entries_max {
            Some(max) if requests.len() > 1 => batch::send(&table, max, requests).await,
            _ => table.send_each(requests).await,
        };
        for (tell, result) in told.into_iter().zip(results) {
            let _ = tell.send(result);
        }
    }

    fn given_up() -> Error {
        Error::Unknown { why: format!("the request was given up: {RUNTIME_ENDED}") }
    }
}
