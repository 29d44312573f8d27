//! Simulates the store: a server process over [`MemoryStore`].
//!
//! Mutations gather in a group until the next sync, and are applied and answered then. So
//! nothing is visible before it survives a kill. A kill between syncs loses the last mutations
//! of the group, like a torn log, and applies the others without answering. A power cut may also
//! undo visible mutations that the protocol allows to be lost (`power.rs`). Reads are answered
//! immediately, except those that wait for a one-step commit (`publishing.rs`). The server returns
//! scans in pages of its own size.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bigtable::sync::locked;
use bigtable::{
    AtCommit, CommitRow, CommitRows, ConditionalMutation, Error, Glance, Glanced, MemoryStore,
    PageLimit, Row, RowKey, RowRange, RowsOutcome, Selection, Store, Table, TimeRange, Timestamp,
};
use bytes::Bytes;
use futures::FutureExt;

use crate::codec::{RowPart, RowRead, StoreReply, StoreRequest, decode, encode};
use crate::executor::{Executor, ProcessId};
use crate::failures::{READY, unavailable};
use crate::journal::{Applied, Journal, LookUp, is_hinted};
use crate::names::{LOCK, NOTIFY, is_schema, notify_table_number, sets, table_number};
use crate::power::Power;
use crate::publishing::Publishing;
use crate::swarm::Swarm;
use crate::tally::{Sometimes, Tally};
use crate::transport::{ReplyTo, Server, Transport};

/// The server process of the store.
pub(crate) struct StoreServer {
    pub(crate) process: ProcessId,
    pub(crate) executor: Executor,
    pub(crate) transport: Transport,
    pub(crate) tally: Arc<Tally>,
    inner: MemoryStore,
    sync_max: Duration,
    /// The longest time between a one-step commit's timestamp and its publication.
    pub(crate) publish_max: Duration,
    page_rows_max: usize,
    refuses: bool,
    state: Mutex<State>,
    journal: Mutex<Journal>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) down: bool,
    /// How often the store went down.
    pub(crate) life: u64,
    /// Whether the next write fails.
    pub(crate) failing: bool,
    /// Mutations that wait for the next sync.
    pub(crate) group: Vec<Pending>,
    /// Mutations that are synced and will be applied next.
    pub(crate) queue: VecDeque<Pending>,
    pub(crate) publishing: Option<Publishing>,
    pub(crate) log_waits: LogWaits,
    pub(crate) power: Power,
    tables: BTreeMap<Bytes, Arc<dyn Table>>,
    boundaries: Vec<RowKey>,
    /// One-step commits, by number.
    steps: BTreeMap<u64, Step>,
}

/// A one-step commit: the client's part of it, or the answer that it received. A store that
/// has answered such a request does not apply it again.
enum Step {
    Expected(Arc<dyn AtCommit>),
    Answered(StoreReply),
}

/// The changes that wait for the log (`log_waits.rs`).
#[derive(Default)]
pub(crate) struct LogWaits {
    /// Changes whose condition was evaluated, by number.
    pub(crate) waiting: BTreeMap<u64, Waiting>,
    /// Changes that wait for the rows of these.
    pub(crate) behind: Vec<Pending>,
    pub(crate) last: u64,
}

/// A change whose condition was evaluated, and that waits for the log.
pub(crate) struct Waiting {
    /// Whether its condition held; `None` if it has none.
    pub(crate) held: Option<bool>,
    pub(crate) pending: Pending,
}

/// A mutation that waits for the next sync.
pub(crate) struct Pending {
    pub(crate) request: StoreRequest,
    pub(crate) from: ProcessId,
    pub(crate) reply: ReplyTo,
}

shown_by_name!(StoreServer);

