//! Runs one seed: sets its world up, lets the storm pass, heals it, waits for rest, and checks
//! the result.

use std::sync::Arc;
use std::time::Duration;

use bigtable::{RowRange, Selection, Store, Timestamp};
use futures::channel::oneshot;
use futures::future::join_all;
use percolator_core::{AbortReason, Error, Result, Sampling, Workers};

use crate::book::Session;
use crate::check::{check, property};
use crate::executor::WORLD;
use crate::failures::READY;
use crate::history::{Finding, History, Run, observed};
use crate::names::{LOCK, NOTIFY, NOTIFY_TABLE, OBSERVERS, TABLES, WRITE, cell};
use crate::process::ProcessRuntime;
use crate::report::Report;
use crate::restrictions::Restrictions;
use crate::tally::{Fault, Sometimes};
use crate::watching::{Events, Watching};
use crate::workload::{self, LATE, Observers, observe, with_late};
use crate::world::World;
use crate::{explained, nemesis, pauses};

/// The longest duration of the storm.
const STORM: Duration = Duration::from_secs(30);
/// The time after the storm within which all work must end.
const REST: Duration = Duration::from_secs(120);
/// The time after a leader's death within which another oracle must lead.
const FAIL_OVER: Duration = Duration::from_secs(3);
/// More steps than any run takes that still makes progress.
const STEPS_MAX: u64 = 4_000_000;

/// Runs a seed; with `trace` the report has every event as a line of text.
pub fn run_seed(seed: u64, trace: bool) -> Report {
    run_with(seed, &Restrictions::default(), trace)
}

/// Runs a seed as [`run_seed`] does, with restrictions of its world.
pub fn run_with(seed: u64, restrictions: &Restrictions, trace: bool) -> Report {
    run_in(&World::new(seed, restrictions, trace), seed)
}

/// Runs a seed as [`run_seed`] does, while a watcher compares each event with the store.
pub fn run_watched(seed: u64) -> (Report, Events) {
    let world = World::new(seed, &Restrictions::default(), false);
    let watching = world.watching.get_or_init(|| Arc::new(Watching::new(&world.store))).clone();
    let report = run_in(&world, seed);
    (report, watching.events())
}

/// As [`run_seed`], while all clients leave a trace of everything that they do in the store. That
/// draws other faults, so the history is another one.
pub fn run_traced(seed: u64) -> Report {
    let world = World::new(seed, &Restrictions::default(), false);
    world.sampling.get_or_init(|| Sampling::All);
    run_in(&world, seed)
}

fn run_in(world: &Arc<World>, seed: u64) -> Report {
    let ended = world.executor.block_on(STEPS_MAX, live(world.clone()));
    let mut history = history(world);
    let mut found = std::mem::take(&mut world.book().findings);
    match ended {
        Some(more) => found.extend(more),
        None => {
            let facts = format!("the run did not end by {:?}", world.now());
            let property = if world.has_begun() { property::LIVENESS } else { property::SET_UP };
            found.push(Finding { property, facts });
        }
    }
    found.extend(check(&history));
    count_sometimes(world);
    let report = Report::of(world, seed, &mut history, found);
    world.executor.shut_down();
    report
}

/// Plays the life of a world. Returns what is wrong at its end.
async fn live(world: Arc<World>) -> Vec<Finding> {
    let auditor = world.new_process();
    let session = Session::open(&world, world.client(&auditor).await).await;
    workload::set_up(&session).await;
    world.begin_storm();
    nemesis::unleash(&world);
    let mut workers = start_workers(&world);
    workers.extend(world.swarm.faults.floor.map(|interval| {
        supervise(&world, move |world, member| collector_life(world, member, interval))
    }));
    let clients = (0..world.swarm.clients).map(|_| supervise(&world, client_life));
    let clients = join_all(clients.collect::<Vec<_>>());
    let storm = world.executor.sleep(STORM);
    let clients = match futures::future::select(clients, storm).await {
        futures::future::Either::Left(_) => None,
        futures::future::Either::Right((_, clients)) => Some(clients),
    };
    world.end_quota();
    explained::compare(&world);
    world.heal();
    let healed = world.now();
    if let Some(clients) = clients {
        let rest = world.executor.sleep(REST);
        if let futures::future::Either::Right(_) = futures::future::select(clients, rest).await {
            return vec![stuck(&world, "a client did not end")];
        }
    }
    let rest = world.executor.sleep(REST);
    let workers = join_all(workers);
    if let futures::future::Either::Right(_) = futures::future::select(workers, rest).await {
        return vec![stuck(&world, "a worker did not end")];
    }
    let result = drain(&world, &session, healed).await;
    match result {
        Ok(findings) => findings,
        Err(error) => vec![stuck(&world, &format!("at the end: {error}"))],
    }
}

