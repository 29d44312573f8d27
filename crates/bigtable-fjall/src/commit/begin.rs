//! Starts each request: a short one is committed on its caller's thread if no other thread
//! commits and no request waits. All others wait in the queue for the committer thread.
//!
//! Callers poll futures, so no work on their threads may block. A caller's thread never syncs
//! and never seals a buffer. It writes no batch while the engine may delay the batch
//! (`calm.rs`).
//!
//! A caller that hands a write over pays two changes of thread for it, so short writes stay with
//! their caller (ADR-13).

use std::collections::HashSet;
use std::sync::{Arc, MutexGuard, TryLockError};

use bigtable::{CommitRows, Error, Result, RowsOutcome};
use smallvec::SmallVec;

use crate::commit::edit::Request;
use crate::commit::group_commit::{By, Job, commit_group};
use crate::commit::queue::{GROUP_BYTES_MAX, Outcome, Reply, RowsWork, Work};
use crate::commit::write::SHORT_BYTES_MAX;
use crate::engine::{Engine, Lead};
use crate::failure::fault;
use crate::layout::key::Key;
use crate::layout::table_info::TableInfo;
use crate::read::seen::is_removal;
use crate::upkeep::full::is_look_due;

/// A request that has been given to the committer.
pub(crate) enum Begun {
    Done(Result<Outcome>),
    Waits(Reply),
}

impl Begun {
    fn queued(pushed: Result<Reply>) -> Self {
        match pushed {
            Ok(reply) => Begun::Waits(reply),
            Err(error) => Begun::Done(Err(error)),
        }
    }

    /// Waits for the outcome, without holding anything of the engine.
    pub(crate) async fn outcome(self) -> Result<Outcome> {
        match self {
            Begun::Done(outcome) => outcome,
            Begun::Waits(reply) => reply.outcome().await,
        }
    }
}

/// The result of trying to commit a request immediately.
pub(crate) enum Tried {
    Done(Result<Outcome>),
    /// The request was not tried; the variant returns it.
    NotNow(CommitRows),
}

/// Commits one request, or queues it for the committer thread.
pub(crate) fn begin(engine: &Engine, table: &Arc<TableInfo>, request: Request) -> Begun {
    match try_lead(engine, engine.syncs(request.sync()), request.bytes()) {
        Err(error) => Begun::Done(Err(error)),
        Ok(Some(lead)) => Begun::Done(commit_one(engine, &lead, Job::Row(table, &request))),
        Ok(None) => Begun::queued(engine.queue.push(Work::Row(table.clone(), request))),
    }
}

/// Like [`begin`], for a change of several rows.
pub(crate) fn begin_rows(engine: &Engine, request: CommitRows) -> Result<Begun> {
    let work = rows_work(engine, request)?;
    Ok(match try_lead(engine, engine.sync(), work.request.bytes)? {
        Some(lead) => Begun::Done(commit_one(engine, &lead, Job::Rows(&work))),
        None => Begun::queued(engine.queue.push(Work::Rows(work))),
    })
}

/// Like [`begin_rows`], but returns the request instead of queueing it.
pub(crate) fn try_rows(engine: &Engine, request: CommitRows) -> Result<Tried> {
    if !is_short(engine, engine.sync(), request.bytes) {
        return Ok(Tried::NotNow(request));
    }
    let work = rows_work(engine, request)?;
    Ok(match try_lead(engine, engine.sync(), work.request.bytes)? {
        Some(lead) => Tried::Done(commit_one(engine, &lead, Job::Rows(&work))),
        None => Tried::NotNow(work.request),
    })
}

/// Checks the request, finds its tables, and encodes its rows.
fn rows_work(engine: &Engine, request: CommitRows) -> Result<RowsWork> {
    let mut places: SmallVec<[(Arc<TableInfo>, Key); 1]> =
        SmallVec::with_capacity(request.rows.len());
    for row in &request.rows {
        let table = match places.last() {
            Some((last, _)) if last.name == *row.table => last.clone(),
            _ => engine.table_named(&row.table)?,
        };
        let key = Key::row(table.id, row.row.as_bytes());
        places.push((table, key));
    }
    request.check(|row| &places[row].0.schema)?;
    Ok(RowsWork { places, request })
}

