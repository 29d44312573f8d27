//! The way between clients and store: it numbers the requests of some clients, and lets a fate
//! befall those that a plan names.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

use bigtable::layer::{StoreLayer, TableLayer};
use bigtable::sync::locked;
use bigtable::{
    ConditionalMutation, Error, Glance, Glanced, MemoryStore, Page, PageLimit, Result, Row, RowKey,
    RowRange, Selection, Store, Table, Timestamp,
};
use futures::future::{AbortHandle, join_all, try_join_all};
use percolator_core::{Oracle, Stamp, async_trait};

/// What befalls a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Its client dies before sending it.
    DieBefore,
    /// It is applied, and its client dies without the reply.
    DieAfter,
    /// Its client dies having sent it; it arrives after recovery.
    DieLate,
    /// It is applied, its reply is lost, and its client goes on.
    ReplyLost,
    /// It seems lost and its client goes on; it arrives after recovery.
    Late,
    /// It is applied and answered; a copy arrives after recovery.
    Copied,
    /// It and its client stand still until after recovery, then go on; its client is taken for
    /// dead.
    Stall,
}

/// What a request does, as far as its fates go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Timestamp,
    Read,
    Mutation,
}

impl Kind {
    /// The fates that differ in their effects.
    pub(super) fn fates(self) -> &'static [Fate] {
        use Fate::*;
        match self {
            // Late or repeated it does nothing that its client could tell.
            Kind::Timestamp => &[DieBefore, DieAfter, ReplyLost, Stall],
            Kind::Read => &[DieBefore, ReplyLost, Stall],
            Kind::Mutation => &[DieBefore, DieAfter, DieLate, ReplyLost, Late, Copied, Stall],
        }
    }
}

/// A fate for the request of this number.
pub(super) type Fault = (usize, Fate);

/// What becomes of a mutation on its way: nothing, except where a test breaks the protocol to see
/// that it shows.
pub(super) type Tamper = fn(ConditionalMutation) -> ConditionalMutation;

/// What the ways of all clients share.
#[derive(Debug)]
pub(super) struct Wire {
    tamper: Tamper,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    plan: Vec<Fault>,
    /// The numbered requests so far.
    seen: Vec<Kind>,
    late: Vec<(Arc<dyn Table>, ConditionalMutation)>,
    stalled: Vec<Waker>,
    released: bool,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("plan", &self.plan).field("seen", &self.seen).finish()
    }
}

