//! The committer: every change to the store passes here, in groups, durable before visible.
//!
//! ```text
//!   caller --- it is short, nobody commits, nobody waits ---> leads: commits on its own thread
//!      '------ otherwise ---> queue ---> committer thread: drains the queue group by group
//! ```
//!
//! A group is evaluated against the published state and written as one batch (`puts.rs`), which the
//! engine syncs (if asked to) before it inserts and publishes it. A row is in a group at most once,
//! so every predicate sees all that came before it. A request of several rows takes its timestamp
//! after the group's rows were made known to readers (`pending.rs`). Leading without a queue spares
//! the single client two changes of thread; under contention the group shares one sync. Callers
//! poll futures, so nothing that keeps a thread waiting is done on theirs: no sync, no seal, and no
//! batch while the engine may hold it up (`calm.rs`). They leave that to the committer
//! thread.
//!
//! Invariants: nothing is written outside the commit lock ([`Engine::lead`]). A request is
//! acknowledged after its batch is published and the in-memory maps have followed; and after full
//! write buffers are sealed, for which it may have to wait (`seal.rs`). If a batch fails the record
//! may be in the journal or not: nothing is answered until the store has cut it off and opened the
//! engine anew (`reopen.rs`); then its callers learn that it was not applied.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, MutexGuard, TryLockError};

use bigtable::sync::locked;
use bigtable::{CommitRows, Error, Result, RowsOutcome};
use fjall::{AbstractTree, PersistMode};
use smallvec::SmallVec;

use crate::commit::admission;
use crate::commit::draft::{Batch, Draft};
use crate::commit::edit::Request;
use crate::commit::queue::{GROUP_BYTES_MAX, Outcome, Reply, RowsWork, Woken, Work};
use crate::commit::recent::using;
use crate::commit::room::Use;
use crate::commit::view::View;
use crate::engine::{Engine, Failure, Lead};
use crate::failure::fault;
use crate::layout::key::Key;
use crate::layout::memory::spilled;
use crate::layout::table_info::TableInfo;
use crate::mutants::{self, off};
use crate::upkeep::full::{is_look_due, seal_churned, seal_full};
use crate::upkeep::journals::Written;
use crate::upkeep::old_journals::{Looks, look_for_journals};
use crate::upkeep::seal::{RUNS_MAX, check_engine};
use crate::waits::may_wait;

/// A request that is being committed.
enum Job<'a> {
    Row(&'a TableInfo, &'a Request),
    Rows(&'a RowsWork),
}

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

    /// What became of it. Nothing of the engine is held meanwhile.
    pub(crate) async fn outcome(self) -> Result<Outcome> {
        match self {
            Begun::Done(outcome) => outcome,
            Begun::Waits(reply) => reply.outcome().await,
        }
    }
}

/// Whose thread commits a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// The thread of the caller, which polls futures.
    Caller,
    Committer,
}

/// Most keys and values, in bytes, that are committed on a caller's thread.
const SHORT_BYTES_MAX: usize = 64 << 10;

/// Of each request of a group.
type Outcomes = SmallVec<[Result<Outcome>; 1]>;

impl Engine {
    /// Commits one request, or has it wait for the committer thread.
    pub(crate) fn begin(&self, table: &Arc<TableInfo>, request: Request) -> Begun {
        match self.try_lead(self.syncs(request.sync()), request.bytes()) {
            Err(error) => Begun::Done(Err(error)),
            Ok(Some(lead)) => Begun::Done(self.commit_one(&lead, Job::Row(table, &request))),
            Ok(None) => Begun::queued(self.queue.push(Work::Row(table.clone(), request))),
        }
    }

    /// As [`Engine::begin`], of a change of several rows.
    pub(crate) fn begin_rows(&self, request: CommitRows) -> Result<Begun> {
        let work = self.rows_work(request)?;
        Ok(match self.try_lead(self.sync(), work.request.bytes)? {
            Some(lead) => Begun::Done(self.commit_one(&lead, Job::Rows(&work))),
            None => Begun::queued(self.queue.push(Work::Rows(work))),
        })
    }

