//! Puts the repository under load: at its highest throughput, and at a given rate.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bigtable::sync::locked;
use bigtable_fjall::{Durability, FjallStore};
use clustering::{Check, Corpus, Lookups, Repository};
use percolator::admin::{Collector, GcOptions};
use percolator::{Options, Percolator, WorkerOptions, Workers};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::Semaphore;

use crate::spy::{Operations, Seen, Spy, Watch};
use crate::statistics::{is_late, quantile};
use crate::system;

/// Most changes that wait for the workers while documents are loaded at full speed.
const BACKLOG_MAX: usize = 1_000;
/// Most documents being written at a given rate. Arrivals do not wait for each other, but their
/// number must stay bounded.
const WRITTEN_AT_ONCE: usize = 64;
/// Longest sleep of the generator. Documents that became due meanwhile are sent at once.
const TICK: Duration = Duration::from_micros(200);
/// Time without progress after which a run fails.
const STUCK: Duration = Duration::from_secs(60);
/// Interval at which the backlog is read.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) documents: u64,
    pub(super) elapsed: Duration,
    pub(super) cpu: Option<Duration>,
    pub(super) operations: Operations,
    pub(super) lookups: Lookups,
}

impl Work {
    pub(super) fn per_second(&self) -> f64 {
        self.documents as f64 / self.elapsed.as_secs_f64()
    }

    pub(super) fn per_cpu_second(&self) -> Option<f64> {
        Some(self.documents as f64 / self.cpu?.as_secs_f64())
    }

    pub(super) fn each(&self, count: u64) -> f64 {
        count as f64 / self.documents.max(1) as f64
    }
}

/// The results of documents that arrived at a rate.
#[derive(Debug)]
pub(super) struct Offered {
    pub(super) per_second: f64,
    pub(super) work: Work,
    /// Seconds from the due time of each document until it was clustered, sorted.
    pub(super) delays: Vec<f64>,
    /// Growth of the backlog in documents a second, and the backlog at the end.
    pub(super) growth: f64,
    pub(super) backlog: u64,
    /// The generator's own lateness in seconds, at the median and at the 99th percentile.
    pub(super) lateness: [f64; 2],
}

impl Offered {
    /// True if documents arrived faster than they were clustered.
    pub(super) fn is_saturated(&self) -> bool {
        // More than a hundredth of the rate, and more than the arrivals of a tenth of a second,
        // because the backlog also varies by itself.
        self.growth > 0.01 * self.per_second && self.backlog as f64 > 0.1 * self.per_second
    }

    /// True if the generator was too late for the delays to be valid.
    pub(super) fn is_late(&self) -> bool {
        let delay = |share| quantile(&self.delays, share).unwrap_or(0.0);
        is_late(self.lateness, [0.5, 0.99].map(delay))
    }

    pub(super) fn describe_lateness(&self) -> String {
        let [half, most] = self.lateness.map(|late| late * 1000.0);
        let p99 = quantile(&self.delays, 0.99).unwrap_or(0.0) * 1000.0;
        format!("p50 {half:.2} ms, p99 {most:.2} ms late; documents' delay p99 {p99:.2} ms")
    }
}

pub(super) fn workers(threads: usize) -> WorkerOptions {
    WorkerOptions { threads, ..WorkerOptions::default() }
}

/// An open repository with its observers.
pub(super) struct Ours {
    pub(super) repository: Repository,
    pub(super) seen: Arc<Seen>,
    corpus: Corpus,
    at_once: usize,
    pub(super) next: u64,
    workers: Workers,
    _collector: Collector,
}

impl Ours {
    /// Opens the repository in a directory with this many documents. Up to `at_once` documents are
    /// clustered at a time, and as many are written at full speed.
    pub(super) async fn open(
        dir: &Path,
        at_once: usize,
        corpus: Corpus,
        documents: u64,
    ) -> anyhow::Result<Self> {
        let options = bigtable_fjall::Options {
            durability: Durability::Buffered,
            ..bigtable_fjall::Options::default()
        };
        let (spy, seen) = Spy::on(Arc::new(FjallStore::open(dir, options)?));
        let options = Options { backlog_max: BACKLOG_MAX, ..Options::default() };
        let db = Percolator::over(spy, options).await?;
        let collector = db.collect_in_background(GcOptions::default());
        let repository = Repository::open(db).await?;
        let workers = repository.cluster(workers(at_once)).await?;
        let next = documents;
        Ok(Ours { repository, seen, corpus, at_once, next, workers, _collector: collector })
    }