impl StoreServer {
    pub(crate) fn new(
        executor: &Executor,
        transport: &Transport,
        tally: &Arc<Tally>,
        swarm: &Swarm,
    ) -> Self {
        StoreServer {
            process: executor.new_process(),
            executor: executor.clone(),
            transport: transport.clone(),
            tally: tally.clone(),
            inner: new_store(swarm),
            sync_max: swarm.sync_max,
            publish_max: swarm.publish_max,
            page_rows_max: swarm.page_rows_max,
            refuses: swarm.refuses,
            state: Mutex::default(),
            journal: Mutex::new(Journal::new(swarm.life.is_some())),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    pub(crate) fn journal(&self) -> MutexGuard<'_, Journal> {
        locked(&self.journal)
    }

    /// Returns the store itself, for reads without the network.
    pub(crate) fn inner(&self) -> &MemoryStore {
        &self.inner
    }

    pub(crate) fn set_boundaries(&self, boundaries: Vec<RowKey>) {
        self.state().boundaries = boundaries;
    }

    /// Takes the store down. The first few of the mutations that wait for a sync reached the
    /// log; no client gets an answer.
    pub(crate) fn kill(&self) {
        self.go_down();
        self.lose_tail();
    }

    /// Returns whether the request is too old to be applied: the store has no floor, and the
    /// request's deadline has passed.
    pub(crate) fn is_over(&self, reply: &ReplyTo) -> bool {
        let over = self.is_beyond_life(reply);
        if over {
            self.tally.happened(Sometimes::DeadlinePassed);
        }
        over
    }

    /// Whether more time has gone by since a request was sent than requests live.
    pub(crate) fn is_beyond_life(&self, reply: &ReplyTo) -> bool {
        let life = self.inner.request_life_max();
        life.is_some_and(|life| self.executor.now() > reply.sent + life)
    }

    /// Applies a copy of a prewrite that arrives beyond every deadline, when nothing is left
    /// in the store to reject it.
    pub(crate) fn ghost(&self, pick: impl FnOnce(usize) -> usize) {
        let Some((table, request)) = self.journal().ghost(pick) else { return };
        let request = StoreRequest::Check(table, request);
        if self.is_locked(&request) {
            return;
        }
        let applied = self.apply(&request, self.process);
        if matches!(applied, StoreReply::Checked(false)) {
            self.tally.happened(Sometimes::LateLock);
        }
    }

    fn open(&self, name: &Bytes, table: Arc<dyn Table>) {
        self.state().tables.insert(name.clone(), table);
    }

    pub(crate) fn table(&self, name: &Bytes) -> Arc<dyn Table> {
        self.state().tables.get(name).expect("a table is opened before it is used").clone()
    }

    fn flush(self: &Arc<Self>) {
        {
            let mut state = self.state();
            let group = std::mem::take(&mut state.group);
            state.queue.extend(group);
        }
        self.proceed();
    }

    pub(crate) fn read(&self, request: &StoreRequest) -> StoreReply {
        let reply = match request {
            StoreRequest::Read(table, read) => self.read_row(table, read).map(StoreReply::Row),
            StoreRequest::ReadMany(table, reads) => {
                let rows = reads.iter().map(|read| self.read_row(table, read));
                Ok(StoreReply::Rows(rows.collect()))
            }
            StoreRequest::Scan(table, range, select, limit) => {
                let table = self.table(table);
                let rows_max = limit.rows_max.min(self.page_rows_max);
                let limit = PageLimit { rows_max, ..*limit };
                let scan = table.scan(range, select, limit).now_or_never().expect(READY);
                if scan.as_ref().is_ok_and(|page| page.resume.is_some()) {
                    self.tally.happened(Sometimes::PagedScan);
                }
                self.note_too_old(scan).map(StoreReply::Page)
            }
            StoreRequest::Tablets(table) => Ok(StoreReply::Tablets(self.tablets(table))),
            _ => Ok(StoreReply::Failed(Error::invalid("not a read"))),
        };
        reply.unwrap_or_else(StoreReply::Failed)
    }

    fn read_row(&self, name: &Bytes, RowRead { row, select }: &RowRead) -> Result<Row, Error> {
        let table = self.table(name);
        let read = table.read_row(row, select).now_or_never().expect(READY);
        let reader = select.above.is_some() && table_number(name).is_some();
        if reader && read.iter().any(|row| row.cells.iter().any(|c| c.family == LOCK)) {
            self.tally.happened(Sometimes::ReadBlocked);
        }
        self.note_too_old(read)
    }

    /// Answers a `glance` from memory. A store that is down answers nothing.
    pub(crate) fn glance(&self, name: &Bytes, at: Glance<'_>) -> Result<Glanced, Error> {
        if self.is_down() || self.hides(name, &at) {
            return Ok(Glanced::Nothing);
        }
        let glanced = self.note_too_old(self.table(name).glance(at));
        if matches!(glanced, Ok(Glanced::Newest(..) | Glanced::Absent)) {
            self.tally.happened(Sometimes::Glanced);
        }
        glanced
    }

    fn note_too_old<T>(&self, read: Result<T, Error>) -> Result<T, Error> {
        if matches!(read, Err(Error::TooOld { .. })) {
            self.tally.happened(Sometimes::TooOldRead);
        }
        read
    }

    fn tablets(&self, table: &Bytes) -> Vec<RowRange> {
        use std::ops::Bound;
        let mut tablets = Vec::new();
        let mut start = Bound::Unbounded;
        let mut boundaries = self.state().boundaries.clone();
        if notify_table_number(table).is_some() {
            // Row keys begin with any byte in a table of notifications.
            let last = |key: &RowKey| {
                RowKey::from(key.as_bytes().last().copied().into_iter().collect::<Vec<_>>())
            };
            boundaries = boundaries.iter().map(last).collect();
            boundaries.sort();
            boundaries.dedup();
        }
        for boundary in &boundaries {
            tablets.push(RowRange { start, end: Bound::Excluded(boundary.clone()) });
            start = Bound::Included(boundary.clone());
        }
        tablets.push(RowRange { start, end: Bound::Unbounded });
        tablets
    }

    pub(crate) fn apply(&self, request: &StoreRequest, from: ProcessId) -> StoreReply {
        let reply = match request {
            StoreRequest::Mutate(table, request) => {
                let table = self.table(table);
                let undo = self.undo(&table, &request.row, request.sync, request.mutations.iter());
                let mutated = table.mutate_row(request.clone()).now_or_never().expect(READY);
                mutated.map(|()| self.wrote(undo)).map(|()| StoreReply::Done)
            }
            StoreRequest::Check(table, request) => {
                self.check(table, request, from).map(StoreReply::Checked)
            }
            StoreRequest::CheckMany(table, requests) => {
                let check = |request| self.check(table, request, from);
                Ok(StoreReply::CheckedMany(requests.iter().map(check).collect()))
            }
            StoreRequest::RaiseFloor(floor) => {
                let raised = self.inner.raise_floor(*floor).now_or_never().expect(READY);
                raised.map(|()| self.wrote(None)).map(|()| StoreReply::Done)
            }
            StoreRequest::CommitRows(number, above, rows) => {
                Ok(self.commit_rows(*number, *above, rows, from))
            }
            read => Ok(self.read(read)),
        };
        let reply = reply.unwrap_or_else(StoreReply::Failed);
        self.executor.note("applied", (0, 0), || format!("{request:?}: {reply:?}"));
        reply
    }

    fn check(
        &self,
        name: &Bytes,
        request: &ConditionalMutation,
        from: ProcessId,
    ) -> Result<bool, Error> {
        let table = self.table(name);
        if table_number(name).is_some()
            && sets(&request.otherwise, &LOCK)
            && self.transport.is_overloaded()
        {
            return Err(StoreServer::overloaded());
        }
        let either = request.then.iter().chain(&request.otherwise);
        let undo = self.undo(&table, &request.row, request.sync, either);
        let checked = table.check_and_mutate_row(request.clone()).now_or_never().expect(READY);
        if let Ok(matched) = checked {
            let effect = if matched { &request.then } else { &request.otherwise };
            if !effect.is_empty() {
                self.wrote(undo);
            }
        }
        if let Ok(matched) = checked
            && is_schema(name, &request.row)
        {
            self.journal().enter_schema(request, matched);
        }
        if let Ok(matched) = checked
            && let LookUp::Cleared(columns) = self.enter(name, request, matched, from)
        {
            self.note_kept(&*table, &request.row, &columns);
        }
        checked
    }

    fn refuse(&self, request: &StoreRequest, reply: ReplyTo, why: &str) {
        let mut answer = StoreReply::Failed(unavailable(why));
        if let StoreRequest::CommitRows(number, ..) = request {
            if self.is_publishing(*number) {
                // A copy of this commit is being written, so a refusal would be wrong.
                return;
            }
            let steps = &mut self.state().steps;
            match steps.get(number) {
                // Another copy of the request was answered before.
                Some(Step::Answered(earlier)) => answer = earlier.clone(),
                _ => drop(steps.insert(*number, Step::Answered(answer.clone()))),
            }
        }
        reply.send(encode(&answer));
    }

    /// Registers a one-step commit, and returns its number.
    pub(crate) fn expect(&self, at: Arc<dyn AtCommit>) -> u64 {
        let mut state = self.state();
        let number = state.steps.len() as u64;
        state.steps.insert(number, Step::Expected(at));
        number
    }

    fn commit_rows(
        &self,
        number: u64,
        above: Timestamp,
        rows: &[RowPart],
        from: ProcessId,
    ) -> StoreReply {
        let at = match self.state().steps.get(&number) {
            Some(Step::Expected(at)) => at.clone(),
            Some(Step::Answered(reply)) => return reply.clone(),
            None => return StoreReply::Failed(unavailable("a request of nobody")),
        };
        let reply = self.commit_rows_at(at, above, rows, from);
        self.answered(number, &reply);
        reply
    }

    /// Returns the client's part of a one-step commit, if the commit has no answer yet.
    pub(crate) fn expected(&self, number: u64) -> Option<Arc<dyn AtCommit>> {
        match self.state().steps.get(&number)? {
            Step::Expected(at) => Some(at.clone()),
            Step::Answered(_) => None,
        }
    }

    /// Records the answer; every later copy of the request receives the same.
    pub(crate) fn answered(&self, number: u64, reply: &StoreReply) {
        if matches!(reply, StoreReply::NoTimestamp) {
            self.tally.happened(Sometimes::OneStepWithoutTimestamp);
        }
        self.state().steps.insert(number, Step::Answered(reply.clone()));
    }

    pub(crate) fn commit_rows_at(
        &self,
        at: Arc<dyn AtCommit>,
        above: Timestamp,
        rows: &[RowPart],
        from: ProcessId,
    ) -> StoreReply {
        let row = |part: &RowPart| CommitRow {
            table: String::from_utf8_lossy(&part.table).into(),
            row: part.request.row.clone(),
            predicate: part.request.predicate.clone(),
        };
        let rows_of = rows.iter().map(row).collect();
        let request = CommitRows { rows: rows_of, above, bytes: 0, at: at.clone() };
        match self.inner.commit_rows(request).now_or_never().expect(READY) {
            Ok(RowsOutcome::Committed(commit_ts)) => {
                self.tally.happened(Sometimes::OneStepCommitted);
                if rows.iter().any(|part| is_hinted(&part.request.predicate, above)) {
                    self.tally.happened(Sometimes::HintedRun);
                }
                self.wrote(None);
                for (index, part) in rows.iter().enumerate() {
                    let request = ConditionalMutation {
                        otherwise: at.mutations(index, commit_ts),
                        ..ConditionalMutation::new(&part.request.row)
                    };
                    self.enter(&part.table, &request, false, from);
                }
                StoreReply::Committed(commit_ts)
            }
            Ok(RowsOutcome::Rejected { row }) => {
                self.tally.happened(Sometimes::OneStepRejected);
                if is_hinted(&rows[row].request.predicate, above) {
                    self.tally.happened(Sometimes::HintedRejected);
                }
                StoreReply::Rejected(row as u64)
            }
            Ok(RowsOutcome::NoTimestamp) => StoreReply::NoTimestamp,
            Err(error) => StoreReply::Failed(error),
        }
    }

    /// Enters a conditional mutation of an application's table into the journal.
    fn enter(
        &self,
        name: &Bytes,
        request: &ConditionalMutation,
        matched: bool,
        from: ProcessId,
    ) -> LookUp {
        if table_number(name).is_none() && notify_table_number(name).is_none() {
            return LookUp::Nothing;
        }
        let applied = Applied { table: name, request, matched, from, now: self.executor.now() };
        let is_dead = |process| self.executor.is_dead(process);
        self.journal().enter(&applied, &self.tally, is_dead)
    }

    /// Counts notifications that a clearing left because they are newer.
    fn note_kept(&self, table: &dyn Table, row: &RowKey, cleared: &[(Bytes, Timestamp)]) {
        for (column, newest) in cleared {
            let newer = TimeRange::above(*newest);
            let select = Selection::default().column(NOTIFY, column.clone(), newer, 1);
            let row = table.read_row(row, &select).now_or_never().expect(READY);
            if row.is_ok_and(|row| !row.cells.is_empty()) {
                self.tally.happened(Sometimes::NotifyKeptByNewer);
            }
        }
    }
}

/// The server as the network reaches it.
#[derive(Debug)]
pub(crate) struct StoreEndpoint(pub(crate) Arc<StoreServer>);

impl Server for StoreEndpoint {
    fn receive(&self, request: Bytes, from: ProcessId, reply: ReplyTo) {
        let store = &self.0;
        let request: StoreRequest = decode(request).expect("what a client encodes decodes");
        if store.is_over(&reply) {
            return;
        }
        if store.is_down() {
            if store.refuses {
                store.refuse(&request, reply, "the store is down");
            }
            return;
        }
        if store.transport.is_busy() {
            return store.refuse(&request, reply, "the store is busy");
        }
        match &request {
            StoreRequest::Read(..)
            | StoreRequest::ReadMany(..)
            | StoreRequest::Scan(..)
            | StoreRequest::Tablets(_) => {
                let Some((request, reply)) = store.wait(request, reply) else { return };
                let answer = store.read(&request);
                store.executor.note("read", (0, 0), || format!("{request:?}: {answer:?}"));
                reply.send(encode(&answer));
            }
            _ if store.sync_max.is_zero() => {
                store.state().queue.push_back(Pending { request, from, reply });
                store.proceed();
            }
            _ => {
                let mut state = store.state();
                state.group.push(Pending { request, from, reply });
                if state.group.len() == 1 {
                    let nanos = store.sync_max.as_nanos() as u64;
                    let delay = store.executor.draw(|rng| rng.below(nanos));
                    let server = store.clone();
                    let delay = Duration::from_nanos(delay);
                    store.executor.after(delay, store.process, move || server.flush());
                }
            }
        }
    }
}

pub(crate) fn new_store(swarm: &Swarm) -> MemoryStore {
    let store =
        if swarm.apart { MemoryStore::without_locality_groups() } else { MemoryStore::new() };
    let store = store.with_limits(swarm.limits);
    let store = if swarm.drops_superseded { store.dropping_superseded() } else { store };
    match swarm.life {
        Some(life) => store.without_floors(life),
        None => store,
    }
}

impl StoreServer {
    /// Opens a table without the network.
    pub(crate) async fn open_table(
        &self,
        name: &str,
        schema: &bigtable::TableSchema,
    ) -> Result<Bytes, Error> {
        let table = self.inner.open_table(name, schema).await?;
        let name = Bytes::copy_from_slice(name.as_bytes());
        self.open(&name, table);
        Ok(name)
    }
}
