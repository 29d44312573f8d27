//! Wraps store, oracle and runtime of a threaded run, and records their events.
//!
//! Time is a counter that every event advances, on any thread. A mutation enters the record
//! once the store has answered it, in no particular order. So the checks must not depend on an
//! order of mutations.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use bigtable::layer::{StoreLayer, TableLayer};
use bigtable::sync::locked;
use bigtable::{
    CommitRows, ConditionalMutation, Error, Family, Mutation, RowKey, RowsOutcome, Store, Table,
    TimeRange, Timestamp,
};
use futures::future::BoxFuture;
use percolator_core::{Oracle, Result, Runtime, Stamp, async_trait};
use tokio::runtime::Handle;

use crate::history::{Cell, Finding, Record, Run, Txn};
use crate::names::{ROLLBACK, WRITE, cell, table_number};
use crate::oracle_layer::OracleLayer;
use crate::random::Rng;
use crate::recording::Recorder;
use crate::write_record::Header;

/// The events of a run.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Counts events.
    clock: AtomicU64,
    /// How many mutations are in flight.
    under_way: AtomicU64,
    state: Mutex<Noted>,
}

/// The records of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Noted {
    pub(super) txns: Vec<Txn>,
    pub(super) views: Vec<(Timestamp, Vec<crate::history::Op>)>,
    pub(super) runs: Vec<Run>,
    pub(super) stamps: Vec<(Timestamp, Duration, Duration)>,
    pub(super) records: Vec<Record>,
    pub(super) tombs: Vec<(Cell, Timestamp)>,
    /// The cells whose records were dropped, with the time range of each deletion.
    dropped: Vec<(Cell, TimeRange)>,
    /// The newest timestamp up to which the store may drop superseded records by itself, by table.
    drops_up_to: BTreeMap<u8, Timestamp>,
    /// The records whose values lie in `data`. The store must not drop these by itself.
    apart: BTreeSet<(Cell, Timestamp)>,
    pub(super) findings: Vec<Finding>,
    /// Reads and commits that were refused because garbage collection had overtaken them.
    pub(super) too_old: u64,
}

impl Recorder for Events {
    fn enter(&self, txn: Txn) {
        self.noted().txns.push(txn);
    }

    fn find(&self, property: &'static str, facts: String) {
        self.noted().findings.push(Finding { property, facts });
    }
}

impl Events {
    pub(super) fn noted(&self) -> MutexGuard<'_, Noted> {
        locked(&self.state)
    }

    /// Returns the time, later than any before.
    pub(super) fn tick(&self) -> Duration {
        Duration::from_nanos(self.clock.fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// Returns whether every mutation that was sent is recorded.
    pub(super) fn are_complete(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) == 0
    }

    /// Carries a mutation out and records it, also if the caller is dropped: a caller that
    /// abandons a request does not cancel it.
    async fn to_the_end<T: Send + 'static>(
        self: &Arc<Self>,
        handle: &Handle,
        mutation: impl Future<Output = T> + Send + 'static,
    ) -> T {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let events = self.clone();
        let task = handle.spawn(async move {
            let result = mutation.await;
            events.under_way.fetch_sub(1, Ordering::SeqCst);
            result
        });
        match task.await {
            Ok(result) => result,
            // The run is over.
            Err(_) => pending().await,
        }
    }

    fn applied(&self, table: &str, row: &RowKey, effect: &[Mutation]) {
        let mut noted = self.noted();
        for mutation in effect {
            match mutation {
                Mutation::Set { family, qualifier, timestamp, value } => {
                    let Some(cell) = cell(table.as_bytes(), row, qualifier) else { continue };
                    if *family == ROLLBACK {
                        noted.tombs.push((cell, *timestamp));
                    } else if *family == WRITE {
                        match Record::decode(cell, *timestamp, value) {
                            Some(record) => {
                                let apart = Header::of(value).filter(Header::lies_apart);
                                noted.apart.extend(apart.map(|of| (cell, of.start_ts)));
                                noted.records.push(record);
                            }
                            None => {
                                let facts = format!("{cell:?} at {timestamp}: {value:?}");
                                noted.findings.push(Finding { property: "records", facts });
                            }
                        }
                    }
                }
                Mutation::Delete { family, qualifier, time } if *family == WRITE => {
                    let cell = cell(table.as_bytes(), row, qualifier);
                    noted.dropped.extend(cell.map(|cell| (cell, *time)));
                }
                _ => {}
            }
        }
    }
}

impl Noted {
    /// Returns the records that garbage collection dropped.
    pub(super) fn collected(&self) -> BTreeSet<(Cell, Timestamp)> {
        let of = |(cell, time): &(Cell, TimeRange)| {
            let in_range = |r: &&Record| r.cell == *cell && time.contains(r.commit_ts);
            self.records.iter().filter(in_range).map(|r| (r.cell, r.start_ts)).collect::<Vec<_>>()
        };
        self.dropped.iter().flat_map(of).collect()
    }

    /// Returns the records that the store may have dropped by itself. A newer record of the cell is
    /// at or below the timestamp that collection named, and the value is in the record.
    pub(super) fn droppable(&self) -> BTreeSet<(Cell, Timestamp)> {
        let mut records: Vec<_> = self.records.iter().collect();
        records.sort_by_key(|record| (record.cell, record.commit_ts));
        let superseded = records.iter().zip(records.iter().skip(1)).filter(|(older, newer)| {
            let up_to = self.drops_up_to.get(&older.cell.table);
            older.cell == newer.cell && up_to.is_some_and(|up_to| newer.commit_ts <= *up_to)
        });
        let known = superseded.map(|(older, _)| (older.cell, older.start_ts));
        known.filter(|known| !self.apart.contains(known)).collect()
    }
}

