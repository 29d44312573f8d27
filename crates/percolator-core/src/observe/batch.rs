//! Batching observers: many weak notifications handled by one call.
//!
//! The notify cells themselves are the queue. They are cleared, up to the batch's `s`, only after
//! the observer has returned and its transaction has committed, so a crash in between redelivers
//! the batch.
//!
//! A batch that runs into a conflict is delivered in halves, and these in halves: one change that
//! others contend for must not keep all its neighbours from being delivered, round after round
//! (H56).
//!
//! ADR-9 says what this design costs, and what would change it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bigtable::{PageLimit, RowRange, Selection, TimeRange, Timestamp};
use futures::future::select;
use tracing::Instrument;

use crate::mutants::{self, off};
use crate::observe::change::Change;
use crate::observe::context::Context;
use crate::observe::failures::{Delay, is_of_the_services};
use crate::observe::handle::{note_failure, run_guarded};
use crate::observe::idle::{hints_waiting, is_notified};
use crate::observe::notified::clear;
use crate::observe::observer::{AnyBatchObserver, Batch, Registration, Runner};
use crate::observe::ran::{WatchedRun, span};
use crate::observe::row_lock::lock;
use crate::observe::set_aside::move_aside;
use crate::records::column::{Cell, Table};
use crate::records::layout::NOTIFY;
use crate::txn::begin::begin;
use crate::{Error, Result};

/// When so many changes of a batch have failed or conflicted, each by itself, before any was
/// delivered, it is not the changes.
const ALL_FAIL: usize = 16;
/// The shortest rest, and how often a batch that somebody waits for looks whether its turn has
/// come.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A change with the versions of its notification that were seen.
type Seen = (Change, Vec<Timestamp>);

/// What a round came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    /// As much as a batch may hold: more is waiting.
    Full,
    /// Something, or another worker is at it.
    Some,
    /// Nothing was notified.
    Nothing,
}

/// What delivering a batch came to.
#[derive(Default)]
struct Delivered<'a> {
    /// Whether any change was delivered.
    any: bool,
    /// Changes that ran into a conflict by themselves.
    contended: usize,
    /// Changes for which the observer failed by themselves.
    failed: Vec<(&'a Seen, Error)>,
}

impl Delivered<'_> {
    fn is_complete(&self) -> bool {
        self.contended == 0 && self.failed.is_empty()
    }

    /// Whether so much failed, and nothing else, that it cannot be the changes.
    fn is_hopeless(&self) -> bool {
        !self.any && self.contended + self.failed.len() >= ALL_FAIL
    }
}

/// Runs a batching observer every interval until the workers stop. Where nothing comes, the
/// rests grow up to the longest pause of idle workers; a change by this client ends a long one.
pub(super) async fn batch_loop(context: Arc<Context>, registration: Arc<Registration>) {
    let Runner::Batch(batch, observer) = registration.runner.clone() else { return };
    let mut resume = None;
    let mut pause = batch.interval;
    while !context.is_stopping() {
        let rung = context.shared.hints().collected.rung();
        let round = match round(&context, &registration, batch, &*observer, &mut resume).await {
            Ok(round) => round,
            Err(error) => {
                context.report(&error);
                Round::Some
            }
        };
        pause = match round {
            // More are waiting; a round that wrapped around starts over.
            Round::Full => continue,
            Round::Some => batch.interval,
            Round::Nothing => (pause * 2).min(context.options.idle_max).max(batch.interval),
        };
        until_due(&context, batch.interval, pause, rung).await;
    }
}

/// Waits for the pause to pass, or for the interval if there was a change by this client since
/// the bell was rung so often; or until somebody waits for idleness and nothing but batches is
/// left to do.
async fn until_due(context: &Context, interval: Duration, pause: Duration, mut rung: u64) {
    let bell = &context.shared.hints().collected;
    let begun = context.runtime().now();
    let mut due = begun + pause;
    while !context.is_stopping() {
        let mut left = due.saturating_sub(context.runtime().now());
        if context.shared.is_awaited() {
            left = left.min(LOOK_EVERY);
        }
        select(pin!(context.rest(left)), pin!(bell.after(rung))).await;
        if bell.rung() > rung {
            rung = bell.rung();
            due = due.min(begun + interval);
        }
        let now = context.runtime().now();
        let hurry = context.shared.is_awaited() && hints_waiting(&context.shared) == 0;
        if now >= due || (hurry && now >= begun + LOOK_EVERY) {
            return;
        }
    }
}

