//! Simulates power cuts of the store's machine (H71).
//!
//! The store applies and answers a change under [`Syncing::MayBeLost`] like any other. It
//! syncs the change only with the next change that is synced. A power cut undoes some or all
//! of the unsynced changes, the last ones first, and no other change. A store that has left
//! changes unsynced is silent after a power cut: it answers no request. A lost change may have
//! renewed a lease. The silence lasts until every such lease has expired.

use std::sync::Arc;
use std::time::Duration;

use crate::mutated::silence;
use bigtable::{Mutation, RowKey, RowMutation, Selection, Syncing, Table, TimeRange};
use futures::FutureExt;

use crate::failures::READY;
use crate::store::StoreServer;
use crate::tally::Sometimes;

/// The state of the store's disk, as far as a power cut needs it.
#[derive(Default)]
pub(crate) struct Power {
    /// The requests that undo the unsynced changes, the oldest change first.
    unsynced: Vec<Undo>,
    /// Whether a change was left unsynced since the start of the store; a mark on the disk
    /// records it.
    marked: bool,
    /// Whether the machine lost power since the start of the store.
    lost: bool,
    /// Whether a silence has begun and is not over; a file on the disk records it.
    owed: bool,
    /// The store answers no request before this moment.
    silent_until: Duration,
}

/// A request that restores a row as it was before a change.
pub(crate) struct Undo {
    table: Arc<dyn Table>,
    request: RowMutation,
}

impl Undo {
    /// Builds the request from what the row holds before the mutations.
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
    /// Before a change, returns the request that undoes it, if a power cut may do so.
    pub(crate) fn undo<'a>(
        &self,
        table: &Arc<dyn Table>,
        row: &RowKey,
        sync: Syncing,
        mutations: impl Iterator<Item = &'a Mutation>,
    ) -> Option<Undo> {
        (sync == Syncing::MayBeLost).then(|| Undo::of(table.clone(), row, mutations))
    }

    /// Records a change that was made. A synced change also syncs all changes before it.
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

    /// Cuts the power of the store's machine. The store loses what a kill loses, and also some
    /// or all of the unsynced changes, the last ones first.
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
        // The start syncs the whole journal.
        power.marked = false;
        power.unsynced.clear();
        power.silent_until = if power.owed { now + silence() } else { Duration::ZERO };
    }

    /// Takes the store down. If its silence is not over, the store is silent again after the
    /// next start.
    pub(crate) fn go_down(&self) {
        let now = self.executor.now();
        let mut state = self.state();
        if !std::mem::replace(&mut state.down, true) {
            state.power.owed &= now < state.power.silent_until;
        }
    }

    /// Returns whether the store answers no request.
    pub(crate) fn is_down(&self) -> bool {
        let now = self.executor.now();
        let state = self.state();
        state.down || now < state.power.silent_until
    }
}
