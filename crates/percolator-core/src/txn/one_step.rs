//! Commits in one step, if store and oracle are in this process.
//!
//! ```text
//!   predicates of prewrite, for all rows -> c from memory (H08) -> one batch: data, write, notify
//! ```
//!
//! The store latches the rows, evaluates prewrite's predicates, asks for the commit timestamp,
//! and writes everything at once ([`bigtable::Store::commit_rows`]). The store also does the
//! work of the locks between the phases: a reader whose timestamp may be above `c` waits for
//! the pending rows.
//!
//! Invariants:
//! * The timestamp is taken after the predicates were evaluated, while the rows are latched.
//! * Only the batch is ever written, so a crash leaves all of it or nothing.
//! * If the observer schema has grown meanwhile, or if the oracle's window is used up, the
//!   transaction takes the two phases. It keeps its `s`.
//! * After an unknown outcome a rollback record on the primary refuses a late request, as it
//!   refuses a late prewrite (H02).
//!
//! ADR-1 says what this design costs, and what would change it.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bigtable::{AtCommit, COMMIT_ROWS_MAX, CommitRow, CommitRows, Mutation, RowKey, RowsOutcome};
use bytes::Bytes;
use smallvec::SmallVec;

use crate::mutants::{self, off};
use crate::observe::hints::Hint;
use crate::options::CommitPath;
use crate::records::column::{Cell, Table};
use crate::records::layout::NOTIFY;
use crate::runtime::Backoff;
use crate::shared::Shared;
use crate::txn::commit::{aborted, conclude, hint_row, unknown};
use crate::txn::plan::Plan;
use crate::txn::prewrite::clear_dead_locks;
use crate::txn::row_plan::{RowPlan, Rows};
use crate::txn::rows;
use crate::txn::settle::settle_without_lock;
use crate::{AbortReason, Column, Error, Oracle, Result, Timestamp};

/// How often the commit is tried: again after a dead lock was removed, or after the store was
/// busy.
const TRIES_MAX: u32 = 12;
/// Largest batch, keys and values together. Larger transactions take the two phases, which
/// write one row at a time.
const BYTES_MAX: usize = 8 << 20;

/// The data that the store asks for while it holds the rows.
#[derive(Debug)]
pub(crate) struct OneStep {
    start_ts: Timestamp,
    /// The version of the observer schema that the plan follows.
    schema_version: u64,
    planned: Arc<Rows>,
    /// The rows of the request, in order.
    rows: SmallVec<[Part; 1]>,
    oracle: Arc<dyn Oracle>,
    /// Longer values lie in `data`, apart from their write records.
    record_value_bytes_max: usize,
}

/// A row of the request.
#[derive(Debug)]
struct Part {
    table: Table,
    row: RowKey,
    /// Its index in the planned rows; `None` if the row is only notified.
    planned: Option<usize>,
    /// The columns that get a weak notification.
    notified: Vec<Column>,
}

impl Part {
    /// The bytes of the keys of its weak notifications.
    fn bytes(&self) -> usize {
        let row = self.row.as_bytes().len();
        self.notified.iter().map(|column| row + column.as_bytes().len()).sum()
    }

    /// The cells that get a weak notification.
    fn cells(&self) -> impl Iterator<Item = Cell> {
        self.notified.iter().map(|column| Cell::new(&self.table, &self.row, column))
    }
}

impl AtCommit for OneStep {
    fn timestamp(&self) -> Option<Timestamp> {
        let stamp = self.oracle.timestamp_in_memory()?;
        // If observers were registered since then, the transaction notifies them in two phases
        // (H59).
        let known = stamp.schema_version <= self.schema_version || off(mutants::SCHEMA_OF_BEGIN);
        known.then_some(stamp.timestamp)
    }

    fn mutations(&self, row: usize, commit_ts: Timestamp) -> Vec<Mutation> {
        let part = &self.rows[row];
        let mut mutations = match part.planned {
            Some(planned) => {
                let RowPlan { cells, handled, .. } = &self.planned[planned];
                let (s, c) = (self.start_ts, commit_ts);
                let mut mutations = rows::commit_one_step(s, c, cells, self.record_value_bytes_max);
                mutations.extend(handled.iter().cloned());
                mutations
            }
            None => Vec::new(),
        };
        let notify = |q: &Column| Mutation::set(NOTIFY, q.to_bytes(), commit_ts, Bytes::new());
        mutations.extend(part.notified.iter().map(notify));
        mutations
    }
}

