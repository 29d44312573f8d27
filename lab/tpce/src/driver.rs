//! The driver: clients that make requests, in a closed loop or at a rate, and the checks at the
//! end.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use percolator::Percolator;
use tokio::task::JoinSet;

use crate::backend::{Backend, Failed, Why};
use crate::check::{self, Audit, Violation};
use crate::floor::{Floor, Ledger};
use crate::generate::stream::{Purpose, Stream};
use crate::log::{Entry, Log};
use crate::pace::Pacer;
use crate::report::Report;
use crate::request::{Answer, Request};
use crate::store::OnPercolator;
use crate::{Error, Result, Scale};

/// How often a transaction is tried.
const ATTEMPTS_MAX: u32 = 200;
/// The pause after the first conflict, which doubles with each further one, and its bound.
const PAUSE: Duration = Duration::from_micros(500);
const PAUSE_DOUBLED_MAX: u32 = 8;
/// How many trade numbers are reserved at a time.
const NUMBERS_AT_ONCE: u64 = 10_000;
/// How many requests may wait in an open loop.
const WAITING_MAX: usize = if cfg!(test) { 200 } else { 20_000 };

/// A brokerage that is loaded, its customers and its market.
///
/// See [`Report`] for an example.
#[derive(Debug, Clone)]
pub struct Exchange {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    scale: Scale,
    backend: Box<dyn Backend>,
    floor: Mutex<Floor>,
    reserving: tokio::sync::Mutex<()>,
    /// Of one of several drivers.
    log: Option<Log>,
    /// Draws the pauses.
    paused: AtomicU64,
}

/// The place of one of several drivers over one brokerage.
///
/// See [`Exchange::join`].
#[derive(Debug)]
pub struct Seat {
    /// Its number: no other driver has it or had it, and it is not 0.
    pub number: u64,
    /// How many requests customers have made of another driver so far: market time begins there.
    pub made: u64,
    /// Where it notes what it does.
    pub log: Log,
}

impl Exchange {
    /// Loads a brokerage into an empty database.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a scale that cannot be; those of the database.
    pub async fn load(db: Percolator, scale: Scale) -> Result<Self> {
        scale.check()?;
        let backend = OnPercolator::load(db, scale).await?;
        Ok(Exchange::over(Box::new(backend), scale))
    }

    /// Joins the drivers of a brokerage that one of them has loaded. Each has customers and a
    /// market of its own: orders that the market of a driver has taken are lost when its process
    /// ends, and stay submitted.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// use tpce::{Exchange, Log, Scale, Seat};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("log");
    /// let scale = Scale { trades_per_customer: 5, ..Scale::new(20, 1) };
    /// let db = percolator::Percolator::in_memory().await?;
    /// Exchange::load(db.another_client().await?, scale).await?;
    /// let log = Log::create(&path, || std::time::Duration::ZERO)?;
    /// let seat = Seat { number: 1, made: 0, log };
    /// let driver = Exchange::join(db.another_client().await?, scale, seat).await?;
    /// driver.transactions(2, 100).await?;
    /// let audit = Exchange::audit(db, scale, &[Log::read(&path)?]).await?;
    /// assert!(audit.violations.is_empty() && audit.acknowledged > 0 && audit.in_doubt == 0);
    /// # Ok::<(), tpce::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a scale that cannot be; those of the database.
    pub async fn join(db: Percolator, scale: Scale, seat: Seat) -> Result<Self> {
        scale.check()?;
        let Seat { number, made, log } = seat;
        let floor = Floor::of_seat(scale, number, made);
        let backend = Box::new(OnPercolator::join(db).await?);
        Ok(Exchange::with(backend, scale, floor, Some(log)))
    }

    pub(crate) fn over(backend: Box<dyn Backend>, scale: Scale) -> Self {
        Exchange::with(backend, scale, Floor::new(scale), None)
    }

    fn with(backend: Box<dyn Backend>, scale: Scale, floor: Floor, log: Option<Log>) -> Self {
        let shared = Shared {
            scale,
            backend,
            floor: Mutex::new(floor),
            log,
            reserving: tokio::sync::Mutex::new(()),
            paused: AtomicU64::new(0),
        };
        Exchange { shared: Arc::new(shared) }
    }

    /// How large it is.
    pub fn scale(&self) -> Scale {
        self.shared.scale
    }

