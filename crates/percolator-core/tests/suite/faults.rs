//! Wraps a store that loses, delays, repeats and refuses requests, by rule or at random, and
//! keeps a trace.
//!
//! A rule names the requests that it applies to, and their fault. It returns a [`Caught`],
//! which counts these requests and releases the ones that it holds.

use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::time::Duration;

use bigtable::layer::{StoreLayer, TableLayer};
use bigtable::{
    ConditionalMutation, Error, Family, Glance, Glanced, Limits, Mutation, Page, PageLimit, Result,
    Row, RowKey, RowMutation, RowRange, Selection, Store, Syncing, Table, TimeRange,
};
use futures::future::{join_all, try_join_all};
use percolator_core::Runtime;
use percolator_core::testing::VirtualRuntime;

pub(crate) const DATA: Family = Family::from_static("data");
pub(crate) const LOCK: Family = Family::from_static("lock");
pub(crate) const WRITE: Family = Family::from_static("write");
pub(crate) const ROLLBACK: Family = Family::from_static("rollback");
pub(crate) const NOTIFY: Family = Family::from_static("notify");

/// The prefix of the names of notification tables, on stores without locality groups.
pub(crate) const NOTIFY_TABLE: &str = "percolator.notify.";

/// The purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Read,
    Scan,
    Prewrite,
    CommitPrimary,
    /// Commit of a secondary row, by its owner or as a roll-forward.
    Commit,
    /// Puts a tomb.
    RollBackPrimary,
    /// Removes locks.
    RollBack,
    Heartbeat,
    /// Sets notifications alone.
    Notify,
    /// Clears notifications alone.
    Clear,
    SetAside,
    /// Garbage collection.
    Collect,
    /// A write to Percolator's own table.
    System,
    SystemRead,
    Other,
}

/// A request, as rules and the trace see it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) op: Op,
    pub(crate) table: String,
    pub(crate) row: RowKey,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}/{}", self.op, self.table, self.row)
    }
}

/// The fault that a rule applies to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The request waits until the rule is released, and then goes on normally.
    Hold,
    /// The request is applied. The reply waits until the rule is released.
    HoldReply,
    /// The sender gets `Unknown`. The request is applied when the rule delivers it.
    Late,
    /// The request is applied. A copy is applied when the rule delivers it.
    Duplicate,
    /// The request is applied, and the sender gets `Unknown`.
    DropReply,
    /// The request is refused with `Unavailable`.
    Fail,
    /// The request is refused with `InvalidRequest`.
    Refuse,
}

/// A write to one of Percolator's own tables.
#[derive(Debug, Clone)]
pub(crate) struct OwnWrite {
    pub(crate) row: RowKey,
    pub(crate) sync: Syncing,
    /// Whether the write probes one exact version of each cell, and deletes no other versions.
    pub(crate) exact: bool,
}

type Matches = Box<dyn Fn(&Request) -> bool + Send + Sync>;

/// A rule, as the test that set it sees it.
pub(crate) struct Caught {
    matches: Matches,
    fault: Fault,
    state: Mutex<CaughtState>,
}

#[derive(Default)]
struct CaughtState {
    left: usize,
    count: usize,
    open: bool,
    wakers: Vec<Waker>,
    copies: Vec<(Arc<dyn Table>, ConditionalMutation)>,
}

impl fmt::Debug for Caught {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caught").field("fault", &self.fault).finish_non_exhaustive()
    }
}

