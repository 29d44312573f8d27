//! Connects a client of a model to store, oracle, lock service and runtime, so that every
//! request waits in the exchange.

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use bigtable::layer::{StoreLayer, TableLayer};
use bigtable::{
    ConditionalMutation, Glance, Glanced, MemoryStore, Page, PageLimit, Result, Row, RowKey,
    RowRange, Selection, Store, Table, TimeRange,
};
use futures::future::{BoxFuture, join_all, try_join_all};
use percolator_core::{
    Holder, Incarnation, LockService, Oracle, ProcessLocks, Runtime, Stamp, async_trait,
};

use super::exchange::{Actor, Exchange, Message, Object, hash_of};
use super::world::Tamper;
use crate::check::raw::{DATA, LOCK, NOTIFY, ROLLBACK, WRITE};
use crate::codec::encode;
use crate::names::NOTIFY_TABLE;
use crate::oracle_layer::OracleLayer;

/// A client's connection to the exchange.
#[derive(Debug, Clone)]
pub(super) struct Way {
    pub(super) exchange: Arc<Exchange>,
    pub(super) actor: Actor,
}

impl Way {
    /// Waits for the explorer to let a request through. The request is discarded if its sender
    /// gives up.
    async fn ask(&self, object: &Object, content: u64, reads: bool) {
        let message = Message { object: object.clone(), content, reads, mutation: None };
        self.exchange.arrive(self.actor, message).await;
    }

    fn learned(&self, object: &Object, reads: bool, content: u64, reply: impl Hash) {
        self.exchange.learned(self.actor, object, reads, hash_of((content, reply)));
    }
}

/// The store as one client reaches it.
#[derive(Debug)]
pub(super) struct ParkedStore {
    pub(super) inner: Arc<MemoryStore>,
    pub(super) way: Way,
    pub(super) tamper: Tamper,
}

