//! Predicts the steps of a reader: applies the rules of [`get`](crate::txn::get) and of
//! `resolve` to records that were read before.

use bigtable::Timestamp;

use super::{CellState, FirstStep, ReadOutcome, ReaderView};
use crate::resolve::inspect::WriteView;
use crate::resolve::view::{LockFate, LockView};

/// The steps of a reader of the cell at `s`.
pub(super) fn reader(state: &CellState, s: Timestamp) -> ReaderView {
    let view = |outcome, because| ReaderView { at: s, first: None, outcome, because };
    if s > state.latest {
        let because = format!("{s} was not issued yet: the latest timestamp is {}.", state.latest);
        return view(ReadOutcome::NotIssued, because);
    }
    if s < state.floor {
        let because = format!("{s} lies below the safe point {}.", state.floor);
        return view(ReadOutcome::TooOld, because);
    }
    let mut locks = state.moments.iter().filter_map(|moment| moment.lock.as_ref());
    let Some(lock) = locks.find(|lock| lock.start_ts <= s) else {
        let (outcome, because) = read(state, s, None);
        return view(outcome, because);
    };
    let l = lock.start_ts;
    let fate = state.fates.get(&l).copied().unwrap_or(LockFate::OwnerAlive);
    let (first, step, forward) = match fate {
        LockFate::OwnerAlive => {
            let because = format!(
                "Transaction {l} holds the lock and may still commit. The reader waits {} s at most.",
                state.patience.as_secs_f64()
            );
            return view(ReadOutcome::Waits { lock_ts: l }, because);
        }
        LockFate::RollForward(commit_ts) => {
            let step = format!("The reader rolls transaction {l} forward to {commit_ts}.");
            (FirstStep::RollForward, step, Some((commit_ts, lock)))
        }
        LockFate::RollBack => {
            let step =
                format!("The reader removes the lock of transaction {l}, which was rolled back.");
            (FirstStep::RollBack, step, None)
        }
        LockFate::OwnerDead => {
            let step = format!("The reader rolls transaction {l} back, because its owner is dead.");
            (FirstStep::Decide, step, None)
        }
    };
    let (outcome, because) = read(state, s, forward);
    ReaderView { at: s, first: Some(first), outcome, because: format!("{step} {because}") }
}

/// Reads at `s`. If a lock was rolled forward, its write counts as well.
fn read(
    state: &CellState,
    s: Timestamp,
    forward: Option<(Timestamp, &LockView)>,
) -> (ReadOutcome, String) {
    let written = state.moments.iter().filter_map(|moment| {
        let write = moment.write.as_ref()?;
        Some((moment.timestamp, write.clone()))
    });
    let forward = forward.map(|(commit_ts, lock)| {
        (commit_ts, WriteView { start_ts: lock.start_ts, delete: lock.delete })
    });
    let visible = written.chain(forward).filter(|(commit_ts, _)| *commit_ts <= s);
    let Some((commit_ts, write)) = visible.max_by_key(|(commit_ts, _)| *commit_ts) else {
        return (ReadOutcome::Absent, format!("Nothing was committed at {s} or below."));
    };
    let newest = format!("The newest commit at {s} or below is the one at {commit_ts}.");
    if write.delete {
        return (ReadOutcome::Absent, format!("{newest} It deletes the cell."));
    }
    let start_ts = write.start_ts;
    let data = state.moments.iter().find(|moment| moment.timestamp == start_ts);
    match data.and_then(|moment| moment.data.clone()) {
        Some(value) => (ReadOutcome::Value { value, start_ts, commit_ts }, newest),
        None => {
            let because = format!("{newest} Its value at {start_ts} is missing.");
            (ReadOutcome::Damaged, because)
        }
    }
}