impl Caught {
    fn state(&self) -> MutexGuard<'_, CaughtState> {
        self.state.lock().unwrap()
    }

    /// A rule for no request: a gate that a test can wait for.
    pub(crate) fn gate() -> Arc<Self> {
        let state = Mutex::default();
        Arc::new(Caught { matches: Box::new(|_| false), fault: Fault::Hold, state })
    }

    /// How many requests the rule was applied to.
    pub(crate) fn count(&self) -> usize {
        self.state().count
    }

    /// Waits until the rule was applied to a request.
    pub(crate) async fn arrived(&self) {
        self.until(|state| state.count > 0).await;
    }

    /// Ends the rule, and releases the requests that it holds.
    pub(crate) fn release(&self) {
        let mut state = self.state();
        state.open = true;
        state.left = 0;
        state.wakers.drain(..).for_each(Waker::wake);
    }

    /// Applies the late requests and copies now, each once. Returns whether their predicates
    /// held.
    pub(crate) async fn deliver(&self) -> Vec<Result<bool>> {
        let copies = std::mem::take(&mut self.state().copies);
        let mut results = Vec::new();
        for (table, request) in copies {
            results.push(table.check_and_mutate_row(request).await);
        }
        results
    }

    pub(crate) async fn opened(&self) {
        self.until(|state| state.open).await;
    }

    async fn until(&self, holds: impl Fn(&CaughtState) -> bool) {
        poll_fn(|cx| {
            let mut state = self.state();
            if holds(&state) {
                return Poll::Ready(());
            }
            state.wakers.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn take(&self, request: &Request) -> bool {
        let mut state = self.state();
        if state.left == 0 || !(self.matches)(request) {
            return false;
        }
        state.left -= 1;
        state.count += 1;
        state.wakers.drain(..).for_each(Waker::wake);
        true
    }
}

/// How a store behaves at random. Each number means one in this many requests; zero means
/// never.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weather {
    pub(crate) delay_max: Duration,
    pub(crate) fail: u64,
    pub(crate) drop_reply: u64,
    pub(crate) late: u64,
    pub(crate) duplicate: u64,
    /// The longest delay of late requests and copies.
    pub(crate) late_max: Duration,
}

pub(crate) struct FaultyStore {
    pub(crate) inner: Arc<dyn Store>,
    shared: Arc<Shared>,
}

struct Shared {
    runtime: VirtualRuntime,
    rules: Mutex<Vec<Arc<Caught>>>,
    trace: Mutex<Vec<Request>>,
    own_writes: Mutex<Vec<OwnWrite>>,
    tablets_asked: AtomicUsize,
    weather: Mutex<Weather>,
    /// The keys at which each table is cut into tablets.
    boundaries: Mutex<Vec<RowKey>>,
    unpublished: Unpublished,
    states_limits: AtomicBool,
    in_process: AtomicBool,
}

/// A gate that is released when the one-step commit in flight, if there is one, is published.
type Unpublished = Arc<Mutex<Option<Arc<Caught>>>>;

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyStore")
    }
}

impl FaultyStore {
    pub(crate) fn new(runtime: &VirtualRuntime, inner: Arc<dyn Store>) -> Self {
        let shared = Shared {
            runtime: runtime.clone(),
            rules: Mutex::default(),
            trace: Mutex::default(),
            own_writes: Mutex::default(),
            tablets_asked: AtomicUsize::new(0),
            weather: Mutex::default(),
            boundaries: Mutex::default(),
            unpublished: Arc::default(),
            states_limits: AtomicBool::new(true),
            in_process: AtomicBool::new(false),
        };
        FaultyStore { inner, shared: Arc::new(shared) }
    }

    /// The same store as another client sees it, to whom other rules apply.
    pub(crate) fn beside(&self) -> Self {
        let beside = FaultyStore::new(&self.shared.runtime, self.inner.clone());
        let shared = Arc::into_inner(beside.shared).expect("it is new");
        let unpublished = self.shared.unpublished.clone();
        FaultyStore { inner: beside.inner, shared: Arc::new(Shared { unpublished, ..shared }) }
    }

    /// From now on clients find the store in their own process: they glance at it. Commits in one
    /// step pass without faults.
    pub(crate) fn enter_process(&self) {
        self.shared.in_process.store(true, Ordering::Relaxed);
    }

    fn is_in_process(&self) -> bool {
        self.shared.in_process.load(Ordering::Relaxed)
    }

    /// From now on readers that name their snapshot wait until the returned gate is released.
    pub(crate) fn begin_publishing(&self) -> Arc<Caught> {
        let published = Caught::gate();
        *self.shared.unpublished.lock().unwrap() = Some(published.clone());
        published
    }

    pub(crate) fn is_publishing(&self) -> bool {
        self.shared.unpublished.lock().unwrap().as_ref().is_some_and(|gate| !gate.state().open)
    }

