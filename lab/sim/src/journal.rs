//! Derives write records, tombs, notifications and broken rules from each conditional mutation
//! that the simulated store applied. The journal keeps no mutation itself. It has every write
//! record that ever existed. It has every tomb but those that late resolvers leave where
//! collection has dropped the cell's record. It also counts events of the protocol, such as
//! roll-forwards, which it recognises by their mutations.
//!
//! The journal leaves out unconditional mutations, and Percolator's own tables but for observers in
//! the schema and notifications.
//!
//! The journal only grows, so garbage collection hides nothing from the checkers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bigtable::{ConditionalMutation, Mutation, Probe, Timestamp};

use crate::executor::ProcessId;
use crate::history::{Cell, Record};
use crate::names::{ACK, LOCK, NOTIFY, ROLLBACK, WRITE, cell, notified_cell, observers, sets};
use crate::process::Given;
use crate::tally::{Sometimes, Tally};

/// Whether a transaction looks for writes from before its start: only the acknowledgement of a
/// hinted run does.
pub(crate) fn is_hinted(predicate: &[Probe], start_ts: Timestamp) -> bool {
    predicate.iter().any(|probe| probe.family == WRITE && probe.time.from < start_ts)
}

/// The journal of one run.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) records: Vec<Record>,
    pub(crate) tombs: BTreeSet<(Cell, Timestamp)>,
    /// The commit timestamp of each committed transaction.
    pub(crate) committed: BTreeMap<Timestamp, Timestamp>,
    /// Notifications, in rows or in tables of their own.
    notified: BTreeSet<(Cell, Timestamp)>,
    /// Records whose cell had no notification at their commit timestamp when they were written.
    pub(crate) unnotified: Vec<Record>,
    /// Records that garbage collection dropped: cell and start timestamp.
    pub(crate) collected: BTreeSet<(Cell, Timestamp)>,
    /// Locks in a cell that holds, or held, the record or tomb of the same transaction.
    pub(crate) locked_again: Vec<(Cell, Timestamp)>,
    /// Records that appeared again after they had been dropped.
    pub(crate) revived: Vec<(Cell, Timestamp)>,
    /// Tombs that garbage collection dropped.
    dropped_tombs: BTreeSet<(Cell, Timestamp)>,
    /// True if the store has no floor. Copies of prewrites may then arrive at any later time.
    keeps_prewrites: bool,
    prewrites: Vec<(bytes::Bytes, ConditionalMutation)>,
    /// How many records existed when the schema first named each observer.
    pub(crate) registered: BTreeMap<u8, usize>,
    /// The records by cell and start timestamp.
    written: BTreeSet<(Cell, Timestamp)>,
    transactions: BTreeMap<Timestamp, Facts>,
    /// The newest acknowledgement of each cell.
    acknowledged: BTreeMap<Cell, Timestamp>,
}

/// The journal's knowledge of a transaction.
#[derive(Debug)]
struct Facts {
    owner: ProcessId,
    primary_locked: Option<Duration>,
    lifetime: Duration,
    heartbeats: u64,
}

/// A conditional mutation that was applied, with its circumstances.
pub(crate) struct Applied<'a> {
    pub(crate) table: &'a [u8],
    pub(crate) request: &'a ConditionalMutation,
    pub(crate) matched: bool,
    pub(crate) from: ProcessId,
    pub(crate) now: Duration,
}

/// A look-up that the store must do to complete an entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LookUp {
    Nothing,
    /// Look up these columns: their notifications were cleared up to these versions.
    Cleared(Vec<(bytes::Bytes, Timestamp)>),
}

impl Journal {
    /// Creates the journal of a store with a floor, or of one without if `without_floors` is true.
    pub(crate) fn new(without_floors: bool) -> Self {
        Journal { keeps_prewrites: without_floors, ..Journal::default() }
    }

