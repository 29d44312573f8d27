//! Writes mutations in the simulated store one after the other; a one-step commit takes time.
//!
//! ```text
//!   a commit in one step:   rows pending, timestamp taken ---- a while ---- written, published,
//!                           answered
//!   mutations behind it:    wait
//!   reads of its rows:      wait, if the commit timestamp may be at or below their snapshot
//!   glances at its rows:    answer nothing at once, where a read would wait
//! ```
//!
//! The store on disk writes the batch in that time, and may sync it. A write may fail. Then a
//! part of the waiting mutations may have been written, and the caller of each receives an
//! unknown outcome. Reads that wait fail. The store refuses all requests until it is started
//! again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigtable::sync::locked;
use bigtable::{AtCommit, Error, Glance, Mutation, RowKey, RowRange, Timestamp};
use bytes::Bytes;

use crate::codec::{RowPart, RowRead, StoreReply, StoreRequest, encode};
use crate::failures::unavailable;
use crate::store::{Pending, StoreServer};
use crate::tally::Sometimes;
use crate::transport::ReplyTo;

/// A one-step commit whose timestamp is taken and which is not yet published.
pub(crate) struct Publishing {
    pending: Pending,
    taken: Arc<Taken>,
    /// Readers that wait for the publication.
    readers: Vec<(StoreRequest, ReplyTo)>,
}

/// The timestamp of a one-step commit, which is taken before the batch is written.
#[derive(Debug)]
struct Taken {
    at: Arc<dyn AtCommit>,
    commit_ts: Mutex<Option<Timestamp>>,
}

impl Taken {
    fn commit_ts(&self) -> Option<Timestamp> {
        *locked(&self.commit_ts)
    }
}

impl AtCommit for Taken {
    fn timestamp(&self) -> Option<Timestamp> {
        let taken = self.at.timestamp();
        *locked(&self.commit_ts) = taken;
        // Without a timestamp the store writes nothing yet.
        None
    }

    fn mutations(&self, row: usize, commit_ts: Timestamp) -> Vec<Mutation> {
        self.at.mutations(row, commit_ts)
    }
}

/// A one-step commit with the timestamp that was taken before, to be written now.
#[derive(Debug)]
struct Written(Arc<Taken>);

impl AtCommit for Written {
    fn timestamp(&self) -> Option<Timestamp> {
        self.0.commit_ts()
    }

    fn mutations(&self, row: usize, commit_ts: Timestamp) -> Vec<Mutation> {
        self.0.mutations(row, commit_ts)
    }
}

/// Returns the number of a one-step commit, a timestamp that its commit timestamp will exceed,
/// and its rows.
fn rows_of(request: &StoreRequest) -> Option<(u64, Timestamp, &[RowPart])> {
    match request {
        StoreRequest::CommitRows(number, above, rows) => Some((*number, *above, rows)),
        _ => None,
    }
}

impl StoreServer {
    /// Returns whether a reader at `s` of these rows of a table must wait.
    fn is_pending(
        &self,
        s: Option<Timestamp>,
        table: &Bytes,
        has: impl Fn(&RowKey) -> bool,
    ) -> bool {
        let state = self.state();
        let pending = state.publishing.as_ref().and_then(|it| rows_of(&it.pending.request));
        pending.is_some_and(|(_, above, rows)| {
            let mut rows = rows.iter().filter(|part| part.table == *table);
            s.is_some_and(|s| above < s) && rows.any(|part| has(&part.request.row))
        })
    }

    /// Returns whether a glance answers nothing because its row is pending.
    pub(crate) fn hides(&self, table: &Bytes, at: &Glance<'_>) -> bool {
        self.is_pending(Some(at.s), table, |row| row == at.row)
    }

    /// Queues a read if it must wait; otherwise returns it.
    pub(crate) fn wait(
        &self,
        request: StoreRequest,
        reply: ReplyTo,
    ) -> Option<(StoreRequest, ReplyTo)> {
        let of_row = |table: &Bytes, read: &RowRead| {
            self.is_pending(read.select.above, table, |row| *row == read.row)
        };
        let of_range = |table: &Bytes, s, range: &RowRange| {
            self.is_pending(s, table, |row| range.contains(row))
        };
        let waits = match &request {
            StoreRequest::Read(table, read) => of_row(table, read),
            StoreRequest::ReadMany(table, reads) => reads.iter().any(|read| of_row(table, read)),
            StoreRequest::Scan(table, range, select, _) => of_range(table, select.above, range),
            _ => false,
        };
        match self.state().publishing.as_mut().filter(|_| waits) {
            Some(publishing) => {
                self.tally.happened(Sometimes::WaitedForPending);
                publishing.readers.push((request, reply));
                None
            }
            None => Some((request, reply)),
        }
    }

    /// Returns whether this request is being written.
    pub(crate) fn is_publishing(&self, number: u64) -> bool {
        let state = self.state();
        let pending = state.publishing.as_ref().and_then(|it| rows_of(&it.pending.request));
        pending.is_some_and(|(of, ..)| of == number)
    }

    /// Returns whether no mutation waits to be written.
    pub(crate) fn is_at_rest(&self) -> bool {
        let state = self.state();
        let waits = state.publishing.is_some() || !state.log_waits.is_empty();
        !waits && state.queue.is_empty() && state.group.is_empty()
    }

