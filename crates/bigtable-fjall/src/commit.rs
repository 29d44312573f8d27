//! The committer: every change to the store passes here, in groups, durable before visible.
//!
//! ```text
//!   caller --- nobody commits, nobody waits ---> leads: commits its own request on its own thread
//!      '------ somebody does ---> queue ---> committer thread: drains the queue group by group
//! ```
//!
//! A group is evaluated against the published state and written as one batch, which the engine
//! syncs (if asked to) before it inserts and publishes it. A row is in a group at most once, so
//! every predicate sees all that came before it. Leading without a queue spares the single client
//! two changes of thread; under contention the group shares one sync.
//!
//! Invariants: nothing is written outside the commit lock ([`Engine::lead`]). A request is
//! acknowledged after its batch is published and the in-memory maps have followed. If a batch fails
//! its callers learn that the outcome is unknown, and the store answers nothing from then on: the
//! record may be in the journal or not.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

use bigtable::{Error, Result, RowKey};
use fjall::{OwnedWriteBatch, PersistMode};
use futures::channel::oneshot;

use crate::draft::{Batch, Draft};
use crate::edit::Request;
use crate::engine::{Engine, Lead, TableInfo, View};
use crate::fault;
use crate::memory::MemoryChange;

/// Most requests in one group.
const GROUP_OPS_MAX: usize = 1024;
/// Keys and values in one group; the request that reaches it is the group's last.
const GROUP_BYTES_MAX: usize = 8 << 20;
/// Requests of the queue looked at for one group, those that must wait for the next included.
const GROUP_EXAMINED_MAX: usize = 4 * GROUP_OPS_MAX;
/// Most requests that wait; more are refused as `Unavailable`.
const QUEUE_OPS_MAX: usize = 16 * 1024;
/// Keys and values that wait; a request beyond is refused, unless it is alone.
const QUEUE_BYTES_MAX: usize = 128 << 20;

const NO_PANIC: &str = "nothing panics while it holds the lock of the queue";
const STOPPED: &str = "the committer has stopped";

/// Requests that wait for the committer thread.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<QueueState>,
    /// Rung when a request arrives, or the store closes.
    bell: Condvar,
    /// As `state.waiting.len()`, to be looked at without the lock.
    len: AtomicUsize,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    closed: bool,
}

#[derive(Debug)]
struct Waiting {
    table: Arc<TableInfo>,
    request: Request,
    bytes: usize,
    done: oneshot::Sender<Result<bool>>,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().expect(NO_PANIC)
    }

    fn push(&self, table: Arc<TableInfo>, request: Request) -> Result<Reply> {
        let bytes = request.bytes();
        let (done, reply) = oneshot::channel();
        let mut state = self.state();
        let full = state.waiting.len() >= QUEUE_OPS_MAX
            || (state.bytes + bytes > QUEUE_BYTES_MAX && !state.waiting.is_empty());
        if full || state.closed {
            let why = if full { "too many mutations wait to be committed" } else { STOPPED };
            return Err(Error::Unavailable { why: why.to_owned() });
        }
        state.bytes += bytes;
        state.waiting.push_back(Waiting { table, request, bytes, done });
        self.len.store(state.waiting.len(), Ordering::SeqCst);
        self.bell.notify_one();
        Ok(Reply(reply))
    }

    /// Waits for requests; `false` once the store is closing and none is left.
    fn wait(&self) -> bool {
        let mut state = self.state();
        while state.waiting.is_empty() && !state.closed {
            state = self.bell.wait(state).expect(NO_PANIC);
        }
        !state.waiting.is_empty()
    }

    /// Takes the next group: different rows, in the order of arrival.
    fn take_group(&self) -> Vec<Waiting> {
        let mut state = self.state();
        let mut rows: HashSet<(u32, RowKey)> = HashSet::new();
        let (mut group, mut later) = (Vec::new(), VecDeque::new());
        let mut bytes = 0;
        for _ in 0..GROUP_EXAMINED_MAX {
            if group.len() == GROUP_OPS_MAX || bytes >= GROUP_BYTES_MAX {
                break;
            }
            let Some(waiting) = state.waiting.pop_front() else { break };
            if rows.insert((waiting.table.id, waiting.request.row().clone())) {
                bytes += waiting.bytes;
                group.push(waiting);
            } else {
                later.push_back(waiting);
            }
        }
        later.append(&mut state.waiting);
        state.waiting = later;
        state.bytes -= bytes;
        self.len.store(state.waiting.len(), Ordering::SeqCst);
        group
    }

    /// Lets the committer thread end once nothing waits any more.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.bell.notify_all();
    }
}

