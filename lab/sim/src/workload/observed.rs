//! Runs observers, and writes the cells that they observe.
//!
//! ```text
//! t7  f:a  -o0-> f:b -o3-> f:d    a chain, and weak notifications on t8 f:a
//!          -o1-> f:c              counts its runs
//!          -o2->                  writes nothing
//!          -o8-> f:i              registered while writers run
//!     f:e  -o4-> f:e              counts down to zero on its own column
//!     f:g  -o5-> f:h              fails in three of four runs while the world is broken
//! t8  f:a  -o6-> f:b              weak
//!     f:c  -o7-> f:e              weak, in batches: counts its runs in f:e; also writes f:d, which
//!                                 clients that notify write too, so that the two conflict; fails
//!                                 in one of four runs while the world is broken
//! ```
//!
//! The arrow `-oN->` stands for observer N: it leads from the column that the observer observes
//! to the column that it writes.
//!
//! Some processes run only one of the observers of f:a, and must not disturb the others.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bigtable::Timestamp;
use percolator_core::{
    Batch, BatchObserver, Change, Error, Observer, Registration, Result, Transaction,
    WorkerOptions, Workers,
};

use crate::book::{Log, Session};
use crate::history::{Cell, Finding, Run};
use crate::names::{ACK, COLUMNS, OBSERVERS, TABLES, cell as named, row_key};
use crate::pauses::check_run;
use crate::tally::Sometimes;
use crate::workload::cell::cell;
use crate::world::World;

const TABLE: u8 = 7;
const WEAK: u8 = 8;
const ROWS: u64 = 5;
const SOURCE: u8 = 0;
const COUNT: u8 = 2;
const DOWN: u8 = 4;
const FRAGILE: u8 = 6;
const NOTIFIED: u8 = 0;
const EXPORTED: u8 = 2;
/// Notifiers and batches both write this column, so that they conflict.
const CONTENDED: u8 = 3;
/// The column in which batches count their runs.
const BATCHED: u8 = 4;
const COUNTING: u8 = 1;
/// One run in this many takes long.
const LONG_RUN_IN: u64 = 32;
/// The batch observer.
const EXPORT: u8 = 7;
/// The observer that is registered while writers run.
pub(crate) const LATE: u8 = 8;

/// The observers that a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Observers {
    /// All that are registered before the first writer.
    First,
    /// All of `First`, and the late observer.
    WithLate,
    /// A single one of the observers that share a column.
    One,
}

/// The observers that are paused at times: several of one column, a fragile one, a weak one,
/// and the batching one.
pub(crate) const PAUSED: &[u8] = &[COUNTING, 2, 5, 6, EXPORT, LATE];

/// The strong observers, each with the table and the column that it observes.
pub(crate) const OBSERVED: &[(u8, (u8, u8))] = &[
    (0, (TABLE, SOURCE)),
    (COUNTING, (TABLE, SOURCE)),
    (2, (TABLE, SOURCE)),
    (3, (TABLE, 1)),
    (4, (TABLE, DOWN)),
    (5, (TABLE, FRAGILE)),
    (LATE, (TABLE, SOURCE)),
];

/// An observer of the diagram above.
struct Numbered {
    world: Arc<World>,
    number: u8,
}