/// Gives removals what the last scan of old versions has read.
pub(crate) fn add_seen(engine: &Engine, table: &TableInfo, requests: &mut [Request]) {
    let mut taken = None;
    for request in requests {
        if let Request::Conditional(request, seen) = request
            && is_removal(request)
        {
            let take = || engine.take_seen(table.id).map(Arc::new);
            seen.clone_from(taken.get_or_insert_with(take));
        }
    }
}

/// Commits the requests immediately, or queues them for the committer thread. There are at
/// most [`GROUP_OPS_MAX`](crate::commit::queue::GROUP_OPS_MAX) of them.
pub(crate) fn begin_all(
    engine: &Engine,
    table: &Arc<TableInfo>,
    requests: Vec<Request>,
) -> Vec<Begun> {
    let sync = requests.iter().any(|request| engine.syncs(request.sync()));
    let bytes = requests.iter().map(Request::bytes).sum();
    match try_lead(engine, sync, bytes) {
        Err(error) => requests.iter().map(|_| Begun::Done(Err(error.clone()))).collect(),
        Ok(Some(lead)) => {
            let outcomes = commit_chunk(engine, &lead, table, &requests);
            outcomes.into_iter().map(Begun::Done).collect()
        }
        Ok(None) => {
            let works = requests.into_iter().map(|request| Work::Row(table.clone(), request));
            engine.queue.push_all(works).into_iter().map(Begun::queued).collect()
        }
    }
}

/// Whether a request of `bytes` bytes may be committed on a thread that polls futures.
fn is_short(engine: &Engine, sync: bool, bytes: usize) -> bool {
    !sync && bytes <= SHORT_BYTES_MAX && engine.calm.is_calm()
}

/// Takes the commit lock for a short request, if it is free and no request waits.
fn try_lead(engine: &Engine, sync: bool, bytes: usize) -> Result<Option<MutexGuard<'_, Lead>>> {
    engine.check_usable()?;
    if !is_short(engine, sync, bytes) || !engine.queue.is_empty() {
        return Ok(None);
    }
    match engine.lead.try_lock() {
        Ok(lead) => {
            // The previous holder may have sealed a buffer since the check above.
            let calm = engine.calm.is_calm() && !lead.left.get() && !is_look_due(engine, &lead);
            Ok(calm.then_some(lead))
        }
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Poisoned(_)) => Err(engine.broken()),
    }
}

fn commit_one(engine: &Engine, lead: &Lead, job: Job<'_>) -> Result<Outcome> {
    commit_group(engine, lead, By::Caller, 1, std::iter::once(job))
        .pop()
        .unwrap_or_else(|| Err(fault::too_late()))
}

/// Commits requests on their caller's thread, one group after the other. Several of them may
/// name the same row; a group has each row once.
fn commit_chunk(
    engine: &Engine,
    lead: &Lead,
    table: &TableInfo,
    requests: &[Request],
) -> Vec<Result<Outcome>> {
    let mut outcomes = Vec::with_capacity(requests.len());
    let mut left = requests;
    while !left.is_empty() {
        let mut rows = HashSet::new();
        let mut bytes_before = 0;
        let group = left.iter().take_while(|request| {
            let fits = bytes_before < GROUP_BYTES_MAX && rows.len() < engine.queue.group_rows_max();
            bytes_before += request.bytes();
            fits && rows.insert(request.row())
        });
        let (group, rest) = left.split_at(group.count());
        let each = group.iter().map(|request| Job::Row(table, request));
        let done = commit_group(engine, lead, By::Caller, group.len(), each);
        outcomes.extend(done);
        left = rest;
    }
    outcomes
}

pub(crate) fn matched(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Matched(true))
}

pub(crate) fn of_rows(outcome: Outcome) -> Result<RowsOutcome> {
    match outcome {
        Outcome::Committed(commit_ts) => Ok(RowsOutcome::Committed(commit_ts)),
        Outcome::Rejected(row) => Ok(RowsOutcome::Rejected { row }),
        Outcome::NoTimestamp => Ok(RowsOutcome::NoTimestamp),
        Outcome::Matched(_) => Err(Error::Unknown { why: "the outcome is of one row".to_owned() }),
    }
}