impl OneStep {
    fn new(shared: &Shared, plan: &Plan, notifications: &BTreeSet<Cell>) -> Self {
        let part = |(index, row): (usize, &RowPlan)| Part {
            table: row.table.clone(),
            row: row.row.clone(),
            planned: Some(index),
            notified: Vec::new(),
        };
        let mut rows: SmallVec<[Part; 1]> = plan.rows.iter().enumerate().map(part).collect();
        for Cell { table, row, column } in notifications {
            let place = rows.binary_search_by(|p| (&p.table, &p.row).cmp(&(table, row)));
            let place = place.unwrap_or_else(|place| {
                let (table, row) = (table.clone(), row.clone());
                rows.insert(place, Part { table, row, planned: None, notified: Vec::new() });
                place
            });
            rows[place].notified.push(column.clone());
        }
        OneStep {
            start_ts: plan.start_ts,
            schema_version: plan.schema_version,
            planned: plan.rows.clone(),
            rows,
            oracle: shared.services().oracle.clone(),
            record_value_bytes_max: shared.options().record_value_bytes_max(),
        }
    }

    fn request(self: &Arc<Self>) -> CommitRows {
        let row = |part: &Part| CommitRow {
            table: part.table.shared_name(),
            row: part.row.clone(),
            predicate: part.planned.map_or_else(Vec::new, |planned| {
                rows::prewrite_predicate(self.start_ts, &self.planned[planned].cells)
            }),
        };
        CommitRows {
            rows: self.rows.iter().map(row).collect(),
            above: self.start_ts,
            bytes: self
                .planned
                .iter()
                .map(RowPlan::bytes)
                .chain(self.rows.iter().map(Part::bytes))
                .sum(),
            at: self.clone(),
        }
    }
}

/// A one-step commit that has begun.
#[derive(Debug)]
pub(crate) enum Tried {
    Committed(Timestamp),
    /// The store has returned another outcome, or has given the request back.
    Goes {
        on: Arc<OneStep>,
        first: Result<bigtable::Result<RowsOutcome>, CommitRows>,
    },
}

/// Begins a one-step commit, and ends it if the store need not wait. Returns `None` if the
/// transaction must take the two phases.
pub(crate) fn try_one_step(
    shared: &Shared,
    plan: &Plan,
    notifications: &BTreeSet<Cell>,
) -> Option<Tried> {
    if !fits_one_step(shared, plan, notifications) {
        return None;
    }
    let at = Arc::new(OneStep::new(shared, plan, notifications));
    Some(match shared.services().store.try_commit_rows(at.request()) {
        Ok(Ok(RowsOutcome::Committed(commit_ts))) => {
            Tried::Committed(committed_one_step(shared, plan, &at, commit_ts))
        }
        first => Tried::Goes { on: at, first },
    })
}

/// Whether a transaction of this shape can commit in one step.
fn fits_one_step(shared: &Shared, plan: &Plan, notifications: &BTreeSet<Cell>) -> bool {
    let services = shared.services();
    shared.options().commit_path == CommitPath::OneStep
        && services.store.commits_rows()
        && shared.unfenced().is_none()
        && services.oracle.issues_in_memory()
        && plan.rows.len() + notifications.len() <= COMMIT_ROWS_MAX
        // Notifications in a table of their own are written before the commit, in two phases.
        && !plan.notifies_apart()
        && !notifications.iter().any(|cell| cell.table.notifies_apart())
        && plan.rows.iter().map(RowPlan::bytes).sum::<usize>() <= BYTES_MAX
}