/// Collects and handles one batch.
async fn round(
    context: &Context,
    registration: &Registration,
    batch: Batch,
    observer: &dyn AnyBatchObserver,
    resume: &mut Option<RowRange>,
) -> Result<Round> {
    if context.is_paused(&registration.observed) {
        // Nobody takes a timestamp for it, with which the end of the pause would come.
        context.shared.learn_schema().await?;
    }
    if context.is_paused(&registration.observed) {
        return Ok(Round::Nothing);
    }
    // Mostly nothing is there, and then nobody need take the lock.
    if resume.is_none() && !is_notified(&context.shared, &registration.observed).await? {
        return Ok(Round::Nothing);
    }
    let observed = &registration.observed;
    let name =
        format!("batch/{}/{}/{}", observed.table, observed.column, observed.observer).into_bytes();
    let Some(lock) = lock(context, name).await? else { return Ok(Round::Some) };
    // As long as batches are full; then another worker may have its turn.
    let rounds = async {
        loop {
            let full = round_locked(context, registration, batch, observer, resume).await;
            let goes_on = matches!(full, Ok(true)) && !context.is_stopping();
            if !goes_on || lock.age() >= context.options.row_lock_lifetime / 2 {
                break full;
            }
        }
    };
    let full = lock.during(rounds).await?;
    Ok(if full { Round::Full } else { Round::Some })
}

/// Returns whether there was as much as a batch may hold.
async fn round_locked(
    context: &Context,
    registration: &Registration,
    batch: Batch,
    observer: &dyn AnyBatchObserver,
    resume: &mut Option<RowRange>,
) -> Result<bool> {
    if context.is_paused(&registration.observed) {
        return Ok(false);
    }
    let table = context.shared.table(&registration.observed.table).await?;
    let changes = collect(context, registration, &table, batch, resume).await?;
    if changes.is_empty() {
        return Ok(false);
    }
    let full = changes.len() >= batch.changes_max;
    let delivered = deliver_all(context, registration, &table, observer, &changes).await?;
    if delivered.is_complete() {
        return Ok(full);
    }
    if delivered.is_hopeless() {
        return Ok(false);
    }
    for ((change, seen), error) in delivered.failed {
        let cell = Cell::new(&change.table, &change.row, &change.column);
        let name = &registration.observed.observer;
        let aside = note_failure(context, &cell, name, &error) == Delay::SetAside;
        if aside && context.runs_all_of(&change.table, &change.column) {
            move_aside(context, &cell, seen).await?;
        }
    }
    Ok(false)
}

/// Delivers changes: all at once if that works. A conflict halves what ran into it. A failure
/// of the observer means that one change is poison, and finds it by delivering one at a time.
/// If none gets through, what the observer feeds is down, and that is no fault of the changes.
async fn deliver_all<'a>(
    context: &Context,
    registration: &Registration,
    table: &Table,
    observer: &dyn AnyBatchObserver,
    changes: &'a [Seen],
) -> Result<Delivered<'a>> {
    let mut delivered = Delivered::default();
    // The last one is tried next.
    let mut parts = vec![changes];
    while let Some(part) = parts.pop() {
        if context.is_stopping() || delivered.is_hopeless() {
            break;
        }
        let delivery = deliver(context, registration, table, observer, part);
        match (delivery.instrument(span(registration, None)).await, part) {
            (Ok(true), _) => delivered.any = true,
            // It was paused meanwhile.
            (Ok(false), _) => break,
            // Its notification stays, for the next round.
            (Err(error), [_]) if is_conflict(&error) => delivered.contended += 1,
            (Err(error), _) if is_conflict(&error) => {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
            }
            (Err(error), _) if says_nothing_of_the_observer(&error) => return Err(error),
            (Err(error), [one]) => delivered.failed.push((one, error)),
            (Err(error), _) => {
                context.report(&error);
                parts.extend(part.chunks(1).rev());
            }
        }
    }
    Ok(delivered)
}