    /// Clients that make their next request as soon as they are answered, for a time. With the time
    /// over, each finishes what it is at.
    ///
    /// # Errors
    /// [`Error::Exhausted`] when a transaction fails too often, and whatever makes one fail for
    /// good.
    pub async fn closed(&self, clients: usize, length: Duration) -> Result<Report> {
        let started = Instant::now();
        self.clients(clients, move || started.elapsed() < length).await
    }

    /// So many transactions, by clients as in [`closed`](Exchange::closed).
    ///
    /// # Errors
    /// As [`closed`](Exchange::closed).
    pub async fn transactions(&self, clients: usize, count: u64) -> Result<Report> {
        let made = AtomicU64::new(0);
        self.clients(clients, move || made.fetch_add(1, Ordering::Relaxed) < count).await
    }

    /// Clients that make requests at the pace they are told, until they are told to end.
    ///
    /// # Errors
    /// As [`closed`](Exchange::closed).
    pub async fn paced(&self, clients: usize, pacer: Arc<Pacer>) -> Result<Report> {
        self.clients_while(clients, move || {
            let pacer = pacer.clone();
            async move { pacer.turn().await }
        })
        .await
    }

    async fn clients(
        &self,
        clients: usize,
        more: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Report> {
        self.clients_while(clients, move || std::future::ready(more())).await
    }

    async fn clients_while<F: Future<Output = bool> + Send>(
        &self,
        clients: usize,
        more: impl Fn() -> F + Send + Sync + 'static,
    ) -> Result<Report> {
        let (started, more) = (Instant::now(), Arc::new(more));
        let mut tasks = JoinSet::new();
        for _ in 0..clients.max(1) {
            let (shared, more) = (self.shared.clone(), more.clone());
            tasks.spawn(async move {
                let mut report = Report::default();
                while more().await {
                    let request = shared.next().await?;
                    shared.serve(request, Instant::now(), &mut report).await?;
                }
                Ok(report)
            });
        }
        let mut report = joined(tasks).await?;
        report.elapsed = started.elapsed();
        Ok(report)
    }

    /// Requests that are due at random times, so many a second on average, whether or not those
    /// before them are served. Latencies count from when a request was due.
    ///
    /// # Errors
    /// As [`closed`](Exchange::closed), and [`Error::Saturated`] when too many wait.
    pub async fn open(&self, per_second: f64, length: Duration) -> Result<Report> {
        let started = Instant::now();
        let (due, mut requests) = tokio::sync::mpsc::unbounded_channel();
        let mut stream = Stream::new(self.shared.scale.seed, Purpose::Market, 1);
        // Not a task: those who serve may keep every worker of the runtime busy.
        let clock = std::thread::spawn(move || {
            let mut at = Duration::ZERO;
            loop {
                at += Duration::from_secs_f64(-(1.0 - stream.unit()).ln() / per_second);
                if at >= length {
                    return;
                }
                std::thread::sleep(at.saturating_sub(started.elapsed()));
                let sent = due.send((started + at, started.elapsed().saturating_sub(at)));
                if sent.is_err() {
                    return;
                }
            }
        });
        let waiting = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        let (mut total, mut saturated) = (Report::default(), None);
        while let Some((due, late)) = requests.recv().await {
            total.lateness.saturating_record(nanos(late));
            let now_waiting = waiting.fetch_add(1, Ordering::Relaxed);
            if now_waiting > WAITING_MAX {
                saturated = Some(Error::Saturated { waiting: now_waiting });
                break;
            }
            let (shared, waiting) = (self.shared.clone(), waiting.clone());
            tasks.spawn(async move {
                let mut report = Report::default();
                let request = shared.next().await?;
                shared.serve(request, due, &mut report).await?;
                waiting.fetch_sub(1, Ordering::Relaxed);
                Ok(report)
            });
            while let Some(ended) = tasks.try_join_next() {
                total.add(&one(ended)?);
            }
        }
        // No more are sent, and nothing that was begun is cut short: the books would not know of
        // it.
        drop(requests);
        total.add(&joined(tasks).await?);
        total.elapsed = started.elapsed();
        // It has ended, or does so at its next request.
        let _ = clock.join();
        saturated.map_or(Ok(total), Err)
    }

    /// Checks that the store holds what a brokerage must, as of one moment, and what was committed
    /// here, no more and no less: the checks (a) to (i) of [`Violation`]. No request may run.
    ///
    /// # Errors
    /// Those of the store. What is wrong with the data is the answer.
    pub async fn check(&self) -> Result<Vec<Violation>> {
        let books = self.shared.backend.books().await?;
        let ledger = self.shared.floor().ledger.clone();
        Ok(check::all(&books, &ledger, self.shared.scale))
    }

    /// The same [checks](Exchange::check), of what all drivers of a brokerage have done according
    /// to their logs. None may run.
    ///
    /// See [`join`](Exchange::join) for an example.
    ///
    /// # Errors
    /// As [`check`](Exchange::check).
    pub async fn audit(db: Percolator, scale: Scale, logs: &[Vec<Entry>]) -> Result<Audit> {
        let books = OnPercolator::join(db).await?.books().await?;
        Ok(check::audit(&books, &Ledger::of(logs), scale))
    }
}

impl Shared {
    fn floor(&self) -> MutexGuard<'_, Floor> {
        self.floor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next request; reserves trade numbers when there are none.
    async fn next(&self) -> Result<Request> {
        loop {
            if let Some(request) = self.floor().next() {
                return Ok(request);
            }
            let _one = self.reserving.lock().await;
            if self.floor().numbers.is_empty() {
                let first = self.backend.reserve(NUMBERS_AT_ONCE).await?;
                self.floor().numbers = first..first + NUMBERS_AT_ONCE;
            }
        }
    }