    /// Enters a conditional mutation.
    pub(crate) fn enter(
        &mut self,
        applied: &Applied<'_>,
        tally: &Tally,
        is_dead: impl Fn(ProcessId) -> bool,
    ) -> LookUp {
        let Applied { request, matched, .. } = applied;
        let prewrites = sets(&request.otherwise, &LOCK);
        if prewrites && *matched {
            self.rejected(applied, tally);
        }
        if prewrites && self.keeps_prewrites {
            let table = bytes::Bytes::copy_from_slice(applied.table);
            self.prewrites.push((table, (*request).clone()));
        }
        let effect = if *matched { &request.then } else { &request.otherwise };
        let notified = effect.iter().filter_map(|mutation| match mutation {
            Mutation::Set { family, qualifier, timestamp, .. } if *family == NOTIFY => {
                Some((notified_cell(applied.table, &request.row, qualifier)?, *timestamp))
            }
            _ => None,
        });
        self.notified.extend(notified);
        for mutation in effect {
            let Mutation::Set { family, qualifier, timestamp, value } = mutation else { continue };
            let Some(cell) = cell(applied.table, &request.row, qualifier) else { continue };
            if *family == LOCK {
                self.locked(applied, cell, *timestamp, value);
            } else if *family == WRITE {
                self.written(applied, cell, *timestamp, value, tally);
            } else if *family == ROLLBACK {
                let owner = self.transactions.get(timestamp).map(|facts| facts.owner);
                let other = owner.filter(|owner| *owner != applied.from);
                // The tomb replaced a lock, so the primary was still there to be rolled back.
                if *matched && other.is_some_and(|owner| !is_dead(owner)) {
                    tally.happened(Sometimes::LeaseCleanedLiveOwner);
                }
                // A late resolver may leave a tomb where collection has dropped the record of
                // this very cell. The tomb contradicts nothing: every lock of the transaction
                // is gone, and a lock that is placed again is recorded.
                let late = !*matched && self.collected.contains(&(cell, *timestamp));
                if !late {
                    self.tombs.insert((cell, *timestamp));
                }
            }
        }
        self.collect(applied, effect);
        if effect.iter().any(|m| matches!(m, Mutation::Set { .. })) {
            LookUp::Nothing
        } else {
            cleared(effect)
        }
    }

    /// Returns one of the prewrites for a cell whose record collection has dropped, if there
    /// is any.
    pub(crate) fn ghost(
        &self,
        pick: impl FnOnce(usize) -> usize,
    ) -> Option<(bytes::Bytes, ConditionalMutation)> {
        let collected = |(table, request): &&(bytes::Bytes, ConditionalMutation)| {
            request.otherwise.iter().any(|mutation| match mutation {
                Mutation::Set { family, qualifier, timestamp, .. } if *family == LOCK => {
                    let cell = cell(table, &request.row, qualifier);
                    cell.is_some_and(|cell| self.collected.contains(&(cell, *timestamp)))
                }
                _ => false,
            })
        };
        let late: Vec<_> = self.prewrites.iter().filter(collected).collect();
        if late.is_empty() {
            return None;
        }
        late.get(pick(late.len())).map(|late| (*late).clone())
    }

    /// Records the write records and tombs that a mutation drops.
    fn collect(&mut self, applied: &Applied<'_>, effect: &[Mutation]) {
        for mutation in effect {
            let Mutation::Delete { family, qualifier, time } = mutation else { continue };
            let Some(cell) = cell(applied.table, &applied.request.row, qualifier) else { continue };
            if *family == WRITE {
                let dropped = |r: &&Record| r.cell == cell && time.contains(r.commit_ts);
                let dropped = self.records.iter().filter(dropped);
                self.collected.extend(dropped.map(|record| (cell, record.start_ts)));
            } else if *family == ROLLBACK {
                let dropped = self.tombs.iter().filter(|(of, s)| *of == cell && time.contains(*s));
                self.dropped_tombs.extend(dropped);
            }
        }
    }

    /// Enters a change of the observer schema.
    pub(crate) fn enter_schema(&mut self, request: &ConditionalMutation, matched: bool) {
        let effect = if matched { &request.then } else { &request.otherwise };
        for mutation in effect {
            let Mutation::Set { value, .. } = mutation else { continue };
            for observer in observers(value) {
                self.registered.entry(observer).or_insert(self.records.len());
            }
        }
    }

    /// Counts transactions whose start and commit timestamps came from different oracles.
    pub(crate) fn count_failovers(&self, stamps: &[Given], tally: &Tally) {
        let by: BTreeMap<_, _> = stamps.iter().map(|given| (given.timestamp, given.by)).collect();
        for (start_ts, commit_ts) in &self.committed {
            let (start, commit) = (by.get(start_ts), by.get(commit_ts));
            if start.is_some() && commit.is_some() && start != commit {
                tally.happened(Sometimes::OracleFailoverMidCommit);
            }
        }
    }