fn stuck(world: &World, what: &str) -> Finding {
    Finding { property: property::LIVENESS, facts: format!("{what}, at {:?}", world.now()) }
}

/// Keeps a process going: after a kill another one replaces it, until no work is left.
fn supervise<F, W>(world: &Arc<World>, life: F) -> oneshot::Receiver<()>
where
    F: Fn(Arc<World>, ProcessRuntime) -> W + Send + Sync + 'static,
    W: Future<Output = ()> + Send + 'static,
{
    let (ended, end) = oneshot::channel();
    let own = world.clone();
    world.executor.spawn(
        WORLD,
        Box::pin(async move {
            loop {
                let member = own.new_member();
                let (done, killed) = oneshot::channel::<()>();
                let life = life(own.clone(), member.clone());
                own.executor.spawn(
                    member.process,
                    Box::pin(async move {
                        life.await;
                        let _ = done.send(());
                    }),
                );
                if killed.await.is_ok() || !own.has_quota() {
                    break;
                }
                own.sleep_ms(own.between(1, 100)).await;
            }
            let _ = ended.send(());
        }),
    );
    end
}

async fn client_life(world: Arc<World>, member: ProcessRuntime) {
    let session = Session::open(&world, world.client(&member).await).await;
    while world.take_quota() {
        // The book has all other outcomes.
        if let Err(Error::TooOld { .. } | Error::Aborted { reason: AbortReason::TooOld, .. }) =
            workload::step(&session).await
            && world.swarm.life.is_some()
        {
            world.tally.happened(Sometimes::Lapsed);
        }
        if world.one_in(4) {
            world.sleep_ms(world.between(0, 20)).await;
        }
    }
    let stats = session.client.stats();
    if stats.reads_saved > 0 {
        world.tally.happened(Sometimes::ReadAhead);
    }
}

/// Starts the workers that run observers during the storm; some start late.
fn start_workers(world: &Arc<World>) -> Vec<oneshot::Receiver<()>> {
    let mut all = Vec::new();
    if !world.mix.observes() {
        return all;
    }
    let mut start = |observers| {
        let life = move |world, member| worker_life(world, member, observers);
        all.push(supervise(world, life));
    };
    if !world.one_in(4) {
        start(Observers::First);
    }
    if world.one_in(2) {
        start(Observers::One);
    }
    if with_late(world) {
        start(Observers::WithLate);
    }
    all
}

async fn worker_life(world: Arc<World>, member: ProcessRuntime, observers: Observers) {
    if observers == Observers::WithLate {
        world.sleep_ms(world.between(1, 1500)).await;
        world.tally.fault(Fault::Registration);
    }
    let session = Session::open(&world, world.client(&member).await).await;
    let workers = observe(&session, observers).await;
    while !world.is_healed() {
        world.sleep_ms(50).await;
    }
    if session.client.stats().row_locks_renewed > 0 {
        world.tally.happened(Sometimes::RowLockRenewed);
    }
    if world.one_in(2) {
        workers.stop().await
    } else {
        // Some workers are abandoned in the middle of a run, or of a commit.

        let longest = Duration::from_millis(world.between(0, 200));
        if workers.stop_within(longest).await > 0 {
            world.tally.happened(Sometimes::RunAbandoned);
        }
    }
}

/// Collects garbage during the storm.
async fn collector_life(world: Arc<World>, member: ProcessRuntime, interval: Duration) {
    let client = world.client(&member).await;
    let shortest = client.retention_min();
    while !world.is_healed() {
        nemesis::wait(&world, interval).await;
        let retention = if world.one_in(3) {
            Duration::ZERO
        } else {
            // With a retention close to the shortest, the registration of a paused process
            // often lapses.

            let longest = world.between(2, 400);
            shortest + Duration::from_millis(world.between(1, longest))
        };
        let report = match client.gc(retention).await {
            Ok(report) => report,
            Err(Error::Invalid { .. }) if retention < shortest => {
                world.tally.happened(Sometimes::RetentionRefused);
                continue;
            }
            // A failed round does no harm, because the next one collects the same garbage.
            Err(_) => continue,
        };
        if report.blocked_by.is_some() {
            world.tally.happened(Sometimes::CollectionBlocked);
        } else if report.counts.writes > 0 {
            world.tally.happened(match world.swarm.life {
                None => Sometimes::VersionsCollected,
                Some(_) => Sometimes::CollectedUnfenced,
            });
        }
    }
}

