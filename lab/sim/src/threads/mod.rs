//! Runs the shipped store on disk under many threads, and checks the result with the
//! simulation's checkers.
//!
//! The simulator runs on one thread, over a store in memory. So it tests no part of the store
//! on disk: no committer, snapshots or pending rows, no flushes or merges. Nor does it
//! interleave the memory accesses of two threads. Here the core runs over a real
//! [`FjallStore`] with real threads:
//!
//! * writers, and readers that read the same cells again and again,
//! * observers,
//! * a collector with a short retention.
//!
//! Write buffers are so small that the engine flushes all the time. The seed repeats the work
//! that is drawn, but not the interleaving of the threads. The clients' records form a history
//! like any other, which must be one that snapshot isolation allows.
//!
//! Rounds follow each other until the time is up, each over a store of its own:
//!
//! * synced or buffered,
//! * with or without a cache of newest versions,
//! * with one-step commits, two-phase commits, and secondaries in the background.

mod recorded;
mod work;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use bigtable_fjall::{Durability, FjallStore, Options as StoreOptions};
use futures::executor::block_on;
use percolator_core::{
    Client, CommitPath, Incarnation, LockService, Options, ProcessLocks, Secondaries, Services,
    WindowOracle, WorkerOptions,
};

use crate::check::property;
use crate::check::raw::{Dump, RawCell};
use crate::history::{Cell, Finding, History, Run, observed};
use crate::names::cell;
use crate::oracle_layer::Layered;
use crate::random::Rng;
use crate::recording::Recorder;
use recorded::{Events, Noted, RecordedStore, Threads};
use work::{OBSERVERS_OF, Session, registrations};

/// How many clients work at the same time, each on a thread of its own.
const CLIENTS: u64 = 6;
/// How long the clients of one round work.
const ROUND: Duration = Duration::from_secs(4);
/// The time after the round within which all work must end.
const REST: Duration = Duration::from_secs(60);
/// The maximum number of transactions of one round, so that a check takes a moment.
const TRANSACTIONS_MAX: usize = 30_000;

/// Runs rounds until the time is up, at least one, and prints the result of each. Returns the
/// number of findings.
///
/// # Errors
/// If a store cannot be opened or read, or `out` cannot be written.
pub fn run(time: Duration, seed: u64, out: &mut impl Write) -> anyhow::Result<usize> {
    let (started, mut findings, mut rounds) = (Instant::now(), 0, 0);
    while rounds == 0 || started.elapsed() + ROUND <= time {
        let plan = Plan::draw(seed, rounds);
        let (noted, dump) = plan.play()?;
        let judged = judge(noted, &dump);
        writeln!(out, "round {rounds}: {plan}: {judged}")?;
        for Finding { property, facts } in &judged.findings {
            writeln!(out, "round {rounds}: {property}: {facts}")?;
        }
        findings += judged.findings.len();
        rounds += 1;
    }
    writeln!(
        out,
        "{rounds} rounds in {:.0} s, {findings} findings",
        started.elapsed().as_secs_f64()
    )?;
    Ok(findings)
}

/// The settings of a round.
#[derive(Debug)]
struct Plan {
    seed: u64,
    options: StoreOptions,
    retention: Duration,
    /// How long the clients work.
    time: Duration,
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let StoreOptions { durability, recent_bytes, pack_versions_max, group_rows_max, .. } =
            &self.options;
        write!(f, "{durability:?}, recent {recent_bytes} bytes, packs of {pack_versions_max}, ")?;
        write!(f, "groups of {group_rows_max}, retention {:?}", self.retention)
    }
}

/// The result of a round.
struct Judged {
    findings: Vec<Finding>,
    transactions: usize,
    committed: usize,
    runs: usize,
    collected: usize,
    too_old: u64,
}

impl std::fmt::Display for Judged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Judged { transactions, committed, runs, collected, too_old, findings } = self;
        write!(
            f,
            "{transactions} transactions, {committed} committed, {runs} runs of observers, "
        )?;
        write!(f, "{collected} records collected, {too_old} too old, {} findings", findings.len())
    }
}

impl Plan {
    fn draw(seed: u64, round: u64) -> Self {
        let seed = crate::random::mix(seed, round);
        let mut rng = Rng::new(seed);
        // The durabilities alternate, so that a short run has both.
        let durability = match round % 2 {
            0 => Durability::Buffered,
            _ => Durability::Sync,
        };
        let options = StoreOptions {
            durability,
            write_buffer_bytes: 64 << 10,
            recent_bytes: *rng.pick(&[0, 20 << 10, 64 << 20]).unwrap_or(&0),
            pack_versions_max: *rng.pick(&[1, 2, 8]).unwrap_or(&8),
            group_rows_max: *rng.pick(&[1, 1024, 1024]).unwrap_or(&1024),
            ..StoreOptions::default()
        };
        let retention = Duration::from_millis(*rng.pick(&[5, 200, 1000]).unwrap_or(&200));
        Plan { seed, options, retention, time: ROUND }
    }