/// Up to a batch of notified rows, going on where the last round ended.
async fn collect(
    context: &Context,
    registration: &Registration,
    table: &Table,
    batch: Batch,
    resume: &mut Option<RowRange>,
) -> Result<Vec<Seen>> {
    let column = &registration.observed.column;
    let name = &registration.observed.observer;
    let select = Selection::default().column(NOTIFY, column.to_bytes(), TimeRange::ALL, u32::MAX);
    let mut changes = Vec::new();
    let mut left = Some(resume.take().unwrap_or_else(RowRange::all));
    while let Some(range) = left {
        let rows_max = batch.changes_max - changes.len();
        let limit = PageLimit { rows_max, ..PageLimit::default() };
        let page = table.notify_store().scan(&range, &select, limit).await?;
        context.shared.take_turn(page.rows.len()).await;
        for row in page.rows {
            let notified = table.notified_row(&row.key)?;
            let cell = Cell::new(table, &notified, column);
            if context.failures.delay(&cell, name, context.runtime().now()).is_some() {
                continue;
            }
            let seen: Vec<Timestamp> = row.cells.iter().map(|cell| cell.timestamp).collect();
            let change = Change {
                table: table.clone(),
                row: notified,
                column: column.clone(),
                commit_ts: seen.iter().max().copied().unwrap_or(Timestamp::ZERO),
                deleted: false,
            };
            changes.push((change, seen));
        }
        left = page.resume;
        if changes.len() >= batch.changes_max {
            *resume = left;
            break;
        }
    }
    Ok(changes)
}

/// Hands changes to the observer, commits, and clears their notifications up to `s`; `false` if the
/// observer is paused.
async fn deliver(
    context: &Context,
    registration: &Registration,
    table: &Table,
    observer: &dyn AnyBatchObserver,
    changes: &[Seen],
) -> Result<bool> {
    let mut tx = begin(&context.shared, Some(&registration.name)).await?;
    if context.is_paused(&registration.observed) {
        return Ok(false);
    }
    tx.crew = Some(context.crew.clone());
    let s = tx.start_ts();
    let only: Vec<Change> = changes.iter().map(|(change, _)| change.clone()).collect();
    let name = &registration.observed.observer;
    tracing::debug!(
        target: "percolator::observer", event = "batch_started", observer = %name,
        changes = only.len(), start_ts = s.as_u64(),
    );
    context.shared.counters().observer_runs.bump();
    let watched = WatchedRun::begin(&mut tx, &only);
    let outcome = match run_guarded(observer.run(&mut tx, &only)).await {
        Ok(()) => tx.commit().await,
        Err(error) => Err(error),
    };
    if let Some(watched) = watched {
        watched.ended(context, registration, &only, &outcome);
    }
    if !off(mutants::BATCH_CLEARS_UNCOMMITTED) {
        outcome?;
    }
    for change in &only {
        let cell = Cell::new(&change.table, &change.row, &change.column);
        context.failures.forget(&cell, name);
    }
    if !context.runs_all_of(table, &registration.observed.column) {
        // Another program's observer of the same column has not seen them yet (H53).
        return Ok(true);
    }
    let limits = context.shared.limits();
    let requests = changes.iter().flat_map(|(change, seen)| {
        clear(&limits, &Cell::new(&change.table, &change.row, &change.column), seen, s)
    });
    let requests = requests.collect();
    for result in table.notify_store().check_and_mutate_rows(requests).await {
        result?;
    }
    tracing::debug!(
        target: "percolator::observer", event = "batch_committed", observer = %name,
        changes = only.len(), start_ts = s.as_u64(),
    );
    Ok(true)
}

/// Whether the transaction ran into another one, so that fewer changes at once may get through.
fn is_conflict(error: &Error) -> bool {
    let conflict = error.is_retryable() && !is_of_the_services(error);
    conflict && !off(mutants::BATCH_IS_NEVER_SPLIT)
}

fn says_nothing_of_the_observer(error: &Error) -> bool {
    error.is_retryable() || matches!(error, Error::Unknown { .. }) || is_of_the_services(error)
}
