//! Represents a model at one point of one execution: its clients over one store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bigtable::{MemoryStore, Timestamp};
use futures::executor::block_on;
use percolator_core::{
    Change, Client, Incarnation, LockService, Observer, Options, Oracle, ProcessLocks,
    Registration, Result, Services, Transaction, WindowOracle, WorkerOptions, Workers,
};

use super::exchange::{Actor, Exchange, Message, Object, hash_of};
use super::parked::{ParkedLocks, ParkedRuntime, ParkedStore, Way, apply};
use crate::check::check;
use crate::check::raw::Dump;
use crate::crash_points::recover::resolve_all_locks;
use crate::history::{Cell, Finding, Op, Run};
use crate::logged::{COLUMN, Log, Step, open_tables, table_name, written_by};
use crate::oracle_layer::Layered;

/// The program of a client.
#[derive(Debug, Clone)]
pub(super) enum Program {
    /// Transactions, one after the other, each tried once.
    Transactions(Vec<Vec<Step>>),
    /// A worker that runs this many observers of the first cell's column.
    Worker(u8),
}

/// A model to explore, with its bounds.
#[derive(Debug, Clone)]
pub(super) struct Model {
    pub(super) name: &'static str,
    pub(super) bounds: &'static str,
    pub(super) cells: Vec<Cell>,
    pub(super) programs: Vec<Program>,
    /// How many messages may arrive twice.
    pub(super) copies: usize,
    /// The clients of which one may die, at any point.
    pub(super) mortal: Vec<Actor>,
    /// The clients of which one may be believed dead while it lives. A dead client may be
    /// believed dead at any later point.
    pub(super) suspected: Vec<Actor>,
    /// How many requests of each worker arrive. Without this bound a worker would go on for ever.
    pub(super) worker_requests: usize,
    /// Whether notifications are in tables of their own.
    pub(super) apart: bool,
    pub(super) tamper: Tamper,
}

/// Changes a mutation on its way to the store. It is the identity, except in a test that
/// breaks the protocol to see that the checkers notice.
pub(super) type Tamper = fn(bigtable::ConditionalMutation) -> bigtable::ConditionalMutation;

/// An event that can happen next.
#[derive(Debug, Clone)]
pub(super) enum Choice {
    /// A request and its reply arrive.
    Deliver(u64),
    /// A request and its reply arrive, and a copy of the request stays in flight.
    Copy(u64),
    /// A copy arrives, or a message whose sender gave up.
    Land(u64),
    /// A client dies.
    Die(Actor),
    /// A client's liveness token vanishes.
    Vanish(Actor),
}

/// The facts about a choice that decide whether it is independent of another choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Footprint {
    /// The choice's name, the same on all paths to one state.
    pub(super) key: u64,
    actor: Option<Actor>,
    worker: bool,
    object: Option<Object>,
    reads: bool,
    copies: bool,
}

impl Footprint {
    /// Returns whether both orders of the two choices have the same effect.
    pub(super) fn is_independent(&self, other: &Footprint) -> bool {
        let (Some(a), Some(b)) = (&self.object, &other.object) else { return false };
        let apart = self.actor.is_none() || self.actor != other.actor;
        // Workers share advisory locks, which they take and release without a choice of the
        // explorer.
        let workers = self.worker && other.worker;
        let both_copy = self.copies && other.copies;
        apart && !workers && !both_copy && (!a.meets(b) || (self.reads && other.reads))
    }
}

/// The world of a model; the module's documentation describes it.
pub(super) struct World {
    model: Model,
    store: Arc<MemoryStore>,
    locks: Arc<ProcessLocks>,
    oracle: Arc<dyn Oracle>,
    exchange: Arc<Exchange>,
    log: Log,
    clients: Vec<Client>,
    /// The workers are kept because dropping them stops them.
    workers: Vec<Workers>,
    /// A bit for each client whose transactions have all ended.
    finished: Arc<AtomicUsize>,
    copies: usize,
    /// How many requests of each client have arrived.
    delivered: Vec<usize>,
    died: Vec<Actor>,
    vanished: Vec<Actor>,
    /// The store's contents when waiting clients were last woken because nothing else could
    /// happen.
    idle_at: Option<u64>,
}