    /// Applies the queue, up to a one-step commit that takes time.
    pub(crate) fn proceed(self: &Arc<Self>) {
        loop {
            let pending = {
                let mut state = self.state();
                if state.publishing.is_some() {
                    return;
                }
                let Some(pending) = state.queue.pop_front() else { return };
                pending
            };
            if self.is_over(&pending.reply) {
                continue;
            }
            if self.state().failing {
                self.state().queue.push_front(pending);
                self.fail_writes();
                return;
            }
            let pending = self.begin_publishing(pending);
            if let Some(pending) = pending.and_then(|pending| self.begin_log_wait(pending)) {
                let result = self.apply(&pending.request, pending.from);
                pending.reply.send(encode(&result));
            }
        }
    }

    /// Takes the timestamp of a one-step commit, and schedules its publication. Returns any
    /// other request, and also a commit that is over because it got no timestamp.
    fn begin_publishing(self: &Arc<Self>, pending: Pending) -> Option<Pending> {
        let nanos = self.publish_max.as_nanos() as u64;
        let Some((number, above, rows)) = rows_of(&pending.request).filter(|_| nanos > 0) else {
            return Some(pending);
        };
        let Some(at) = self.expected(number) else { return Some(pending) };
        let taken = Arc::new(Taken { at, commit_ts: Mutex::default() });
        let reply = self.commit_rows_at(taken.clone(), above, rows, pending.from);
        if taken.commit_ts().is_none() {
            // The commit was rejected or refused, or the oracle had no timestamp.
            self.answered(number, &reply);
            return Some(pending);
        }
        let delay = Duration::from_nanos(self.executor.draw(|rng| rng.below(nanos)));
        let life = {
            let mut state = self.state();
            state.publishing = Some(Publishing { pending, taken, readers: Vec::new() });
            state.life
        };
        let server = self.clone();
        self.executor.after(delay, self.process, move || server.publish(life));
        None
    }

    /// Publishes the commit that began in this life of the store, and answers the readers that
    /// wait for it.
    fn publish(self: &Arc<Self>, life: u64) {
        let publishing = {
            let mut state = self.state();
            if state.life != life {
                return;
            }
            if state.failing {
                drop(state);
                return self.fail_writes();
            }
            state.publishing.take()
        };
        let Some(Publishing { pending, taken, readers }) = publishing else { return };
        let result = self.write_taken(&pending, taken);
        pending.reply.send(encode(&result));
        for (request, reply) in readers {
            let answer = self.read(&request);
            reply.send(encode(&answer));
        }
        self.proceed();
    }

    fn write_taken(&self, pending: &Pending, taken: Arc<Taken>) -> StoreReply {
        let (number, above, rows) =
            rows_of(&pending.request).expect("only these are published later");
        // The predicates held when the timestamp was taken, and nothing was written since.
        let certain = |part: &RowPart| {
            let mut part = part.clone();
            part.request.predicate.clear();
            part
        };
        let rows: Vec<RowPart> = rows.iter().map(certain).collect();
        let reply = self.commit_rows_at(Arc::new(Written(taken)), above, &rows, pending.from);
        self.answered(number, &reply);
        reply
    }

    /// Loses a part of the waiting mutations when the store goes down or a write fails. The
    /// first few are written, the others are lost. Returns all of them.
    pub(crate) fn lose_tail(&self) -> Vec<Pending> {
        let (publishing, log_waits, mut rest) = {
            let mut state = self.state();
            state.life += 1;
            let log_waits = std::mem::take(&mut state.log_waits);
            let queue = std::mem::take(&mut state.queue);
            let group = std::mem::take(&mut state.group);
            (state.publishing.take(), log_waits, queue.into_iter().chain(group).collect::<Vec<_>>())
        };
        let waited = self.lose_log_waits(log_waits);
        let count = rest.len() + usize::from(publishing.is_some());
        let kept = self.executor.draw(|rng| rng.below(count as u64 + 1)) as usize;
        self.executor.note("torn", (kept as u64, count as u64), || {
            format!("{kept} of {count} unsynced mutations are kept")
        });
        if kept < count {
            self.tally.happened(Sometimes::TornWalRecovered);
        }
        let of_rest = kept - usize::from(publishing.is_some() && kept > 0);
        if let Some(Publishing { pending, taken, .. }) = publishing {
            if kept > 0 {
                self.write_taken(&pending, taken);
            } else if let Some((number, ..)) = rows_of(&pending.request) {
                self.answered(number, &StoreReply::Failed(written_perhaps()));
            }
            rest.insert(0, pending);
        }
        for pending in rest.iter().skip(kept - of_rest).take(of_rest) {
            if !self.is_over(&pending.reply) {
                self.apply(&pending.request, pending.from);
            }
        }
        rest.extend(waited);
        rest
    }

    /// Makes the next write fail.
    pub(crate) fn fail_next_write(&self) {
        self.state().failing = true;
    }

    /// Fails a write: its outcome is unknown, and the store answers no request until it is
    /// started again.
    pub(crate) fn fail_writes(&self) {
        self.tally.happened(Sometimes::WriteFailed);
        let readers = self.state().publishing.as_mut().map(|it| std::mem::take(&mut it.readers));
        let unsure = self.lose_tail();
        self.go_down();
        for Pending { reply, .. } in unsure {
            reply.send(encode(&StoreReply::Failed(written_perhaps())));
        }
        for (_, reply) in readers.into_iter().flatten() {
            reply.send(encode(&StoreReply::Failed(unavailable("a write has failed"))));
        }
    }

    /// Returns the error of a prewrite that finds no room for its locks.
    pub(crate) fn overloaded() -> Error {
        Error::Overloaded { group: "lock".to_owned(), cells_max: percolator_core::LOCKS_MAX }
    }
}

fn written_perhaps() -> Error {
    Error::Unknown { why: "a write has failed".to_owned() }
}
