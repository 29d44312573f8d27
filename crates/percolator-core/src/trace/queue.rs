//! Queues the entries that a client's events add to the trace, until they are written. The
//! entries are encoded, and their number and size are bounded.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigtable::sync::locked;
use bigtable::{Table, Timestamp};
use bytes::Bytes;

use crate::bell::Bell;
use crate::trace::record::{self, Facts};
use crate::trace::rows::bucket_of;
use crate::watch::{CellRef, Event, RunEnd, TransactionInfo, Written};
use crate::{Change, Incarnation, Runtime, Sampling};

/// The most entries that wait at a time.
const WAITING_MAX: Size = Size { entries: 65_536, bytes: 16 << 20 };
/// The most of these that are held back.
const HELD_MAX: Size = Size { entries: WAITING_MAX.entries / 2, bytes: WAITING_MAX.bytes / 2 };
/// How long a transaction is held back at most, if another client committed its cause.
const HELD_FOR: Duration = Duration::from_secs(5);
/// How many of this client's newest decisions are remembered.
const DECISIONS_MAX: usize = 65_536;

/// The trace of a client: its sampling, and the entries that wait to be written.
#[derive(Debug)]
pub(crate) struct Trace {
    sampling: Sampling,
    inner: Mutex<Inner>,
    /// Rung when an entry arrives in an empty queue.
    pub(super) bell: Bell,
    /// Held while rows are written.
    pub(super) writing: futures::lock::Mutex<Writing>,
}

/// The writer's state from one time to the next.
#[derive(Debug, Default)]
pub(super) struct Writing {
    /// How many rows were written.
    pub(super) number: u64,
    /// The table, once it is open.
    pub(super) table: Option<Arc<dyn Table>>,
}

#[derive(Debug, Default)]
struct Inner {
    ready: Vec<Queued>,
    ready_size: Size,
    /// The transactions that are not decided yet, in the order in which they came.
    held: VecDeque<Held>,
    held_size: Size,
    /// Whether the transaction with this commit timestamp is traced.
    decisions: BTreeMap<Timestamp, bool>,
    /// Whether nobody writes any more.
    ended: bool,
}

/// A number of entries, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Size {
    entries: usize,
    bytes: usize,
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
struct Held {
    entries: Vec<Queued>,
    commit_ts: Timestamp,
    /// The causes that this client has not decided on.
    causes: Vec<Timestamp>,
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
            writing: futures::lock::Mutex::default(),
        }
    }

    /// Takes note of an event of a client. Returns `false` if it is traced and does not fit.
    pub(crate) fn note(
        &self,
        runtime: &dyn Runtime,
        client: Incarnation,
        event: &Event<'_>,
    ) -> bool {
        match event {
            Event::Committed { tx, commit_ts, spans, written, .. } => {
                let facts = facts((runtime, client), tx, *commit_ts, spans.total);
                self.ended(runtime.now(), &facts, Some(*written))
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
                self.ended(runtime.now(), &facts, None)
            }
            _ => true,
        }
    }

    fn ended(&self, now: Duration, facts: &Facts<'_>, written: Option<Written<'_>>) -> bool {
        let decision = self.decide(facts);
        if matches!(decision, Decision::Known(false)) {
            return true;
        }
        let entries = entries(facts, written);
        let (was_empty, fits) = {
            let mut inner = locked(&self.inner);
            let was_empty = inner.is_empty();
            let fits = match decision {
                Decision::Known(_) => inner.add(entries),
                Decision::Open(causes) => {
                    let (commit_ts, until) = (facts.commit_ts, now + HELD_FOR);
                    inner.hold(Held { entries, commit_ts, causes, until })
                }
            };
            (was_empty, fits)
        };
        if was_empty && fits {
            self.bell.ring();
        }
        fits
    }

    /// Decides whether a transaction is traced, as far as this client knows.
    fn decide(&self, facts: &Facts<'_>) -> Decision {
        if self.sampling == Sampling::All {
            return Decision::Known(true);
        }
        let mut inner = locked(&self.inner);
        let decision = if facts.causes.is_empty() {
            Decision::Known(self.sampling.keeps(facts.commit_ts))
        } else {
            inner.inherited(facts.handled().map(|(_, ts)| ts))
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
        inner.ready_size = Size::default();
        std::mem::take(&mut inner.ready)
    }

    /// The causes of the transactions that are held back, each with the commit timestamp of the
    /// transaction, in order of the causes.
    pub(super) fn open_causes(&self) -> Vec<(Timestamp, Timestamp)> {
        let inner = locked(&self.inner);
        let mut causes = Vec::new();
        for Held { causes: of, commit_ts, .. } in &inner.held {
            let open = of.iter().filter(|cause| !inner.decisions.contains_key(cause));
            causes.extend(open.map(|cause| (*cause, *commit_ts)));
        }
        // Each commit takes the lock.
        drop(inner);
        causes.sort_unstable();
        causes
    }

    /// Decides on the transactions that are held back. The table has a cause of each one in
    /// `traced`. Returns how many are given up because the table could not be read.
    pub(super) fn settle(&self, traced: &BTreeSet<Timestamp>, is_read: bool, now: Duration) -> u64 {
        locked(&self.inner).settle(traced, is_read, now)
    }

    /// Gives up everything that waits, because nobody writes any more. Returns how many
    /// transactions that are.
    pub(super) fn end(&self) -> u64 {
        let mut inner = locked(&self.inner);
        inner.ended = true;
        inner.ready_size = Size::default();
        inner.held_size = Size::default();
        let ready = std::mem::take(&mut inner.ready);
        let held = std::mem::take(&mut inner.held).len();
        (ready.iter().filter(|entry| entry.counts).count() + held) as u64
    }

    /// Whether no entry waits.
    pub(super) fn is_empty(&self) -> bool {
        locked(&self.inner).is_empty()
    }
}

