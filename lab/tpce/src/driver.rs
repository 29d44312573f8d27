//! Drives a brokerage with clients in a closed loop or at a rate, and checks the books at the
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

const ATTEMPTS_MAX: u32 = 200;
/// The pause after the first conflict, and the most times that further conflicts double it.
const PAUSE: Duration = Duration::from_micros(500);
const PAUSE_DOUBLED_MAX: u32 = 8;
/// Number of trade numbers that are reserved at a time.
const NUMBERS_AT_ONCE: u64 = 10_000;
/// Most waiting requests in an open loop.
const WAITING_MAX: usize = if cfg!(test) { 200 } else { 20_000 };

/// A loaded brokerage with its customers and its market.
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
    /// The log, if this is one of several drivers.
    log: Option<Log>,
    /// The random draws of pauses so far.
    paused: AtomicU64,
}

/// The place of a driver among several over one brokerage.
///
/// See [`Exchange::join`].
#[derive(Debug)]
pub struct Seat {
    /// The driver's number. It must not be 0, and no other driver may have or have had it.
    pub number: u64,
    /// Number of requests that another driver's customers have made. Market time begins there.
    pub made: u64,
    /// The log of this driver.
    pub log: Log,
}

impl Exchange {
    /// Loads a brokerage into an empty database.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an impossible scale, or an error of the database.
    pub async fn load(db: Percolator, scale: Scale) -> Result<Self> {
        scale.check()?;
        let backend = OnPercolator::load(db, scale).await?;
        Ok(Exchange::over(Box::new(backend), scale))
    }

    /// Joins the drivers of a brokerage that one of them has loaded. Each driver has customers
    /// and a market of its own. If a driver's process ends, the orders that its market has
    /// taken are lost and stay submitted.
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
    /// [`Error::Invalid`] for an impossible scale, or an error of the database.
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

    /// Runs clients for a time. Each makes its next request as soon as it has an answer. When
    /// the time is over, each finishes its current request.
    ///
    /// # Errors
    /// [`Error::Exhausted`] if a transaction fails too often, or the error of one that fails
    /// for good.
    pub async fn closed(&self, clients: usize, length: Duration) -> Result<Report> {
        let started = Instant::now();
        self.clients(clients, move || std::future::ready(started.elapsed() < length)).await
    }

    /// Runs this many transactions, by clients as in [`closed`](Exchange::closed).
    ///
    /// # Errors
    /// The same as for [`closed`](Exchange::closed).
    pub async fn transactions(&self, clients: usize, count: u64) -> Result<Report> {
        let made = AtomicU64::new(0);
        let more = move || std::future::ready(made.fetch_add(1, Ordering::Relaxed) < count);
        self.clients(clients, more).await
    }

    /// Runs clients that make requests at the pacer's pace, until it ends them.
    ///
    /// # Errors
    /// The same as for [`closed`](Exchange::closed).
    pub async fn paced(&self, clients: usize, pacer: Arc<Pacer>) -> Result<Report> {
        self.clients(clients, move || {
            let pacer = pacer.clone();
            async move { pacer.turn().await }
        })
        .await
    }

    async fn clients<F: Future<Output = bool> + Send>(
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

    /// Makes requests at random times with this average rate, whether or not earlier ones have
    /// been served. Latencies count from the time at which a request was due.
    ///
    /// # Errors
    /// The same as for [`closed`](Exchange::closed), and [`Error::Saturated`] if too many
    /// requests wait.
    pub async fn open(&self, per_second: f64, length: Duration) -> Result<Report> {
        let started = Instant::now();
        let (due, mut requests) = tokio::sync::mpsc::unbounded_channel();
        let mut stream = Stream::new(self.shared.scale.seed, Purpose::Market, 1);
        // A thread, because serving tasks may keep every worker of the runtime busy.
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
        // Requests that have begun run to their end, because the ledger must know about every
        // commit.
        drop(requests);
        total.add(&joined(tasks).await?);
        total.elapsed = started.elapsed();
        // The thread has ended, or ends when it sends its next request.
        let _ = clock.join();
        saturated.map_or(Ok(total), Err)
    }

    /// Checks, as of one moment, that the store satisfies the rules of a brokerage. Also checks
    /// that it holds exactly the transactions that this driver committed. These are the checks
    /// (a) to (i) of [`Violation`]. No request may run meanwhile.
    ///
    /// # Errors
    /// An error of the store. Violations are no errors, but the answer.
    pub async fn check(&self) -> Result<Vec<Violation>> {
        let books = self.shared.backend.books().await?;
        let ledger = self.shared.floor().ledger.clone();
        Ok(check::all(&books, &ledger, self.shared.scale))
    }

    /// Runs the same [checks](Exchange::check) against the logs of all drivers of a brokerage.
    /// None of them may run meanwhile.
    ///
    /// See [`join`](Exchange::join) for an example.
    ///
    /// # Errors
    /// The same as for [`check`](Exchange::check).
    pub async fn audit(db: Percolator, scale: Scale, logs: &[Vec<Entry>]) -> Result<Audit> {
        let books = OnPercolator::join(db).await?.books().await?;
        Ok(check::audit(&books, &Ledger::of(logs), scale))
    }
}

impl Shared {
    fn floor(&self) -> MutexGuard<'_, Floor> {
        self.floor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next request. Reserves trade numbers when none are left.
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
                // A second attempt might count the quantities twice. The log marks the feed as
                // in doubt.
                (Why::Unknown, Request::MarketFeed(_)) if self.log.is_some() => {
                    self.floor().give_up_feed();
                    return Ok(());
                }
                (Why::Unknown, Request::MarketFeed(_)) => return Err(error),
                (Why::Unknown, Request::TradeOrder(order)) => order.maybe_done = true,
                // Other requests find their earlier effect, or may be applied again.
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

    /// The pause after this many failures. It grows with each failure, and a random part makes
    /// it differ from other pauses.
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

/// The report of a task. If the task panicked, the panic continues here.
fn one(ended: Ended) -> Result<Report> {
    ended.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Ok(Report::default()),
    })
}

/// Sums up the reports of all tasks. The first failure ends the others.
async fn joined(mut tasks: JoinSet<Result<Report>>) -> Result<Report> {
    let mut total = Report::default();
    while let Some(ended) = tasks.join_next().await {
        total.add(&one(ended)?);
    }
    Ok(total)
}

#[cfg(test)]
mod tests;
