//! Runs the child: works on the store until it is killed.

use std::io::Read;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use percolator::{Error, ScannedRow, Timestamp};
use percolator_cli::exit::Exit;
use percolator_cli::store::{Commit, Durability};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use webindex::LoadOptions;
use webindex::address::Base;

use super::ledger::{Counts, Line, Work, Writer};
use super::world::{ACCOUNTS, BALANCE, COUNTERS, ROWS, Stored, VALUE, World, number};
use crate::place::Place;

/// The number of tasks that run transactions.
const TASKS: u64 = 8;
/// The longest pause of a task between two transactions, so that the observers can keep up.
const REST_MAX_MS: u64 = 6;
const BASE: &str = "https://example.org/";
/// The share of the site that a recrawl changes.
const RECRAWL_PCT: f64 = 10.0;

/// The work of a child process of `percolator-torture`.
#[derive(Debug, Args)]
#[command(
    hide = true,
    after_help = "Example:
  percolator-torture --kills 100 --seed 1"
)]
pub(crate) struct Worker {
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    run: u64,
    #[arg(long)]
    seed: u64,
    #[arg(long, value_enum)]
    durability: Durability,
}

#[derive(Debug)]
struct Child {
    world: World,
    ledger: Writer,
    place: Place,
    run: u64,
    /// True if the store may be away for a while.
    remote: bool,
    /// The number of acknowledged commits.
    committed: AtomicU64,
    /// True if no further transaction should begin.
    ending: AtomicBool,
}

/// The work in this process, of which only the store is killed.
#[derive(Debug)]
pub(crate) struct Working {
    child: Arc<Child>,
    transactions: JoinSet<()>,
    /// The crawl and the watch, which are cut off at the end.
    others: JoinSet<()>,
    /// The first failure that no kill explains.
    failed: Arc<Mutex<Option<anyhow::Error>>>,
}

impl Worker {
    /// Works until the process is killed. Returns an error if something fails that no kill
    /// explains.
    pub(crate) async fn run(&self) -> anyhow::Result<Exit> {
        end_with_the_parent();
        let place = Place::new(&self.dir);
        // Alternate: a kill during a one-step commit leaves no locks to resolve, but a kill during
        // a two-phase commit does.
        let commit = if self.run.is_multiple_of(2) { Commit::OneStep } else { Commit::TwoPhases };
        let stored = Stored::OnDisk(self.durability);
        let child = Child::open(&place, &stored, commit, self.run).await?;
        let mut random = StdRng::seed_from_u64(self.seed);
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let (child, random) = (child.clone(), StdRng::seed_from_u64(random.random()));
            tasks.spawn(async move { child.transactions(task, random).await });
        }
        let seed = random.random();
        let crawler = child.clone();
        tasks.spawn(async move { crawler.crawl(seed).await });
        tasks.spawn(async move { child.watch().await });
        // A task ends only by failing.
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(Exit::Violated)
    }
}

impl Working {
    /// Opens the store and starts the work.
    pub(crate) async fn start(place: &Place, stored: &Stored, seed: u64) -> anyhow::Result<Self> {
        let child = Child::open(place, stored, Commit::TwoPhases, 1).await?;
        let failed = Arc::new(Mutex::new(None));
        let mut random = StdRng::seed_from_u64(seed);
        let (mut transactions, mut others) = (JoinSet::new(), JoinSet::new());
        for task in 0..TASKS {
            let (child, random) = (child.clone(), StdRng::seed_from_u64(random.random()));
            let work = async move { child.transactions(task, random).await };
            transactions.spawn(note(work, failed.clone()));
        }
        let (seed, crawler, watcher) = (random.random(), child.clone(), child.clone());
        others.spawn(note(async move { crawler.crawl(seed).await }, failed.clone()));
        others.spawn(note(async move { watcher.watch().await }, failed.clone()));
        Ok(Working { child, transactions, others, failed })
    }

    /// The number of acknowledged commits.
    pub(crate) fn committed(&self) -> u64 {
        self.child.committed.load(Ordering::Relaxed)
    }

    /// Returns the first failure that no kill explains.
    ///
    /// # Errors
    /// That failure.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.map_or(Ok(()), Err)
    }

    /// Waits for the transactions that have begun, and cuts the other work off.
    ///
    /// # Errors
    /// As [`check`](Working::check).
    pub(crate) async fn end(mut self) -> anyhow::Result<()> {
        self.child.ending.store(true, Ordering::Relaxed);
        while self.transactions.join_next().await.is_some() {}
        self.others.shutdown().await;
        self.check()?;
        if let Ok(child) = Arc::try_unwrap(self.child) {
            child.world.stop().await;
        }
        Ok(())
    }
}

