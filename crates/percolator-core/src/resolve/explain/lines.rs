//! Writes the meaning of each record of a cell in words.

use std::time::Duration;

use bigtable::Timestamp;

use super::{CellState, Explanation, Meaning};
use crate::records::schema::{Observed, Strength};
use crate::resolve::inspect::{Moment, WriteView};
use crate::resolve::view::{LockFate, LockView};

/// The meaning of the records, newest first.
pub(super) fn lines(state: &CellState) -> Vec<Explanation> {
    let mut lines = Vec::new();
    for moment in &state.moments {
        let timestamp = moment.timestamp;
        let mut say = |(kind, text)| lines.push(Explanation { timestamp, kind, text });
        if let Some(write) = &moment.write {
            say(committed(state, timestamp, write));
        }
        if let Some(newer) = collectable(state, moment) {
            let text = format!(
                "Garbage collection may drop this version: it lies below {newer}, which is not \
                 above the safe point {}.",
                state.floor
            );
            say((Meaning::Collectable, text));
        }
        if let Some(lock) = &moment.lock {
            say(locked(state, lock));
        }
        if moment.data.is_some() {
            say(data(state, moment));
        }
        if moment.rolled_back {
            let text = format!(
                "Transaction {timestamp} was rolled back, and this cell is its primary. The store \
                 refuses a late prewrite of it."
            );
            say((Meaning::Tomb, text));
        }
        if moment.notify {
            say(notified(state, timestamp));
        }
        for (observer, upto) in &moment.acks {
            let text = if *upto == timestamp {
                format!("The transaction that committed at {upto} skips observer {observer}.")
            } else {
                format!(
                    "Observer {observer} ran as transaction {upto}, and has acknowledged the \
                     changes up to it."
                )
            };
            say((Meaning::Acknowledged, text));
        }
    }
    lines
}

fn committed(state: &CellState, commit_ts: Timestamp, write: &WriteView) -> (Meaning, String) {
    let (kind, what) = if write.delete {
        (Meaning::Deleted, "do not find the cell")
    } else {
        (Meaning::Committed, "see its value")
    };
    let above = |moment: &&Moment| moment.write.is_some() && moment.timestamp > commit_ts;
    let until = match state.moments.iter().rfind(above) {
        Some(newer) => format!("from {commit_ts} on, but below {},", newer.timestamp),
        None => format!("from {commit_ts} on"),
    };
    let s = write.start_ts;
    (kind, format!("Transaction {s} committed at {commit_ts}. Readers {until} {what}."))
}

/// The newer commit because of which garbage collection may drop a write record.
fn collectable(state: &CellState, moment: &Moment) -> Option<Timestamp> {
    moment.write.as_ref()?;
    let newer = |other: &&Moment| {
        other.write.is_some()
            && other.timestamp > moment.timestamp
            && other.timestamp <= state.floor
    };
    state.moments.iter().rfind(newer).map(|other| other.timestamp)
}

fn locked(state: &CellState, lock: &LockView) -> (Meaning, String) {
    let l = lock.start_ts;
    let primary = match &lock.primary {
        None => "its primary is this cell".to_owned(),
        Some(primary) => format!("its primary is {primary}"),
    };
    let primary = if lock.delete { format!("{primary}; it deletes the cell") } else { primary };
    match state.fates.get(&l).copied().unwrap_or(LockFate::OwnerAlive) {
        LockFate::RollForward(commit_ts) => {
            let text = format!(
                "Transaction {l} is committed at {commit_ts}, and {primary}. The next client that \
                 finds this lock rolls it forward."
            );
            (Meaning::RollForward, text)
        }
        LockFate::RollBack => {
            let text = format!(
                "Transaction {l} was rolled back, and {primary}. The next client that finds this \
                 lock removes it."
            );
            (Meaning::RollBack, text)
        }
        LockFate::OwnerDead => {
            let text = format!(
                "Transaction {l} is undecided, and its owner {} is dead; {primary}. The next \
                 client that finds this lock rolls the transaction back.",
                lock.owner
            );
            (Meaning::OwnerDead, text)
        }
        LockFate::OwnerAlive => {
            let age = Duration::from_millis(state.wall_ms.saturating_sub(lock.wall_ms));
            let text = format!(
                "Transaction {l} is undecided, and its owner {} lives; {primary}. The owner wrote \
                 the lock {:.1} s ago.",
                lock.owner,
                age.as_secs_f64()
            );
            (Meaning::OwnerAlive, text)
        }
    }
}

fn data(state: &CellState, moment: &Moment) -> (Meaning, String) {
    let s = moment.timestamp;
    let points = |other: &&Moment| other.write.as_ref().is_some_and(|write| write.start_ts == s);
    if let Some(commit) = state.moments.iter().find(points) {
        let text = format!("The value of transaction {s}, visible since {}.", commit.timestamp);
        return (Meaning::Value, text);
    }
    let by_lock = state.fates.get(&s).filter(|_| moment.lock.is_some());
    match by_lock {
        Some(LockFate::RollForward(commit_ts)) => {
            let text = format!("The value of transaction {s}, visible since {commit_ts}.");
            return (Meaning::Value, text);
        }
        Some(LockFate::OwnerDead | LockFate::OwnerAlive) => {
            let text = format!("The value that transaction {s} writes if it commits.");
            return (Meaning::Value, text);
        }
        Some(LockFate::RollBack) | None => {}
    }
    let text = format!(
        "No record points at this value: transaction {s} was rolled back, or its record was \
         collected. No reader sees the value."
    );
    (Meaning::Leftover, text)
}

fn notified(state: &CellState, n: Timestamp) -> (Meaning, String) {
    let by_lock = state.fates.get(&n).is_some_and(|fate| *fate != LockFate::RollBack);
    if by_lock {
        let text = format!("Transaction {n} left this notification with its lock.");
        return (Meaning::WithLock, text);
    }
    if state.observers.is_empty() {
        let text = "No observer is registered for the column, so no worker handles this \
                    notification."
            .to_owned();
        return (Meaning::Stale, text);
    }
    let dirty: Vec<String> =
        state.observers.iter().filter_map(|observed| dirty_for(state, observed)).collect();
    if dirty.is_empty() {
        let text = "Every observer has acknowledged the newest change. The next scan clears this \
                    notification.";
        return (Meaning::Stale, text.to_owned());
    }
    let text = format!(
        "The cell is dirty for {}. Each runs at a timestamp above {n}.",
        dirty.join(", and for ")
    );
    (Meaning::Dirty, text)
}

/// Describes the observer and the changes it has seen, if it has changes to handle.
fn dirty_for(state: &CellState, observed: &Observed) -> Option<String> {
    let name = &observed.observer;
    let paused = if state.paused.contains(observed) { ", paused" } else { "" };
    if observed.strength == Strength::Weak {
        return Some(format!("{name} (weak{paused})"));
    }
    let newest = state.newest_commit()?;
    match state.acknowledged(name) {
        None => Some(format!("{name} (it never ran{paused})")),
        Some(upto) if newest > upto => {
            Some(format!("{name} (it has seen changes up to {upto}{paused})"))
        }
        Some(_) => None,
    }
}
