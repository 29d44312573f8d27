//! Collects data about a transaction for the watcher and the trace: its name, its causes, and
//! when its parts began. A client without either collects nothing.

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

/// The data about one transaction for the watcher and the trace.
#[derive(Debug)]
pub(crate) struct Watched {
    name: Option<Arc<str>>,
    causes: Arc<[Change]>,
    earlier: Arc<[(usize, Timestamp)]>,
    /// Up to which timestamp the observer had acknowledged the cell.
    acknowledged: Option<Timestamp>,
    begun: Duration,
    /// When the commit began.
    committing: Option<Duration>,
    /// When the transaction began to lock its rows; `None` for a one-step commit.
    prewriting: Option<Duration>,
    /// When all its rows were locked.
    prewritten: Option<Duration>,
}

impl Watched {
    /// The data of a transaction that begins now. `None` without a watcher and without a trace.
    pub(crate) fn begin(shared: &Shared, name: Option<&Arc<str>>) -> Option<Box<Self>> {
        shared.is_watched().then(|| {
            Box::new(Watched {
                name: name.cloned(),
                causes: Arc::default(),
                earlier: Arc::default(),
                acknowledged: None,
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

    /// Notes up to which timestamp the observer had acknowledged the cell.
    pub(crate) fn acknowledged(&mut self, upto: Option<Timestamp>) {
        self.acknowledged = upto;
    }

    /// Records the changes that the transaction handles, with the versions of their
    /// notifications. Returns the versions of older changes that no run of the observer has
    /// acknowledged.
    pub(crate) fn caused_by<'s>(
        &mut self,
        changes: &Arc<[Change]>,
        seen: impl Iterator<Item = &'s [Timestamp]>,
    ) -> Arc<[(usize, Timestamp)]> {
        let mut earlier = Vec::new();
        for (index, (change, seen)) in changes.iter().zip(seen).enumerate() {
            let is_older = |ts: &&Timestamp| {
                **ts < change.commit_ts && self.acknowledged.is_none_or(|upto| **ts > upto)
            };
            earlier.extend(seen.iter().filter(is_older).map(|ts| (index, *ts)));
        }
        self.causes = changes.clone();
        self.earlier = earlier.into();
        self.earlier.clone()
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
        TransactionInfo {
            name: self.name.as_deref(),
            start_ts,
            causes: &self.causes,
            earlier: &self.earlier,
        }
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
