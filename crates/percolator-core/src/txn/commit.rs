//! Commits a transaction in its second phase (paper section 2.2, Figure 6 `Commit`).
//! `one_step.rs` has the one-step commit.
//!
//! ```text
//! prewrite all rows ... acknowledged -> c from the oracle (H08) -> weak notifications at c (H57)
//!   -> commit the primary's row: the commit point -> secondaries
//! ```
//!
//! Invariants:
//! * The oracle is asked for `c` strictly after the last prewrite was acknowledged.
//! * One function decides the primary, and every secondary action takes its result as an
//!   argument. So no secondary commits before the decision (H10).
//! * After a lost reply only the primary's row says what happened (H07).
//!
//! The caller waits for the secondaries in the embedded store, and not over a network. ADR-8 says
//! what that costs, and what would change it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use crate::mutants::{self, off};
use crate::observe::hints::Hint;
use crate::observe::leave::leave_notifications;
use crate::options::{CommitPath, Secondaries};
use crate::records::branch::{Branch, change};
use crate::records::column::Cell;
use crate::runtime::{Backoff, ROWS_OF_A_COMMIT};
use crate::shared::Shared;
use crate::txn::abort::{abort, abort_secondaries};
use crate::txn::heartbeat::{Pulse, with_heartbeat};
use crate::txn::held::may_commit;
use crate::txn::limits::check_limits;
use crate::txn::one_step::{Tried, commit_one_step, try_one_step};
use crate::txn::plan::Plan;
use crate::txn::prewrite::{mutate_rows, prewrite};
use crate::txn::row_plan::RowPlan;
use crate::txn::rows;
use crate::txn::settle::{Settled, settle_refused, settle_without_lock};
use crate::{AbortReason, Error, InvalidKind, Result, Timestamp, Transaction};

/// A transaction between its phases: every cell is locked, and nothing is decided.
///
/// Dropping it has the effect of a crash at this point: the locks stay until another client
/// resolves them. [`Transaction::commit`] goes through all steps. The steps are separate here
/// for tests and for demonstrations.
///
/// ```
/// # use percolator_core::face as percolator;
/// # percolator_core::doc_test(|client| async move {
/// use percolator::Column;
/// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
/// let mut tx = client.begin().await?;
/// tx.set(&accounts, "Bob", &bal, "$3")?;
/// tx.set(&accounts, "Joe", &bal, "$9")?;
/// let decided = tx.prewrite().await?.commit_primary().await?;
/// let commit_ts = decided.commit_ts();
/// decided.commit_secondaries().await;
/// assert!(client.begin().await?.start_ts() > commit_ts);
/// # Ok(()) });
/// ```
#[derive(Debug)]
pub struct Prewritten {
    shared: Arc<Shared>,
    plan: Plan,
    pulse: Pulse,
    notifications: BTreeSet<Cell>,
}

/// A transaction past its commit point whose secondaries are still locked.
///
/// See [`Prewritten`] for an example.
#[derive(Debug)]
pub struct PrimaryCommitted {
    shared: Arc<Shared>,
    plan: Plan,
    commit_ts: Timestamp,
    /// Weak notifications for which no hint was pushed yet.
    notifications: BTreeSet<Cell>,
}

/// Whether the error means that the store will never apply this commit, and has not applied
/// this request.
fn ends(error: &bigtable::Error) -> bool {
    match error {
        bigtable::Error::TooOld { .. } => true,
        bigtable::Error::InvalidRequest(_) => !off(mutants::REFUSED_COMMIT_IS_UNKNOWN),
        _ => false,
    }
}

