//! Queues the entries that a client's events add to the trace, until they are written. The
//! entries are encoded, and their number and size are bounded.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use bigtable::Timestamp;
use bigtable::sync::locked;
use bytes::Bytes;

use crate::bell::Bell;
use crate::trace::record::{self, Facts};
use crate::trace::rows::bucket_of;
use crate::watch::{CellRef, Event, RunEnd, TransactionInfo, Written};
use crate::{Change, Incarnation, Runtime, Sampling};

/// The most entries, and bytes of entries, that wait at a time.
const ENTRIES_MAX: usize = 65_536;
const BYTES_MAX: usize = 16 << 20;
/// How long a transaction is held back at most, if another client committed its cause.
const HELD_MAX: Duration = Duration::from_secs(5);
/// How many of this client's newest decisions are remembered.
const DECISIONS_MAX: usize = 65_536;

/// The trace of a client: its sampling, and the entries that wait to be written.
#[derive(Debug)]
pub(crate) struct Trace {
    sampling: Sampling,
    inner: Mutex<Inner>,
    /// Rung when an entry arrives in an empty queue.
    pub(super) bell: Bell,
    /// Held while rows are written. Counts the rows that were written.
    pub(super) writing: futures::lock::Mutex<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    ready: Vec<Queued>,
    held: VecDeque<Held>,
    bytes: usize,
    entries: usize,
    /// Whether the transaction with this commit timestamp is traced.
    decisions: BTreeMap<Timestamp, bool>,
}

/// An entry that waits to be written.
#[derive(Debug, Clone)]
pub(super) struct Queued {
    pub(super) bucket: u64,
    pub(super) bytes: Bytes,
    /// Whether it is a transaction, and not a change that set one off.
    pub(super) counts: bool,
}

/// An observer's transaction that is not decided yet, because another client committed its
/// cause.
#[derive(Debug)]
pub(super) struct Held {
    entries: Vec<Queued>,
    pub(super) commit_ts: Timestamp,
    /// The causes that this client has not committed.
    pub(super) causes: Vec<Timestamp>,
    until: Duration,
}

/// The decision whether a transaction is traced, as far as this client knows it.
enum Decision {
    Known(bool),
    /// The decision depends on these transactions, which other clients committed.
    Open(Vec<Timestamp>),
}

impl Trace {
    pub(crate) fn new(sampling: Sampling) -> Self {
        Trace {
            sampling,
            inner: Mutex::default(),
            bell: Bell::default(),
            writing: futures::lock::Mutex::new(0),
        }
    }

    /// Takes note of an event of a client. Returns `false` if it does not fit.
    pub(crate) fn note(
        &self,
        runtime: &dyn Runtime,
        client: Incarnation,
        event: &Event<'_>,
    ) -> bool {
        match event {
            Event::Committed { tx, commit_ts, spans, written, .. } => {
                let facts = facts((runtime, client), tx, *commit_ts, spans.total);
                self.ended(runtime.now(), &facts, tx.earlier, Some(*written))
            }
            // The run wrote nothing, so no commit was reported.
            Event::Ran {
                observer,
                changes,
                earlier,
                took,
                end: RunEnd::Committed { start_ts, commit_ts },
            } if start_ts == commit_ts => {
                let (name, start_ts) = (Some(*observer), *start_ts);
                let tx = TransactionInfo { name, start_ts, causes: changes, earlier };
                let facts = facts((runtime, client), &tx, *commit_ts, *took);
                self.ended(runtime.now(), &facts, earlier, None)
            }
            _ => true,
        }
    }

    fn ended(
        &self,
        now: Duration,
        facts: &Facts<'_>,
        earlier: &[(usize, Timestamp)],
        written: Option<Written<'_>>,
    ) -> bool {
        let decision = self.decide(facts);
        if matches!(decision, Decision::Known(false)) {
            return true;
        }
        let entries = entries(facts, earlier, written);
        let bytes = entries.iter().map(|entry| entry.bytes.len()).sum::<usize>();
        let was_empty = {
            let mut inner = locked(&self.inner);
            let fits =
                inner.entries + entries.len() <= ENTRIES_MAX && inner.bytes + bytes <= BYTES_MAX;
            if !fits {
                return false;
            }
            let was_empty = inner.entries == 0;
            inner.entries += entries.len();
            inner.bytes += bytes;
            match decision {
                Decision::Known(_) => inner.ready.extend(entries),
                Decision::Open(causes) => {
                    let (commit_ts, until) = (facts.commit_ts, now + HELD_MAX);
                    inner.held.push_back(Held { entries, commit_ts, causes, until });
                }
            }
            was_empty
        };
        if was_empty {
            self.bell.ring();
        }
        true
    }

