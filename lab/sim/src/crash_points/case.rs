//! Plays one case: a transaction, the faults that hit it, and the client that recovers after it.

use std::sync::Arc;
use std::time::Duration;

use bigtable::{MemoryStore, Store, Timestamp};
use futures::future::{AbortHandle, Abortable};
use percolator_core::testing::VirtualRuntime;
use percolator_core::{
    Change, Client, Incarnation, LockService, Observer, Options, Oracle, ProcessLocks,
    Registration, Result, Runtime, Services, Transaction, WindowOracle, WorkerOptions,
};

use super::recover::{Recoverer, resolve_all_locks};
use super::wire::{End, Fault, Kind, Tamper, Wire, WireStore};
use crate::check::raw::{Dump, RawRecord};
use crate::check::{check, property};
use crate::history::{Cell, Finding, Outcome};
use crate::logged::{COLUMN, Log, Step, cell, open_tables, raw, table_name};
use crate::oracle_layer::Layered;

/// The number of cells that the victim writes.
pub(super) const CELLS_MAX: usize = 3;

/// The places of the three cells and of their notifications. The first cell is the primary,
/// the last is observed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Placement {
    OneTable,
    TwoTables,
    /// The cells are in two tables, and their notifications in two others.
    NotifiedApart,
}

impl Placement {
    pub(super) const ALL: [Placement; 3] =
        [Placement::OneTable, Placement::TwoTables, Placement::NotifiedApart];

    fn cells(self) -> [Cell; CELLS_MAX] {
        match self {
            Placement::OneTable => [cell(0, 1), cell(0, 2), cell(0, 3)],
            Placement::TwoTables | Placement::NotifiedApart => [cell(0, 1), cell(0, 2), cell(1, 3)],
        }
    }

    fn store(self) -> MemoryStore {
        match self {
            Placement::OneTable | Placement::TwoTables => MemoryStore::new(),
            Placement::NotifiedApart => MemoryStore::without_locality_groups(),
        }
    }
}

/// The result of a case.
#[derive(Debug)]
pub(super) struct Report {
    /// The numbered requests: the victim's, then the recoverer's.
    pub(super) requests: Vec<Kind>,
    /// How many of these requests are the victim's.
    pub(super) of_victim: usize,
    /// The victim's commit timestamp, as the store has it.
    pub(super) committed: Option<Timestamp>,
    /// Whether the victim's client received a definite outcome.
    pub(super) told: bool,
    pub(super) findings: Vec<Finding>,
}

/// A case to run.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) placement: Placement,
    pub(super) recoverer: Recoverer,
    pub(super) faults: Vec<Fault>,
    pub(super) tamper: Tamper,
}

impl Case {
    /// Runs the case.
    pub(super) fn run(&self) -> Result<Report> {
        let runtime = VirtualRuntime::new(1);
        runtime.clone().block_on(async {
            let world = World::new(runtime, self).await?;
            world.play(self.recoverer).await
        })
    }
}

struct World {
    runtime: VirtualRuntime,
    store: Arc<MemoryStore>,
    oracle: Arc<dyn Oracle>,
    locks: Arc<ProcessLocks>,
    wire: Arc<Wire>,
    log: Log,
    cells: [Cell; CELLS_MAX],
}

/// A client with its end of the wire.
struct Process {
    client: Client,
    end: Arc<End>,
}

impl World {
    /// Creates a store whose cells hold a first value, and registers an observer of the last cell.
    async fn new(runtime: VirtualRuntime, case: &Case) -> Result<Self> {
        let (store, log) = (Arc::new(case.placement.store()), Log::default());
        let inner: Arc<dyn Oracle> = Arc::new(WindowOracle::open(&*store, Incarnation(1)).await?);
        let oracle = Arc::new(Layered { inner, layer: log.clone() });
        let locks = Arc::new(ProcessLocks::new(Arc::new(runtime.clone())));
        let (wire, cells) = (Wire::new(&case.faults, case.tamper), case.placement.cells());
        let world = World { runtime, store, oracle, locks, wire, log, cells };
        let setup = world.process().await?;
        let table = table_name(world.observed().table);
        let registration = Registration::strong("o", table, &COLUMN, Nothing);
        let options = WorkerOptions { threads: 1, ..WorkerOptions::default() };
        setup.client.observe(vec![registration], options).await?.stop().await;
        world.log.transaction(&setup.client, &world.cells.map(Step::Write)).await?;
        Ok(world)
    }

    fn observed(&self) -> Cell {
        self.cells[CELLS_MAX - 1]
    }

    async fn process(&self) -> Result<Process> {
        let end = End::new(&self.wire);
        let services = crate::mutated::services(Services {
            store: Arc::new(WireStore { inner: self.store.clone(), end: end.clone() }),
            oracle: Arc::new(Layered { inner: self.oracle.clone(), layer: end.clone() }),
            locks: self.locks.clone(),
            runtime: Arc::new(self.runtime.clone()),
        });
        let client = Client::open(services, Options::default()).await?;
        open_tables(&client, &self.cells).await?;
        Ok(Process { client, end })
    }