impl Inner {
    fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.held.is_empty()
    }

    /// Decides by the transactions that set an observer's transaction off.
    fn inherited(&self, causes: impl Iterator<Item = Timestamp>) -> Decision {
        let mut open = Vec::new();
        for cause in causes {
            match self.decisions.get(&cause) {
                Some(true) => return Decision::Known(true),
                Some(false) => {}
                None => open.push(cause),
            }
        }
        open.sort_unstable();
        open.dedup();
        if open.is_empty() { Decision::Known(false) } else { Decision::Open(open) }
    }

    fn decided(&mut self, commit_ts: Timestamp, kept: bool) {
        self.decisions.insert(commit_ts, kept);
        if self.decisions.len() > DECISIONS_MAX {
            self.decisions.pop_first();
        }
    }

    /// Adds entries that are kept, if they fit. The transactions that are held back make room for
    /// them.
    fn add(&mut self, entries: Vec<Queued>) -> bool {
        let ready_size = self.ready_size.plus(Size::of(&entries));
        let Some(left) = WAITING_MAX.minus(ready_size).filter(|_| !self.ended) else {
            return false;
        };
        self.give_up_held(left);
        self.ready_size = ready_size;
        self.ready.extend(entries);
        true
    }

    /// Holds a transaction back. The oldest ones make room for it: most of them belong to
    /// cascades that are not kept, so they are not counted.
    fn hold(&mut self, held: Held) -> bool {
        if self.ended {
            return false;
        }
        let size = Size::of(&held.entries);
        let left =
            WAITING_MAX.minus(self.ready_size).and_then(|left| left.min(HELD_MAX).minus(size));
        let Some(left) = left else {
            self.decided(held.commit_ts, false);
            return true;
        };
        self.give_up_held(left);
        self.held_size = self.held_size.plus(size);
        self.held.push_back(held);
        true
    }

    /// Gives up the oldest transactions that are held back, until the rest has at most this size.
    fn give_up_held(&mut self, size_max: Size) {
        while size_max.minus(self.held_size).is_none()
            && let Some(oldest) = self.held.pop_front()
        {
            self.release(&oldest, false);
        }
    }

    /// Notes the decision on a transaction that is no longer held back.
    fn release(&mut self, held: &Held, kept: bool) {
        self.held_size = self.held_size.minus(Size::of(&held.entries)).unwrap_or_default();
        self.decided(held.commit_ts, kept);
    }

    fn settle(&mut self, traced: &BTreeSet<Timestamp>, is_read: bool, now: Duration) -> u64 {
        let mut unknown = 0;
        for held in std::mem::take(&mut self.held) {
            let decision = if traced.contains(&held.commit_ts) {
                Decision::Known(true)
            } else {
                // Meanwhile this client may have decided on a cause that it had held back, too.
                self.inherited(held.causes.iter().copied())
            };
            let kept = match decision {
                Decision::Known(kept) => kept,
                Decision::Open(_) if now < held.until => {
                    self.held.push_back(held);
                    continue;
                }
                Decision::Open(_) => {
                    unknown += u64::from(!is_read);
                    false
                }
            };
            self.release(&held, kept);
            if kept {
                self.ready_size = self.ready_size.plus(Size::of(&held.entries));
                self.ready.extend(held.entries);
            }
        }
        unknown
    }
}