    pub(super) async fn load(&mut self, documents: u64) -> anyhow::Result<Work> {
        let ids = self.next..self.next + documents;
        self.next = ids.end;
        let meter = Meter::start(self);
        let watch = self.seen.watch(ids.clone());
        let next = Arc::new(AtomicU64::new(ids.start));
        let mut loaders = Vec::new();
        for _ in 0..self.at_once {
            let (repository, corpus) = (self.repository.clone(), self.corpus);
            let (next, end) = (next.clone(), ids.end);
            loaders.push(tokio::spawn(async move {
                loop {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    if id >= end {
                        return Ok::<(), percolator::Error>(());
                    }
                    repository.load(&corpus.document(id), corpus.body(id)).await?;
                }
            }));
        }
        for loader in loaders {
            loader.await??;
        }
        clustered(&watch, documents, || None).await?;
        Ok(meter.stop(self, documents))
    }

    /// Lets documents arrive at a rate, whether or not the repository keeps up. Measures those
    /// that are due after a time for warming up.
    pub(super) async fn offer(
        &mut self,
        per_second: f64,
        warm: Duration,
        window: Duration,
        seed: u64,
    ) -> anyhow::Result<Offered> {
        let schedule = schedule(per_second, warm + window, seed);
        let (first, total) = (self.next, schedule.len() as u64);
        self.next += total;
        let watch = self.seen.watch(first..first + total);
        let measured = schedule.partition_point(|due| *due < warm);
        let arrivals = Arc::new(Arrivals { schedule, ..Arrivals::default() });
        let generator = Generator {
            arrivals: arrivals.clone(),
            repository: self.repository.clone(),
            corpus: self.corpus,
            first,
            since: watch.since,
            runtime: tokio::runtime::Handle::current(),
        };
        let thread = std::thread::spawn(move || generator.run());
        tokio::time::sleep(warm.saturating_sub(watch.since.elapsed())).await;
        let meter = Meter::start(self);
        let before = watch.count();
        let mut backlog = Vec::new();
        while watch.since.elapsed() < warm + window {
            tokio::time::sleep(LOOK_EVERY).await;
            let waiting = arrivals.sent.load(Ordering::Relaxed).saturating_sub(watch.count());
            backlog.push((watch.since.elapsed().as_secs_f64(), waiting as f64));
        }
        let documents = watch.count() - before;
        let work = meter.stop(self, documents);
        let lateness = tokio::task::spawn_blocking(move || thread.join()).await?;
        let mut lateness =
            lateness.map_err(|_| anyhow::anyhow!("the generator of arrivals panicked"))?;
        lateness.drain(..measured.min(lateness.len()));
        lateness.sort_unstable_by(f64::total_cmp);
        let lateness = [0.5, 0.99].map(|share| quantile(&lateness, share).unwrap_or(0.0));
        clustered(&watch, total, || arrivals.error()).await?;
        let delay = |(id, due): (u64, &Duration)| Some(watch.at(id)?.saturating_sub(*due));
        let after = (first..).zip(&arrivals.schedule).skip(measured);
        let mut delays: Vec<f64> =
            after.filter_map(delay).map(|delay| delay.as_secs_f64()).collect();
        delays.sort_unstable_by(f64::total_cmp);
        Ok(Offered {
            per_second,
            work,
            delays,
            growth: slope(&backlog[backlog.len() / 4..]),
            backlog: backlog.last().map_or(0, |(_, waiting)| *waiting as u64),
            lateness,
        })
    }

    pub(super) async fn verify(&self, keys: usize) -> anyhow::Result<Check> {
        self.repository.database().wait_idle(None).await?;
        Ok(self.repository.verify(keys).await?)
    }

    /// Closes the repository, so that its directory can be copied.
    pub(super) async fn close(self) {
        self.workers.stop().await;
    }
}

