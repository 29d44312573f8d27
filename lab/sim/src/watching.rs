//! Watches a simulated world: it compares each event with the store's contents at that moment.
//!
//! The protocol reports an event after the store has applied its change. So when a commit or a
//! roll-forward is reported, the store has the write record. A transaction that was reported to
//! be aborted has no write record at the end of the run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use bigtable::Timestamp;
use bigtable::sync::locked;
use percolator_core::{Error, Event, LockFate, RunEnd, Watch};

use crate::store::StoreServer;

/// Compares events with the store.
pub(crate) struct Watching {
    store: Arc<StoreServer>,
    seen: Mutex<Seen>,
}

/// The events of a world.
#[derive(Debug, Default)]
struct Seen {
    kinds: BTreeSet<&'static str>,
    /// The committed transactions, with their commit timestamps.
    committed: BTreeMap<Timestamp, Timestamp>,
    aborted: BTreeSet<Timestamp>,
    wrong: Vec<String>,
}

/// A watcher's view of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Events {
    /// The kinds of the events.
    pub kinds: BTreeSet<&'static str>,
    /// Events that contradict the store, with the contradiction.
    pub wrong: Vec<String>,
}

shown_by_name!(Watching);

impl Watching {
    pub(crate) fn new(store: &Arc<StoreServer>) -> Self {
        Watching { store: store.clone(), seen: Mutex::default() }
    }

    /// Returns the view at the end of the run.
    pub(crate) fn events(&self) -> Events {
        let seen = std::mem::take(&mut *locked(&self.seen));
        let journal = self.store.journal();
        let undone =
            seen.aborted.iter().filter(|start_ts| journal.committed.contains_key(start_ts));
        let undone = undone.map(|start_ts| format!("{start_ts} was aborted, and has a record"));
        Events { kinds: seen.kinds, wrong: seen.wrong.into_iter().chain(undone).collect() }
    }

    /// Returns the commit timestamp of a transaction, if the store has its record.
    fn commit_ts(&self, start_ts: Timestamp) -> Option<Timestamp> {
        self.store.journal().committed.get(&start_ts).copied()
    }
}

/// Returns the kind of an event.
fn kind(event: &Event<'_>) -> &'static str {
    match event {
        Event::Committed { written, .. } if written.notified().next().is_some() => "notified",
        Event::Committed { .. } => "committed",
        Event::Ended { why: Error::Unknown { .. }, .. } => "unknown",
        Event::Ended { .. } => "ended",
        Event::LockFound { fate: LockFate::RollForward(_), .. } => "found committed",
        Event::LockFound { fate: LockFate::RollBack, .. } => "found rolled back",
        Event::LockFound { fate: LockFate::OwnerDead, .. } => "found dead",
        Event::LockFound { fate: LockFate::OwnerAlive, .. } => "found alive",
        Event::Resolved { commit_ts: Some(_), .. } => "rolled forward",
        Event::Resolved { commit_ts: None, .. } => "rolled back",
        Event::Ran { end: RunEnd::Committed { .. }, .. } => "ran",
        Event::Ran { end: RunEnd::Conflicted, .. } => "conflicted",
        Event::Ran { end: RunEnd::Failed { .. }, .. } => "failed",
        Event::Ran { end: RunEnd::Interrupted { .. }, .. } => "interrupted",
        Event::SetAside { .. } => "set aside",
        Event::Collected { .. } => "collected",
        Event::Sampled { .. } => "sampled",
        _ => "of a kind that this watcher does not know",
    }
}

impl Watch for Watching {
    fn on_event(&self, event: &Event<'_>) {
        let (claimed, stored) = match event {
            Event::Committed { tx, commit_ts, written, .. } => {
                // A transaction that only sends notifications leaves no record. A run that
                // writes only its acknowledgement has no cell in `written`.
                let wrote = written.cells().next().is_some();
                let stored = self.commit_ts(tx.start_ts);
                (Some(*commit_ts), if wrote { stored } else { stored.or(Some(*commit_ts)) })
            }
            Event::LockFound { lock_ts, fate: LockFate::RollForward(commit_ts), .. } => {
                (Some(*commit_ts), self.commit_ts(*lock_ts))
            }
            Event::Resolved { start_ts, commit_ts: commit_ts @ Some(_), .. } => {
                (*commit_ts, self.commit_ts(*start_ts))
            }
            _ => (None, None),
        };
        let mut seen = locked(&self.seen);
        seen.kinds.insert(kind(event));
        if claimed != stored {
            seen.wrong.push(format!("{event:?}: the store says {stored:?}"));
        }
        match event {
            Event::Committed { tx, commit_ts, .. } => {
                let before = seen.committed.insert(tx.start_ts, *commit_ts);
                seen.wrong.extend(before.map(|_| format!("{event:?} comes a second time")));
            }
            Event::Ended { tx, why: Error::Aborted { .. }, .. } => {
                seen.aborted.insert(tx.start_ts);
            }
            // A run that wrote nothing has no commit of its own.
            Event::Ran { end: RunEnd::Committed { start_ts, commit_ts }, .. }
                if start_ts != commit_ts && seen.committed.get(start_ts) != Some(commit_ts) =>
            {
                seen.wrong.push(format!("{event:?} comes before its commit"));
            }
            _ => {}
        }
    }
}