impl Size {
    fn of(entries: &[Queued]) -> Self {
        let bytes = entries.iter().map(|entry| entry.bytes.len()).sum();
        Size { entries: entries.len(), bytes }
    }

    fn plus(self, other: Size) -> Size {
        Size { entries: self.entries + other.entries, bytes: self.bytes + other.bytes }
    }

    /// `None` if the other is larger, in entries or in bytes.
    fn minus(self, other: Size) -> Option<Size> {
        let entries = self.entries.checked_sub(other.entries)?;
        Some(Size { entries, bytes: self.bytes.checked_sub(other.bytes)? })
    }

    fn min(self, other: Size) -> Size {
        Size { entries: self.entries.min(other.entries), bytes: self.bytes.min(other.bytes) }
    }
}

fn facts<'a>(
    (runtime, client): (&dyn Runtime, Incarnation),
    tx: &TransactionInfo<'a>,
    commit_ts: Timestamp,
    took: Duration,
) -> Facts<'a> {
    let TransactionInfo { name, start_ts, causes, earlier } = *tx;
    Facts { name, start_ts, commit_ts, client, wall_ms: runtime.wall_ms(), took, causes, earlier }
}

/// The entries of a transaction: itself, and each change that it handled.
fn entries(facts: &Facts<'_>, written: Option<Written<'_>>) -> Vec<Queued> {
    let cells = written.iter().flat_map(Written::cells);
    let notified = written.iter().flat_map(Written::notified);
    let bytes = record::transaction(facts, cells, notified);
    let mut entries = Vec::with_capacity(1 + facts.causes.len() + facts.earlier.len());
    entries.push(Queued { bucket: bucket_of(facts.commit_ts), bytes, counts: true });
    for (index, ts) in facts.handled() {
        let Change { table, row, column, .. } = &facts.causes[index];
        let cell = CellRef { table: table.name(), row, column };
        let bytes = record::link(ts, facts.commit_ts, cell);
        entries.push(Queued { bucket: bucket_of(ts), bytes, counts: false });
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ts(n: u64) -> Timestamp {
        Timestamp::new(n).unwrap()
    }

    fn transaction() -> Vec<Queued> {
        vec![Queued { bucket: 0, bytes: Bytes::from_static(b"entry"), counts: true }]
    }

    fn held(n: u64) -> Held {
        let (commit_ts, causes) = (ts(2 * n + 1), vec![ts(2 * n)]);
        Held { entries: transaction(), commit_ts, causes, until: HELD_FOR }
    }

    /// A queue in which so many transactions are held back, one after the other.
    fn holding(count: usize) -> Inner {
        let mut inner = Inner::default();
        assert!((0..count as u64).all(|n| inner.hold(held(n))));
        inner
    }

    #[test]
    fn what_is_held_back_leaves_room_for_what_is_kept() {
        let mut inner = holding(WAITING_MAX.entries);
        assert_eq!(inner.held.len(), WAITING_MAX.entries / 2);
        assert_eq!(inner.held.front().unwrap().commit_ts, ts(WAITING_MAX.entries as u64 + 1));
        assert!((0..WAITING_MAX.entries).all(|_| inner.add(transaction())));
        assert!(!inner.add(transaction()) && inner.held.is_empty());
        assert_eq!(inner.held_size, Size::default());
        assert!(inner.hold(held(0)) && inner.held.is_empty(), "there is no room to wait");
        assert_eq!(inner.decisions.get(&ts(1)), Some(&false));
    }

    #[test]
    fn held_transactions_are_decided_by_their_causes_or_given_up() {
        let mut inner = holding(4);
        inner.decided(ts(2), true);
        let found = BTreeSet::from([ts(1)]);
        assert_eq!(inner.settle(&found, true, Duration::ZERO), 0);
        assert_eq!((inner.ready.len(), inner.held.len()), (2, 2));
        assert_eq!(inner.settle(&found, false, Duration::ZERO), 0);
        assert_eq!(inner.settle(&found, false, HELD_FOR), 2);
        assert_eq!((inner.ready_size.entries, inner.held_size), (2, Size::default()));
    }

    #[test]
    fn a_transaction_whose_causes_are_not_kept_is_not_held_back_and_not_counted() {
        let mut inner = holding(1);
        inner.decided(ts(0), false);
        assert_eq!(inner.settle(&BTreeSet::new(), false, Duration::ZERO), 0);
        assert_eq!((inner.ready.len(), inner.held.len()), (0, 0));
        assert_eq!(inner.decisions.get(&ts(1)), Some(&false));
    }
}