    /// Returns the options of a client. Every round mixes clients of all kinds.
    fn client_options(&self, client: u64) -> Options {
        let mut rng = Rng::new(crate::random::mix(self.seed, client));
        Options {
            commit_path: match client % 3 {
                0 => CommitPath::TwoPhases,
                _ => CommitPath::OneStep,
            },
            secondaries: match rng.below(2) {
                0 => Secondaries::Awaited,
                _ => Secondaries::Background,
            },
            read_ahead: rng.below(2) == 0,
            short_value_bytes_max: *rng.pick(&[0, 255]).unwrap_or(&255),
            attempts_max: 12,
            ..Options::default()
        }
    }

    /// Plays one round. Returns the records of its clients, and the store's contents at the end.
    fn play(&self) -> anyhow::Result<(Noted, Dump)> {
        let background = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(4)
            .enable_time()
            .build()
            .context("starting threads")?;
        let directory = tempfile::tempdir().context("a directory for the store")?;
        let inner = FjallStore::open(directory.path(), self.options.clone())?;
        let events = Arc::new(Events::default());
        let handle = background.handle().clone();
        let inner = Arc::new(inner);
        let store = Arc::new(RecordedStore { inner, events: events.clone(), handle });
        let runtime = Arc::new(Threads::new(background.handle().clone(), self.seed));
        let oracle = block_on(WindowOracle::open(&*store, Incarnation(1)))?;
        let oracle = Arc::new(Layered { inner: Arc::new(oracle), layer: events.clone() });
        let locks: Arc<dyn LockService> = Arc::new(ProcessLocks::new(runtime.clone()));
        let services = Services { store: store.clone(), oracle, locks, runtime: runtime.clone() };
        let client = |number| block_on(Client::open(services.clone(), self.client_options(number)));
        let observing = client(1)?;
        let options = WorkerOptions { threads: 2, ..WorkerOptions::default() };
        let workers = block_on(observing.observe(registrations(&events), options))?;
        self.work(&events, &client)?;
        let report = block_on(observing.wait_idle(Some(REST)))?;
        if !report.idle || !report.set_aside.is_empty() {
            events.find(property::LIVENESS, format!("{report:?} after {REST:?}"));
        }
        block_on(workers.stop());
        let dump = settle(&observing, &*store, &events)?;
        background.shutdown_background();
        let noted = std::mem::take(&mut *events.noted());
        Ok((noted, dump))
    }

    /// Lets clients work and a collector collect, until the time is up.
    fn work(
        &self,
        events: &Arc<Events>,
        client: &(impl Fn(u64) -> percolator_core::Result<Client> + Sync),
    ) -> anyhow::Result<()> {
        let over = AtomicBool::new(false);
        let mut sessions = Vec::new();
        for number in 0..CLIENTS {
            let seed = crate::random::mix(self.seed, 100 + number);
            sessions.push(block_on(Session::open(client(number)?, events, seed))?);
        }
        let collector = client(CLIENTS)?;
        std::thread::scope(|scope| {
            for mut session in sessions {
                let over = &over;
                scope.spawn(move || {
                    while !over.load(Ordering::SeqCst) {
                        block_on(session.step());
                    }
                });
            }
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    // A round that finds a live owner's lock ends there; the next one continues.
                    if let Err(error) = block_on(collector.gc(self.retention)) {
                        events.find("no errors", format!("collecting: {error}"));
                    }
                    block_on(collector.runtime().sleep(self.retention.min(self.time / 40)));
                }
            });
            let started = Instant::now();
            while started.elapsed() < self.time && events.noted().txns.len() < TRANSACTIONS_MAX {
                std::thread::sleep(Duration::from_millis(20));
            }
            over.store(true, Ordering::SeqCst);
        });
        Ok(())
    }
}

/// Waits until no lock is left. No client has crashed, so every owner cleans up after itself.
fn settle(client: &Client, store: &dyn bigtable::Store, events: &Events) -> anyhow::Result<Dump> {
    let started = Instant::now();
    loop {
        let dump = block_on(Dump::of(store))?;
        if dump.locks.is_empty() && events.are_complete() {
            return Ok(dump);
        }
        if started.elapsed() > REST {
            let facts = format!("{} locks are left after {REST:?}", dump.locks.len());
            events.find(property::LIVENESS, facts);
            return Ok(dump);
        }
        block_on(client.runtime().sleep(Duration::from_millis(20)));
    }
}