impl Transaction {
    /// Commits, and returns the commit timestamp. A transaction that wrote nothing returns its
    /// start timestamp.
    ///
    /// # Errors
    /// * [`Error::Aborted`] if the transaction did not commit and never will.
    /// * [`Error::Unknown`] if the outcome could not be found out before the deadline.
    /// * [`Error::Invalid`] if a written column is notify-only, or if the store could not take
    ///   a request that the commit of one of the rows needs.
    /// * [`Error::Closed`], or an error of the store, if the commit could not begin.
    /// * Errors of store and oracle if the transaction only notifies. It may be repeated then.
    ///
    /// # Cancellation
    /// If the future is dropped before it was polled, or while it waits for its turn or for the
    /// schema, nothing is written. Otherwise the commit is finished in the background, as long as
    /// the runtime lives. It commits or aborts, and leaves no lock behind. The caller does not
    /// learn which. If 16,384 dropped commits are being finished, one more is left as a crash
    /// leaves it: clients that find its locks resolve them. A future that is kept and not polled
    /// goes on in the background after one or two seconds.
    pub async fn commit(mut self) -> Result<Timestamp> {
        let shared = self.shared.clone();
        shared.take_turn(ROWS_OF_A_COMMIT).await;
        shared.check_open()?;
        if let Some(watched) = &mut self.watched {
            watched.commit_begins(&shared);
        }
        let Some(plan) = Plan::of(&mut self).await? else {
            return if self.notifications.is_empty() {
                Ok(self.start_ts())
            } else {
                let work = self.commit_notifications();
                shared.background().finish(shared.runtime(), work).await
            };
        };
        let span = span(&plan.span);
        let tried = match span.in_scope(|| try_one_step(&shared, &plan, &self.notifications)) {
            Some(Tried::Committed(commit_ts)) => return Ok(commit_ts),
            tried => tried,
        };
        let work = self.commit_plan(plan, tried).instrument(span);
        shared.background().finish(shared.runtime(), work).await
    }

    async fn commit_plan(self, plan: Plan, tried: Option<Tried>) -> Result<Timestamp> {
        let shared = self.shared.clone();
        if let Some(tried) = tried
            && let Some(commit_ts) = commit_one_step(&shared, &plan, tried).await?
        {
            return Ok(commit_ts);
        }
        let prewritten = self.prewrite_plan(plan).await?;
        let decided = prewritten.commit_primary().await?;
        let commit_ts = decided.commit_ts;
        if decided.plan.rows.len() > 1 {
            let secondaries = Box::pin(decided.commit_secondaries());
            match shared.options().secondaries {
                Secondaries::Background => {
                    let runtime = shared.runtime();
                    // Too many run in the background, and each keeps its plan in memory. So
                    // finish it here.
                    if let Err(work) = shared.background().try_start(&**runtime, secondaries) {
                        work.await;
                    }
                }
                Secondaries::Awaited => secondaries.await,
            }
        }
        Ok(commit_ts)
    }

    /// Runs phase one alone: locks every written cell.
    ///
    /// # Errors
    /// [`Error::Aborted`]; [`Error::Invalid`] if the transaction wrote nothing.
    pub async fn prewrite(mut self) -> Result<Prewritten> {
        self.shared.check_open()?;
        match Plan::of(&mut self).await? {
            Some(plan) => self.prewrite_plan(plan).await,
            None => Err(Error::invalid(
                InvalidKind::Transaction,
                "the transaction wrote nothing to prewrite",
            )),
        }
    }

    async fn prewrite_plan(self, mut plan: Plan) -> Result<Prewritten> {
        let Transaction { shared, notifications, .. } = self;
        check_limits(&shared, &plan)?;
        if let Some(watched) = &mut plan.watched {
            watched.prewrite_begins(&shared);
        }
        let mut pulse = Pulse::new(&shared, &plan);
        let locked = {
            let prewrite = pin!(prewrite(&shared, &plan));
            with_heartbeat(&shared, &plan, &mut pulse, prewrite).await
        };
        if let Err(reason) = locked {
            return Err(give_up(&shared, &plan, reason).await);
        }
        if let Some(watched) = &mut plan.watched {
            watched.prewrite_ends(&shared);
        }
        Ok(Prewritten { shared, plan, pulse, notifications })
    }

    /// Commits a transaction that only notifies. It takes a commit timestamp and has no
    /// primary.
    async fn commit_notifications(self) -> Result<Timestamp> {
        let (shared, cells) = (&self.shared, &self.notifications);
        let committed = async {
            let commit_ts = shared.oracle().timestamp().await?.timestamp;
            leave_notifications(shared, cells, commit_ts).await?;
            Ok(commit_ts)
        };
        let committed = committed.instrument(span(&self.span)).await;
        if let Some(watched) = &self.watched {
            watched.notified(shared, self.start_ts(), &committed, cells.iter().cloned());
        }
        let commit_ts = committed?;
        self.span.record("commit_ts", commit_ts.as_u64());
        shared.counters().committed.bump();
        hint(&self.shared, self.notifications, commit_ts);
        Ok(commit_ts)
    }
}