/// Waits until this many of the watched documents are clustered, or one has failed.
async fn clustered(
    watch: &Watch,
    documents: u64,
    failed: impl Fn() -> Option<percolator::Error>,
) -> anyhow::Result<()> {
    let (mut last, mut since) = (0, Instant::now());
    while watch.count() < documents {
        if let Some(error) = failed() {
            return Err(error.into());
        }
        let count = watch.count();
        if count > last {
            (last, since) = (count, Instant::now());
        }
        if since.elapsed() > STUCK {
            let left = documents - count;
            anyhow::bail!("{left} documents were not clustered, and none in the last minute");
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

pub(super) struct Meter {
    started: Instant,
    cpu: Option<Duration>,
    operations: Operations,
    lookups: Lookups,
}

impl Meter {
    pub(super) fn start(ours: &Ours) -> Self {
        Meter {
            started: Instant::now(),
            cpu: system::cpu_time(),
            operations: ours.seen.operations(),
            lookups: ours.repository.lookups(),
        }
    }

    pub(super) fn stop(&self, ours: &Ours, documents: u64) -> Work {
        let now = ours.repository.lookups();
        Work {
            documents,
            elapsed: self.started.elapsed(),
            cpu: system::cpu_time().zip(self.cpu).map(|(now, then)| now.saturating_sub(then)),
            operations: ours.seen.operations().since(self.operations),
            lookups: Lookups {
                lookups: now.lookups - self.lookups.lookups,
                registered: now.registered - self.lookups.registered,
            },
        }
    }
}

#[derive(Debug, Default)]
struct Arrivals {
    /// The due time of each document, from the beginning.
    schedule: Vec<Duration>,
    sent: AtomicU64,
    error: Mutex<Option<percolator::Error>>,
}

impl Arrivals {
    fn error(&self) -> Option<percolator::Error> {
        locked(&self.error).take()
    }
}

/// Random arrivals at a rate, with exponentially distributed intervals.
fn schedule(per_second: f64, length: Duration, seed: u64) -> Vec<Duration> {
    let mut random = SmallRng::seed_from_u64(seed);
    let (mut at, mut schedule) = (0.0, Vec::new());
    loop {
        at -= (1.0 - random.random::<f64>()).ln() / per_second;
        if at >= length.as_secs_f64() {
            return schedule;
        }
        schedule.push(Duration::from_secs_f64(at));
    }
}

/// Sends documents when they are due. It runs on a thread of its own, so that a busy runtime
/// does not slow the arrivals down.
struct Generator {
    arrivals: Arc<Arrivals>,
    repository: Repository,
    corpus: Corpus,
    first: u64,
    since: Instant,
    runtime: tokio::runtime::Handle,
}

impl Generator {
    /// Sends all documents, and returns the lateness of each in seconds.
    fn run(self) -> Vec<f64> {
        let permits = Arc::new(Semaphore::new(WRITTEN_AT_ONCE));
        let mut lateness = Vec::with_capacity(self.arrivals.schedule.len());
        for (id, due) in (self.first..).zip(&self.arrivals.schedule) {
            loop {
                let now = self.since.elapsed();
                if now >= *due {
                    lateness.push((now - *due).as_secs_f64());
                    break;
                }
                std::thread::sleep((*due - now).max(TICK));
            }
            self.arrivals.sent.fetch_add(1, Ordering::Relaxed);
            let (repository, corpus) = (self.repository.clone(), self.corpus);
            let (arrivals, permits) = (self.arrivals.clone(), permits.clone());
            self.runtime.spawn(async move {
                let _permit = permits.acquire().await;
                if let Err(error) = repository.load(&corpus.document(id), corpus.body(id)).await {
                    let mut first = locked(&arrivals.error);
                    first.get_or_insert(error);
                }
            });
        }
        lateness
    }
}

/// The slope of the regression line; zero for fewer than two points.
fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let along = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum::<f64>();
    let across = points.iter().map(|p| (p.0 - x).powi(2)).sum::<f64>();
    if across > 0.0 { along / across } else { 0.0 }
}

/// Copies a closed repository.
pub(super) fn copy(from: &Path, to: PathBuf) -> std::io::Result<PathBuf> {
    std::fs::create_dir_all(&to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_have_their_rate_and_their_seed() {
        let length = Duration::from_secs(10);
        let arrivals = schedule(1000.0, length, 1);
        assert!((9_500..10_500).contains(&arrivals.len()), "{}", arrivals.len());
        assert!(arrivals.is_sorted() && arrivals.iter().all(|due| *due < length));
        assert_eq!(arrivals, schedule(1000.0, length, 1));
        assert_ne!(arrivals, schedule(1000.0, length, 2));
    }

    #[test]
    fn slopes() {
        assert_eq!(slope(&[]), 0.0);
        assert_eq!(slope(&[(1.0, 5.0)]), 0.0);
        assert_eq!(slope(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]), 2.0);
        assert_eq!(slope(&[(0.0, 1.0), (1.0, 0.0), (2.0, 1.0)]), 0.0);
    }
}
