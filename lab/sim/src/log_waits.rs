//! Has changes of the simulated store wait for its log, as on HBase.
//!
//! A region server evaluates a change's condition under the exclusive lock of its row. Then it
//! writes the change to its log, and waits for the sync without a time limit. It answers, and shows
//! the change to readers, only after that.
//!
//! ```text
//!   a change:               condition holds, row locked ---- any time ---- applied, answered
//!   changes of its row:     wait, and are dropped if their own time is over then
//!   reads of its row:       see the row as it was
//!   the store is killed:    the change is in the log, and is applied, or is not, and is lost
//! ```
//!
//! The wait is many times as long as a request lives (`Store::request_life_max`). So this is what
//! the store's promise allows at worst.

use std::sync::Arc;
use std::time::Duration;

use bigtable::mutants::off;
use bigtable::{ConditionalMutation, RowKey, Store};
use bytes::Bytes;
use futures::FutureExt;

use crate::codec::{StoreReply, StoreRequest, encode};
use crate::failures::READY;
use crate::mutated::WAITING_ROW_IS_FREE;
use crate::store::{LogWaits, Pending, StoreServer, Waiting};
use crate::tally::Sometimes;

/// The longest wait, in lives of a request.
const LIVES_MAX: u64 = 12;

/// The rows that a request changes.
fn rows_of(request: &StoreRequest) -> Vec<(&Bytes, &RowKey)> {
    match request {
        StoreRequest::Mutate(table, request) => vec![(table, &request.row)],
        StoreRequest::Check(table, request) => vec![(table, &request.row)],
        StoreRequest::CheckMany(table, requests) => {
            requests.iter().map(|request| (table, &request.row)).collect()
        }
        _ => Vec::new(),
    }
}

impl LogWaits {
    fn hold(&self, rows: &[(&Bytes, &RowKey)]) -> bool {
        let holds =
            |of: &Waiting| rows_of(&of.pending.request).iter().any(|row| rows.contains(row));
        self.waiting.values().any(holds)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.behind.is_empty()
    }
}

impl StoreServer {
    /// Whether the request changes a row whose last change waits for the log.
    pub(crate) fn is_locked(&self, request: &StoreRequest) -> bool {
        !off(WAITING_ROW_IS_FREE) && self.state().log_waits.hold(&rows_of(request))
    }

    /// Has a change wait for the log, or for the row of another one. Returns it if it need not.
    pub(crate) fn begin_log_wait(self: &Arc<Self>, pending: Pending) -> Option<Pending> {
        if self.is_locked(&pending.request) {
            self.state().log_waits.behind.push(pending);
            return None;
        }
        let is_one_row = rows_of(&pending.request).len() == 1;
        let life = self.inner().request_life_max().filter(|_| is_one_row);
        let Some(life) = life.filter(|_| self.transport.waits_for_log()) else {
            return Some(pending);
        };
        let nanos = LIVES_MAX * life.as_nanos() as u64;
        let delay = Duration::from_nanos(self.executor.draw(|rng| rng.below(nanos)));
        let waiting = Waiting { held: self.holds(&pending.request), pending };
        let (number, store_life) = {
            let mut state = self.state();
            let waits = &mut state.log_waits;
            waits.last += 1;
            let number = waits.last;
            waits.waiting.insert(number, waiting);
            (number, state.life)
        };
        let server = self.clone();
        self.executor.after(delay, self.process, move || server.end_log_wait(number, store_life));
        None
    }

    /// Whether the condition of a change holds; `None` if the change has none.
    fn holds(&self, request: &StoreRequest) -> Option<bool> {
        let StoreRequest::Check(table, request) = request else { return None };
        let (then, otherwise) = (Vec::new(), Vec::new());
        let question = ConditionalMutation { then, otherwise, ..request.clone() };
        self.table(table).check_and_mutate_row(question).now_or_never().expect(READY).ok()
    }

    /// Applies a change whose condition was evaluated when its wait began.
    ///
    /// # Panics
    /// If the condition has another result now: something changed the row meanwhile.
    fn apply_late(&self, waiting: &Waiting) -> StoreReply {
        let Waiting { held, pending: Pending { request, from, .. } } = waiting;
        if let (StoreRequest::Check(table, check), Some(held), true) =
            (request, *held, off(WAITING_ROW_IS_FREE))
        {
            let effect = if held { &check.then } else { &check.otherwise };
            let (predicate, otherwise) = (Vec::new(), effect.clone());
            let decided = ConditionalMutation { predicate, otherwise, ..check.clone() };
            self.apply(&StoreRequest::Check(table.clone(), decided), *from);
            return StoreReply::Checked(held);
        }
        assert_eq!(self.holds(request), *held, "the row changed during the wait: {request:?}");
        self.apply(request, *from)
    }

    /// Applies a change whose wait began in this life of the store. Its condition holds as it did
    /// then, because nothing has changed the row.
    fn end_log_wait(self: &Arc<Self>, number: u64, store_life: u64) {
        let (ended, behind) = {
            let mut state = self.state();
            if state.life != store_life {
                return;
            }
            if state.failing {
                drop(state);
                return self.fail_writes();
            }
            let waits = &mut state.log_waits;
            (waits.waiting.remove(&number), std::mem::take(&mut waits.behind))
        };
        let Some(waiting) = ended else { return };
        let result = self.apply_late(&waiting);
        let applied = matches!(result, StoreReply::Done | StoreReply::Checked(_));
        if applied && self.is_beyond_life(&waiting.pending.reply) {
            self.tally.happened(Sometimes::WaitedForLog);
        }
        waiting.pending.reply.send(encode(&result));
        self.state().queue.extend(behind);
        self.proceed();
    }

    /// Loses changes that wait when the store goes down. Each of them is in the log, and is applied
    /// by the next server, or it is not. Returns all of them, with those that wait behind them.
    pub(crate) fn lose_log_waits(&self, waits: LogWaits) -> Vec<Pending> {
        let LogWaits { waiting, behind, .. } = waits;
        let waiting: Vec<_> = waiting.into_values().collect();
        for waiting in &waiting {
            if self.executor.draw(|rng| rng.below(2)) == 0 {
                self.apply_late(waiting);
            }
        }
        waiting.into_iter().map(|waiting| waiting.pending).chain(behind).collect()
    }
}