/// Finishes a one-step commit that has begun. Returns `None` if the transaction must take the
/// two phases.
///
/// # Errors
/// As [`Transaction::commit`](crate::Transaction::commit).
pub(crate) async fn commit_one_step(
    shared: &Shared,
    plan: &Plan,
    tried: Tried,
) -> Result<Option<Timestamp>> {
    let (at, mut first) = match tried {
        Tried::Committed(commit_ts) => return Ok(Some(commit_ts)),
        Tried::Goes { on, first } => (on, Some(first)),
    };
    let mut backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(100));
    let mut last = bigtable::Error::Unavailable { why: "no attempt was made".to_owned() };
    for _ in 0..TRIES_MAX {
        let store = &shared.services().store;
        let answer = match first.take() {
            Some(Ok(answer)) => answer,
            Some(Err(request)) => store.commit_rows(request).await,
            None => store.commit_rows(at.request()).await,
        };
        match answer {
            Ok(RowsOutcome::Committed(commit_ts)) => {
                return Ok(Some(committed_one_step(shared, plan, &at, commit_ts)));
            }
            Ok(RowsOutcome::NoTimestamp) => return Ok(None),
            Ok(RowsOutcome::Rejected { row }) => {
                let Some(planned) = at.rows[row].planned else { return Ok(None) };
                if let Err(reason) = Box::pin(clear_dead_locks_from(shared, plan, planned)).await {
                    return Err(aborted(shared, plan, reason));
                }
                let why = format!("other clients kept changing row {}", at.rows[row].row);
                last = bigtable::Error::Unavailable { why };
            }
            Err(bigtable::Error::TooOld { .. }) => {
                return Err(aborted(shared, plan, AbortReason::TooOld));
            }
            Err(bigtable::Error::Unknown { why }) => {
                let commit_ts = Box::pin(settle_one_step(shared, plan, why)).await?;
                return Ok(Some(committed_one_step(shared, plan, &at, commit_ts)));
            }
            Err(error) if !error.is_retryable() => {
                return Err(aborted(shared, plan, AbortReason::Store(error)));
            }
            Err(error) => {
                last = error;
                shared.runtime().sleep(backoff.step(&**shared.runtime())).await;
            }
        }
    }
    Err(aborted(shared, plan, AbortReason::Store(last)))
}

/// Removes dead locks from the row that was rejected, and then from all rows behind it, which
/// the store has not checked.
async fn clear_dead_locks_from(
    shared: &Shared,
    plan: &Plan,
    rejected: usize,
) -> Result<(), AbortReason> {
    clear_dead_locks(shared, plan.start_ts, &plan.rows[rejected]).await?;
    let behind = plan.rows[rejected + 1..].iter();
    let clear = behind.map(|row| clear_dead_locks(shared, plan.start_ts, row));
    futures::future::try_join_all(clear).await?;
    Ok(())
}

/// Finds out the outcome of a one-step commit whose reply was lost. If the request has not
/// arrived, a rollback record refuses it from now on.
async fn settle_one_step(shared: &Shared, plan: &Plan, mut why: String) -> Result<Timestamp> {
    let (runtime, started) = (shared.runtime(), shared.runtime().now());
    let mut backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(500));
    loop {
        let settled = settle_without_lock(shared, plan, true).await;
        match settled.map(|settled| conclude(shared, plan, settled)) {
            Ok(ControlFlow::Break(result)) => return result,
            // The request arrived a moment ago. The next look finds its record.
            Ok(ControlFlow::Continue(_)) => {}
            // The store has stopped for good, so the outcome stays unknown.
            Err(
                error
                @ Error::Store(bigtable::Error::Files { .. } | bigtable::Error::Halted { .. }),
            ) => {
                return Err(unknown(shared, plan, error.without_advice()));
            }
            Err(error) => why = error.without_advice(),
        }
        if runtime.now().saturating_sub(started) > shared.options().commit_deadline {
            return Err(unknown(shared, plan, why));
        }
        runtime.sleep(backoff.step(&**runtime)).await;
    }
}

fn committed_one_step(
    shared: &Shared,
    plan: &Plan,
    at: &OneStep,
    commit_ts: Timestamp,
) -> Timestamp {
    shared.counters().committed.bump();
    shared.counters().committed_one_step.bump();
    plan.committed(shared, commit_ts, CommitPath::OneStep, at.rows.iter().flat_map(Part::cells));
    for part in &at.rows {
        if let Some(planned) = part.planned {
            hint_row(shared, &at.planned[planned], commit_ts);
        }
        for cell in part.cells() {
            shared.hint(&Hint::new(cell, Some(commit_ts)));
        }
    }
    commit_ts
}
