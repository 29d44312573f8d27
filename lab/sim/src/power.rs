//! Power cuts of the store's machine (H71).
//!
//! The store applies and answers a change under [`Syncing::MayBeLost`] like any other, but syncs it
//! only with the next change that is synced. A power cut takes back the last few changes that are
//! unsynced at that moment, and no other. A store that has left changes unsynced is silent after a
//! power cut, until every lease is over that a lost renewal has extended.

use std::sync::Arc;
use std::time::Duration;

use crate::mutated::silence;
use bigtable::{Mutation, RowKey, RowMutation, Selection, Syncing, Table, TimeRange};
use futures::FutureExt;

use crate::failures::READY;
use crate::store::StoreServer;
use crate::tally::Sometimes;

/// The part of the store's answers that the disk knows, and the part that it does not.
#[derive(Default)]
pub(crate) struct Power {
    /// The requests that take back the changes that are not synced, the oldest change first.
    unsynced: Vec<Undo>,
    /// Whether a change was left unsynced since the store was started: a mark on the disk says so.
    marked: bool,
    /// Whether the machine has lost its power since the store was started.
    lost: bool,
    /// Whether a silence has begun and is not over: a file says so.
    owed: bool,
    /// The store answers nothing before this moment.
    silent_until: Duration,
}

/// A request that puts a row back as it was before a change.
pub(crate) struct Undo {
    table: Arc<dyn Table>,
    request: RowMutation,
}

impl Undo {
    /// Looks at what these mutations will change in a row.
    fn of<'a>(
        table: Arc<dyn Table>,
        row: &RowKey,
        mutations: impl Iterator<Item = &'a Mutation>,
    ) -> Undo {
        let mut request = RowMutation::new(row);
        for mutation in mutations {
            let (family, qualifier, time) = match mutation {
                Mutation::Set { family, qualifier, timestamp, .. } => {
                    (family, qualifier, TimeRange::at(*timestamp))
                }
                Mutation::Delete { family, qualifier, time } => (family, qualifier, *time),
            };
            let select =
                Selection::default().column(family.clone(), qualifier.clone(), time, u32::MAX);
            let before = table.read_row(row, &select).now_or_never().expect(READY);
            let before = before.expect("the selection is well formed");
            request = request.mutation(Mutation::delete(family.clone(), qualifier.clone(), time));
            for cell in before.cells {
                let set = Mutation::set(cell.family, cell.qualifier, cell.timestamp, cell.value);
                request = request.mutation(set);
            }
        }
        Undo { table, request }
    }
}

impl StoreServer {
    /// Before a change: the request that takes it back, if a power cut may do so.
    pub(crate) fn undo<'a>(
        &self,
        table: &Arc<dyn Table>,
        row: &RowKey,
        sync: Syncing,
        mutations: impl Iterator<Item = &'a Mutation>,
    ) -> Option<Undo> {
        (sync == Syncing::MayBeLost).then(|| Undo::of(table.clone(), row, mutations))
    }

    /// After a change: one that is synced takes all before it to the disk.
    pub(crate) fn wrote(&self, undo: Option<Undo>) {
        let mut state = self.state();
        match undo {
            Some(undo) => {
                state.power.unsynced.push(undo);
                state.power.marked = true;
            }
            None => state.power.unsynced.clear(),
        }
    }

    /// Takes the store's machine down: what a kill loses, and some last ones of the unsynced
    /// changes.
    pub(crate) fn cut_power(&self) {
        self.kill();
        let mut unsynced = {
            let mut state = self.state();
            state.power.lost = true;
            std::mem::take(&mut state.power.unsynced)
        };
        let count = unsynced.len() as u64;
        let kept = self.executor.draw(|rng| match rng.below(2) {
            0 => 0,
            _ => rng.between(0, count),
        });
        self.executor.note("power cut", (kept, count), || {
            format!("{kept} of {count} changes that may be lost are kept")
        });
        if kept < count {
            self.tally.happened(Sometimes::RenewalsLost);
        }
        for Undo { table, request } in unsynced.drain(kept as usize..).rev() {
            let undone = table.mutate_row(request).now_or_never().expect(READY);
            undone.expect("the row was as it is put back");
        }
    }

    /// Starts the store again if it is down.
    pub(crate) fn restart(&self) {
        let now = self.executor.now();
        let mut state = self.state();
        state.failing = false;
        if !std::mem::replace(&mut state.down, false) {
            return;
        }
        let power = &mut state.power;
        power.owed |= std::mem::take(&mut power.lost) && power.marked;
        // The journal is synced as a whole.
        power.marked = false;
        power.unsynced.clear();
        power.silent_until = if power.owed { now + silence() } else { Duration::ZERO };
    }

    /// The store answers nothing from now on. If its silence is not over, it is silent again after
    /// the next start.
    pub(crate) fn go_down(&self) {
        let now = self.executor.now();
        let mut state = self.state();
        if !std::mem::replace(&mut state.down, true) {
            state.power.owed &= now < state.power.silent_until;
        }
    }

    /// Whether the store answers nothing.
    pub(crate) fn is_down(&self) -> bool {
        let now = self.executor.now();
        let state = self.state();
        state.down || now < state.power.silent_until
    }
}