/// The outcome of a request that waits in the queue.
struct Reply(oneshot::Receiver<Result<bool>>);

impl Reply {
    async fn outcome(self) -> Result<bool> {
        match self.0.await {
            Ok(outcome) => outcome,
            Err(oneshot::Canceled) => Err(Error::Unknown { why: STOPPED.to_owned() }),
        }
    }
}

/// A request that has been given to the committer.
enum Begun {
    Done(Result<bool>),
    Waits(Reply),
}

impl Engine {
    /// Commits one request; returns whether its predicate held.
    pub(crate) async fn commit(&self, table: &Arc<TableInfo>, request: Request) -> Result<bool> {
        let reply = match self.try_lead()? {
            Some(lead) => return self.commit_one(&lead, table, &request),
            None => self.queue.push(table.clone(), request)?,
        };
        reply.outcome().await
    }

    /// Commits several requests; returns whether each one's predicate held.
    pub(crate) async fn commit_all(
        &self,
        table: &Arc<TableInfo>,
        requests: Vec<Request>,
    ) -> Vec<Result<bool>> {
        let mut outcomes = Vec::with_capacity(requests.len());
        let mut requests = requests.into_iter().peekable();
        while requests.peek().is_some() {
            let chunk: Vec<_> = requests.by_ref().take(GROUP_OPS_MAX).collect();
            for begun in self.begin_all(table, chunk) {
                outcomes.push(match begun {
                    Begun::Done(outcome) => outcome,
                    Begun::Waits(reply) => reply.outcome().await,
                });
            }
        }
        outcomes
    }

    /// Commits the requests at once, or has them wait for the committer thread.
    fn begin_all(&self, table: &Arc<TableInfo>, requests: Vec<Request>) -> Vec<Begun> {
        match self.try_lead() {
            Err(error) => requests.iter().map(|_| Begun::Done(Err(error.clone()))).collect(),
            Ok(Some(lead)) => {
                let outcomes = self.commit_chunk(&lead, table, &requests);
                outcomes.into_iter().map(Begun::Done).collect()
            }
            Ok(None) => {
                let push = |request| match self.queue.push(table.clone(), request) {
                    Ok(reply) => Begun::Waits(reply),
                    Err(error) => Begun::Done(Err(error)),
                };
                requests.into_iter().map(push).collect()
            }
        }
    }

