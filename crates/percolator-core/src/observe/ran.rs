//! Reports how an observer's run has ended, to the watcher and to the stored trace. Also makes
//! the tracing span of a run.

use std::sync::Arc;
use std::time::Duration;

use bigtable::Timestamp;

use crate::observe::change::Change;
use crate::observe::context::Context;
use crate::observe::failures::is_of_the_services;
use crate::observe::observer::Registration;
use crate::records::column::Cell;
use crate::watch::{Event, RunEnd};
use crate::{Error, Result, Transaction};

/// A run that a watcher observes.
pub(super) struct WatchedRun {
    begun: Duration,
    start_ts: Timestamp,
    changes: Arc<[Change]>,
    earlier: Arc<[(usize, Timestamp)]>,
}

impl WatchedRun {
    /// Notes the changes that a transaction is about to handle, with the versions of each
    /// change's notification. `None` without a watcher and without a trace.
    pub(super) fn begin<'s>(
        tx: &mut Transaction,
        changes: &[Change],
        seen: impl Iterator<Item = &'s [Timestamp]>,
    ) -> Option<Self> {
        let start_ts = tx.start_ts();
        let watched = tx.watched.as_mut()?;
        // Only a watched run pays for a copy of its changes.
        let changes: Arc<[Change]> = changes.into();
        let earlier = watched.caused_by(&changes, seen);
        Some(WatchedRun { begun: watched.begun(), start_ts, changes, earlier })
    }

    /// Reports how the run has ended. Call this before the failure is counted.
    pub(super) fn ended(
        &self,
        context: &Context,
        registration: &Registration,
        outcome: &Result<Timestamp>,
    ) {
        let took = context.runtime().now().saturating_sub(self.begun);
        let observer = &*registration.name;
        let (changes, earlier) = (&*self.changes, &*self.earlier);
        let end = match outcome {
            Ok(commit_ts) => RunEnd::Committed { start_ts: self.start_ts, commit_ts: *commit_ts },
            Err(error @ Error::Unknown { .. }) => RunEnd::Interrupted { error },
            Err(error) if is_of_the_services(error) => RunEnd::Interrupted { error },
            Err(error) if error.is_retryable() => RunEnd::Conflicted,
            Err(error) => RunEnd::Failed { attempts: attempts(context, changes, observer), error },
        };
        context.shared.emit(|| Event::Ran { observer, changes, earlier, took, end });
    }
}

/// How often an observer has failed on a change, including this failure.
fn attempts(context: &Context, changes: &[Change], observer: &str) -> u32 {
    let [Change { table, row, column, .. }] = changes else { return 0 };
    context.failures.attempts(&Cell::new(table, row, column), observer) + 1
}

/// The tracing span of a run.
pub(super) fn span(registration: &Registration, cell: Option<&Cell>) -> tracing::Span {
    tracing::debug_span!(
        target: "percolator::observer", "percolator.run", observer = &*registration.name,
        table = registration.observed.table, row = cell.map(|cell| tracing::field::display(&cell.row)),
    )
}