    /// Applies a fault to the next `times` requests of this kind on this row.
    pub(crate) fn on(&self, op: Op, row: &str, times: usize, fault: Fault) -> Arc<Caught> {
        let row = RowKey::from(row);
        self.when(times, fault, move |request| request.op == op && request.row == row)
    }

    /// Applies a fault to the next `times` requests that match.
    pub(crate) fn when(
        &self,
        times: usize,
        fault: Fault,
        matches: impl Fn(&Request) -> bool + Send + Sync + 'static,
    ) -> Arc<Caught> {
        let state = CaughtState { left: times, ..CaughtState::default() };
        let caught =
            Arc::new(Caught { matches: Box::new(matches), fault, state: Mutex::new(state) });
        self.shared.rules.lock().unwrap().push(caught.clone());
        caught
    }

    pub(crate) fn set_weather(&self, weather: Weather) {
        *self.shared.weather.lock().unwrap() = weather;
    }

    pub(crate) fn set_boundaries(&self, boundaries: Vec<RowKey>) {
        *self.shared.boundaries.lock().unwrap() = boundaries;
    }

    /// Sets whether the store states its limits. The stores for which older programs were
    /// written did not. The store has the limits in either case.
    pub(crate) fn state_limits(&self, yes: bool) {
        self.shared.states_limits.store(yes, Ordering::SeqCst);
    }

    /// The limits that the store has, whether it states them or not.
    pub(crate) fn inner_limits(&self) -> Limits {
        self.inner.limits()
    }

    /// The requests so far, in the order in which they were made.
    pub(crate) fn trace(&self) -> Vec<Request> {
        self.shared.trace.lock().unwrap().clone()
    }

    /// The writes to Percolator's own tables so far.
    pub(crate) fn own_writes(&self) -> Vec<OwnWrite> {
        self.shared.own_writes.lock().unwrap().clone()
    }

    /// How often a client asked for a table's tablets.
    pub(crate) fn tablets_asked(&self) -> usize {
        self.shared.tablets_asked.load(Ordering::SeqCst)
    }

    /// Forgets the trace so far.
    pub(crate) fn clear_trace(&self) {
        self.shared.trace.lock().unwrap().clear();
    }

    /// How many requests of a kind were made so far.
    pub(crate) fn count(&self, op: Op) -> usize {
        self.trace().iter().filter(|request| request.op == op).count()
    }
}

impl StoreLayer for FaultyStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn table(&self, inner: Arc<dyn Table>) -> Arc<dyn Table> {
        let (limits, shared) = (self.inner.limits(), self.shared.clone());
        Arc::new(FaultyTable { inner, limits, shared })
    }

    /// Every request changes one row. `one_step.rs` puts a store in front of this one that
    /// commits several.
    fn commits_rows(&self) -> bool {
        self.is_in_process()
    }

    fn limits(&self) -> Limits {
        if self.shared.states_limits.load(Ordering::SeqCst) {
            self.inner.limits()
        } else {
            Limits::default()
        }
    }
}

struct FaultyTable {
    inner: Arc<dyn Table>,
    /// The limits that the store states. Not every store refuses a larger request by itself.
    limits: Limits,
    shared: Arc<Shared>,
}

impl fmt::Debug for FaultyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.inner.name())
    }
}

impl FaultyTable {
    /// Records the request. Returns the fault that applies to it, if there is one.
    fn note(&self, op: Op, row: &RowKey) -> Option<(Fault, Arc<Caught>)> {
        // Notifications in a table of their own count for the row that they are about.
        let (table, row) = match self.inner.name().strip_prefix(NOTIFY_TABLE) {
            Some(table) => (table, RowKey::from(row.as_bytes().get(1..).unwrap_or_default())),
            None => (self.inner.name(), row.clone()),
        };
        let table = table.to_owned();
        let op = match op {
            Op::Read | Op::Scan if table.starts_with("percolator.") => Op::SystemRead,
            _ if table.starts_with("percolator.") => Op::System,
            op => op,
        };
        let request = Request { op, table, row };
        let rules = self.shared.rules.lock().unwrap().clone();
        let caught = rules.into_iter().find(|rule| rule.take(&request));
        self.shared.trace.lock().unwrap().push(request);
        caught.map(|rule| (rule.fault, rule))
    }