    fn rejected(&self, applied: &Applied<'_>, tally: &Tally) {
        let (mut tomb, mut ack, mut hinted) = (false, false, false);
        for mutation in &applied.request.otherwise {
            let Mutation::Set { family, qualifier, timestamp, .. } = mutation else { continue };
            if *family != LOCK {
                continue;
            }
            hinted |= is_hinted(&applied.request.predicate, *timestamp);
            if let Some(cell) = cell(applied.table, &applied.request.row, qualifier) {
                tomb |= self.tombs.contains(&(cell, *timestamp));
                ack |= cell.column >= ACK
                    && self.acknowledged.get(&cell).is_some_and(|newest| newest > timestamp)
                    && !self.committed.contains_key(timestamp);
            }
        }
        if tomb {
            tally.happened(Sometimes::TombBlockedPrewrite);
        }
        if ack {
            tally.happened(Sometimes::AckConflict);
        }
        if hinted {
            tally.happened(Sometimes::HintedRejected);
        }
    }

    fn locked(&mut self, applied: &Applied<'_>, cell: Cell, start_ts: Timestamp, lock: &[u8]) {
        let at = (cell, start_ts);
        let written = self.written.contains(&at);
        let gone =
            if written { self.collected.contains(&at) } else { self.dropped_tombs.contains(&at) };
        if (written || self.tombs.contains(&at)) && !(gone && self.keeps_prewrites) {
            self.locked_again.push(at);
        }
        let facts = self.transactions.entry(start_ts).or_insert_with(|| Facts {
            owner: applied.from,
            primary_locked: None,
            lifetime: lifetime(lock),
            heartbeats: 0,
        });
        if applied.matched {
            facts.heartbeats += 1;
        } else if lock.first() == Some(&b'P') {
            facts.primary_locked = Some(applied.now);
        }
    }

    fn written(
        &mut self,
        applied: &Applied<'_>,
        cell: Cell,
        commit_ts: Timestamp,
        write: &[u8],
        tally: &Tally,
    ) {
        let Some(record) = Record::decode(cell, commit_ts, write) else { return };
        let start_ts = record.start_ts;
        self.records.push(record);
        if !self.notified.contains(&(cell, commit_ts)) {
            self.unnotified.push(record);
        }
        if self.collected.contains(&(cell, start_ts)) {
            self.revived.push((cell, start_ts));
        }
        self.written.insert((cell, start_ts));
        let first = self.committed.insert(start_ts, commit_ts).is_none();
        if cell.column >= ACK {
            let newest = self.acknowledged.entry(cell).or_insert(commit_ts);
            *newest = commit_ts.max(*newest);
        }
        let Some(facts) = self.transactions.get(&start_ts) else { return };
        let age = facts.primary_locked.map(|since| applied.now.saturating_sub(since));
        if first && facts.heartbeats > 0 && age.is_some_and(|age| age > facts.lifetime) {
            tally.happened(Sometimes::HeartbeatSavedLock);
        }
        if facts.owner != applied.from {
            tally.happened(Sometimes::RollForwardByOther);
        }
    }
}

/// Reads the lifetime from a lock record: tag, version, flags, owner, wall time, lifetime.
fn lifetime(lock: &[u8]) -> Duration {
    let bytes = lock.get(27..31).and_then(|bytes| bytes.try_into().ok());
    Duration::from_millis(u64::from(bytes.map_or(0, u32::from_be_bytes)))
}

fn cleared(effect: &[Mutation]) -> LookUp {
    let mut columns: BTreeMap<bytes::Bytes, Timestamp> = BTreeMap::new();
    for mutation in effect {
        if let Mutation::Delete { family, qualifier, time } = mutation
            && *family == NOTIFY
        {
            let newest = columns.entry(qualifier.clone()).or_insert(time.to);
            *newest = time.to.max(*newest);
        } else {
            return LookUp::Nothing;
        }
    }
    if columns.is_empty() {
        LookUp::Nothing
    } else {
        LookUp::Cleared(columns.into_iter().collect())
    }
}