impl World {
    /// Creates the model's first state.
    pub(super) fn new(model: &Model) -> Result<Self> {
        let store =
            if model.apart { MemoryStore::without_locality_groups() } else { MemoryStore::new() };
        let (store, log) = (Arc::new(store), Log::default());
        let actors = model.programs.len();
        let exchange = Exchange::new(actors + 1);
        let way = Way { exchange: exchange.clone(), actor: actors };
        let locks = Arc::new(ProcessLocks::new(Arc::new(ParkedRuntime { way })));
        let inner: Arc<dyn Oracle> =
            Arc::new(block_on(WindowOracle::open(&*store, Incarnation(1)))?);
        let oracle = Arc::new(Layered { inner, layer: log.clone() });
        let mut world = World {
            model: model.clone(),
            store,
            locks,
            oracle,
            exchange,
            log,
            clients: Vec::new(),
            workers: Vec::new(),
            finished: Arc::default(),
            copies: model.copies,
            delivered: vec![0; actors],
            died: Vec::new(),
            vanished: Vec::new(),
            idle_at: None,
        };
        // Workers start before the transactions, so that those know the observers.
        let is_worker = |program: &&Program| matches!(program, Program::Worker(_));
        world.populate(model.programs.iter().filter(is_worker).count())?;
        world.exchange.park(true);
        world.settle();
        Ok(world)
    }

    fn populate(&mut self, workers: usize) -> Result<()> {
        for actor in 0..self.model.programs.len() {
            let client = self.client(actor)?;
            self.clients.push(client);
        }
        if workers > 0 {
            for (actor, program) in self.model.programs.iter().enumerate() {
                if let Program::Worker(observers) = program {
                    let registrations = (0..*observers).map(|n| self.registration(n)).collect();
                    let options = WorkerOptions { threads: 1, ..WorkerOptions::default() };
                    let observe = self.clients[actor].observe(registrations, options);
                    self.workers.push(block_on(observe)?);
                    self.exchange.forgets(actor);
                }
            }
        }
        for (actor, program) in self.model.programs.iter().enumerate() {
            let Program::Transactions(transactions) = program.clone() else { continue };
            let (log, client) = (self.log.clone(), self.clients[actor].clone());
            let finished = self.finished.clone();
            self.exchange.spawn(
                actor,
                Box::pin(async move {
                    for steps in transactions {
                        // The log has the outcome.
                        drop(log.transaction(&client, &steps).await);
                    }
                    finished.fetch_or(1 << actor, Ordering::Relaxed);
                }),
            );
        }
        Ok(())
    }

    fn registration(&self, observer: u8) -> Registration {
        let (log, cell) = (self.log.clone(), self.model.cells[0]);
        let seen = Watch { log, cell };
        Registration::strong(observer_name(observer), table_name(cell.table), &COLUMN, seen)
    }

    fn client(&self, actor: Actor) -> Result<Client> {
        let way = Way { exchange: self.exchange.clone(), actor };
        let services = crate::mutated::services(Services {
            store: Arc::new(ParkedStore {
                inner: self.store.clone(),
                way: way.clone(),
                tamper: self.model.tamper,
            }),
            oracle: Arc::new(Layered { inner: self.oracle.clone(), layer: way.clone() }),
            locks: Arc::new(ParkedLocks { inner: self.locks.clone(), way: way.clone() }),
            runtime: Arc::new(ParkedRuntime { way }),
        });
        // The longest lifetime that other clients accept, so that heartbeats are not due.
        let lock_lifetime = std::time::Duration::from_secs(600);
        let client =
            block_on(Client::open(services, Options { lock_lifetime, ..Options::default() }))?;
        block_on(open_tables(&client, &self.model.cells))?;
        Ok(client)
    }