impl Prewritten {
    /// Takes the commit timestamp and commits the primary's row. That is the commit point.
    ///
    /// # Errors
    /// [`Error::Aborted`], [`Error::Unknown`].
    pub async fn commit_primary(self) -> Result<PrimaryCommitted> {
        let Prewritten { shared, plan, mut pulse, notifications } = self;
        let commit_ts = {
            let decision = pin!(decide_own(&shared, &plan, &notifications));
            with_heartbeat(&shared, &plan, &mut pulse, decision).await?
        };
        shared.counters().committed.bump();
        plan.committed(&shared, commit_ts, CommitPath::TwoPhases, notifications.iter().cloned());
        hint_row(&shared, &plan.rows[plan.primary_row], commit_ts);
        let mut decided = PrimaryCommitted { shared, plan, commit_ts, notifications };
        if decided.plan.rows.len() == 1 {
            decided.hint();
        }
        Ok(decided)
    }
}

impl PrimaryCommitted {
    /// The timestamp at which the transaction's writes are visible.
    pub fn commit_ts(&self) -> Timestamp {
        self.commit_ts
    }

    /// Commits the other rows, each on the condition that its lock exists. A failure changes
    /// nothing: clients that find a remaining lock roll it forward.
    pub async fn commit_secondaries(mut self) {
        let (start_ts, commit_ts) = (self.plan.start_ts, self.commit_ts);
        // Otherwise another client has rolled these rows forward, or will. The locks may by
        // now be copies from a late prewrite (H12).
        if may_commit(&self.shared, start_ts) {
            let primary_row = self.plan.primary_row;
            Arc::make_mut(&mut self.plan.rows).remove(primary_row);
            let request =
                |row: &RowPlan| rows::commit(&row.row, start_ts, commit_ts, &row.locked());
            let results = mutate_rows(&self.plan.rows, request).await;
            for (row, result) in self.plan.rows.iter().zip(results) {
                if matches!(result, Ok(Branch::Then)) {
                    hint_row(&self.shared, row, commit_ts);
                }
            }
        }
        self.hint();
    }

    /// Pushes hints for the weak notifications. Their rows are committed by now. An observer
    /// that came earlier would find their locks, and would have to roll the rows forward
    /// itself.
    fn hint(&mut self) {
        let notifications = std::mem::take(&mut self.notifications);
        hint(&self.shared, notifications, self.commit_ts);
    }
}

/// Takes `c`, leaves the notifications, and brings the primary to its decision.
async fn decide_own(
    shared: &Shared,
    plan: &Plan,
    notifications: &BTreeSet<Cell>,
) -> Result<Timestamp> {
    let stamp = match shared.oracle().timestamp().await {
        Ok(stamp) => stamp,
        Err(error) => {
            let reason = AbortReason::Oracle(error.to_string());
            return Err(give_up(shared, plan, reason).await);
        }
    };
    if off(mutants::WEAK_AFTER_COMMIT) {
        let commit_ts = commit_point(shared, plan, stamp.timestamp).await?;
        // A failure can no longer change the outcome.
        drop(notify_before(shared, plan, notifications, stamp).await);
        return Ok(commit_ts);
    }
    if let Err(error) = notify_before(shared, plan, notifications, stamp).await {
        let reason = match error {
            Error::Store(error) => AbortReason::Store(error),
            error => AbortReason::Oracle(error.to_string()),
        };
        return Err(give_up(shared, plan, reason).await);
    }
    let commit_ts = commit_point(shared, plan, stamp.timestamp).await?;
    if off(mutants::NOTIFY_APART_AFTER_COMMIT) {
        let late = plan.notified_apart().into_iter().collect();
        leave_notifications(shared, &late, commit_ts).await?;
    }
    Ok(commit_ts)
}

/// Leaves the notifications that must exist before the commit point:
/// * weak notifications (H57);
/// * those for observers that were registered after the transaction placed its locks (H59);
/// * all notifications, on stores without locality groups (H48).
async fn notify_before(
    shared: &Shared,
    plan: &Plan,
    notifications: &BTreeSet<Cell>,
    stamp: crate::Stamp,
) -> Result<()> {
    let mut cells = Cow::Borrowed(notifications);
    if stamp.schema_version > plan.schema_version && !off(mutants::SCHEMA_OF_BEGIN) {
        let schema = shared.schema(stamp.schema_version).await?;
        cells.to_mut().extend(plan.unnotified(&schema));
    }
    let apart = plan.notified_apart();
    if !apart.is_empty() && !off(mutants::NOTIFY_APART_AFTER_COMMIT) {
        cells.to_mut().extend(apart);
    }
    leave_notifications(shared, &cells, stamp.timestamp).await
}

