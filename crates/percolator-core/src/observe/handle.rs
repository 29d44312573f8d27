//! Handles a dirty cell: runs its observers.
//!
//! Invariants:
//!
//! * The start timestamp `s` is taken after the notification was seen, so that the run sees
//!   the change (H60).
//! * A strong observer's acknowledgement is written in the transaction of its run, as the
//!   primary. So at most one run commits for each change (H51, H52).
//! * A cell is dirty for an observer if its newest `c` is above the acknowledgement, which
//!   holds the *start* timestamp of the observer's last run. With its commit timestamp, a
//!   write during the run would be missed (H50).
//! * A change that this process has just made is handled without a look at the notification and
//!   the acknowledgement (`hinted.rs`). If that fails, the usual way decides.
//! * A notification is cleared only when every observer that the schema names has handled the
//!   change (H53). A strong observer shows that by its acknowledgement.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bigtable::Timestamp;
use bytes::Bytes;
use futures::FutureExt;
use tracing::Instrument;

use crate::mutants::{self, off};
use crate::observe::admit::in_observer;
use crate::observe::change::Change;
use crate::observe::context::Context;
use crate::observe::elsewhere::{handled_elsewhere, waits_for_others};
use crate::observe::failures::{Delay, is_of_the_services};
use crate::observe::hinted::{acknowledge_hinted, may_be_hinted};
use crate::observe::hints::Run;
use crate::observe::notified::{clear, notifications};
use crate::observe::observer::{AnyObserver, Registration, Runner};
use crate::observe::ran::{WatchedRun, span};
use crate::observe::register::acknowledged;
use crate::observe::row_lock::{RowLock, lock, lock_later, of_row};
use crate::observe::set_aside::move_aside;
use crate::records::column::Cell;
use crate::records::schema::Strength;
use crate::runtime::Backoff;
use crate::txn::begin::begin;
use crate::txn::get::{Patience, Seen, read_acknowledged};
use crate::txn::limits::leave_room;
use crate::txn::rows::clear_seen;
use crate::{AbortReason, Column, Error, Result, Transaction};

/// How often one visit tries an observer's transaction that runs into conflicts.
const CONFLICTS_MAX: u32 = 16;
/// How long until a cell is visited again whose writer is still at work, or whose column has too
/// many runs that conflict.
const LOCKED_DELAY: Duration = Duration::from_millis(2);

/// The outcome of a visit to a dirty cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Visit {
    /// Nothing is left to do, or nothing that this worker can do.
    Done,
    /// Another worker is at this row.
    Met,
    /// The cell should be visited again after this time.
    Later(Duration),
}

/// The state of a cell's notification, as a worker knows it before its visit.
pub(super) enum Known {
    Nothing,
    /// This process has written a notification with this timestamp.
    Hinted(Timestamp),
    /// The store has just returned these versions.
    Read(Vec<Timestamp>),
}

fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Aborted { reason: AbortReason::Conflict(_), .. })
}

/// How one observer's run ended.
enum Ran {
    /// The observer has acknowledged, now or before, as of this timestamp.
    Acknowledged(Timestamp),
    /// The observer has acknowledged, and its commit cleared the notification.
    Cleared,
    /// Conflicts, or the cell's writer, prevented the run.
    Busy,
    /// The observer is paused, and has not run.
    Paused,
    /// The observer has failed: its next attempt is not due yet, or it has used all attempts.
    Failed(Delay),
}

/// Whether these workers have something to do at a notified cell.
pub(super) fn concerns(context: &Context, cell: &Cell) -> bool {
    context.observers_of(cell).is_some_and(|observers| !context.are_paused(&observers))
}

