//! Changes a client's requests as a mutant demands. The protocol's row operations (`txn/rows.rs`
//! of `percolator-core`) differ in what they write, which is how this module recognises them.

use std::sync::Arc;

use bigtable::mutants::off;
use bigtable::{
    AtCommit, ColumnSelect, CommitRows, ConditionalMutation, Family, Mutation, Page, Probe,
    Selection, TimeRange, Timestamp,
};

use super::list::*;
use crate::names::{DATA, LOCK, NOTIFY, ROLLBACK, WRITE, is_set, sets};

/// The number of probes of a prewrite for one cell: lock, tomb, write.
const PROBES: usize = 3;

/// Returns the start timestamp of the transaction, if the request is a prewrite.
pub(super) fn prewrite_of(request: &ConditionalMutation) -> Option<Timestamp> {
    request.otherwise.iter().find_map(|mutation| match mutation {
        Mutation::Set { family, timestamp, .. } if *family == LOCK => Some(*timestamp),
        _ => None,
    })
}

/// Returns the start timestamp of the transaction, if its owner gives up with this request.
pub(super) fn abort_of(request: &ConditionalMutation) -> Option<Timestamp> {
    request.otherwise.iter().find_map(|mutation| match mutation {
        Mutation::Delete { family, time, .. } if *family == LOCK => Some(time.from),
        _ => None,
    })
}

/// Changes a row operation of the protocol.
pub(super) fn conditional(mut request: ConditionalMutation) -> ConditionalMutation {
    let ConditionalMutation { predicate, above, then, otherwise, .. } = &mut request;
    if sets(otherwise, &LOCK) {
        if off(PREWRITE_BELOW_FLOOR) {
            *above = None;
        }
        strip(predicate);
    }
    let (commits, rolls_back) = (sets(then, &WRITE), sets(then, &ROLLBACK));
    if commits && off(COMMIT_FORGETS_NOTIFY) {
        then.retain(|mutation| !is_set(mutation, &NOTIFY));
    }
    if rolls_back && off(NO_TOMB_ON_ROLLBACK) {
        then.retain(|mutation| !is_set(mutation, &ROLLBACK));
    }
    if (commits && off(BLIND_COMMIT))
        || (rolls_back && off(BLIND_ROLLBACK))
        || (sets(then, &LOCK) && off(BLIND_HEARTBEAT))
    {
        otherwise.clone_from(then);
    }
    // The owner's abort also writes a tomb, but deletes its lock in the same request.
    if otherwise.len() == 1 && sets(otherwise, &ROLLBACK) && off(NO_TOMB_ON_MISSING_PRIMARY) {
        otherwise.clear();
    }
    request
}

/// Changes the predicate of a prewrite.
fn strip(predicate: &mut Vec<Probe>) {
    predicate.retain(|probe| {
        !(probe.family == LOCK && off(PREWRITE_IGNORES_LOCKS)
            || probe.family == ROLLBACK && off(PREWRITE_IGNORES_TOMBS)
            || probe.family == WRITE && off(PREWRITE_IGNORES_WRITES))
    });
    if off(FIRST_CELL_STANDS_FOR_ALL) {
        predicate.truncate(PROBES);
    }
}

/// Changes a one-step commit.
pub(super) fn one_step(mut request: CommitRows) -> CommitRows {
    request.rows.iter_mut().for_each(|row| strip(&mut row.predicate));
    if off(COMMIT_FORGETS_NOTIFY) {
        request.at = Arc::new(Forgetful(request.at));
    }
    request
}

/// Drops the notifications of a commit. Weak notifications are kept: they come without write
/// records.
#[derive(Debug)]
struct Forgetful(Arc<dyn AtCommit>);

impl AtCommit for Forgetful {
    fn timestamp(&self) -> Option<Timestamp> {
        self.0.timestamp()
    }

    fn mutations(&self, row: usize, commit_ts: Timestamp) -> Vec<Mutation> {
        let mut mutations = self.0.mutations(row, commit_ts);
        if sets(&mutations, &WRITE) {
            mutations.retain(|mutation| !is_set(mutation, &NOTIFY));
        }
        mutations
    }
}

/// Returns whether a selection reads the committed data of a snapshot.
fn reads(select: &Selection) -> bool {
    select.above.is_some() && selects(select, &WRITE)
}

fn selects(select: &Selection, family: &Family) -> bool {
    select.columns.iter().any(|column| column.family == *family)
}

/// Returns whether `glance` must answer nothing, because it would read correctly.
pub(super) fn reads_wrongly() -> bool {
    off(READS_EXCLUDE_S) || off(READ_BELOW_FLOOR) || off(READS_IGNORE_LOCKS)
}

/// Changes a selection.
pub(super) fn selection(select: &Selection) -> Selection {
    let mut select = select.clone();
    if let Some(s) = select.above.filter(|_| reads(&select)) {
        if off(READS_IGNORE_LOCKS) {
            select.columns.retain(|column| column.family != LOCK);
        }
        let upto = select.columns.iter_mut().filter(|column| column.time == TimeRange::up_to(s));
        if off(READS_EXCLUDE_S) {
            upto.for_each(|column| column.time = TimeRange::below(s));
        }
    }
    if off(READ_BELOW_FLOOR) && (selects(&select, &WRITE) || selects(&select, &DATA)) {
        select.above = None;
    }
    // A client that looks for a transaction's outcome reads tombs, and all records since the
    // start.
    if off(NEWEST_RECORD_ONLY) && selects(&select, &ROLLBACK) {
        let records = |column: &&mut ColumnSelect| column.family == WRITE;
        select.columns.iter_mut().filter(records).for_each(|column| column.versions_max = 1);
    }
    select
}

/// Changes the rows that a scan found.
pub(super) fn page(select: &Selection, mut page: Page) -> Page {
    if !reads(select) {
        return page;
    }
    if off(SCAN_WITHOUT_LOCK_ROWS) {
        page.rows.retain(|row| row.cells.iter().any(|cell| cell.family != LOCK));
    }
    if off(SCAN_RESUMES_PAST_LOCKS) {
        page.rows.retain(|row| row.cells.iter().all(|cell| cell.family != LOCK));
    }
    page
}