    /// The commit lock, if nobody holds it and nobody waits.
    fn try_lead(&self) -> Result<Option<MutexGuard<'_, Lead>>> {
        self.check_usable()?;
        if self.queue.len.load(Ordering::SeqCst) > 0 {
            return Ok(None);
        }
        match self.lead.try_lock() {
            Ok(lead) => Ok(Some(lead)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Poisoned(_)) => Err(self.broken()),
        }
    }

    /// The commit lock, waited for.
    pub(crate) fn wait_to_lead(&self) -> Result<MutexGuard<'_, Lead>> {
        let lead = self.lead.lock().map_err(|_| self.broken())?;
        self.check_usable()?;
        Ok(lead)
    }

    /// A commit has panicked, so the maps may not match the keyspaces any more.
    fn broken(&self) -> Error {
        self.fail("a commit has panicked");
        self.check_usable().err().unwrap_or(Error::Unavailable { why: STOPPED.to_owned() })
    }

    fn commit_one(&self, lead: &Lead, table: &TableInfo, request: &Request) -> Result<bool> {
        self.commit_group(lead, 1, std::iter::once((table, request)))
            .pop()
            .unwrap_or(Err(Error::Unavailable { why: STOPPED.to_owned() }))
    }

    /// Commits requests that may name a row more than once.
    fn commit_chunk(
        &self,
        lead: &Lead,
        table: &TableInfo,
        requests: &[Request],
    ) -> Vec<Result<bool>> {
        let mut outcomes = Vec::with_capacity(requests.len());
        let mut left = requests;
        while !left.is_empty() {
            let mut rows = HashSet::new();
            let mut bytes_before = 0;
            let group = left.iter().take_while(|request| {
                let fits = bytes_before < GROUP_BYTES_MAX;
                bytes_before += request.bytes();
                fits && rows.insert(request.row())
            });
            let (group, rest) = left.split_at(group.count());
            let each = group.iter().map(|request| (table, request));
            outcomes.append(&mut self.commit_group(lead, group.len(), each));
            left = rest;
        }
        outcomes
    }

    /// Commits requests of different rows as one batch.
    fn commit_group<'a>(
        &self,
        lead: &Lead,
        len: usize,
        requests: impl Iterator<Item = (&'a TableInfo, &'a Request)>,
    ) -> Vec<Result<bool>> {
        let mut outcomes = Vec::with_capacity(len);
        let mut sync = self.sync();
        let (writes, changes, newest) = {
            let memory = self.memory();
            let view = View { memory: &memory, recent: &self.recent };
            let writes = OwnedWriteBatch::with_capacity(self.db.clone(), len);
            let mut batch = Batch::new(writes);
            for (table, request) in requests {
                let outcome = self.prepare(view, table, request, &mut batch);
                sync |= request.sync() && outcome.is_ok();
                outcomes.push(outcome);
            }
            (batch.writes, batch.memory, batch.newest)
        };
        let changed = !changes.is_empty();
        if let Err(error) = self.write(writes, changes, sync) {
            for outcome in &mut outcomes {
                // What was refused before the batch was written stays refused.
                if outcome.is_ok() {
                    *outcome = Err(error.clone());
                }
            }
        } else {
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            for (key, value) in newest {
                recent.set(key, value);
            }
            drop(recent);
            if changed {
                self.refill(lead);
            }
        }
        outcomes
    }

    /// Evaluates a request against the published state and adds its writes to the batch.
    fn prepare(
        &self,
        view: View<'_>,
        table: &TableInfo,
        request: &Request,
        batch: &mut Batch,
    ) -> Result<bool> {
        table.check_there()?;
        self.check_floor(request.above())?;
        let mut evaluate = || {
            let decision = request.decide(table, view)?;
            let mut draft = Draft::new(table, view);
            for mutation in &*decision.mutations {
                draft.apply(request.row(), mutation)?;
            }
            Ok((decision.holds, draft.finish(batch)?))
        };
        let (holds, accepted) = evaluate().map_err(|fault| self.read_error(&fault))?;
        accepted.map(|()| holds)
    }

    /// Writes one batch and shows it to readers. To be called under the commit lock.
    pub(crate) fn write(
        &self,
        writes: OwnedWriteBatch,
        changes: Vec<MemoryChange>,
        sync: bool,
    ) -> Result<()> {
        if writes.is_empty() {
            return Ok(());
        }
        let mode = if sync { PersistMode::SyncData } else { PersistMode::Buffer };
        if let Err(error) = writes.durability(Some(mode)).commit() {
            self.fail(&fault::engine(&self.path, "writing", &error).to_string());
            return match error {
                // Refused before anything was written, because of what happened earlier.
                fjall::Error::Poisoned => self.check_usable(),
                error => Err(Error::Unknown { why: format!("writing failed: {error:?}") }),
            };
        }
        self.forget_snapshot();
        if !changes.is_empty() {
            self.memory_mut().apply(changes);
        }
        Ok(())
    }

    /// Brings spilled cells back where there is room again.
    fn refill(&self, lead: &Lead) {
        for group in &lead.groups {
            let Some(position) = group.memory else { continue };
            if self.memory().group(position).wants_refill() {
                // What cannot be read now stays spilled, where a reader will meet the same error.
                let _ = self.memory_mut().refill(position, &group.cells);
            }
        }
    }

    /// The committer thread.
    pub(crate) fn run(&self) {
        let _stopped = Stopped(self);
        while self.queue.wait() {
            // Requests that arrive while another thread leads join this group.
            let lead = self.wait_to_lead();
            let group = self.queue.take_group();
            let outcomes = match &lead {
                Ok(lead) => {
                    let each = group.iter().map(|one| (&*one.table, &one.request));
                    self.commit_group(lead, group.len(), each)
                }
                Err(error) => group.iter().map(|_| Err(error.clone())).collect(),
            };
            drop(lead);
            for (waiting, outcome) in group.into_iter().zip(outcomes) {
                // A caller that has gone does not want to know.
                let _ = waiting.done.send(outcome);
            }
        }
    }
}

/// Leaves nobody waiting when the committer thread ends, in whatever way.
struct Stopped<'a>(&'a Engine);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.queue.close();
        // Dropping a request tells its caller that its outcome is unknown.
        self.0.queue.state().waiting.clear();
    }
}