    /// Runs a task of a numbered client until the task has ended, died or stalled.
    async fn start(&self, process: &Process, task: impl Future<Output = ()> + Send + 'static) {
        let (handle, registration) = AbortHandle::new_pair();
        process.end.number(handle.clone());
        let (done, mut ended) = futures::channel::oneshot::channel::<()>();
        let task = Abortable::new(task, registration);
        self.runtime.spawn(Box::pin(async move {
            // An aborted task is expected: the fault killed the client.
            let _ = task.await;
            let _ = done.send(());
        }));
        while !process.end.is_stalled() && matches!(ended.try_recv(), Ok(None)) {
            self.runtime.sleep(Duration::from_millis(1)).await;
        }
        // A client that ended without dying keeps its liveness token, and recovery must work
        // nevertheless.
        if process.end.is_dead() || process.end.is_stalled() {
            self.locks.unregister(process.client.incarnation());
        }
    }

    async fn play(self, recoverer: Recoverer) -> Result<Report> {
        let victim = self.process().await?;
        let (log, client, steps) =
            (self.log.clone(), victim.client.clone(), self.cells.map(Step::Write));
        self.start(&victim, async move { drop(log.transaction(&client, &steps).await) }).await;
        let of_victim = self.wire.seen().len();
        let before = Dump::of(&*self.store).await?;
        let first = self.process().await?;
        let (log, client, cells) = (self.log.clone(), first.client.clone(), self.cells);
        let recovery = async move { drop(recoverer.recover(&client, &log, &cells).await) };
        self.start(&first, recovery).await;
        let second = self.process().await?;
        recoverer.recover_until_done(&second.client, &self.log, &self.cells).await?;
        let recovered = Dump::of(&*self.store).await?;
        self.wire.release().await;
        let late = Dump::of(&*self.store).await?;
        // Stalled clients go on now, until they end.
        self.runtime.sleep(Duration::from_secs(60)).await;
        self.wire.release().await;
        let last = self.process().await?;
        resolve_all_locks(&last.client).await?;
        self.log.transaction(&last.client, &self.cells.map(Step::Read)).await?;
        let dump = Dump::of(&*self.store).await?;
        let mut findings = self.findings(&dump, before);
        if recovered.records != late.records {
            let facts = "a late request changed the records".to_owned();
            findings.push(Finding { property: property::WHOLE, facts });
        }
        let s = victim.end.first_timestamp();
        let record = dump.records.iter().find(|record| Some(record.start_ts) == s);
        Ok(Report {
            requests: self.wire.seen(),
            of_victim,
            committed: record.map(|record| record.commit_ts),
            told: s.and_then(|s| self.log.outcome(s)).is_some_and(|o| o != Outcome::Unknown),
            findings,
        })
    }

    /// Returns everything that is wrong at the end.
    ///
    /// Garbage collection may have dropped records, so the records of `before` are added.
    fn findings(&self, dump: &Dump, before: Dump) -> Vec<Finding> {
        let mut all = dump.clone();
        let kept = |record: &RawRecord| dump.records.contains(record);
        all.records.extend(before.records.into_iter().filter(|record| !kept(record)));
        let mut history = self.log.history(&all);
        history.observed = vec![(0, self.observed(), None)];
        let mut findings = check(&history);
        findings.extend(dump.audit());
        // No observer runs here, so the newest commit's own notification must still be in the
        // store. Where notifications are in tables of their own, one at a higher timestamp may
        // have replaced it. It may even come from a transaction that did not commit.
        let observed = raw(self.observed());
        let of = dump.records.iter().filter(|record| record.cell == observed);
        let newest = of.map(|record| record.commit_ts).max();
        let apart = !self.store.locality_groups();
        let noted = |c| {
            let mut of = dump.notifications.iter().filter(|(cell, _)| *cell == observed);
            of.any(|(_, at)| *at == c || (apart && *at > c))
        };
        if newest.is_some_and(|c| !noted(c)) {
            let facts = format!("the commit at {newest:?} left no notification of its own");
            findings.push(Finding { property: property::OBSERVED, facts });
        }
        for cell in &self.cells {
            let value = dump.newest(&raw(*cell)).cloned();
            let writer = value.as_deref().and_then(crate::logged::written_by);
            if writer.is_none() {
                let facts = format!("{cell:?} holds no writer's value: {value:?}");
                findings.push(Finding { property: property::DATA, facts });
            }
        }
        findings
    }
}

/// An observer that does nothing; only its registration matters.
struct Nothing;

impl Observer for Nothing {
    async fn observe(&self, _: &mut Transaction, _: &Change) -> Result<()> {
        Ok(())
    }
}