/// Returns what the checkers find wrong with the records and with the store's contents.
fn judge(mut noted: Noted, dump: &Dump) -> Judged {
    let mut findings = std::mem::take(&mut noted.findings);
    let collected = noted.collected();
    let may_go = &collected | &noted.droppable();
    let committed: std::collections::BTreeSet<_> =
        noted.records.iter().map(|record| record.start_ts).collect();
    let mut runs = noted.runs.clone();
    runs.retain(|run: &Run| committed.contains(&run.start_ts));
    runs.sort_by_key(|run| run.start_ts);
    let of = |cell: &RawCell| self::cell(cell.table.as_bytes(), &cell.row, &cell.column);
    let history = History {
        observed: observed(&noted.records, &OBSERVERS_OF),
        txns: std::mem::take(&mut noted.txns),
        tombs: noted.tombs.clone(),
        locks: dump.locks.iter().filter_map(|(cell, s, _)| Some((of(cell)?, *s))).collect(),
        notifications: dump.notifications.iter().filter_map(|(c, s)| Some((of(c)?, *s))).collect(),
        runs,
        stamps: std::mem::take(&mut noted.stamps),
        views: std::mem::take(&mut noted.views),
        collected: collected.iter().copied().collect(),
        registered: OBSERVERS_OF.iter().map(|(observer, _)| (*observer, 0)).collect(),
        records: std::mem::take(&mut noted.records),
        ..History::default()
    };
    findings.extend(dump.audit());
    findings.extend(missing(&history, dump, &may_go));
    findings.extend(crate::check::check(&history));
    Judged {
        transactions: history.txns.len(),
        committed: committed.len(),
        runs: history.runs.len(),
        collected: collected.len(),
        too_old: noted.too_old,
        findings,
    }
}

/// Returns records that the store acknowledged and that are missing, although neither collection
/// nor the store had leave to drop them.
fn missing(
    history: &History,
    dump: &Dump,
    may_go: &std::collections::BTreeSet<(Cell, bigtable::Timestamp)>,
) -> Vec<Finding> {
    let held: std::collections::BTreeSet<_> = dump
        .records
        .iter()
        .filter_map(|r| {
            Some((cell(r.cell.table.as_bytes(), &r.cell.row, &r.cell.column)?, r.start_ts))
        })
        .collect();
    let lost = history.records.iter().filter(|record| {
        let known = (record.cell, record.start_ts);
        !held.contains(&known) && !may_go.contains(&known)
    });
    let finding = |record| Finding {
        property: property::NO_LOST_COMMIT,
        facts: format!("{record:?} was written, and is gone"),
    };
    lost.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Op;

    #[test]
    fn a_short_round_is_sound_and_a_history_that_is_not_is_found_out() {
        let plan = Plan { time: Duration::from_millis(500), ..Plan::draw(1, 0) };
        let (noted, dump) = plan.play().unwrap();
        let properties = |noted: &Noted, dump: &Dump| {
            let findings = judge(noted.clone(), dump).findings;
            findings.iter().map(|finding| finding.property).collect::<Vec<_>>()
        };
        assert_eq!(
            properties(&noted, &dump),
            [""; 0],
            "{:?}",
            judge(noted.clone(), &dump).findings
        );
        assert!(!noted.records.is_empty() && !noted.runs.is_empty(), "nothing happened");
        // The records of the newest commit are missing in the store.
        let mut less = dump.clone();
        let newest = less.records.iter().map(|record| record.commit_ts).max();
        less.records.retain(|record| Some(record.commit_ts) != newest);
        assert!(properties(&noted, &less).contains(&property::NO_LOST_COMMIT));
        // A read returned another version.
        let mut wrong = noted.clone();
        let reads = wrong.txns.iter_mut().flat_map(|txn| &mut txn.ops);
        let writer = reads.filter_map(|op| match op {
            Op::Read { writer: Some(writer), .. } => Some(writer),
            _ => None,
        });
        *writer.last().expect("something was read") = bigtable::Timestamp::ZERO;
        assert!(!properties(&wrong, &dump).is_empty());
        // A commit was acknowledged, but the store never received its records.
        let mut lost = noted.clone();
        let last = lost.records.pop().expect("something was committed");
        lost.records.retain(|record| record.start_ts != last.start_ts);
        assert!(!properties(&lost, &dump).is_empty());
    }
}