/// Keeps the failure of a task.
async fn note(
    work: impl Future<Output = anyhow::Result<()>>,
    failed: Arc<Mutex<Option<anyhow::Error>>>,
) {
    if let Err(error) = work.await {
        failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// Ends this process with its parent, which holds the other end of stdin. Without the parent,
/// no process would kill this one.
fn end_with_the_parent() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
}

fn draw(random: &mut StdRng) -> Work {
    let row = random.random_range(0..ROWS);
    let delete = random.random_ratio(1, 4);
    match random.random_range(0..8) {
        0..4 => {
            let from = random.random_range(0..ACCOUNTS);
            let to = (from + random.random_range(1..ACCOUNTS)) % ACCOUNTS;
            let amount = random.random_range(-50..=50);
            Work::Transfer { from, to, amount, counter: random.random_range(0..COUNTERS) }
        }
        4 => Work::Blind { row, delete },
        5 | 6 => Work::Source { row, delete },
        _ => Work::Poke { row },
    }
}

impl Child {
    async fn open(
        place: &Place,
        stored: &Stored,
        commit: Commit,
        run: u64,
    ) -> anyhow::Result<Arc<Self>> {
        let ledger = Writer::open(&place.ledger())?;
        Ok(Arc::new(Child {
            world: World::open(place, stored, commit).await?,
            ledger,
            place: place.clone(),
            run,
            remote: stored.is_remote(),
            committed: AtomicU64::new(0),
            ending: AtomicBool::new(false),
        }))
    }

    /// True for a failure that the end of an outage ends, too.
    fn passes(&self, error: &Error) -> bool {
        self.remote && (error.is_retryable() || matches!(error, Error::Overloaded { .. }))
    }

    /// Runs one transaction after the other.
    async fn transactions(&self, task: u64, mut random: StdRng) -> anyhow::Result<()> {
        for n in 0u64.. {
            if self.ending.load(Ordering::Relaxed) {
                break;
            }
            match self.world.db.admit().await {
                Err(error) if self.passes(&error) => continue,
                admitted => admitted?,
            }
            let (id, work) = (format!("{}-{task}-{n}", self.run), draw(&mut random));
            self.ledger.line(&Line::Begin(id.clone(), work))?;
            self.transaction(&id, work, &mut random).await?;
            rest(&mut random, REST_MAX_MS).await;
        }
        Ok(())
    }

    /// Runs a transaction until it commits, or until its outcome is unknown.
    async fn transaction(&self, id: &str, work: Work, random: &mut StdRng) -> anyhow::Result<()> {
        loop {
            match self.attempt(id, work).await {
                Ok(ts) => {
                    self.committed.fetch_add(1, Ordering::Relaxed);
                    return Ok(self.ledger.line(&Line::Commit(id.to_owned(), ts.as_u64()))?);
                }
                Err(Error::Unknown { .. }) => {
                    return Ok(self.ledger.line(&Line::Unknown(id.to_owned()))?);
                }
                Err(error) if error.is_retryable() => rest(random, REST_MAX_MS).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn attempt(&self, id: &str, work: Work) -> percolator::Result<Timestamp> {
        let mut tx = self.world.db.begin().await?;
        self.world.tables.apply(&mut tx, id, work).await?;
        tx.commit().await
    }

    /// Alternates between loading the web site and recrawling it.
    async fn crawl(&self, seed: u64) -> anyhow::Result<()> {
        let (site, base) = (self.place.site(), Base::parse(BASE)?);
        let index = &self.world.index;
        for turn in 0u64.. {
            let (options, progress) = (LoadOptions::default(), webindex::Progress::default());
            let crawled = async {
                index.load(&site, &base, &options, &progress).await?;
                index.recrawl(RECRAWL_PCT, seed.wrapping_add(turn), &progress).await
            };
            match crawled.await {
                Err(webindex::Error::Database(error))
                    // The next turn loads again what may not have been committed.
                    if self.passes(&error)
                        || self.remote && matches!(*error, Error::Unknown { .. }) => {}
                Err(error) => return Err(error.into()),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// The sum of all accounts at one moment.
    async fn sum(&self) -> percolator::Result<(Timestamp, i64)> {
        let snapshot = self.world.db.snapshot().await?;
        let mut rows: Vec<ScannedRow> = Vec::new();
        for bank in &self.world.tables.banks {
            rows.extend(snapshot.scan(bank).columns([&VALUE]).collect().await?);
        }
        let balances = rows.iter().flat_map(|row| &row.cells).map(|(_, v)| number(Some(v)));
        Ok((snapshot.timestamp(), balances.sum::<percolator::Result<i64>>()?))
    }

    /// Repeatedly sums all accounts at one moment, and logs the counts so far.
    async fn watch(&self) -> anyhow::Result<()> {
        loop {
            let (at, sum) = match self.sum().await {
                Err(error) if self.passes(&error) => continue,
                sum => sum?,
            };
            let expected = BALANCE * ACCOUNTS as i64;
            anyhow::ensure!(sum == expected, "the accounts hold {sum} at {at}, not {expected}");
            let (own, index) = (self.world.db.stats(), self.world.index.database().stats());
            let counts = Counts::from(own) + Counts::from(index);
            self.ledger.line(&Line::Stats(self.run, counts))?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn rest(random: &mut StdRng, max_ms: u64) {
    let pause = Duration::from_micros(random.random_range(0..max_ms * 1000));
    tokio::time::sleep(pause).await;
}