    /// As [`Engine::begin_rows`], if it can be done at once; otherwise the request comes back.
    pub(crate) fn try_rows(
        &self,
        request: CommitRows,
    ) -> Result<std::result::Result<Result<Outcome>, CommitRows>> {
        if !self.is_short(self.sync(), request.bytes) {
            return Ok(Err(request));
        }
        let work = self.rows_work(request)?;
        Ok(match self.try_lead(self.sync(), work.request.bytes)? {
            Some(lead) => Ok(self.commit_one(&lead, Job::Rows(&work))),
            None => Err(work.request),
        })
    }

    /// A sound request with its tables.
    fn rows_work(&self, request: CommitRows) -> Result<RowsWork> {
        let tables = self.tables_of(&request)?;
        request.check(|row| &tables[row].schema)?;
        Ok(RowsWork { tables, request })
    }

    /// The table of each row.
    fn tables_of(&self, request: &CommitRows) -> Result<Vec<Arc<TableInfo>>> {
        let mut tables: Vec<Arc<TableInfo>> = Vec::with_capacity(request.rows.len());
        for row in &request.rows {
            let table = match tables.last() {
                Some(last) if last.name == *row.table => last.clone(),
                _ => self.table_named(&row.table)?,
            };
            tables.push(table);
        }
        Ok(tables)
    }

    /// Commits the requests at once, or has them wait for the committer thread. At most
    /// [`GROUP_OPS_MAX`](crate::commit::queue::GROUP_OPS_MAX) of them.
    pub(crate) fn begin_all(&self, table: &Arc<TableInfo>, requests: Vec<Request>) -> Vec<Begun> {
        let sync = requests.iter().any(|request| self.syncs(request.sync()));
        let bytes = requests.iter().map(Request::bytes).sum();
        match self.try_lead(sync, bytes) {
            Err(error) => requests.iter().map(|_| Begun::Done(Err(error.clone()))).collect(),
            Ok(Some(lead)) => {
                let outcomes = self.commit_chunk(&lead, table, &requests);
                outcomes.into_iter().map(Begun::Done).collect()
            }
            Ok(None) => {
                let works = requests.into_iter().map(|request| Work::Row(table.clone(), request));
                self.queue.push_all(works).into_iter().map(Begun::queued).collect()
            }
        }
    }

    /// Whether a request so large may be committed on the thread of a caller that polls futures.
    fn is_short(&self, sync: bool, bytes: usize) -> bool {
        !sync && bytes <= SHORT_BYTES_MAX && self.calm.is_calm()
    }