/// Commits the primary's row. If the reply is lost, finds out what happened.
async fn commit_point(shared: &Shared, plan: &Plan, commit_ts: Timestamp) -> Result<Timestamp> {
    let row = &plan.rows[plan.primary_row];
    let (runtime, started) = (shared.runtime(), shared.runtime().now());
    let mut backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(500));
    let (start_ts, cells) = (plan.start_ts, row.locked());
    let mut request = rows::commit_primary(&row.row, start_ts, commit_ts, &cells);
    request.then.extend(row.handled.iter().cloned());
    // Whether an earlier request may have committed, or may still commit.
    let mut asked = false;
    loop {
        let answer = if may_commit(shared, start_ts) {
            change(row.table.store(), request.clone()).await
        } else {
            // Answer as a store with a floor would.
            Err(bigtable::Error::TooOld { asked: start_ts, floor: start_ts })
        };
        let settled = match answer {
            Ok(Branch::Then) => return Ok(commit_ts),
            Ok(Branch::Otherwise) if off(mutants::NO_LOCK_MEANS_ABORTED) => {
                Ok(Settled::Aborted(AbortReason::RolledBack))
            }
            Ok(Branch::Otherwise) => Box::pin(settle_without_lock(shared, plan, asked)).await,
            Err(error) if ends(&error) => {
                let reason = match error {
                    bigtable::Error::TooOld { .. } => AbortReason::TooOld,
                    error => AbortReason::Store(error),
                };
                Box::pin(settle_refused(shared, plan, asked, reason)).await
            }
            Err(error) => {
                asked |= matches!(error, bigtable::Error::Unknown { .. });
                Err(Error::Store(error))
            }
        };
        let why = match settled.map(|settled| conclude(shared, plan, settled)) {
            Ok(ControlFlow::Break(result)) => return result,
            Ok(ControlFlow::Continue(why)) => why.to_owned(),
            Err(error) => error.without_advice(),
        };
        if runtime.now().saturating_sub(started) > shared.options().commit_deadline {
            if off(mutants::SECONDARIES_UNDECIDED) {
                abort_secondaries(plan).await;
            }
            return Err(unknown(shared, plan, why));
        }
        runtime.sleep(backoff.step(&**runtime)).await;
    }
}

/// Aborts a transaction that has sent no commit request.
async fn give_up(shared: &Shared, plan: &Plan, reason: AbortReason) -> Error {
    abort(plan).await;
    aborted(shared, plan, reason)
}

/// The result of a settled commit, or the reason why it is still open.
pub(crate) fn conclude(
    shared: &Shared,
    plan: &Plan,
    settled: Settled,
) -> ControlFlow<Result<Timestamp>, &'static str> {
    ControlFlow::Break(match settled {
        Settled::Committed(commit_ts) => Ok(commit_ts),
        Settled::Aborted(reason) => Err(aborted(shared, plan, reason)),
        Settled::Unknown(why) => Err(unknown(shared, plan, why)),
        Settled::Open(why) => return ControlFlow::Continue(why),
    })
}

pub(crate) fn aborted(shared: &Shared, plan: &Plan, reason: AbortReason) -> Error {
    shared.counters().aborted.bump();
    if matches!(reason, AbortReason::Conflict(_)) {
        shared.counters().conflicts.bump();
    }
    plan.ended(shared, Error::aborted(plan.start_ts, reason))
}

pub(crate) fn unknown(shared: &Shared, plan: &Plan, why: String) -> Error {
    shared.counters().unknown.bump();
    let primary = Box::new(plan.primary.location());
    plan.ended(shared, Error::Unknown { start_ts: plan.start_ts, primary, why })
}

/// The span of a commit, inside the span of its transaction.
fn span(transaction: &tracing::Span) -> tracing::Span {
    tracing::debug_span!(
        target: "percolator::transaction", parent: transaction, "percolator.commit",
    )
}

/// Pushes hints for cells that were just notified, so that this process's workers find them.
fn hint(shared: &Shared, cells: BTreeSet<Cell>, commit_ts: Timestamp) {
    for cell in cells {
        shared.hint(&Hint::new(cell, Some(commit_ts)));
    }
}

/// Pushes hints for the observed cells of a row that was just committed.
pub(crate) fn hint_row(shared: &Shared, row: &RowPlan, commit_ts: Timestamp) {
    for cell in row.cells.iter().filter(|cell| cell.observed) {
        let cell = Cell::new(&row.table, &row.row, &cell.column);
        shared.hint(&Hint::new(cell, Some(commit_ts)));
    }
}