/// A store whose mutations are recorded.
#[derive(Debug)]
pub(super) struct RecordedStore<S> {
    pub(super) inner: Arc<S>,
    pub(super) events: Arc<Events>,
    pub(super) handle: Handle,
}

impl<S: Store + 'static> StoreLayer for RecordedStore<S> {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn table(&self, inner: Arc<dyn Table>) -> Arc<dyn Table> {
        let (events, handle) = (self.events.clone(), self.handle.clone());
        Arc::new(RecordedTable { inner, events, handle })
    }

    async fn commit_rows(&self, request: CommitRows) -> bigtable::Result<RowsOutcome> {
        let (inner, events) = (self.inner.clone(), self.events.clone());
        let commit = async move {
            let outcome = inner.commit_rows(request.clone()).await?;
            if let RowsOutcome::Committed(commit_ts) = outcome {
                for (index, part) in request.rows.iter().enumerate() {
                    let effect = request.at.mutations(index, commit_ts);
                    events.applied(&part.table, &part.row, &effect);
                }
            }
            Ok(outcome)
        };
        self.events.to_the_end(&self.handle, commit).await
    }

    /// Refuses, so that every commit is recorded by `commit_rows`.
    fn try_commit_rows(
        &self,
        request: CommitRows,
    ) -> std::result::Result<bigtable::Result<RowsOutcome>, CommitRows> {
        Err(request)
    }
}

#[derive(Debug, Clone)]
struct RecordedTable {
    inner: Arc<dyn Table>,
    events: Arc<Events>,
    handle: Handle,
}

impl RecordedTable {
    fn enter(&self, request: &ConditionalMutation, result: &bigtable::Result<bool>) {
        match result {
            Ok(true) => self.events.applied(self.inner.name(), &request.row, &request.then),
            Ok(false) => self.events.applied(self.inner.name(), &request.row, &request.otherwise),
            Err(error @ (Error::Unknown { .. } | Error::Files { .. })) => {
                self.events.find("sound disk", format!("row {}: {error}", request.row));
            }
            Err(_) => {}
        }
    }
}

impl TableLayer for RecordedTable {
    fn inner(&self) -> &dyn Table {
        &*self.inner
    }

    fn drop_superseded(&self, family: &Family, up_to: Timestamp, keep: fn(&[u8]) -> bool) -> bool {
        let table = table_number(self.inner.name().as_bytes());
        if let Some(table) = table.filter(|_| *family == WRITE) {
            let mut noted = self.events.noted();
            let known = noted.drops_up_to.entry(table).or_insert(up_to);
            *known = up_to.max(*known);
        }
        self.inner.drop_superseded(family, up_to, keep)
    }

    async fn check_and_mutate_row(&self, request: ConditionalMutation) -> bigtable::Result<bool> {
        let this = self.clone();
        let mutation = async move {
            let result = this.inner.check_and_mutate_row(request.clone()).await;
            this.enter(&request, &result);
            result
        };
        self.events.to_the_end(&self.handle, mutation).await
    }

    async fn check_and_mutate_rows(
        &self,
        requests: Vec<ConditionalMutation>,
    ) -> Vec<bigtable::Result<bool>> {
        let this = self.clone();
        let mutations = async move {
            let results = this.inner.check_and_mutate_rows(requests.clone()).await;
            requests.iter().zip(&results).for_each(|(request, result)| this.enter(request, result));
            results
        };
        self.events.to_the_end(&self.handle, mutations).await
    }
}

/// Records the timestamps of an oracle, including those that one-step commits take from its memory.
#[async_trait]
impl OracleLayer for Arc<Events> {
    async fn timestamp(&self, inner: &dyn Oracle) -> Result<Stamp> {
        let asked = self.tick();
        let stamp = inner.timestamp().await?;
        let arrived = self.tick();
        self.noted().stamps.push((stamp.timestamp, asked, arrived));
        Ok(stamp)
    }

    fn in_memory(&self, inner: &dyn Oracle) -> Option<Stamp> {
        let asked = self.tick();
        let stamp = inner.timestamp_in_memory()?;
        let arrived = self.tick();
        self.noted().stamps.push((stamp.timestamp, asked, arrived));
        Some(stamp)
    }
}

/// A runtime with real time and real threads.
#[derive(Debug)]
pub(super) struct Threads {
    pub(super) handle: tokio::runtime::Handle,
    pub(super) began: Instant,
    random: AtomicU64,
}

impl Threads {
    pub(super) fn new(handle: tokio::runtime::Handle, seed: u64) -> Self {
        Threads { handle, began: Instant::now(), random: AtomicU64::new(seed) }
    }
}

impl Runtime for Threads {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn wall_ms(&self) -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let _entered = self.handle.enter();
        Box::pin(tokio::time::sleep(duration))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.handle.spawn(task);
    }

    fn random(&self) -> u64 {
        let drawn = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        Rng::new(drawn).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_may_drop_what_a_record_below_the_safe_point_superseded() {
        let ts = |time| Timestamp::new(time).unwrap();
        let at = |table| Cell { table, row: 0, column: 0 };
        let mut noted = Noted { drops_up_to: [(0, ts(30))].into(), ..Noted::default() };
        // The order of the records says nothing. Table 1 was not named.
        for (table, commit_ts) in [(0, 40), (0, 10), (0, 30), (0, 20), (1, 10), (1, 20)] {
            let (commit_ts, start_ts) = (ts(commit_ts), ts(commit_ts - 1));
            noted.records.push(Record { cell: at(table), commit_ts, start_ts, delete: false });
        }
        assert_eq!(noted.droppable(), [(at(0), ts(9)), (at(0), ts(19))].into());
        noted.apart.insert((at(0), ts(9)));
        assert_eq!(noted.droppable(), [(at(0), ts(19))].into());
    }
}