    /// The commit lock for a short request, if nobody holds it and nobody waits.
    fn try_lead(&self, sync: bool, bytes: usize) -> Result<Option<MutexGuard<'_, Lead>>> {
        self.check_usable()?;
        if !self.is_short(sync, bytes) || !self.queue.is_empty() {
            return Ok(None);
        }
        match self.lead.try_lock() {
            Ok(lead) => {
                // The holder before may have sealed a buffer.
                let calm = self.calm.is_calm() && !lead.left.get() && !is_look_due(self, &lead);
                Ok(calm.then_some(lead))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Poisoned(_)) => Err(self.broken()),
        }
    }

    /// The commit lock, waited for.
    pub(crate) fn wait_to_lead(&self) -> Result<MutexGuard<'_, Lead>> {
        may_wait("the commit lock");
        let lead = self.lead.lock().map_err(|_| self.broken())?;
        self.check_usable()?;
        Ok(lead)
    }

    /// A commit has panicked, so the maps may not match the keyspaces any more.
    fn broken(&self) -> Error {
        self.check_usable().err().unwrap_or_else(fault::too_late)
    }

    fn commit_one(&self, lead: &Lead, job: Job<'_>) -> Result<Outcome> {
        self.commit_group(lead, By::Caller, 1, std::iter::once(job))
            .pop()
            .unwrap_or_else(|| Err(fault::too_late()))
    }

    /// Commits requests that may name a row more than once, on their caller's thread.
    fn commit_chunk(
        &self,
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
                let fits =
                    bytes_before < GROUP_BYTES_MAX && rows.len() < self.queue.group_rows_max();
                bytes_before += request.bytes();
                fits && rows.insert(request.row())
            });
            let (group, rest) = left.split_at(group.count());
            let each = group.iter().map(|request| Job::Row(table, request));
            let done = self.commit_group(lead, By::Caller, group.len(), each);
            outcomes.extend(done);
            left = rest;
        }
        outcomes
    }

    /// Commits requests of different rows as one batch.
    fn commit_group<'a>(
        &self,
        lead: &Lead,
        by: By,
        len: usize,
        jobs: impl Iterator<Item = Job<'a>>,
    ) -> Outcomes {
        admission::look_at_disk(self, lead);
        // One request that must be on disk has all of the batch synced.
        let mut sync = false;
        let mut batch = Batch::default();
        let mut outcomes = Outcomes::with_capacity(len);
        // Those that change several rows and may: they take their timestamps when all rows are
        // known.
        let mut admitted: SmallVec<[(usize, &RowsWork); 1]> = SmallVec::new();
        let placed = {
            let memory = self.memory();
            let view = View { memory: &memory, recent: &self.recent };
            for job in jobs {
                let outcome = match job {
                    Job::Row(table, request) => {
                        let outcome = self.prepare(lead, view, (table, request), &mut batch);
                        sync |= self.syncs(request.sync()) && outcome.is_ok();
                        outcome.map(Outcome::Matched)
                    }
                    Job::Rows(work) => {
                        let outcome = self.examine(lead, view, work);
                        if matches!(outcome, Ok(Outcome::NoTimestamp)) {
                            admitted.push((outcomes.len(), work));
                            sync |= self.sync();
                        }
                        outcome
                    }
                };
                outcomes.push(outcome);
            }
            let rows = || admitted.iter().flat_map(|(_, work)| work.places());
            let mut placed = None;
            if !admitted.is_empty() && !off(mutants::PENDING_AFTER_TIMESTAMP) {
                placed = Some(self.pending.place(rows()));
            }
            for (position, work) in &admitted {
                outcomes[*position] = self.prepare_rows(view, work, &mut batch);
            }
            if off(mutants::PENDING_AFTER_TIMESTAMP) {
                placed = Some(self.pending.place(rows()));
            }
            placed.filter(|_| !off(mutants::PENDING_CLEARED_EARLY))
        };
        let changed = !batch.memory.is_empty();
        let (bytes, churned) = (batch.bytes, batch.churned);
        let written = self.write(batch, sync);
        drop(placed);
        if let Err(error) = written {
            for outcome in &mut outcomes {
                // What was refused before the batch was written stays refused.
                if matches!(outcome, Ok(Outcome::Matched(_) | Outcome::Committed(_))) {
                    *outcome = Err(error.clone());
                }
            }
            return outcomes;
        }
        let left = lead.left.take();
        match by {
            By::Caller => {
                lead.unlooked.set(lead.unlooked.get() + bytes);
                lead.left.set(left || churned || (changed && self.wants_refill(lead)));
            }
            By::Committer => {
                if changed || left {
                    self.refill(lead);
                }
                seal_full(self, lead, bytes);
                if churned || left {
                    seal_churned(self, lead);
                }
            }
        }
        outcomes
    }

    /// Evaluates a request against the published state and adds its writes to the batch.
    fn prepare(
        &self,
        lead: &Lead,
        view: View<'_>,
        (table, request): (&TableInfo, &Request),
        batch: &mut Batch,
    ) -> Result<bool> {
        table.check_there()?;
        self.check_floor(request.above())?;
        request.check_time()?;
        let mut evaluate = || {
            let decision = request.decide(table, view)?;
            if let Err(full) = admission::admit_row(self, lead, table, &decision.mutations) {
                return Ok((false, Err(full)));
            }
            let mut draft = Draft::new(view);
            for mutation in &*decision.mutations {
                draft.apply(table, request.row(), mutation)?;
            }
            Ok((decision.holds, draft.finish(batch)?))
        };
        let (holds, accepted) = evaluate().map_err(|fault| self.read_error(&fault))?;
        accepted.map(|()| holds)
    }

    /// Evaluates the predicates of several rows: rejected, or nothing so far but a timestamp.
    fn examine(&self, lead: &Lead, view: View<'_>, work: &RowsWork) -> Result<Outcome> {
        self.check_floor(Some(work.request.above))?;
        let rows = work.tables.iter().zip(&work.request.rows);
        for (index, (table, row)) in rows.enumerate() {
            table.check_there()?;
            for probe in &row.predicate {
                let found = view.finds(table, &row.row, probe);
                if found.map_err(|fault| self.read_error(&fault))? {
                    return Ok(Outcome::Rejected(index));
                }
            }
        }
        admission::admit(self, lead, Use::Growth, work.request.bytes as u64)?;
        Ok(Outcome::NoTimestamp)
    }

    /// Takes the timestamp of several rows and adds what is written at it to the batch.
    fn prepare_rows(&self, view: View<'_>, work: &RowsWork, batch: &mut Batch) -> Result<Outcome> {
        let RowsWork { tables, request } = work;
        let Some(commit_ts) = request.at.timestamp() else { return Ok(Outcome::NoTimestamp) };
        let mut draft = Draft::new(view);
        for (index, (table, row)) in tables.iter().zip(&request.rows).enumerate() {
            for mutation in request.mutations_at(index, commit_ts, &table.schema)? {
                let applied = draft.apply(table, &row.row, &mutation);
                applied.map_err(|fault| self.read_error(&fault))?;
            }
        }
        draft.finish(batch).map_err(|fault| self.read_error(&fault))??;
        Ok(Outcome::Committed(commit_ts))
    }

    /// Writes one batch and shows it to readers. To be called under the commit lock.
    pub(crate) fn write(&self, batch: Batch, sync: bool) -> Result<()> {
        self.check_usable()?;
        let Batch { writes, memory, newest, .. } = batch;
        if writes.is_empty() {
            return Ok(());
        }
        let calm = self.calm.is_calm();
        let long = sync || !calm;
        if long {
            may_wait("writing a batch");
        }
        let journaling = |e| fault::io(&self.path, "following the journals", &e);
        // Nothing is written yet.
        self.journals().before(sync).map_err(journaling)?;
        self.snapshots.keep(&self.db, long);
        let (bytes, number) = (writes.bytes(), self.db.visible_seqno());
        let writing = self.snapshots.begin(&self.db).map_err(|_| self.broken())?;
        let written = writes.commit(&self.db, sync);
        drop(writing);
        if let Err(error) = written {
            return Err(self.not_written(&error));
        }
        let batch = Written { bytes, number, end: self.db.visible_seqno(), calm };
        if let Err(error) = self.journals().after(&batch) {
            // The batch is as durable as it is to be. Before the next one the engine is opened
            // anew, and its journals get their names.
            self.stop(&fjall::Error::Io(error));
        }
        self.snapshots.forget();
        using(locked(&self.recent), |recent| {
            for (key, value) in newest {
                recent.set(key, value);
            }
            recent.is_as_of(self.snapshots.batches());
        });
        if !memory.is_empty() {
            self.memory_mut().apply(memory);
        }
        Ok(())
    }

    /// Syncs the journal, and with it all batches that were written without a sync. Journals before
    /// it were synced when they were sealed.
    pub(crate) fn sync_journal(&self) -> Result<()> {
        let _lead = self.wait_to_lead()?;
        self.db.persist(PersistMode::SyncData).map_err(|error| self.not_written(&error))
    }

    fn not_written(&self, error: &fjall::Error) -> Error {
        let kind = match error {
            // Refused before anything was written, because of what happened earlier.
            fjall::Error::Poisoned => {
                self.stop(error);
                return fault::stopped();
            }
            fjall::Error::Io(error) => error.kind(),
            _ => io::ErrorKind::Other,
        };
        let problem = fault::engine(&self.path, "writing", error).to_string();
        self.fail(Failure::Write(problem, kind));
        fault::undecided()
    }

    /// Whether spilled cells should come back into memory.
    fn wants_refill(&self, lead: &Lead) -> bool {
        let memory = self.memory();
        let mut positions = lead.groups.iter().filter_map(|group| group.memory);
        positions.any(|position| memory.group(position).refill_from().is_some())
    }

    /// Brings spilled cells back where there is room again.
    fn refill(&self, lead: &Lead) {
        for group in &lead.groups {
            let Some(position) = group.memory else { continue };
            let from = self.memory().group(position).refill_from();
            // Cells that cannot be read now stay spilled, where a reader will meet the same error.
            // Nobody waits for the memory while they are read.
            if let Some(from) = from
                && let Ok(cells) = spilled(&group.cells, from)
            {
                self.memory_mut().take_back(position, cells);
            }
        }
    }

    /// The committer thread.
    pub(crate) fn run(&self) {
        let _stopped = Stopped(self);
        let mut looks = Looks::new();
        loop {
            match self.queue.wait(looks.due_in()) {
                Woken::Requests => {}
                Woken::Task(task) => {
                    task(self);
                    continue;
                }
                Woken::Closing => return,
                Woken::Time => {
                    look_for_journals(self, &mut looks);
                    continue;
                }
            }
            // Declared first: should the commit panic, its callers hear of it after the lock is
            // poisoned.
            let group;
            // Requests that arrive while another thread leads join this group.
            let lead = self.wait_to_lead();
            group = self.queue.take_group();
            let outcomes = match &lead {
                Ok(lead) => {
                    let each = group.iter().map(|one| match &one.work {
                        Work::Row(table, request) => Job::Row(table, request),
                        Work::Rows(work) => Job::Rows(work),
                    });
                    self.commit_group(lead, By::Committer, group.len(), each)
                }
                Err(error) => group.iter().map(|_| Err(error.clone())).collect(),
            };
            drop(lead);
            // The requests go first: they may hold handles of the store, and whoever has an answer
            // may close it and open it again.
            let callers: Vec<_> = group.into_iter().map(|waiting| waiting.done).collect();
            for (caller, outcome) in callers.into_iter().zip(outcomes) {
                // One that has gone does not want to know.
                let _ = caller.send(outcome);
            }
            // Its callers are on their way meanwhile.
            if let Ok(lead) = self.lead.try_lock() {
                look_for_calm(self, &lead);
            }
        }
    }
}