    /// Runs everything up to the next choice.
    fn settle(&mut self) {
        self.exchange.run();
        while self.exchange.is_quiet() && self.idle_at != Some(self.exchange.contents()) {
            self.idle_at = Some(self.exchange.contents());
            if !self.exchange.wake_the_busy() {
                break;
            }
            self.exchange.run();
        }
    }

    /// Returns the events that can happen next.
    pub(super) fn choices(&self) -> Vec<(Choice, Footprint)> {
        let mut choices = Vec::new();
        for (id, actor, message) in self.exchange.pending() {
            if self.is_at_its_end(actor) {
                continue;
            }
            let deliver = self.footprint("deliver", Some(actor), &message);
            if self.copies > 0 && message.mutation.is_some() {
                let copy = self.footprint("copy", Some(actor), &message);
                choices.push((Choice::Copy(id), Footprint { copies: true, ..copy }));
            }
            choices.push((Choice::Deliver(id), deliver));
        }
        for message in self.exchange.flying() {
            let land = self.footprint("land", None, &message);
            choices.push((Choice::Land(message.content), land));
        }
        let special = |what: &str, actor: Actor| Footprint {
            key: hash_of((what, actor)),
            actor: Some(actor),
            worker: false,
            object: None,
            reads: false,
            copies: false,
        };
        let mortal = self.model.mortal.iter().filter(|actor| !self.has_finished(**actor));
        for actor in mortal.filter(|_| self.died.is_empty()) {
            choices.push((Choice::Die(*actor), special("die", *actor)));
        }
        let suspects = self.model.suspected.iter().filter(|_| self.vanished.is_empty());
        let lost = self.died.iter().chain(suspects);
        for actor in lost.filter(|actor| !self.vanished.contains(actor)) {
            choices.push((Choice::Vanish(*actor), special("vanish", *actor)));
        }
        choices
    }

    /// Returns whether the client is a worker that has made all its requests.
    fn is_at_its_end(&self, actor: Actor) -> bool {
        let is_worker = matches!(self.model.programs.get(actor), Some(Program::Worker(_)));
        is_worker && self.delivered[actor] >= self.model.worker_requests
    }

    fn footprint(&self, what: &str, actor: Option<Actor>, message: &Message) -> Footprint {
        let is_worker = |actor| matches!(self.model.programs[actor], Program::Worker(_));
        Footprint {
            key: hash_of((what, actor, message.content)),
            actor,
            worker: actor.is_some_and(is_worker),
            object: Some(message.object.clone()),
            reads: message.reads,
            copies: false,
        }
    }

    /// Lets a chosen event happen.
    pub(super) fn apply(&mut self, choice: &Choice) -> Result<()> {
        if let Choice::Deliver(id) = choice {
            let pending = self.exchange.pending().into_iter().find(|(pending, ..)| pending == id);
            if let Some((_, actor, _)) = pending {
                self.delivered[actor] += 1;
            }
        }
        match choice {
            Choice::Deliver(id) => self.exchange.grant(*id, false),
            Choice::Copy(id) => {
                self.copies -= 1;
                self.exchange.grant(*id, true);
            }
            Choice::Land(content) => {
                let message = self.exchange.land(*content);
                if let Some((table, request)) = message.and_then(|message| message.mutation) {
                    block_on(apply(&self.exchange, &*table, request))?;
                }
            }
            Choice::Die(actor) => {
                self.died.push(*actor);
                self.exchange.crash(*actor);
            }
            Choice::Vanish(actor) => {
                self.vanished.push(*actor);
                self.locks.unregister(self.clients[*actor].incarnation());
                self.exchange.holds(&Object::Tokens, hash_of(&self.vanished));
            }
        }
        self.settle();
        Ok(())
    }

