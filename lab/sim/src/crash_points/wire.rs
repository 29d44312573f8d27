//! Carries requests between clients and store. It numbers the requests of some clients, and
//! applies a planned fault to those that the plan names.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use bigtable::layer::{StoreLayer, TableLayer};
use bigtable::sync::locked;
use bigtable::{
    ConditionalMutation, Error, Glance, Glanced, MemoryStore, Page, PageLimit, Result, Row, RowKey,
    RowRange, Selection, Store, Table, Timestamp,
};
use futures::future::{AbortHandle, join_all, try_join_all};
use percolator_core::{Oracle, Stamp, async_trait};

use crate::oracle_layer::OracleLayer;

/// The fault that a request suffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// The client dies before it sends the request.
    DieBefore,
    /// The request is applied, and the client dies without the reply.
    DieAfter,
    /// The client dies after it sent the request, which arrives after recovery.
    DieLate,
    /// The request is applied, the reply is lost, and the client goes on.
    ReplyLost,
    /// The request seems lost and the client goes on; the request arrives after recovery.
    Late,
    /// The request is applied and answered; a copy arrives after recovery.
    Copied,
    /// The request and its client stall until after recovery, then go on. Meanwhile the client
    /// is believed dead.
    Stall,
}

/// The kind of a request, which decides the fates that it can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Timestamp,
    Read,
    Mutation,
}

impl Kind {
    /// Returns the fates that differ in their effects.
    pub(super) fn fates(self) -> &'static [Fate] {
        use Fate::*;
        match self {
            // A request for a timestamp has no effect that its client could notice when it is
            // late or copied.
            Kind::Timestamp => &[DieBefore, DieAfter, ReplyLost, Stall],
            Kind::Read => &[DieBefore, ReplyLost, Stall],
            Kind::Mutation => &[DieBefore, DieAfter, DieLate, ReplyLost, Late, Copied, Stall],
        }
    }
}

/// A fate, for the request with this number.
pub(super) type Fault = (usize, Fate);

/// Changes a mutation on its way to the store. It is the identity, except in a test that
/// breaks the protocol to see that the audit notices.
pub(super) type Tamper = fn(ConditionalMutation) -> ConditionalMutation;

/// The state that all clients' connections share.
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

    /// Returns the numbered requests so far.
    pub(super) fn seen(&self) -> Vec<Kind> {
        locked(&self.state).seen.clone()
    }

    /// Delivers the late messages, and lets stalled clients go on.
    pub(super) async fn release(&self) {
        let late = {
            let mut state = locked(&self.state);
            state.released = true;
            state.stalled.drain(..).for_each(Waker::wake);
            std::mem::take(&mut state.late)
        };
        for (table, request) in late {
            // No caller waits for the reply.
            drop(table.check_and_mutate_row(request).await);
        }
    }

    async fn released(&self) {
        poll_fn(|cx| {
            let mut state = locked(&self.state);
            if state.released {
                return Poll::Ready(());
            }
            state.stalled.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// One client's end of the wire.
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

    /// Numbers the requests of this client from now on. `task` is aborted when the client dies.
    pub(super) fn number(&self, task: AbortHandle) {
        let mut state = locked(&self.state);
        (state.numbered, state.task) = (true, Some(task));
    }

    pub(super) fn is_stalled(&self) -> bool {
        locked(&self.state).stalled
    }

    pub(super) fn is_dead(&self) -> bool {
        locked(&self.state).dead
    }

    /// Returns the first timestamp that this client got after its requests were numbered.
    pub(super) fn first_timestamp(&self) -> Option<Timestamp> {
        locked(&self.state).first_timestamp
    }

    /// Numbers a request and returns its fate, if the plan has one.
    fn fate(&self, kind: Kind) -> Option<Fate> {
        if !locked(&self.state).numbered {
            return None;
        }
        let mut state = locked(&self.wire.state);
        let number = state.seen.len();
        state.seen.push(kind);
        state.plan.iter().find(|(at, _)| *at == number).map(|(_, fate)| *fate)
    }

    async fn die<T>(&self) -> T {
        {
            let mut state = locked(&self.state);
            state.dead = true;
            if let Some(task) = state.task.take() {
                task.abort();
            }
        }
        std::future::pending().await
    }

    async fn stall(&self) {
        locked(&self.state).stalled = true;
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

    /// A one-step commit is not offered, because each fate is about a request for one row.
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
        locked(&self.end.wire.state).late.push((self.inner.clone(), request));
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

    /// Answers nothing from memory, so that every read is a request.
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

    /// Sends each mutation as a message of its own.
    async fn check_and_mutate_rows(&self, requests: Vec<ConditionalMutation>) -> Vec<Result<bool>> {
        let each = requests.into_iter().map(|r| TableLayer::check_and_mutate_row(self, r));
        join_all(each).await
    }
}

/// The way from one client to the oracle.
#[async_trait]
impl OracleLayer for Arc<End> {
    async fn timestamp(&self, inner: &dyn Oracle) -> percolator_core::Result<Stamp> {
        let stamp = match self.fate(Kind::Timestamp) {
            None => inner.timestamp().await?,
            Some(Fate::DieAfter) => {
                inner.timestamp().await?;
                self.die().await
            }
            Some(Fate::ReplyLost) => {
                inner.timestamp().await?;
                return Err(percolator_core::Error::Oracle("the reply was lost".to_owned()));
            }
            Some(Fate::Stall) => {
                self.stall().await;
                inner.timestamp().await?
            }
            Some(_) => self.die().await,
        };
        let mut state = locked(&self.state);
        if state.numbered {
            state.first_timestamp.get_or_insert(stamp.timestamp);
        }
        Ok(stamp)
    }
}