/// Visits a cell that may be dirty.
pub(super) async fn visit(
    context: &Context,
    cell: &Cell,
    known: Known,
    counted: &Run,
) -> Result<Visit> {
    let Some(observers) = context.observers_of(cell) else { return Ok(Visit::Done) };
    if context.are_paused(&observers) {
        return Ok(Visit::Done);
    }
    if let (Known::Hinted(at), [registration]) = (&known, &*observers)
        && may_be_hinted(&context.shared, cell, registration)
    {
        let Some(lock) = lock(context, of_row(&cell.table, &cell.row)).await? else {
            return Ok(Visit::Met);
        };
        // Here and below, pinned where it is made: every move would copy the transaction in it.
        let work = pin!(run_hinted(context, cell, registration, *at, counted));
        if let Some(visit) = lock.during(work).await? {
            return Ok(visit);
        }
    }
    let is_hinted = matches!(known, Known::Hinted(_));
    let seen = match known {
        Known::Hinted(at) if is_known(cell, &observers) => vec![at],
        Known::Read(seen) => seen,
        Known::Hinted(_) | Known::Nothing => notifications(cell).await?,
    };
    if seen.is_empty() {
        // Another process has handled the cell, or set it aside.
        context.failures.take(cell);
        return Ok(Visit::Done);
    }
    let name = of_row(&cell.table, &cell.row);
    let taken = if is_hinted && !context.shared.services().store.commits_rows() {
        lock_later(context, name)
    } else {
        lock(context, name).await?
    };
    let Some(lock) = taken else { return Ok(Visit::Met) };
    let work = pin!(run_all(context, cell, &observers, &seen, &lock, counted));
    lock.during(work).await
}

/// Runs the only observer of a column for the change that a hint names. Returns `None` if the
/// usual way must decide: the change is not as hinted, or another run was faster.
async fn run_hinted(
    context: &Context,
    cell: &Cell,
    registration: &Registration,
    at: Timestamp,
    counted: &Run,
) -> Result<Option<Visit>> {
    let name = &registration.observed.observer;
    if context.failures.delay(cell, name, || context.runtime().now()).is_some() {
        return Ok(None);
    }
    let attempt = pin!(attempt_hinted(context, cell, registration, at, counted));
    let error = match attempt.instrument(span(registration, Some(cell))).await {
        Ok(false) => return Ok(None),
        Ok(true) => {
            context.failures.forget(cell, name);
            context.elsewhere.forget(cell);
            return Ok(Some(Visit::Done));
        }
        Err(error) => error,
    };
    match error {
        Error::Locked { .. } | Error::Unknown { .. } => Ok(Some(Visit::Later(LOCKED_DELAY))),
        error if is_conflict(&error) => {
            Ok(counted.met_conflict().then_some(Visit::Later(LOCKED_DELAY)))
        }
        error if error.is_retryable() => Ok(None),
        error if is_of_the_services(&error) => Err(error),
        error => hinted_failed(context, cell, name, at, &error).await,
    }
}

/// Counts the failure of a hinted run, unless the change was handled before, or a newer one waits.
/// Then the usual way decides.
async fn hinted_failed(
    context: &Context,
    cell: &Cell,
    observer: &str,
    at: Timestamp,
    error: &Error,
) -> Result<Option<Visit>> {
    if !waits(context, cell, observer, at).await? {
        return Ok(None);
    }
    match note_failure(context, cell, observer, error) {
        Delay::Until(delay) => Ok(Some(Visit::Later(delay))),
        Delay::SetAside => {
            context.elsewhere.forget(cell);
            move_aside(context, cell, &[at]).await?;
            Ok(Some(Visit::Done))
        }
    }
}