/// Finds out whether the store is calm. Only the committer thread asks, as it may wait for a sync
/// here.
fn look_for_calm(engine: &Engine, lead: &Lead) {
    if engine.calm.is_calm() || !engine.journals().is_marked() {
        return;
    }
    let mut written = lead.keyspaces().chain([&engine.catalog.0]);
    if engine.db.outstanding_flushes() == 0
        && engine.calm.are_past_sync(&engine.db)
        // Writers wait for merges from so many runs on.
        && written.all(|keyspace| keyspace.tree.l0_run_count() < RUNS_MAX)
        // This takes the lock of the journal, so a sync that has begun has ended.
        && check_engine(&engine.db).is_ok()
        // Only now is it known which journal is the newest.
        && engine.journals().is_settled()
    {
        engine.calm.begins();
    }
}

/// Leaves nobody waiting when the committer thread ends, in whatever way.
struct Stopped<'a>(&'a Engine);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.queue.close();
        // Dropping a request tells its caller that its outcome is unknown.
        self.0.queue.abandon();
    }
}

impl RowsWork {
    /// The rows' keys, each with a timestamp that theirs will be above.
    fn places(&self) -> impl Iterator<Item = (Key, bigtable::Timestamp)> {
        let rows = self.tables.iter().zip(&self.request.rows);
        rows.map(|(table, row)| (Key::row(table.id, row.row.as_bytes()), self.request.above))
    }
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