/// Collects everything that can be collected. Reports a cell that still has more than one
/// record below the safe point.
async fn collect_all(world: &World, session: &Session) -> Result<Option<Finding>> {
    if world.swarm.faults.floor.is_none() {
        return Ok(None);
    }
    let report = session.client.gc(session.client.retention_min()).await?;
    if report.blocked_by.is_some() {
        return Ok(Some(stuck(world, "a lock ends the last collection")));
    }
    let mut records = left(world, WRITE);
    records.retain(|(_, commit_ts)| *commit_ts <= report.safe_point);
    records.sort_unstable();
    let twice = records.windows(2).find(|pair| pair[0].0 == pair[1].0);
    Ok(twice.map(|pair| Finding {
        property: property::COLLECTED,
        facts: format!("{pair:?} are left below the safe point {}", report.safe_point),
    }))
}

/// Waits until all work has ended, and checks what is left.
async fn drain(world: &Arc<World>, session: &Session, healed: Duration) -> Result<Vec<Finding>> {
    let deadline = healed + REST;
    // Messages in flight arrive first, so that no later one disturbs the rest.
    let flows = || world.transport.in_flight() > 0 || !world.store.is_at_rest();
    // The silence after a power cut may outlast the storm, and a reader without a floor may
    // not wait that long.
    let rests = || !flows() && !world.store.is_down();
    while !rests() && world.now() < deadline {
        world.sleep_ms(50).await;
    }
    let workers = final_workers(world).await;
    while world.now() < deadline {
        if world.mix.observes() {
            if world.swarm.faults.observer_pause.is_some() {
                pauses::resume_all(&session.client).await?;
            }
            let wait = deadline.saturating_sub(world.now());
            let report = session.client.wait_idle(Some(wait)).await?;
            if !report.set_aside.is_empty() {
                session.client.replay(None).await?;
                continue;
            }
        }
        resolve_all(session).await?;
        let locks = left(world, LOCK).len();
        if locks == 0 && left(world, NOTIFY).is_empty() {
            break;
        }
        world.sleep_ms(20).await;
    }
    let mut findings = Vec::new();
    let (locks, dirty) = (left(world, LOCK), left(world, NOTIFY));
    if !locks.is_empty() || !dirty.is_empty() {
        let what = format!("left after {REST:?}: locks {locks:?}, notifications {dirty:?}");
        findings.push(stuck(world, &what));
    }
    findings.extend(misplaced(world));
    findings.extend(collect_all(world, session).await?);
    findings.extend(workload::verify(session).await?);
    pauses::count(world);
    if let Some(workers) = workers {
        workers.stop().await;
    }
    findings.extend(fail_over(world, session).await?);
    Ok(findings)
}

/// Kills the leading oracle while nothing else goes wrong, and checks that another one takes
/// over in time.
async fn fail_over(world: &Arc<World>, session: &Session) -> Result<Option<Finding>> {
    if !world.swarm.stand_by {
        return Ok(None);
    }
    let before = session.client.oracle().timestamp().await?.timestamp;
    world.start_oracle();
    world.sleep_ms(500).await;
    let Some((old, _)) = world.oracles.leader() else {
        return Ok(Some(stuck(world, "no oracle leads")));
    };
    world.executor.kill(old);
    let died = world.now();
    world.oracles.forget(old);
    while world.oracles.leader().is_none() && world.now() < died + FAIL_OVER {
        world.sleep_ms(10).await;
    }
    if world.oracles.leader().is_none() {
        return Ok(Some(stuck(
            world,
            &format!("no oracle leads {FAIL_OVER:?} after a leader's death"),
        )));
    }
    world.tally.happened(Sometimes::FailedOver);
    let after = session.client.oracle().timestamp().await?.timestamp;
    let facts = format!("{after} after {before}, from an oracle that took over");
    Ok((after <= before).then_some(Finding { property: property::ORACLE, facts }))
}

/// Starts workers that know every observer.
async fn final_workers(world: &Arc<World>) -> Option<Workers> {
    if !world.mix.observes() {
        return None;
    }
    let runtime = world.new_process();
    let session = Session::open(world, world.client(&runtime).await).await;
    let registered = loop {
        if let Ok(registered) = session.client.observers().await {
            break registered;
        }
    };
    let late = registered.iter().any(|entry| entry.observer == OBSERVERS[usize::from(LATE)]);
    let all = workload::OBSERVED.iter().map(|(observer, _)| *observer);
    world.book().registered = all.filter(|observer| late || *observer != LATE).collect();
    Some(observe(&session, if late { Observers::WithLate } else { Observers::First }).await)
}

