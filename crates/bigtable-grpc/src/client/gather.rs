//! Delays conditional mutations, reads of rows and short scans, so that those of several callers go
//! in one request. The paper delays lock operations "to collect them into batches", and every read
//! too (section 2.5).
//!
//! The first request waits for the configured delay, and those that arrive meanwhile go with
//! it. If the waiting requests fill one request of the server, the client sends them at once.
//! A request that is over a second late is refused instead, because its process stood still.
//!
//! While an earlier request of the same kind has no answer yet, the next one waits longer, up to
//! [`BEHIND_MAX`]. So a busy server gets fewer and larger requests, and an idle one answers as soon
//! as before. A request that takes longer than that keeps no other one waiting.
//!
//! A sent request runs to its end, even if its callers give up, because it belongs to all of
//! them. So the runtime that opened the store sends it: a caller's runtime may end while other
//! callers wait.

use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigtable::sync::locked;
use bigtable::{ConditionalMutation, Error, Result};
use cluster_net::Moment;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout};

use super::batch;
use super::wire::GrpcTable;

/// Longest lateness at which gathered requests are still sent. A later wake-up means that the
/// process stood still. Its callers' assumptions may be void by then: on a store without a
/// floor, that their open transactions are still registered. So the requests are not sent. The
/// store's `request_life_max` includes this bound.
pub(super) const LATE_MAX: Duration = Duration::from_secs(1);

/// How long requests wait, after the delay, for the answer to the ones before them.
pub(super) const BEHIND_MAX: Duration = Duration::from_millis(10);

/// Why no answer will arrive, and the remedy.
pub(super) const RUNTIME_ENDED: &str = "the tokio runtime that opened the store has ended; open \
                                       the store in a runtime that runs for longer than the store \
                                       is used";

/// A request that can be combined with others.
pub(super) trait Together: Sized + Send + 'static {
    /// The answer that the caller waits for.
    type Answer: Debug + Send + 'static;

    /// Sends the gathered requests, combined as far as possible, and passes on the answers.
    fn deliver(gathered: Vec<Waiting<Self>>) -> impl Future<Output = ()> + Send;

    /// The error for a request whose sending was given up.
    fn given_up() -> Error;
}

/// A request of a table, and the channel to its caller.
#[derive(Debug)]
pub(super) struct Waiting<R: Together> {
    pub(super) table: GrpcTable,
    pub(super) request: R,
    tell: oneshot::Sender<Result<R::Answer>>,
}

impl<R: Together> Waiting<R> {
    pub(super) fn tell(self, answer: Result<R::Answer>) {
        // A caller that has given up no longer receives.
        let _ = self.tell.send(answer);
    }
}

/// The waiting requests of one kind.
#[derive(Debug)]
pub(super) struct Gather<R: Together> {
    delay: Duration,
    /// Number of waiting requests at which they are sent without further delay.
    entries_max: usize,
    /// The store's runtime, which sends the requests.
    runtime: Handle,
    waiting: Mutex<Vec<Waiting<R>>>,
    /// Held while gathered requests are sent, until their answers are there or `BEHIND_MAX` has
    /// passed.
    turn: Semaphore,
}

impl<R: Together> Gather<R> {
    pub(super) fn new(delay: Duration, entries_max: usize, runtime: &Handle) -> Arc<Self> {
        let (runtime, waiting) = (runtime.clone(), Mutex::default());
        Arc::new(Gather { delay, entries_max, runtime, waiting, turn: Semaphore::new(1) })
    }

    fn take(&self) -> Vec<Waiting<R>> {
        std::mem::take(&mut *locked(&self.waiting))
    }

    /// Sends a request together with others, and waits for its answer.
    pub(super) async fn send(self: &Arc<Self>, table: &GrpcTable, request: R) -> Result<R::Answer> {
        self.push(table, request).await.map_err(|_| R::given_up()).flatten()
    }

    /// Sends these requests together with others, and waits for their answers.
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
        waiting.push(Waiting { table: table.clone(), request, tell });
        let count = waiting.len();
        let full = (count >= self.entries_max).then(|| std::mem::take(&mut *waiting));
        drop(waiting);
        let now = Due::now();
        if let Some(full) = full {
            self.runtime.spawn(deliver(full, now));
        } else if count == 1 {
            let (gather, delay) = (self.clone(), self.delay);
            let pause = Pause(Some(self.clone()));
            self.runtime.spawn(async move {
                tokio::time::sleep(delay).await;
                // After the longest wait, the requests are sent beside the ones before them.
                let turn = timeout(BEHIND_MAX, gather.turn.acquire()).await;
                let sent = deliver(pause.over(), now.later(delay + BEHIND_MAX));
                let mut sent = pin!(sent);
                // An answer that takes longer keeps nobody waiting.
                let in_time = timeout(BEHIND_MAX, sent.as_mut()).await.is_ok();
                drop(turn);
                if !in_time {
                    sent.await;
                }
            });
        }
        answer
    }
}

/// The time at which gathered requests should be sent, on two clocks. The timer's clock may
/// stand still while the machine sleeps; the other does not.
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

    /// The lateness by the clock that reports more.
    fn elapsed(self) -> Duration {
        self.timer.elapsed().max(self.moment.elapsed())
    }
}

/// Sends the gathered requests. If it is too late, each caller gets an error after which it may
/// repeat the request.
async fn deliver<R: Together>(gathered: Vec<Waiting<R>>, due: Due) {
    let late = due.elapsed();
    if late <= LATE_MAX {
        return R::deliver(gathered).await;
    }
    for waiting in gathered {
        let why = format!("this process did not run for {late:?}; the request was not sent");
        waiting.tell(Err(Error::Unavailable { why }));
    }
}

/// The delay while requests gather. If the runtime ends, this value is dropped before the delay
/// is over, and nobody will send the requests. The drop closes the channels, so the callers get
/// an error.
struct Pause<R: Together>(Option<Arc<Gather<R>>>);

impl<R: Together> Pause<R> {
    /// Ends the delay, and returns the gathered requests.
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

    async fn deliver(gathered: Vec<Waiting<Self>>) {
        let (requests, told): (Vec<_>, Vec<_>) = gathered
            .into_iter()
            .map(|waiting| ((waiting.table, waiting.request), waiting.tell))
            .unzip();
        let mut told: Vec<_> = told.into_iter().map(Some).collect();
        let tell = |place: usize, result| {
            if let Some(tell) = told.get_mut(place).and_then(Option::take) {
                // A caller that has given up no longer receives.
                let _ = tell.send(result);
            }
        };
        batch::send(requests, tell).await;
    }

    fn given_up() -> Error {
        Error::Unknown { why: format!("the client gave the request up: {RUNTIME_ENDED}") }
    }
}