impl Observer for Numbered {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> Result<()> {
        let Some(observed) = changed(change) else { return Ok(()) };
        check_run(&self.world, self.number, observed, tx.start_ts());
        // The sleep may exceed the lifetime of the row lock, or the time for which it is renewed.
        if self.world.one_in(LONG_RUN_IN) {
            self.world.sleep_ms(self.world.between(1, 3000)).await;
        }
        let mut log = Log::of(&self.world, tx);
        let (number, start_ts) = (self.number, tx.start_ts());
        if observed.table == TABLE {
            log.writes(Cell { column: ACK + number, ..observed }, false);
            self.world.book().runs.push(Run { observer: number, cell: observed, start_ts });
        } else {
            self.world.book().weak_runs.push((observed, start_ts));
        }
        let table = &change.table;
        let to = |column| Cell { column, ..observed };
        match number {
            0 => {
                log.copy(tx, (table, observed), (table, to(1))).await?;
                let weak = tx.client().table(TABLES[usize::from(WEAK)]).await?;
                tx.notify(&weak, row_key(observed.row), &COLUMNS[usize::from(NOTIFIED)])?;
                let left = (start_ts, cell(WEAK, u64::from(observed.row), NOTIFIED), None);
                self.world.book().notified.push(left);
                Ok(())
            }
            COUNTING => {
                let old = log.get(tx, table, to(COUNT)).await?.map_or(0, |body| body.len());
                log.set(tx, table, to(COUNT), &vec![b'1'; old + 1])
            }
            3 => log.copy(tx, (table, observed), (table, to(3))).await,
            4 => match log.get(tx, table, observed).await? {
                Some(left) if !left.is_empty() => log.set(tx, table, observed, &left[1..]),
                _ => Ok(()),
            },
            5 if self.world.broken.load(Ordering::Relaxed) && !self.world.one_in(4) => {
                fail(&self.world)
            }
            5 => log.copy(tx, (table, observed), (table, to(7))).await,
            6 => log.set(tx, table, to(1), b""),
            LATE => log.copy(tx, (table, observed), (table, to(8))).await,
            _ => Ok(()),
        }
    }
}

/// Fails by an error or by a panic.
fn fail(world: &World) -> Result<()> {
    if world.one_in(2) {
        Err(Error::application("the workload makes this run fail"))
    } else {
        // `panic!` would print a message, so the panic is resumed instead.
        std::panic::resume_unwind(Box::new("the workload makes this run panic"))
    }
}

/// The batch observer.
struct Export {
    world: Arc<World>,
}

impl BatchObserver for Export {
    async fn observe(&self, tx: &mut Transaction, changes: &[Change]) -> Result<()> {
        let cells: Vec<Cell> = changes.iter().filter_map(changed).collect();
        let start_ts = tx.start_ts();
        cells.iter().for_each(|cell| check_run(&self.world, EXPORT, *cell, start_ts));
        if self.world.broken.load(Ordering::Relaxed) && self.world.one_in(4) {
            return Err(Error::application("the other system is down"));
        }
        self.world.book().exported.extend(cells.iter().map(|cell| (*cell, start_ts)));
        let mut log = Log::of(&self.world, tx);
        for (change, cell) in changes.iter().zip(cells) {
            let (counted, contended) =
                (Cell { column: BATCHED, ..cell }, Cell { column: CONTENDED, ..cell });
            let old = log.get(tx, &change.table, counted).await?.map_or(0, |body| body.len());
            log.set(tx, &change.table, counted, &vec![b'1'; old + 1])?;
            log.set(tx, &change.table, contended, b"")?;
        }
        Ok(())
    }
}

fn changed(change: &Change) -> Option<Cell> {
    named(change.table.name().as_bytes(), &change.row, change.column.as_bytes())
}

/// Registers the observers and starts workers, and tries again until both succeed.
pub(crate) async fn observe(session: &Session, observers: Observers) -> Workers {
    let world = &session.world;
    let options = WorkerOptions {
        threads: world.between(1, 3) as usize,
        runs_max: world.between(1, 4) as usize,
        scan_period: Duration::from_millis(world.between(20, 200)),
        idle_max: Duration::from_millis(world.between(300, 1500)),
        row_lock_lifetime: Duration::from_millis(world.between(50, 2000)),
        // Without renewal it happens more often that two runs handle the same change (H52).
        run_max: if world.one_in(2) {
            Duration::ZERO
        } else {
            Duration::from_millis(world.between(0, 4000))
        },
        failure_delay: Duration::from_millis(world.between(1, 20)),
        failure_delay_max: Duration::from_millis(500),
        failures_max: world.between(2, 6) as u32,
        peek_every: match world.between(0, 3) {
            0 => None,
            periods => Some(Duration::from_millis(100 * periods)),
        },
    };
    loop {
        match session.client.observe(registrations(world, observers), options.clone()).await {
            Ok(workers) => {
                if observers == Observers::One {
                    world.tally.happened(Sometimes::PartlyObserved);
                } else {
                    world.book().observed_since.get_or_insert(world.now());
                }
                return workers;
            }
            Err(_) => world.sleep_ms(world.between(1, 30)).await,
        }
    }
}