impl StoreLayer for ParkedStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn table(&self, inner: Arc<dyn Table>) -> Arc<dyn Table> {
        Arc::new(ParkedTable { inner, way: self.way.clone(), tamper: self.tamper })
    }

    /// A one-step commit is not offered, because each request of a model is for one row.
    fn commits_rows(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct ParkedTable {
    inner: Arc<dyn Table>,
    way: Way,
    tamper: Tamper,
}

impl ParkedTable {
    /// Percolator's own table is read and written only at the start, so its requests do not wait.
    fn is_system(&self) -> bool {
        self.inner.name() == "percolator.system"
    }
}

impl TableLayer for ParkedTable {
    fn inner(&self) -> &dyn Table {
        &*self.inner
    }

    async fn read_row(&self, row: &RowKey, select: &Selection) -> Result<Row> {
        if self.is_system() {
            return self.inner.read_row(row, select).await;
        }
        let object = Object::Row(self.inner.name().to_owned(), row.clone());
        let content = hash_of((&object, encode(&select.columns)));
        self.way.ask(&object, content, true).await;
        let found = self.inner.read_row(row, select).await?;
        self.way.learned(&object, true, content, encode(&found));
        Ok(found)
    }

    /// Answers nothing from memory, so that every read waits in the exchange.
    fn glance(&self, _: Glance<'_>) -> Result<Glanced> {
        Ok(Glanced::Nothing)
    }

    async fn read_rows(&self, rows: &[RowKey], select: &Selection) -> Result<Vec<Row>> {
        try_join_all(rows.iter().map(|row| TableLayer::read_row(self, row, select))).await
    }

    async fn scan(&self, range: &RowRange, select: &Selection, limit: PageLimit) -> Result<Page> {
        if self.is_system() {
            return self.inner.scan(range, select, limit).await;
        }
        let object = Object::Table(self.inner.name().to_owned());
        let content = hash_of((&object, encode(range), encode(&select.columns)));
        self.way.ask(&object, content, true).await;
        let page = self.inner.scan(range, select, limit).await?;
        self.way.learned(&object, true, content, encode(&page.rows));
        Ok(page)
    }

    async fn check_and_mutate_row(&self, request: ConditionalMutation) -> Result<bool> {
        if self.is_system() {
            return self.inner.check_and_mutate_row(request).await;
        }
        let request = (self.tamper)(request);
        let object = Object::Row(self.inner.name().to_owned(), request.row.clone());
        let content = hash_of((&object, encode(&request)));
        let message = Message {
            object: object.clone(),
            content,
            reads: false,
            mutation: Some((self.inner.clone(), request.clone())),
        };
        self.way.exchange.arrive(self.way.actor, message).await;
        let reply = apply(&self.way.exchange, &*self.inner, request).await?;
        self.way.learned(&object, false, content, reply);
        Ok(reply)
    }

    /// Sends each mutation as a message of its own.
    async fn check_and_mutate_rows(&self, requests: Vec<ConditionalMutation>) -> Vec<Result<bool>> {
        let each = requests.into_iter().map(|r| TableLayer::check_and_mutate_row(self, r));
        join_all(each).await
    }
}

/// Applies a mutation, and records the row's new contents.
pub(super) async fn apply(
    exchange: &Exchange,
    table: &dyn Table,
    request: ConditionalMutation,
) -> Result<bool> {
    let object = Object::Row(table.name().to_owned(), request.row.clone());
    let row = request.row.clone();
    let reply = table.check_and_mutate_row(request).await?;
    let mut select = Selection::default().family(NOTIFY, TimeRange::ALL, u32::MAX);
    if !table.name().starts_with(NOTIFY_TABLE) {
        for family in [DATA, LOCK, WRITE, ROLLBACK] {
            select = select.family(family, TimeRange::ALL, u32::MAX);
        }
    }
    exchange.holds(&object, hash_of(encode(&table.read_row(&row, &select).await?)));
    Ok(reply)
}

/// The way from one client to the oracle.
#[async_trait]
impl OracleLayer for Way {
    async fn timestamp(&self, inner: &dyn Oracle) -> percolator_core::Result<Stamp> {
        let content = hash_of("timestamp");
        self.ask(&Object::Oracle, content, false).await;
        let stamp = inner.timestamp().await?;
        self.exchange.holds(&Object::Oracle, stamp.timestamp.as_u64());
        // The timestamp is recorded under another object than the oracle. Otherwise each new
        // timestamp would wake every client that had requested one.
        let what = hash_of((content, stamp.timestamp));
        self.exchange.learned(self.actor, &Object::Tokens, false, what);
        Ok(stamp)
    }
}

/// The lock service as one client reaches it. It answers immediately: an event before the
/// answer could as well come before the request that follows.
#[derive(Debug)]
pub(super) struct ParkedLocks {
    pub(super) inner: Arc<ProcessLocks>,
    pub(super) way: Way,
}

#[async_trait]
impl LockService for ParkedLocks {
    async fn register(&self, owner: Incarnation) -> percolator_core::Result<()> {
        self.inner.register(owner).await
    }

    fn unregister(&self, owner: Incarnation) {
        self.inner.unregister(owner);
    }

    async fn is_alive(&self, owner: Incarnation) -> percolator_core::Result<bool> {
        let alive = self.inner.is_alive(owner).await?;
        self.way.learned(&Object::Tokens, true, hash_of(owner), alive);
        Ok(alive)
    }

    async fn try_lock(
        &self,
        name: &[u8],
        holder: Holder,
        lifetime: Duration,
    ) -> percolator_core::Result<bool> {
        let object = Object::Advisory(name.to_vec());
        let taken = self.inner.try_lock(name, holder, lifetime).await?;
        if taken {
            self.way.exchange.holds(&object, hash_of(holder.owner));
        }
        self.way.learned(&object, true, hash_of(&object), taken);
        Ok(taken)
    }

    async fn renew(
        &self,
        name: &[u8],
        holder: Holder,
        lifetime: Duration,
    ) -> percolator_core::Result<bool> {
        self.inner.renew(name, holder, lifetime).await
    }

    fn unlock(&self, name: &[u8], holder: Holder) {
        self.inner.unlock(name, holder);
        self.way.exchange.holds(&Object::Advisory(name.to_vec()), 0);
    }
}

/// A client's runtime. Its time moves only while the client sleeps, and never reaches a
/// lifetime. Instead, the loss of a liveness token is a choice of the explorer.
#[derive(Debug)]
pub(super) struct ParkedRuntime {
    pub(super) way: Way,
}

impl Runtime for ParkedRuntime {
    fn now(&self) -> Duration {
        self.way.exchange.now(self.way.actor)
    }

    fn wall_ms(&self) -> u64 {
        1_300_000_000_000
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.way.exchange.sleep(self.way.actor, duration)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.way.exchange.spawn(self.way.actor, task);
    }

    /// Returns a number that differs between clients and is always the same for one. It names
    /// the client, and nothing else in a model depends on it.
    fn random(&self) -> u64 {
        self.way.actor as u64 + 1
    }
}
