//! Batching observers: one run handles many weak notifications. A weak notification lies on a
//! notify-only column; its observer leaves no acknowledgement, and may run more than once for
//! a change.
//!
//! The notifications in the store are the queue. They are cleared, up to the start timestamp
//! of the batch, only after the observer has returned and its transaction has committed. So a
//! crash in between delivers the batch again.
//!
//! A batch that runs into a conflict is delivered in halves, and these in halves again.
//! Otherwise one change that other transactions contend for would block all its neighbours,
//! round after round (H56).
//!
//! ADR-9 says what this design costs, and what would change it.

use std::sync::Arc;
use std::time::Duration;

use bigtable::{PageLimit, RowRange, Selection, TimeRange, Timestamp};
use tracing::Instrument;

use crate::mutants::{self, off};
use crate::observe::change::Change;
use crate::observe::context::Context;
use crate::observe::failures::{Delay, is_of_the_services};
use crate::observe::gather::{announced, gather, hold_off, until_look};
use crate::observe::handle::{note_failure, run_guarded};
use crate::observe::idle::has_notification;
use crate::observe::notified::clear;
use crate::observe::observer::{AnyBatchObserver, Batch, Registration, Runner};
use crate::observe::ran::{WatchedRun, span};
use crate::observe::row_lock::lock;
use crate::observe::set_aside::move_aside;
use crate::records::column::{Cell, Table};
use crate::records::layout::NOTIFY;
use crate::records::schema::Observed;
use crate::txn::begin::begin;
use crate::{Error, Result};

/// If this many changes of a batch fail or conflict one by one and none is delivered, the
/// cause lies outside of the changes.
const ALL_FAIL: usize = 16;
/// The shortest pause between two looks for changes, and the pause after an attempt that left some,
/// are the batch's interval, but at most this.
const LOOK_MAX: Duration = Duration::from_secs(10);
/// A change, with the versions of its notification that were seen.
type Seen = (Change, Vec<Timestamp>);

/// The outcome of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    /// The round had as many changes as a batch may hold, so more may be waiting.
    Full,
    /// The round has delivered all changes that waited.
    Delivered,
    /// Changes are left, for another attempt: the observer failed or is paused, or another worker
    /// holds the lock.
    Undelivered,
}

/// The outcome of delivering a batch.
#[derive(Default)]
struct Delivered<'a> {
    /// Whether any change was delivered.
    any: bool,
    /// How many changes ran into a conflict when delivered alone.
    contended: usize,
    /// The changes on which the observer failed when they were delivered alone.
    failed: Vec<(&'a Seen, Error)>,
}

impl Delivered<'_> {
    fn is_complete(&self) -> bool {
        self.contended == 0 && self.failed.is_empty()
    }

    /// Whether [`ALL_FAIL`] changes have failed and none was delivered: the changes are not
    /// the cause.
    fn is_hopeless(&self) -> bool {
        !self.any && self.contended + self.failed.len() >= ALL_FAIL
    }
}

/// Runs a batching observer until the workers stop. While there are no changes, the pauses grow up
/// to `idle_max`. An announced change ends a long pause.
pub(super) async fn batch_loop(context: Arc<Context>, registration: Arc<Registration>) {
    let Runner::Batch(batch, observer) = registration.runner.clone() else { return };
    let mut resume = None;
    let look = batch.interval.min(LOOK_MAX);
    let mut pause = look;
    let mut last = Round::Delivered;
    while !context.is_stopping() {
        let seen = announced(&context);
        last = match has_work(&context, &registration, resume.is_some()).await {
            Ok(true) => {
                // After a full batch more changes are waiting.
                if last != Round::Full {
                    gather(&context, &registration.observed, batch.interval).await;
                }
                pause = look;
                round(&context, &registration, batch, &*observer, &mut resume).await
            }
            Ok(false) => {
                until_look(&context, batch.interval, pause, seen).await;
                pause = (pause * 2).min(context.options.idle_max).max(look);
                Ok(Round::Delivered)
            }
            Err(error) => Err(error),
        }
        .unwrap_or_else(|error| {
            context.report(&error);
            Round::Undelivered
        });
        if last == Round::Undelivered {
            hold_off(&context, look).await;
        }
    }
}

/// Whether the observer is not paused, and its column is notified or a round is to be resumed.
/// Usually nothing is notified, and then the lock is not needed.
async fn has_work(context: &Context, registration: &Registration, resumes: bool) -> Result<bool> {
    let observed = &registration.observed;
    if context.is_paused(observed) {
        // A paused observer takes no timestamp, so it would not learn that the pause has ended.
        context.shared.learn_schema().await?;
    }
    if context.is_paused(observed) {
        return Ok(false);
    }
    let Observed { table, column, .. } = observed;
    Ok(resumes || has_notification(&context.shared, table, column, TimeRange::ALL).await?)
}