impl Wire {
    pub(super) fn new(plan: &[Fault], tamper: Tamper) -> Arc<Self> {
        let state = State { plan: plan.to_vec(), ..State::default() };
        Arc::new(Wire { tamper, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// The numbered requests so far.
    pub(super) fn seen(&self) -> Vec<Kind> {
        self.state().seen.clone()
    }

    /// Delivers what is late, and lets go of what stands still.
    pub(super) async fn release(&self) {
        let late = {
            let mut state = self.state();
            state.released = true;
            state.stalled.drain(..).for_each(Waker::wake);
            std::mem::take(&mut state.late)
        };
        for (table, request) in late {
            // Nobody waits for its reply.
            drop(table.check_and_mutate_row(request).await);
        }
    }

    async fn released(&self) {
        poll_fn(|cx| {
            let mut state = self.state();
            if state.released {
                return Poll::Ready(());
            }
            state.stalled.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// One client's end.
#[derive(Debug)]
pub(super) struct End {
    wire: Arc<Wire>,
    state: Mutex<EndState>,
}

#[derive(Debug, Default)]
struct EndState {
    numbered: bool,
    stalled: bool,
    dead: bool,
    first_timestamp: Option<Timestamp>,
    task: Option<AbortHandle>,
}

impl End {
    pub(super) fn new(wire: &Arc<Wire>) -> Arc<Self> {
        Arc::new(End { wire: wire.clone(), state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, EndState> {
        locked(&self.state)
    }

    /// From now on the requests of this client are numbered; `task` is what dies with it.
    pub(super) fn number(&self, task: AbortHandle) {
        let mut state = self.state();
        (state.numbered, state.task) = (true, Some(task));
    }

    pub(super) fn is_stalled(&self) -> bool {
        self.state().stalled
    }

    pub(super) fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// The first timestamp that this client got after its requests were numbered.
    pub(super) fn first_timestamp(&self) -> Option<Timestamp> {
        self.state().first_timestamp
    }

    /// Numbers a request and says what befalls it.
    fn fate(&self, kind: Kind) -> Option<Fate> {
        if !self.state().numbered {
            return None;
        }
        let mut state = self.wire.state();
        let number = state.seen.len();
        state.seen.push(kind);
        state.plan.iter().find(|(at, _)| *at == number).map(|(_, fate)| *fate)
    }

    async fn die<T>(&self) -> T {
        {
            let mut state = self.state();
            state.dead = true;
            if let Some(task) = state.task.take() {
                task.abort();
            }
        }
        std::future::pending().await
    }

    async fn stall(&self) {
        self.state().stalled = true;
        self.wire.released().await;
    }
}

/// The store as one client reaches it.
#[derive(Debug)]
pub(super) struct WireStore {
    pub(super) inner: Arc<MemoryStore>,
    pub(super) end: Arc<End>,
}

impl StoreLayer for WireStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn table(&self, inner: Arc<dyn Table>) -> Arc<dyn Table> {
        Arc::new(WireTable { inner, end: self.end.clone() })
    }

    /// A request is for one row.
    fn commits_rows(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct WireTable {
    inner: Arc<dyn Table>,
    end: Arc<End>,
}

impl WireTable {
    async fn before_read(&self) -> Result<()> {
        match self.end.fate(Kind::Read) {
            None => Ok(()),
            Some(Fate::ReplyLost) => Err(Error::Unavailable { why: "by plan".to_owned() }),
            Some(Fate::Stall) => {
                self.end.stall().await;
                Ok(())
            }
            Some(_) => self.end.die().await,
        }
    }

    fn later(&self, request: ConditionalMutation) {
        self.end.wire.state().late.push((self.inner.clone(), request));
    }
}

impl TableLayer for WireTable {
    fn inner(&self) -> &dyn Table {
        &*self.inner
    }

    async fn read_row(&self, row: &RowKey, select: &Selection) -> Result<Row> {
        self.before_read().await?;
        self.inner.read_row(row, select).await
    }

    /// Every read is a request.
    fn glance(&self, _: Glance<'_>) -> Result<Glanced> {
        Ok(Glanced::Nothing)
    }

    async fn read_rows(&self, rows: &[RowKey], select: &Selection) -> Result<Vec<Row>> {
        try_join_all(rows.iter().map(|row| TableLayer::read_row(self, row, select))).await
    }

    async fn scan(&self, range: &RowRange, select: &Selection, limit: PageLimit) -> Result<Page> {
        self.before_read().await?;
        self.inner.scan(range, select, limit).await
    }

    async fn check_and_mutate_row(&self, request: ConditionalMutation) -> Result<bool> {
        let lost = || Error::Unknown { why: "the reply was lost".to_owned() };
        let request = (self.end.wire.tamper)(request);
        match self.end.fate(Kind::Mutation) {
            None => self.inner.check_and_mutate_row(request).await,
            Some(Fate::DieBefore) => self.end.die().await,
            Some(Fate::DieAfter) => {
                self.inner.check_and_mutate_row(request).await?;
                self.end.die().await
            }
            Some(Fate::DieLate) => {
                self.later(request);
                self.end.die().await
            }
            Some(Fate::ReplyLost) => {
                self.inner.check_and_mutate_row(request).await?;
                Err(lost())
            }
            Some(Fate::Late) => {
                self.later(request);
                Err(lost())
            }
            Some(Fate::Copied) => {
                self.later(request.clone());
                self.inner.check_and_mutate_row(request).await
            }
            Some(Fate::Stall) => {
                self.end.stall().await;
                self.inner.check_and_mutate_row(request).await
            }
        }
    }

    /// Each is a message of its own.
    async fn check_and_mutate_rows(&self, requests: Vec<ConditionalMutation>) -> Vec<Result<bool>> {
        let each = requests.into_iter().map(|r| TableLayer::check_and_mutate_row(self, r));
        join_all(each).await
    }
}

/// The oracle as one client reaches it.
#[derive(Debug)]
pub(super) struct WireOracle {
    pub(super) inner: Arc<dyn Oracle>,
    pub(super) end: Arc<End>,
}

#[async_trait]
impl Oracle for WireOracle {
    async fn timestamp(&self) -> percolator_core::Result<Stamp> {
        let stamp = match self.end.fate(Kind::Timestamp) {
            None => self.inner.timestamp().await?,
            Some(Fate::DieAfter) => {
                self.inner.timestamp().await?;
                self.end.die().await
            }
            Some(Fate::ReplyLost) => {
                self.inner.timestamp().await?;
                return Err(percolator_core::Error::Oracle("the reply was lost".to_owned()));
            }
            Some(Fate::Stall) => {
                self.end.stall().await;
                self.inner.timestamp().await?
            }
            Some(_) => self.end.die().await,
        };
        let mut state = self.end.state();
        if state.numbered {
            state.first_timestamp.get_or_insert(stamp.timestamp);
        }
        Ok(stamp)
    }

    async fn peek(&self) -> percolator_core::Result<Timestamp> {
        self.inner.peek().await
    }

    async fn schema_version(&self) -> percolator_core::Result<u64> {
        self.inner.schema_version().await
    }

    async fn raise_schema_version(&self, version: u64) -> percolator_core::Result<()> {
        self.inner.raise_schema_version(version).await
    }
}