    /// Decides whether a transaction is traced, as far as this client knows.
    fn decide(&self, facts: &Facts<'_>) -> Decision {
        if self.sampling == Sampling::All {
            return Decision::Known(true);
        }
        let mut inner = locked(&self.inner);
        let decision = match facts.causes {
            [] => Decision::Known(self.sampling.keeps(facts.commit_ts)),
            causes => {
                let of = |cause: &Change| inner.decisions.get(&cause.commit_ts).copied();
                let open = causes.iter().filter(|cause| of(cause).is_none());
                let open: Vec<Timestamp> = open.map(|cause| cause.commit_ts).collect();
                if causes.iter().any(|cause| of(cause) == Some(true)) {
                    Decision::Known(true)
                } else if open.is_empty() {
                    Decision::Known(false)
                } else {
                    Decision::Open(open)
                }
            }
        };
        if let Decision::Known(kept) = decision {
            inner.decided(facts.commit_ts, kept);
        }
        decision
    }

    /// Wakes the task that writes the trace, so that it sees that the client has ended.
    pub(crate) fn wake(&self) {
        self.bell.ring();
    }

    /// Takes the entries that can be written now.
    pub(super) fn take_ready(&self) -> Vec<Queued> {
        let mut inner = locked(&self.inner);
        let ready = std::mem::take(&mut inner.ready);
        inner.forget(&ready);
        ready
    }

    /// Takes the transactions that are held back until their causes are found in the table.
    pub(super) fn take_held(&self) -> VecDeque<Held> {
        std::mem::take(&mut locked(&self.inner).held)
    }

    /// Decides on a transaction that was held back. `is_traced` is true if the table has one
    /// of its causes. Returns `false` if the transaction stays held back.
    pub(super) fn settle(&self, held: Held, is_traced: bool, runtime: &dyn Runtime) -> bool {
        let mut inner = locked(&self.inner);
        let Inner { decisions, .. } = &*inner;
        // Meanwhile this client may have decided on a cause that it had held back, too.
        let kept = is_traced || held.causes.iter().any(|c| decisions.get(c) == Some(&true));
        if kept {
            inner.decided(held.commit_ts, true);
            inner.ready.extend(held.entries);
        } else if held.until > runtime.now() {
            inner.held.push_back(held);
            return false;
        } else {
            inner.decided(held.commit_ts, false);
            inner.forget(&held.entries);
        }
        true
    }

    /// Whether no entry waits.
    pub(super) fn is_empty(&self) -> bool {
        locked(&self.inner).entries == 0
    }
}

impl Inner {
    fn decided(&mut self, commit_ts: Timestamp, kept: bool) {
        self.decisions.insert(commit_ts, kept);
        if self.decisions.len() > DECISIONS_MAX {
            self.decisions.pop_first();
        }
    }

    fn forget(&mut self, entries: &[Queued]) {
        self.entries -= entries.len();
        self.bytes -= entries.iter().map(|entry| entry.bytes.len()).sum::<usize>();
    }
}

fn facts<'a>(
    (runtime, client): (&dyn Runtime, Incarnation),
    tx: &TransactionInfo<'a>,
    commit_ts: Timestamp,
    took: Duration,
) -> Facts<'a> {
    let TransactionInfo { name, start_ts, causes, .. } = *tx;
    Facts { name, start_ts, commit_ts, client, wall_ms: runtime.wall_ms(), took, causes }
}

/// The entries of a transaction: itself, and each change that it handled.
fn entries(
    facts: &Facts<'_>,
    earlier: &[(usize, Timestamp)],
    written: Option<Written<'_>>,
) -> Vec<Queued> {
    let cells = written.iter().flat_map(Written::cells);
    let notified = written.iter().flat_map(Written::notified);
    let bytes = record::transaction(facts, cells, notified);
    let mut entries = Vec::with_capacity(1 + facts.causes.len() + earlier.len());
    entries.push(Queued { bucket: bucket_of(facts.commit_ts), bytes, counts: true });
    let newest = facts.causes.iter().enumerate().map(|(index, cause)| (index, cause.commit_ts));
    for (index, ts) in newest.chain(earlier.iter().copied()) {
        let Change { table, row, column, .. } = &facts.causes[index];
        let cell = CellRef { table: table.name(), row, column };
        let bytes = record::link(ts, facts.commit_ts, cell);
        entries.push(Queued { bucket: bucket_of(ts), bytes, counts: false });
    }
    entries
}