    fn note_own(&self, request: &ConditionalMutation) {
        if self.inner.name().starts_with("percolator.") {
            let exact = |time: &TimeRange| time.from == time.to;
            let mutations = request.then.iter().chain(&request.otherwise);
            let exact = request.predicate.iter().all(|probe| exact(&probe.time))
                && mutations.into_iter().all(|mutation| match mutation {
                    Mutation::Set { .. } => true,
                    Mutation::Delete { time, .. } => exact(time),
                });
            let write = OwnWrite { row: request.row.clone(), sync: request.sync, exact };
            self.shared.own_writes.lock().unwrap().push(write);
        }
    }

    async fn delay(&self) {
        let max = self.shared.weather.lock().unwrap().delay_max.as_nanos() as u64;
        if max > 0 {
            let nanos = self.shared.runtime.random() % max;
            self.shared.runtime.sleep(Duration::from_nanos(nanos)).await;
        }
    }

    fn one_in(&self, n: u64) -> bool {
        n > 0 && self.shared.runtime.random().is_multiple_of(n)
    }

    fn later(&self, request: ConditionalMutation, max: Duration) {
        let nanos = self.shared.runtime.random() % (max.as_nanos() as u64).max(1);
        let sleep = self.shared.runtime.sleep(Duration::from_nanos(nanos));
        let inner = self.inner.clone();
        self.shared.runtime.spawn(Box::pin(async move {
            sleep.await;
            let _ = inner.check_and_mutate_row(request).await;
        }));
    }

    async fn read_fault(&self, op: Op, row: &RowKey, select: &Selection) -> Result<()> {
        let unpublished = self.shared.unpublished.lock().unwrap().clone();
        if let Some(published) = unpublished.filter(|_| select.above.is_some()) {
            published.opened().await;
        }
        self.delay().await;
        let weather = *self.shared.weather.lock().unwrap();
        match self.note(op, row) {
            Some((Fault::Hold, rule)) => rule.opened().await,
            Some((Fault::Fail, _)) => return Err(unavailable()),
            _ if self.one_in(weather.fail) => return Err(unavailable()),
            _ => {}
        }
        Ok(())
    }

    async fn scripted(
        &self,
        request: ConditionalMutation,
        fault: Fault,
        rule: &Caught,
    ) -> Result<bool> {
        match fault {
            Fault::Hold => {
                rule.opened().await;
                self.inner.check_and_mutate_row(request).await
            }
            Fault::HoldReply => {
                let result = self.inner.check_and_mutate_row(request).await;
                rule.opened().await;
                result
            }
            Fault::Late => {
                rule.state().copies.push((self.inner.clone(), request));
                Err(unknown())
            }
            Fault::Duplicate => {
                rule.state().copies.push((self.inner.clone(), request.clone()));
                self.inner.check_and_mutate_row(request).await
            }
            Fault::DropReply => {
                self.inner.check_and_mutate_row(request).await?;
                Err(unknown())
            }
            Fault::Fail => Err(unavailable()),
            Fault::Refuse => Err(Error::invalid("by rule")),
        }
    }
}

impl TableLayer for FaultyTable {
    fn inner(&self) -> &dyn Table {
        &*self.inner
    }

    async fn read_row(&self, row: &RowKey, select: &Selection) -> Result<Row> {
        self.read_fault(Op::Read, row, select).await?;
        let read = self.inner.read_row(row, select).await;
        self.delay().await;
        read
    }

    /// Every read is a request, unless clients have the store in their own process.
    fn glance(&self, at: Glance<'_>) -> Result<Glanced> {
        if self.shared.in_process.load(Ordering::Relaxed) {
            self.inner.glance(at)
        } else {
            Ok(Glanced::Nothing)
        }
    }

    async fn read_rows(&self, rows: &[RowKey], select: &Selection) -> Result<Vec<Row>> {
        try_join_all(rows.iter().map(|row| TableLayer::read_row(self, row, select))).await
    }