/// Whether the change at `at` is the newest one of a cell, and waits for a strong observer. `false`
/// also if a writer is at work on the cell, who will notify again.
async fn waits(context: &Context, cell: &Cell, observer: &str, at: Timestamp) -> Result<bool> {
    let mut tx = begin(&context.shared, None).await?;
    match acknowledge(&mut tx, cell, observer).await {
        Ok(change) => Ok(change.is_some_and(|change| change.commit_ts == at)),
        Err(Error::Locked { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Runs an observer once for the change that a hint names. Returns whether it has committed.
/// `false` means that the observer has not run.
async fn attempt_hinted(
    context: &Context,
    cell: &Cell,
    registration: &Registration,
    at: Timestamp,
    counted: &Run,
) -> Result<bool> {
    let Runner::Each(observer) = &registration.runner else { return Ok(false) };
    let Some(mut tx) = begin_run(context, registration).await? else { return Ok(false) };
    let Some(change) = acknowledge_hinted(&mut tx, cell, registration, at)? else {
        return Ok(false);
    };
    let handled = clear_seen(&cell.column, &[at], tx.start_ts());
    if !leave_room(&context.shared.limits(), &cell.row, &handled) {
        return Ok(false);
    }
    tx.observing.get_or_insert_default().handled = handled;
    context.shared.counters().observer_runs_hinted.bump();
    run_observer(context, tx, registration, &**observer, change, &[at], Some(counted)).await?;
    Ok(true)
}

async fn run_all(
    context: &Context,
    cell: &Cell,
    observers: &[Arc<Registration>],
    seen: &[Timestamp],
    lock: &RowLock<'_>,
    counted: &Run,
) -> Result<Visit> {
    let mut bound = Timestamp::MAX;
    let mut later: Option<Duration> = None;
    let (mut failed, mut paused) = (false, false);
    let alone = observers.len() == 1;
    for (n, registration) in observers.iter().enumerate() {
        // No other observer of the column runs while the last one commits.
        let counted = (n + 1 == observers.len()).then_some(counted);
        match run(context, cell, registration, seen, alone, lock, counted).await? {
            Ran::Acknowledged(s) => bound = bound.min(s),
            Ran::Cleared => return Ok(Visit::Done),
            Ran::Busy => later = Some(LOCKED_DELAY),
            Ran::Paused => paused = true,
            Ran::Failed(Delay::Until(delay)) => {
                later = Some(later.map_or(delay, |other| other.min(delay)));
            }
            Ran::Failed(Delay::SetAside) => failed = true,
        }
    }
    if let Some(delay) = later
        && !off(mutants::CLEARS_FOR_OTHERS)
    {
        return Ok(Visit::Later(delay));
    }
    if paused && !off(mutants::PAUSED_IS_DONE) {
        // As for observers that run elsewhere, the notification stays, and nothing is set
        // aside.
        waits_for_others(context, cell, seen.iter().max().copied().unwrap_or(Timestamp::ZERO));
        return Ok(Visit::Done);
    }
    if !context.runs_all_of(&cell.table, &cell.column) {
        if failed {
            // The change is not set aside, and is tried again at the longest delay.
            return Ok(Visit::Done);
        }
        let Some(upto) = handled_elsewhere(context, cell, observers).await? else {
            let newest = seen.iter().max().copied().unwrap_or(Timestamp::ZERO);
            waits_for_others(context, cell, newest);
            return Ok(Visit::Done);
        };
        bound = bound.min(upto);
    }
    context.elsewhere.forget(cell);
    if failed {
        move_aside(context, cell, seen).await?;
    } else {
        for request in clear(&context.shared.limits(), cell, seen, bound) {
            cell.table.notify_store().check_and_mutate_row(request).await?;
        }
    }
    Ok(Visit::Done)
}

/// Runs one observer on a cell, if the cell is dirty for it. `seen` holds the versions of the
/// notification. `alone` says that this process has no other observer of the column.
async fn run(
    context: &Context,
    cell: &Cell,
    registration: &Registration,
    seen: &[Timestamp],
    alone: bool,
    lock: &RowLock<'_>,
    counted: Option<&Run>,
) -> Result<Ran> {
    let name = &registration.observed.observer;
    if context.is_paused(&registration.observed) {
        return Ok(Ran::Paused);
    }
    if let Some(delay) = context.failures.delay(cell, name, || context.runtime().now()) {
        return Ok(Ran::Failed(Delay::Until(delay)));
    }
    let Runner::Each(observer) = &registration.runner else { return Ok(Ran::Busy) };
    let mut backoff = Backoff::new(Duration::from_micros(500), Duration::from_millis(20));
    for _ in 0..CONFLICTS_MAX {
        let attempt = pin!(attempt(context, cell, registration, &**observer, seen, alone, counted));
        let error = match attempt.instrument(span(registration, Some(cell))).await {
            Ok(ran) => {
                context.failures.forget(cell, name);
                return Ok(ran);
            }
            Err(error) => error,
        };
        match error {
            Error::Locked { .. } => return Ok(Ran::Busy),
            // The run may have committed. The acknowledgement will show it at the next visit.
            Error::Unknown { .. } => return Ok(Ran::Busy),
            error if error.is_retryable() => {
                let is_conflict = is_conflict(&error);
                if is_conflict && counted.is_some_and(Run::met_conflict) && alone {
                    return Ok(Ran::Busy);
                }
            }
            error if is_of_the_services(&error) => return Err(error),
            error => return Ok(Ran::Failed(note_failure(context, cell, name, &error))),
        }
        match lock.take().await {
            Ok(true) => {}
            Ok(false) => return Ok(Ran::Busy),
            Err(error) => context.report(&error),
        }
        context.runtime().sleep(backoff.step(&**context.runtime())).await;
    }
    Ok(Ran::Busy)
}

async fn attempt(
    context: &Context,
    cell: &Cell,
    registration: &Registration,
    observer: &dyn AnyObserver,
    seen: &[Timestamp],
    alone: bool,
    counted: Option<&Run>,
) -> Result<Ran> {
    let Some(mut tx) = begin_run(context, registration).await? else { return Ok(Ran::Paused) };
    let mut ran = Ran::Acknowledged(tx.start_ts());
    let strong = registration.observed.strength == Strength::Strong;
    let name = &registration.observed.observer;
    let change = if strong {
        let Some(change) = acknowledge(&mut tx, cell, name).await? else {
            context.shared.counters().notifications_stale.bump();
            return Ok(if off(mutants::STALE_STAYS) { Ran::Busy } else { ran });
        };
        change
    } else {
        change_of(cell, seen.iter().max().copied().unwrap_or(Timestamp::ZERO), false)
    };
    // A notification in a table of its own is in another row, out of this commit's reach. With
    // other observers, it must stay for them (H53).
    if alone
        && let Some(observing) = tx.observing.as_mut().filter(|observing| observing.ack.is_some())
        && !cell.table.notifies_apart()
        && (context.runs_all_of(&cell.table, &cell.column)
            || off(mutants::COMMIT_CLEARS_FOR_OTHERS))
    {
        // The notification is in the row of the primary, so the commit can clear it. Where
        // there are too many versions for the commit's request, separate requests clear them
        // afterwards.
        let handled = clear_seen(&cell.column, seen, tx.stamp.timestamp);
        if leave_room(&context.shared.limits(), &cell.row, &handled) {
            observing.handled = handled;
            ran = Ran::Cleared;
        }
    }
    run_observer(context, tx, registration, observer, change, seen, counted).await?;
    Ok(ran)
}

/// Begins the transaction of a run. `None` if the observer is paused.
async fn begin_run(context: &Context, registration: &Registration) -> Result<Option<Transaction>> {
    let mut tx = begin(&context.shared, Some(&registration.name)).await?;
    // The schema came with the timestamp, so a pause from before the timestamp is known here.
    if context.is_paused(&registration.observed) {
        return Ok(None);
    }
    tx.observing.get_or_insert_default().crew = Some(context.crew.clone());
    Ok(Some(tx))
}

/// Runs an observer in a transaction that acknowledges the change, and commits.
async fn run_observer(
    context: &Context,
    mut tx: Transaction,
    registration: &Registration,
    observer: &dyn AnyObserver,
    change: Change,
    seen: &[Timestamp],
    counted: Option<&Run>,
) -> Result<()> {
    let name = &registration.observed.observer;
    let Change { table, row, .. } = &change;
    let start_ts = tx.start_ts().as_u64();
    tracing::debug!(
        target: "percolator::observer", event = "observer_started", observer = %name,
        table = table.name(), row = %row, start_ts,
    );
    context.shared.counters().observer_runs.bump();
    if let Some(counted) = counted {
        counted.runs_again();
    }
    let changes = [change];
    let [change] = &changes;
    let watched = WatchedRun::begin(&mut tx, &changes, std::iter::once(seen));
    let outcome = match run_guarded(observer.run(&mut tx, change)).await {
        Ok(()) => {
            if let Some(counted) = counted {
                counted.begins_to_commit();
            }
            tx.commit().await
        }
        Err(error) => Err(error),
    };
    if let Some(watched) = watched {
        watched.ended(context, registration, &outcome);
    }
    let commit_ts = outcome?.as_u64();
    tracing::debug!(
        target: "percolator::observer", event = "observer_committed", observer = %name,
        table = change.table.name(), row = %change.row, start_ts, commit_ts,
    );
    Ok(())
}

/// Counts a failure. The observer waits longer each time, and the change is set aside after a
/// bound.
pub(super) fn note_failure(context: &Context, cell: &Cell, observer: &str, error: &Error) -> Delay {
    context.shared.counters().observer_failures.bump();
    let (now, options) = (context.runtime().now(), &context.options);
    let delay = context.failures.note(cell, observer, error, now, options);
    let table = cell.table.name();
    tracing::warn!(
        target: "percolator::observer", event = "observer_failed", observer, table, %error,
        next = ?delay,
    );
    // Row keys may be private, so they are logged at debug level only.
    tracing::debug!(
        target: "percolator::observer", event = "observer_failed_at", observer, table,
        row = %cell.row,
    );
    delay
}

/// Whether a hint's timestamp can replace reading the cell's notifications.
///
/// In a table of their own, each notification replaces the ones before it, so the hinted one
/// is the only one. A request that overtakes another may leave an older notification behind; a
/// later pass clears it. If other workers have handled the change meanwhile, the observer's
/// acknowledgement shows it. Weak observers have no acknowledgement, so for them the
/// notifications are read.
fn is_known(cell: &Cell, observers: &[Arc<Registration>]) -> bool {
    let strong = |r: &Arc<Registration>| r.observed.strength == Strength::Strong;
    cell.table.notifies_apart() && observers.iter().all(strong)
}

fn change_of(cell: &Cell, commit_ts: Timestamp, deleted: bool) -> Change {
    let Cell { table, row, column } = cell.clone();
    Change { table, row, column, commit_ts, deleted }
}

/// Writes the observer's acknowledgement into the transaction, and returns the change. `None`
/// if the cell is not dirty for the observer.
pub(super) async fn acknowledge(
    tx: &mut Transaction,
    cell: &Cell,
    observer: &str,
) -> Result<Option<Change>> {
    let Cell { table, row, column } = cell;
    let ack = Cell { column: column.ack_of(observer), ..cell.clone() };
    // One read for both columns, because garbage collection drops a deletion together with its
    // acknowledgements. A writer that is still at work will notify again, so the read gives up
    // at its lock instead of waiting.
    let both = [column.clone(), ack.column.clone()];
    let s = tx.start_ts();
    let versions = read_acknowledged(&tx.shared, table, row, &both, s, Patience::GiveUp).await?;
    let of = |column: &Column| versions.iter().find(|version| version.column == *column);
    let acked = of(&ack.column).and_then(|version| {
        if off(mutants::ACK_IS_COMMIT_TS) { Some(version.commit_ts) } else { acknowledged(version) }
    });
    let acked = acked.filter(|_| !off(mutants::ACK_UNREAD));
    if let Some(watched) = &mut tx.watched {
        watched.acknowledged(acked);
    }
    let changed = of(column);
    let dirty = changed.filter(|v| acked.is_none_or(|acked| v.commit_ts > acked));
    tx.observing.get_or_insert_default().looked_at = changed.filter(|v| !v.deleted).map(|v| {
        let seen = v.value.clone().map_or(Seen::Apart(v.start_ts), Seen::Here);
        (cell.clone(), seen)
    });
    if dirty.is_some() && !off(mutants::NO_ACK) {
        tx.put(ack.clone(), Some(Bytes::copy_from_slice(&s.as_u64().to_be_bytes())))?;
        tx.observing.get_or_insert_default().ack = Some(ack);
    }
    Ok(dirty.map(|v| change_of(cell, v.commit_ts, v.deleted)))
}

/// Awaits an observer, and turns a panic into an error, so that a panic counts as a failure
/// (H56).
pub(super) async fn run_guarded(run: impl Future<Output = Result<()>>) -> Result<()> {
    match AssertUnwindSafe(in_observer(run)).catch_unwind().await {
        Ok(result) => result,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Err(Error::application(format!(
                "the observer panicked: {}",
                text.unwrap_or_else(|| "no message".to_owned())
            )))
        }
    }
}
