//! Collects the watcher's data about a transaction: its name, its causes, and when its parts
//! began. Without a watcher nothing is collected.

use std::sync::Arc;
use std::time::Duration;

use bigtable::Timestamp;

use crate::observe::change::Change;
use crate::options::CommitPath;
use crate::records::column::Cell;
use crate::shared::Shared;
use crate::txn::row_plan::RowPlan;
use crate::watch::{Access, Event, Spans, TransactionInfo, Written};
use crate::{Error, Result};

/// How many changes are named as causes of a transaction.
const CAUSES_MAX: usize = 32;

/// The watcher's data about one transaction.
#[derive(Debug)]
pub(crate) struct Watched {
    name: Option<Arc<str>>,
    causes: Vec<Change>,
    begun: Duration,
    /// When the commit began.
    committing: Option<Duration>,
    /// When the transaction began to lock its rows; `None` for a one-step commit.
    prewriting: Option<Duration>,
    /// When all its rows were locked.
    prewritten: Option<Duration>,
}

impl Watched {
    /// The data of a transaction that begins now; `None` without a watcher.
    pub(crate) fn begin(shared: &Shared, name: Option<&Arc<str>>) -> Option<Box<Self>> {
        shared.watcher().is_some().then(|| {
            Box::new(Watched {
                name: name.cloned(),
                causes: Vec::new(),
                begun: shared.runtime().now(),
                committing: None,
                prewriting: None,
                prewritten: None,
            })
        })
    }

    /// When the transaction began.
    pub(crate) fn begun(&self) -> Duration {
        self.begun
    }

    /// Records the changes that the transaction handles.
    pub(crate) fn caused_by<'c>(&mut self, changes: impl IntoIterator<Item = &'c Change>) {
        self.causes = changes.into_iter().take(CAUSES_MAX).cloned().collect();
    }

    pub(crate) fn commit_begins(&mut self, shared: &Shared) {
        self.committing = Some(shared.runtime().now());
    }

    pub(crate) fn prewrite_begins(&mut self, shared: &Shared) {
        self.prewriting = Some(shared.runtime().now());
    }

    pub(crate) fn prewrite_ends(&mut self, shared: &Shared) {
        self.prewritten = Some(shared.runtime().now());
    }

    fn info(&self, start_ts: Timestamp) -> TransactionInfo<'_> {
        TransactionInfo { name: self.name.as_deref(), start_ts, causes: &self.causes }
    }

    fn spans(&self, shared: &Shared) -> Spans {
        let now = shared.runtime().now();
        let since = |begun: Duration| now.saturating_sub(begun);
        let total = since(self.begun);
        let (prewrite, commit) = match (self.prewriting, self.prewritten) {
            (None, _) => (Duration::ZERO, self.committing.map_or(Duration::ZERO, since)),
            (Some(begun), None) => (since(begun), Duration::ZERO),
            (Some(begun), Some(ended)) => (ended.saturating_sub(begun), since(ended)),
        };
        Spans { total, prewrite, commit }
    }

    /// Reports that the transaction has committed, and samples the rows that it wrote.
    pub(crate) fn committed(
        &self,
        shared: &Shared,
        (start_ts, commit_ts): (Timestamp, Timestamp),
        path: CommitPath,
        rows: &[RowPlan],
        notified: &[Cell],
    ) {
        shared.emit(|| Event::Committed {
            tx: self.info(start_ts),
            commit_ts,
            path,
            spans: self.spans(shared),
            written: Written { rows, notified },
        });
        shared.sample(Access::Write, rows.len(), |row| (rows[row].table.name(), &rows[row].row));
    }

    /// Reports that the commit has failed.
    pub(crate) fn ended(&self, shared: &Shared, start_ts: Timestamp, why: &Error) {
        shared.emit(|| Event::Ended { tx: self.info(start_ts), why, spans: self.spans(shared) });
    }

    /// Reports the outcome of a transaction that only notifies.
    pub(crate) fn notified(
        &self,
        shared: &Shared,
        start_ts: Timestamp,
        outcome: &Result<Timestamp>,
        notified: impl Iterator<Item = Cell>,
    ) {
        match outcome {
            Ok(commit_ts) => {
                let (at, notified) = ((start_ts, *commit_ts), notified.collect::<Vec<_>>());
                self.committed(shared, at, CommitPath::TwoPhases, &[], &notified);
            }
            Err(why) => self.ended(shared, start_ts, why),
        }
    }
}