/// Draws whether a world has an observer that is registered while writers run.
pub(crate) fn with_late(world: &World) -> bool {
    world.mix.observes() && world.one_in(2)
}

fn registrations(world: &Arc<World>, observers: Observers) -> Vec<Registration> {
    let strong = |number: u8, column: u8| {
        let observer = Numbered { world: world.clone(), number };
        let column = COLUMNS[usize::from(column)].clone();
        let name = OBSERVERS[usize::from(number)];
        Registration::strong(name, TABLES[usize::from(TABLE)], &column, observer)
    };
    if observers == Observers::One {
        return vec![strong(world.between(0, 2) as u8, SOURCE)];
    }
    let mut all = vec![
        strong(0, SOURCE),
        strong(COUNTING, SOURCE),
        strong(2, SOURCE),
        strong(3, 1),
        strong(4, DOWN),
        strong(5, FRAGILE),
    ];
    if observers == Observers::WithLate {
        all.push(strong(LATE, SOURCE));
    }
    let weak = Numbered { world: world.clone(), number: 6 };
    let table = TABLES[usize::from(WEAK)];
    let column = |number: u8| COLUMNS[usize::from(number)].clone();
    all.push(Registration::weak(OBSERVERS[6], table, &column(NOTIFIED), weak));
    let batch = Batch {
        changes_max: world.between(1, 8) as usize,
        interval: Duration::from_millis(world.between(20, 400)),
    };
    let export = Export { world: world.clone() };
    all.push(Registration::batched(
        OBSERVERS[usize::from(EXPORT)],
        table,
        &column(EXPORTED),
        batch,
        export,
    ));
    all
}

/// Writes observed columns.
pub(super) async fn source(session: &Session) -> Result<()> {
    let world = &session.world;
    let mut tx = session.begin().await?;
    for _ in 0..world.between(1, 3) {
        // The rows are drawn one by one, so that some cells are secondaries.
        let row = world.between(0, ROWS - 1);
        let body = vec![b'x'; world.between(0, 3) as usize];
        match world.between(0, 7) {
            0 => tx.set(cell(TABLE, row, DOWN), &body)?,
            1 => tx.set(cell(TABLE, row, FRAGILE), &body)?,
            2 => tx.delete(cell(TABLE, row, SOURCE))?,
            _ => tx.set(cell(TABLE, row, SOURCE), &body)?,
        }
    }
    tx.commit().await.map(drop)
}

/// Sends weak notifications, with a write or without.
pub(super) async fn notifier(session: &Session) -> Result<()> {
    let world = &session.world;
    let mut tx = session.begin().await?;
    let row = world.between(0, ROWS - 1);
    if !world.one_in(4) {
        tx.set(cell(WEAK, row, CONTENDED), b"")?;
    }
    if world.one_in(2) {
        tx.notify(cell(WEAK, row, NOTIFIED))?;
    }
    tx.notify(cell(WEAK, row, EXPORTED))?;
    tx.commit().await.map(drop)
}