    /// Tries a request until it is done.
    async fn serve(&self, mut request: Request, due: Instant, report: &mut Report) -> Result<()> {
        let kind = request.kind();
        let mut attempts = 0;
        if let Some(log) = &self.log {
            log.begun(&request)?;
        }
        let answer: Answer = loop {
            let Failed { why, error } = match self.backend.attempt(&request).await {
                Ok(answer) => break answer,
                Err(failed) => failed,
            };
            attempts += 1;
            let of_kind = report.entry(kind);
            of_kind.conflicts += u64::from(why == Why::Conflict);
            of_kind.retries += 1;
            match (why, &mut request) {
                (Why::Lasting, _) => return Err(error),
                // Told twice, the quantities would count twice. Its log says that it is in doubt.
                (Why::Unknown, Request::MarketFeed(_)) if self.log.is_some() => {
                    self.floor().give_up_feed();
                    return Ok(());
                }
                (Why::Unknown, Request::MarketFeed(_)) => return Err(error),
                (Why::Unknown, Request::TradeOrder(order)) => order.maybe_done = true,
                // The others find what they did, or may do it again.
                _ => {}
            }
            if attempts >= ATTEMPTS_MAX {
                let (kind, last) = (kind.name(), Box::new(error));
                return Err(Error::Exhausted { kind, attempts, last });
            }
            tokio::time::sleep(self.pause(attempts)).await;
        };
        if let Some(log) = &self.log {
            log.done(&request)?;
        }
        let of_kind = report.entry(kind);
        of_kind.latencies.saturating_record(nanos(due.elapsed()));
        of_kind.done += 1;
        of_kind.reads.add(answer.reads);
        self.floor().done(&request, &answer);
        Ok(())
    }

    /// How long a transaction waits after so many failures: longer each time, and not as long as
    /// others.
    fn pause(&self, attempts: u32) -> Duration {
        let item = self.paused.fetch_add(1, Ordering::Relaxed);
        let share = Stream::new(self.scale.seed, Purpose::Emulator, !item).unit();
        (PAUSE * (1 << attempts.min(PAUSE_DOUBLED_MAX))).mul_f64(0.5 + share / 2.0)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

type Ended = std::result::Result<Result<Report>, tokio::task::JoinError>;

/// The report of a task. A panic goes on in whoever waits.
fn one(ended: Ended) -> Result<Report> {
    ended.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Ok(Report::default()),
    })
}

/// The reports of all tasks. The first failure ends the others.
async fn joined(mut tasks: JoinSet<Result<Report>>) -> Result<Report> {
    let mut total = Report::default();
    while let Some(ended) = tasks.join_next().await {
        total.add(&one(ended)?);
    }
    Ok(total)
}

#[cfg(test)]
mod tests;