/// Collects and handles batches while they are full, up to half of the lock's lifetime.
async fn round(
    context: &Context,
    registration: &Registration,
    batch: Batch,
    observer: &dyn AnyBatchObserver,
    resume: &mut Option<RowRange>,
) -> Result<Round> {
    let observed = &registration.observed;
    let name =
        format!("batch/{}/{}/{}", observed.table, observed.column, observed.observer).into_bytes();
    let Some(lock) = lock(context, name).await? else { return Ok(Round::Undelivered) };
    // Then another worker may have its turn.
    let end = context.runtime().now() + context.options.row_lock_lifetime / 2;
    let rounds = async {
        loop {
            let round = round_locked(context, registration, batch, observer, resume).await;
            let goes_on = matches!(round, Ok(Round::Full)) && !context.is_stopping();
            if !goes_on || context.runtime().now() >= end {
                break round;
            }
        }
    };
    lock.during(rounds).await
}

/// Collects and delivers one batch.
async fn round_locked(
    context: &Context,
    registration: &Registration,
    batch: Batch,
    observer: &dyn AnyBatchObserver,
    resume: &mut Option<RowRange>,
) -> Result<Round> {
    let observed = &registration.observed;
    if context.is_paused(observed) {
        return Ok(Round::Undelivered);
    }
    let table = context.shared.table(&observed.table).await?;
    let changes = collect(context, registration, &table, batch, resume).await?;
    if changes.is_empty() {
        return Ok(Round::Undelivered);
    }
    let full = changes.len() >= batch.changes_max;
    let delivered = deliver_all(context, registration, &table, observer, &changes).await?;
    if delivered.is_complete() {
        return Ok(match full {
            true => Round::Full,
            false if context.runs_all_of(&table, &observed.column) => Round::Delivered,
            false => Round::Undelivered,
        });
    }
    if delivered.is_hopeless() {
        return Ok(Round::Undelivered);
    }
    for ((change, seen), error) in delivered.failed {
        let cell = Cell::new(&change.table, &change.row, &change.column);
        let aside = note_failure(context, &cell, &observed.observer, &error) == Delay::SetAside;
        if aside && context.runs_all_of(&change.table, &change.column) {
            move_aside(context, &cell, seen).await?;
        }
    }
    Ok(Round::Undelivered)
}

/// Delivers changes, all in one run if that works. After a conflict, delivers each half
/// separately. After a failure of the observer, delivers one change at a time, to find the
/// change that it fails on. If no change gets through, the system that the observer feeds is
/// down, and no change is to blame.
async fn deliver_all<'a>(
    context: &Context,
    registration: &Registration,
    table: &Table,
    observer: &dyn AnyBatchObserver,
    changes: &'a [Seen],
) -> Result<Delivered<'a>> {
    let mut delivered = Delivered::default();
    // A stack: the last part is delivered next.
    let mut parts = vec![changes];
    while let Some(part) = parts.pop() {
        if context.is_stopping() || delivered.is_hopeless() {
            break;
        }
        let delivery = deliver(context, registration, table, observer, part);
        match (delivery.instrument(span(registration, None)).await, part) {
            (Ok(true), _) => delivered.any = true,
            // The observer was paused meanwhile.
            (Ok(false), _) => break,
            // The notification stays, for the next round.
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

/// Collects up to a batch of notified rows, beginning where the last round ended.
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
            if context.failures.delay(&cell, name, || context.runtime().now()).is_some() {
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

/// Runs the observer on changes, commits, and clears their notifications up to `s`. Returns
/// `false` if the observer is paused.
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
    tx.observing.get_or_insert_default().crew = Some(context.crew.clone());
    let s = tx.start_ts();
    let only: Vec<Change> = changes.iter().map(|(change, _)| change.clone()).collect();
    let name = &registration.observed.observer;
    tracing::debug!(
        target: "percolator::observer", event = "batch_started", observer = %name,
        changes = only.len(), start_ts = s.as_u64(),
    );
    context.shared.counters().observer_runs.bump();
    let seen = changes.iter().map(|(_, seen)| &seen[..]);
    let watched = WatchedRun::begin(&mut tx, &only, seen);
    let outcome = match run_guarded(observer.run(&mut tx, &only)).await {
        Ok(()) => tx.commit().await,
        Err(error) => Err(error),
    };
    if let Some(watched) = watched {
        watched.ended(context, registration, &outcome);
    }
    if !off(mutants::BATCH_CLEARS_UNCOMMITTED) {
        outcome?;
    }
    for change in &only {
        let cell = Cell::new(&change.table, &change.row, &change.column);
        context.failures.forget(&cell, name);
    }
    if !context.runs_all_of(table, &registration.observed.column) {
        // Another program's observer of the same column has not seen the notifications yet
        // (H53).
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

/// Whether the transaction ran into another one, so that fewer changes at a time may get
/// through.
fn is_conflict(error: &Error) -> bool {
    let conflict = error.is_retryable() && !is_of_the_services(error);
    conflict && !off(mutants::BATCH_IS_NEVER_SPLIT)
}

fn says_nothing_of_the_observer(error: &Error) -> bool {
    error.is_retryable() || matches!(error, Error::Unknown { .. }) || is_of_the_services(error)
}