/// Checks that every run had its effect once, and that every weak notification was handled.
pub(super) async fn verify(session: &Session) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    if !session.world.mix.observes() {
        return Ok(findings);
    }
    for row in 0..ROWS {
        let runs = committed_runs(&session.world, COUNTING, cell(TABLE, row, SOURCE));
        let counter = cell(TABLE, row, COUNT);
        findings.extend(miscounted(session, "observer effects", counter, runs).await?);
        for (from, to) in [(SOURCE, 1), (1, 3), (FRAGILE, 7)] {
            let mut tx = session.begin().await?;
            let (from, to) = (cell(TABLE, row, from), cell(TABLE, row, to));
            let (source, copied) = (tx.get(from).await?, tx.get(to).await?);
            if source != copied {
                let facts = format!("{from:?} is {source:?}, its copy is {copied:?}");
                findings.push(Finding { property: "observer copies", facts });
            }
        }
    }
    for row in 0..ROWS {
        let runs = batch_runs(&session.world, cell(WEAK, row, EXPORTED));
        let counter = cell(WEAK, row, BATCHED);
        findings.extend(miscounted(session, "batch effects", counter, runs).await?);
    }
    findings.extend(unhandled(&session.world));
    findings.extend(unnotified(&session.world));
    Ok(findings)
}

/// Returns a finding if a counter does not hold the number of runs.
async fn miscounted(
    session: &Session,
    property: &'static str,
    counter: Cell,
    runs: usize,
) -> Result<Option<Finding>> {
    let counted = session.begin().await?.get(counter).await?.map_or(0, |body| body.len());
    let facts = format!("{counter:?} holds {counted} effects of {runs} runs");
    Ok((runs != counted).then_some(Finding { property, facts }))
}

fn committed_runs(world: &World, observer: u8, of: Cell) -> usize {
    let (book, journal) = (world.book(), world.store.journal());
    let committed: BTreeSet<Timestamp> = book
        .runs
        .iter()
        .filter(|run| run.observer == observer && run.cell == of)
        .filter(|run| journal.committed.contains_key(&run.start_ts))
        .map(|run| run.start_ts)
        .collect();
    committed.len()
}

/// Counts the committed batches with this change.
fn batch_runs(world: &World, of: Cell) -> usize {
    let (book, journal) = (world.book(), world.store.journal());
    let runs = book.exported.iter().filter(|(cell, _)| *cell == of);
    let (committed, failed): (BTreeSet<Timestamp>, BTreeSet<Timestamp>) = runs
        .map(|(_, start_ts)| *start_ts)
        .partition(|start_ts| journal.committed.contains_key(start_ts));
    if !failed.is_empty() {
        world.tally.happened(Sometimes::BatchAborted);
    }
    committed.len()
}

/// Returns changes of observed columns whose write record came before their notification. A
/// crash between the two would have lost the change. A later change of the same cell may hide
/// the loss, so only this check shows it (H48, H49).
fn unnotified(world: &World) -> Vec<Finding> {
    let (book, journal) = (world.book(), world.store.journal());
    let Some(since) = book.observed_since else { return Vec::new() };
    // A commit timestamp that was requested later came with the schema, so its writer knew the
    // observer.
    let later = |commit_ts| world.oracles.stamp(commit_ts).is_some_and(|(asked, _)| asked > since);
    let of = journal.unnotified.iter().filter(|record| {
        let at = (record.cell.table, record.cell.column);
        OBSERVED.iter().any(|(_, column)| *column == at) && later(record.commit_ts)
    });
    let finding = |record| {
        let facts = format!("{record:?} came before its notification");
        Finding { property: "notified", facts }
    };
    of.map(finding).collect()
}

/// Returns weak notifications of committed transactions that no later run has handled.
fn unhandled(world: &World) -> Vec<Finding> {
    let (book, journal) = (world.book(), world.store.journal());
    let committed = |(_, start): &&(Cell, Timestamp)| journal.committed.contains_key(start);
    let handled: Vec<(Cell, Timestamp)> =
        book.weak_runs.iter().chain(&book.exported).filter(committed).copied().collect();
    let mut findings = Vec::new();
    for (start_ts, at, told) in &book.notified {
        let Some(commit_ts) = told.or(journal.committed.get(start_ts).copied()) else { continue };
        if !handled.iter().any(|(cell, start)| cell == at && *start > commit_ts) {
            let facts = format!("{at:?}, notified at {commit_ts} by {start_ts}, was not handled");
            findings.push(Finding { property: "weak notification", facts });
        }
    }
    findings
}