    async fn scan(&self, range: &RowRange, select: &Selection, limit: PageLimit) -> Result<Page> {
        self.read_fault(Op::Scan, &RowKey::default(), select).await?;
        let page = self.inner.scan(range, select, limit).await;
        self.delay().await;
        page
    }

    async fn mutate_row(&self, request: RowMutation) -> Result<()> {
        let RowMutation { row, mutations: otherwise, sync } = request.clone();
        let own = ConditionalMutation { otherwise, sync, ..ConditionalMutation::new(row) };
        self.note_own(&own);
        // Other raw rows are those of the lock service and of status.
        if self.inner.name() == "percolator.trace"
            && let Some((fault, rule)) = self.note(Op::System, &own.row)
        {
            return self.scripted(own, fault, &rule).await.map(drop);
        }
        self.inner.mutate_row(request).await
    }

    async fn check_and_mutate_row(&self, request: ConditionalMutation) -> Result<bool> {
        self.limits.check(request.size())?;
        self.note_own(&request);
        self.delay().await;
        let op = classify(&request);
        if let Some((fault, rule)) = self.note(op, &request.row) {
            return self.scripted(request, fault, &rule).await;
        }
        let weather = *self.shared.weather.lock().unwrap();
        if self.one_in(weather.fail) {
            return Err(unavailable());
        }
        if self.one_in(weather.late) {
            self.later(request, weather.late_max);
            return Err(unknown());
        }
        if self.one_in(weather.duplicate) {
            self.later(request.clone(), weather.late_max);
        }
        let result = self.inner.check_and_mutate_row(request).await;
        self.delay().await;
        if self.one_in(weather.drop_reply) { Err(unknown()) } else { result }
    }

    async fn check_and_mutate_rows(&self, requests: Vec<ConditionalMutation>) -> Vec<Result<bool>> {
        let each = requests.into_iter().map(|r| TableLayer::check_and_mutate_row(self, r));
        join_all(each).await
    }

    async fn tablets(&self) -> Result<Vec<RowRange>> {
        self.shared.tablets_asked.fetch_add(1, Ordering::SeqCst);
        let boundaries = self.shared.boundaries.lock().unwrap().clone();
        let mut tablets = Vec::new();
        let mut rest = RowRange::all();
        for boundary in boundaries {
            let end = std::ops::Bound::Excluded(boundary.clone());
            tablets.push(RowRange { start: rest.start, end });
            rest = RowRange { start: std::ops::Bound::Included(boundary), end: rest.end };
        }
        tablets.push(rest);
        Ok(tablets)
    }
}

fn unknown() -> Error {
    Error::Unknown { why: "the reply was lost".to_owned() }
}

fn unavailable() -> Error {
    Error::Unavailable { why: "by rule".to_owned() }
}

fn classify(request: &ConditionalMutation) -> Op {
    let sets = |mutations: &[Mutation], of: &Family| {
        mutations.iter().any(|m| matches!(m, Mutation::Set { family, .. } if family == of))
    };
    let deletes = |mutations: &[Mutation], of: &Family| {
        mutations.iter().any(|m| matches!(m, Mutation::Delete { family, .. } if family == of))
    };
    let (then, otherwise) = (&request.then, &request.otherwise);
    if sets(otherwise, &LOCK) {
        Op::Prewrite
    } else if sets(then, &WRITE) && request.above.is_some() {
        Op::CommitPrimary
    } else if sets(then, &WRITE) {
        Op::Commit
    } else if sets(then, &ROLLBACK) || sets(otherwise, &ROLLBACK) {
        Op::RollBackPrimary
    } else if sets(then, &LOCK) {
        Op::Heartbeat
    } else if deletes(then, &LOCK) {
        Op::RollBack
    } else if sets(otherwise, &Family::from_static("failed")) {
        Op::SetAside
    } else if sets(otherwise, &NOTIFY) {
        Op::Notify
    } else if [WRITE, DATA, ROLLBACK].iter().any(|family| deletes(otherwise, family)) {
        Op::Collect
    } else if deletes(otherwise, &NOTIFY) {
        Op::Clear
    } else {
        Op::Other
    }
}