    /// Returns a hash of everything that decides the further course.
    pub(super) fn fingerprint(&self) -> u64 {
        // The exchange's fingerprint covers the progress of writers, so their counts are left out.
        let workers = if self.workers.is_empty() { &[][..] } else { &self.delivered };
        let budget = (self.copies, workers, &self.died, &self.vanished);
        // Workers forget their position between passes. The check of an end reads the log, so
        // the log belongs to the state.
        let seen = if self.workers.is_empty() { Vec::new() } else { self.log.seen() };
        hash_of((self.exchange.fingerprint(), budget, self.idle_at, seen))
    }

    /// Returns whether no client waits for a reply that can still arrive.
    pub(super) fn is_quiet(&self) -> bool {
        self.exchange.is_quiet() || self.choices().is_empty()
    }

    /// Returns whether every transaction has ended or lost its client.
    pub(super) fn is_finished(&self) -> bool {
        let programs = self.model.programs.iter().enumerate();
        let mut with_end = programs.filter(|(_, p)| matches!(p, Program::Transactions(_)));
        with_end.all(|(actor, _)| self.has_finished(actor) || self.died.contains(&actor))
    }

    fn has_finished(&self, actor: Actor) -> bool {
        self.finished.load(Ordering::Relaxed) & (1 << actor) != 0
    }

    /// Ends all clients, resolves the locks that are left, and checks the result. The world
    /// cannot go on afterwards.
    pub(super) fn check(&mut self) -> Result<Vec<Finding>> {
        self.exchange.park(false);
        for (actor, client) in self.clients.iter().enumerate() {
            self.exchange.crash(actor);
            self.locks.unregister(client.incarnation());
        }
        let last = self.client(self.model.programs.len())?;
        block_on(resolve_all_locks(&last))?;
        let reads: Vec<_> = self.model.cells.iter().map(|cell| Step::Read(*cell)).collect();
        block_on(self.log.transaction(&last, &reads))?;
        let dump = block_on(Dump::of(&*self.store))?;
        let mut history = self.log.history(&dump);
        let observers = self.model.programs.iter().filter_map(|program| match program {
            Program::Worker(observers) => Some(*observers),
            Program::Transactions(_) => None,
        });
        for observer in 0..observers.max().unwrap_or(0) {
            let cell = self.model.cells[0];
            let acks = acknowledgements(&dump, observer);
            let run = |(_, start_ts): &(Timestamp, Timestamp)| Run {
                observer,
                cell,
                start_ts: *start_ts,
            };
            history.runs.extend(acks.iter().map(run));
            history.observed.push((observer, cell, acks.last().map(|(_, s)| *s)));
        }
        let mut findings = check(&history);
        findings.extend(dump.audit());
        Ok(findings)
    }
}

impl Drop for World {
    /// Breaks a cycle: the tasks hold the exchange, and the exchange holds the tasks.
    fn drop(&mut self) {
        for actor in 0..=self.model.programs.len() {
            self.exchange.crash(actor);
        }
    }
}

fn observer_name(observer: u8) -> String {
    format!("o{observer}")
}

/// Returns an observer's acknowledgements in a store with one observed cell, each as its
/// commit timestamp and the start timestamp that it acknowledges.
fn acknowledgements(dump: &Dump, observer: u8) -> Vec<(Timestamp, Timestamp)> {
    let column = format!("ack:{}/", observer_name(observer));
    let acks = dump.records.iter().filter(|r| r.cell.column.starts_with(column.as_bytes()));
    let mut acks: Vec<_> = acks
        .filter_map(|record| {
            let as_of: [u8; 8] = record.value.as_deref()?.try_into().ok()?;
            Some((record.commit_ts, Timestamp::new(u64::from_be_bytes(as_of))?))
        })
        .collect();
    acks.sort();
    acks
}

/// An observer that reads the observed cell and records what it read.
struct Watch {
    log: Log,
    cell: Cell,
}

impl Observer for Watch {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> Result<()> {
        let value = tx.get(&change.table, change.row.clone(), &change.column).await?;
        let writer = value.as_deref().and_then(written_by);
        self.log.add_run(tx.start_ts(), vec![Op::Read { cell: self.cell, writer }]);
        Ok(())
    }
}