/// Reads every row. This resolves each lock unless its owner seems to live.
async fn resolve_all(session: &Session) -> Result<()> {
    for table in session.tables.iter() {
        match session.client.begin().await?.scan(table).collect().await {
            Ok(_) => {}
            // The owner seems to live; a later pass will find the lock expired.
            Err(Error::Locked { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the cells of one of Percolator's families, read from the store without the network.
fn left(world: &World, family: bigtable::Family) -> Vec<(crate::history::Cell, Timestamp)> {
    let apart = world.swarm.apart && family == NOTIFY;
    left_in(world, family, apart)
}

/// Reports notifications in a row that belong in a table of their own, or the reverse.
fn misplaced(world: &World) -> Option<Finding> {
    let found = left_in(world, NOTIFY, !world.swarm.apart);
    let facts = format!("{found:?}: notifications lie in the wrong place");
    (!found.is_empty()).then_some(Finding { property: "placement", facts })
}

fn left_in(
    world: &World,
    family: bigtable::Family,
    apart: bool,
) -> Vec<(crate::history::Cell, Timestamp)> {
    use futures::FutureExt;
    let select = Selection::default().family(family, bigtable::TimeRange::ALL, u32::MAX);
    let mut found = Vec::new();
    for name in TABLES {
        let opened = if apart {
            let (name, schema) = ([NOTIFY_TABLE, name].concat(), percolator_core::notify_schema());
            world.store.inner().open_table(&name, &schema).now_or_never()
        } else {
            let schema = percolator_core::table_schema();
            world.store.inner().open_table(name, &schema).now_or_never()
        };
        let table = opened.expect(READY).expect("the schema is always the same");
        let mut rest = Some(RowRange::all());
        while let Some(range) = rest {
            let page = table.scan(&range, &select, bigtable::PageLimit::default());
            let page = page.now_or_never().expect(READY).expect("the selection is well formed");
            for row in &page.rows {
                // The key has one byte, the shard, before the row's key.
                let key = row.key.as_bytes().get(apart.into()..).unwrap_or_default().into();
                for found_cell in &row.cells {
                    let cell = cell(name.as_bytes(), &key, &found_cell.qualifier);
                    found.extend(cell.map(|cell| (cell, found_cell.timestamp)));
                }
            }
            rest = page.resume;
        }
    }
    found
}

/// Returns the history that the checkers need.
fn history(world: &World) -> History {
    let journal = world.store.journal();
    let committed = |run: &&Run| journal.committed.contains_key(&run.start_ts);
    let mut book = world.book();
    let mut runs: Vec<Run> = book.runs.iter().filter(committed).copied().collect();
    runs.sort_by_key(|run| run.start_ts);
    let known = workload::OBSERVED.iter().filter(|(known, _)| book.registered.contains(known));
    let observed = observed(&journal.records, known);
    let stamps = world.oracles.stamps();
    History {
        txns: std::mem::take(&mut book.txns),
        records: journal.records.clone(),
        tombs: journal.tombs.iter().copied().collect(),
        locks: left(world, LOCK),
        notifications: left(world, NOTIFY),
        runs,
        observed,
        stamps: stamps.iter().map(|s| (s.timestamp, s.asked, s.arrived)).collect(),
        views: std::mem::take(&mut book.views),
        collected: journal.collected.iter().copied().collect(),
        locked_again: journal.locked_again.clone(),
        revived: journal.revived.clone(),
        registered: journal.registered.iter().map(|(who, since)| (*who, *since)).collect(),
    }
}

fn count_sometimes(world: &World) {
    let journal = world.store.journal();
    if !world.book().runs.is_empty() {
        world.tally.happened(match (world.swarm.apart, world.swarm.life) {
            (true, _) => Sometimes::ObservedApart,
            (false, None) => Sometimes::ObservedInRow,
            (false, Some(_)) => Sometimes::ObservedLikeHbase,
        });
    }
    journal.count_failovers(&world.oracles.stamps(), &world.tally);
    for start_ts in &world.book().told_unknown {
        world.tally.happened(if journal.committed.contains_key(start_ts) {
            Sometimes::UnknownThenCommitted
        } else {
            Sometimes::UnknownThenAborted
        });
    }
    for start_ts in &world.book().hung_up {
        if journal.committed.contains_key(start_ts) {
            world.tally.happened(Sometimes::HungUpThenCommitted);
        }
    }
}
