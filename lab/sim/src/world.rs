//! Builds a world: store, oracles, lock service, network, and the processes of the protocol.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use bigtable::sync::locked;
use futures::future::{Either, select};
use percolator_core::{Client, Error, LockService, Result, Sampling, Services, TableLocks, Watch};

use crate::book::Book;
use crate::executor::{Executor, ProcessId};
use crate::gathered::Gathers;
use crate::lock_service::{LockEndpoint, LockServer, RemoteLocks};
use crate::oracle::{OracleEndpoint, OracleServer, Oracles, RemoteOracle};
use crate::process::{Clock, ProcessRuntime};
use crate::remote_store::RemoteStore;
use crate::restrictions::Restrictions;
use crate::store::{StoreEndpoint, StoreServer};
use crate::swarm::{Swarm, Weather, is_like_hbase};
use crate::tally::Tally;
use crate::transport::{Server, Transport};
use crate::watching::Watching;
use crate::workload::Mix;

/// The error of a client that has abandoned its commit.
pub(crate) const HUNG_UP: &str = "its client hung up";
/// The shortest lifetime of a token in the store.
const TOKEN_MIN: Duration = Duration::from_millis(100);

/// The parts of one seed's world.
pub(crate) struct World {
    pub(crate) executor: Executor,
    pub(crate) transport: Transport,
    pub(crate) tally: Arc<Tally>,
    pub(crate) swarm: Swarm,
    pub(crate) mix: Mix,
    pub(crate) store: Arc<StoreServer>,
    pub(crate) locks: Arc<LockServer>,
    pub(crate) oracles: Arc<Oracles>,
    store_endpoint: Arc<dyn Server>,
    lock_endpoint: Arc<dyn Server>,
    /// The processes that faults may hit.
    members: Mutex<Vec<ProcessRuntime>>,
    book: Mutex<Book>,
    quota: AtomicU64,
    begun: AtomicBool,
    healed: AtomicBool,
    /// Whether the failing observer fails.
    pub(crate) broken: AtomicBool,
    /// Watches all clients, if the caller of the run asked for it.
    pub(crate) watching: OnceLock<Arc<Watching>>,
    /// Selects the transactions of which all clients leave a trace, if the run has traces.
    pub(crate) sampling: OnceLock<Sampling>,
}

shown_by_name!(World);

impl World {
    /// Creates a world in fair weather, with an oracle but without clients.
    pub(crate) fn new(seed: u64, restrictions: &Restrictions, trace: bool) -> Arc<World> {
        let executor = Executor::new(seed, trace);
        let mut swarm = executor.draw(Swarm::draw);
        if is_like_hbase(seed) {
            swarm.make_like_hbase(seed);
        }
        let mut mix = executor.draw(Mix::draw);
        restrictions.apply(&mut swarm, &mut mix);
        executor.schedule_by(swarm.policy);
        let tally = Arc::new(Tally::default());
        let transport = Transport::new(&executor, &tally, Weather::fair());
        let store = Arc::new(StoreServer::new(&executor, &transport, &tally, &swarm));
        let locks = Arc::new(LockServer::new(new_runtime(&executor, &swarm)));
        let world = Arc::new(World {
            store_endpoint: Arc::new(StoreEndpoint(store.clone())),
            lock_endpoint: Arc::new(LockEndpoint(locks.clone())),
            quota: AtomicU64::new(swarm.transactions),
            executor,
            transport,
            tally,
            swarm,
            mix,
            store,
            locks,
            oracles: Arc::default(),
            members: Mutex::default(),
            book: Mutex::default(),
            begun: AtomicBool::new(false),
            healed: AtomicBool::new(false),
            broken: AtomicBool::new(true),
            watching: OnceLock::new(),
            sampling: OnceLock::new(),
        });
        world.start_oracle();
        if world.swarm.stand_by {
            world.start_oracle();
        }
        world
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        locked(&self.book)
    }

    pub(crate) fn now(&self) -> Duration {
        self.executor.now()
    }

    /// Waits for a commit as long as its client's patience lasts, then abandons it.
    pub(crate) async fn patiently<T>(&self, commit: impl Future<Output = Result<T>>) -> Result<T> {
        let Some(longest) = self.swarm.patience.filter(|_| self.has_begun() && !self.is_healed())
        else {
            return commit.await;
        };
        let micros = self.executor.draw(|rng| rng.between(0, longest.as_micros() as u64));
        let patience = self.executor.sleep(Duration::from_micros(micros));
        match select(pin!(commit), pin!(patience)).await {
            Either::Left((result, _)) => result,
            Either::Right(_) => Err(Error::Unavailable(HUNG_UP.to_owned())),
        }
    }

    /// Waits, in virtual time.
    pub(crate) async fn sleep_ms(&self, ms: u64) {
        self.executor.sleep(Duration::from_millis(ms)).await;
    }

    /// Draws a number from `low` to `high`.
    pub(crate) fn between(&self, low: u64, high: u64) -> u64 {
        self.executor.draw(|rng| rng.between(low, high))
    }

    /// Returns true with a chance of one in `n`.
    pub(crate) fn one_in(&self, n: u64) -> bool {
        self.between(1, n) == 1
    }

    /// Takes one transaction out of the quota. Returns false if the quota is used up.
    pub(crate) fn take_quota(&self) -> bool {
        let take = |left: u64| left.checked_sub(1);
        self.quota.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Ends the quota, so that clients begin no further work.
    pub(crate) fn end_quota(&self) {
        self.quota.store(0, Ordering::Relaxed);
    }

    pub(crate) fn has_quota(&self) -> bool {
        self.quota.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn is_healed(&self) -> bool {
        self.healed.load(Ordering::Relaxed)
    }

    /// Returns whether the storm has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Starts the seed's weather.
    pub(crate) fn begin_storm(&self) {
        self.begun.store(true, Ordering::Relaxed);
        self.transport.set_weather(self.swarm.weather);
    }

    /// Ends all faults, and starts an oracle that every client knows and that will lead.
    pub(crate) fn heal(self: &Arc<Self>) {
        self.healed.store(true, Ordering::Relaxed);
        self.broken.store(false, Ordering::Relaxed);
        self.transport.set_weather(Weather::fair());
        self.transport.mend_all();
        self.store.restart();
        let servers = [self.store.process, self.locks.process];
        let members = locked(&self.members).clone();
        let oracle = self.oracles.newest();
        for process in members.iter().map(|m| m.process).chain(servers).chain(oracle) {
            self.executor.resume(process);
        }
        self.start_oracle();
        // An older oracle that still tries to lead must not take over from the new one.
        self.oracles.keep_newest().into_iter().for_each(|old| self.executor.kill(old));
        self.executor.note("healed", (0, 0), String::new);
    }

    /// Creates a process that faults may hit.
    pub(crate) fn new_member(&self) -> ProcessRuntime {
        let member = self.new_process();
        locked(&self.members).push(member.clone());
        member
    }

    pub(crate) fn new_process(&self) -> ProcessRuntime {
        new_runtime(&self.executor, &self.swarm)
    }

    /// Draws one of the live members.
    pub(crate) fn any_member(&self) -> Option<ProcessRuntime> {
        let mut members = locked(&self.members);
        members.retain(|member| !self.executor.is_dead(member.process));
        self.executor.draw(|rng| rng.pick(&members).cloned())
    }

    /// Ends a process where it stands. Its session with the lock service ends some time later.
    pub(crate) fn kill(&self, process: ProcessId) {
        self.executor.kill(process);
        self.locks.end_sessions(process, self.swarm.session_timeout);
    }

    /// Starts an oracle that takes over from earlier ones, or stands by for them.
    pub(crate) fn start_oracle(&self) {
        let runtime = self.new_process();
        let process = runtime.process;
        let store = self.remote_store(process);
        let server = if self.swarm.stand_by {
            OracleServer::stand_by(runtime, store, self.swarm.window)
        } else {
            OracleServer::start(runtime, store, self.swarm.window)
        };
        let endpoint = Arc::new(OracleEndpoint(server.clone()));
        let forgotten = self.oracles.add(process, server, endpoint);
        if let Some(forgotten) = forgotten.filter(|_| self.swarm.stand_by) {
            // An oracle that no client knows must not lead.
            self.executor.kill(forgotten);
        }
    }

    pub(crate) fn remote_store(&self, process: ProcessId) -> RemoteStore {
        RemoteStore {
            process,
            transport: self.transport.clone(),
            server: self.store.clone(),
            endpoint: self.store_endpoint.clone(),
            timeout: self.swarm.timeout,
            splits_batches: self.swarm.splits_batches,
            one_step: self.swarm.one_step,
            glances: self.swarm.glances,
            gathers: Gathers::new(&self.executor, self.swarm.gather()),
            tally: self.tally.clone(),
        }
    }

    /// Opens a client in a process, and tries again until that succeeds.
    pub(crate) async fn client(&self, runtime: &ProcessRuntime) -> Client {
        let timeout = self.swarm.timeout;
        let services = crate::mutated::services(Services {
            store: Arc::new(self.remote_store(runtime.process)),
            oracle: Arc::new(RemoteOracle {
                runtime: runtime.clone(),
                transport: self.transport.clone(),
                oracles: self.oracles.clone(),
                timeout,
                one_step: self.swarm.one_step,
                stand_by: self.swarm.stand_by,
            }),
            locks: self.lock_service(runtime).await,
            runtime: Arc::new(runtime.clone()),
        });
        let mut options = self.swarm.options.clone();
        options.trace = self.sampling.get().copied().unwrap_or_default();
        options.watch = self.watching.get().map(|watching| watching.clone() as Arc<dyn Watch>);
        loop {
            match Client::open(services.clone(), options.clone()).await {
                Ok(client) => return client,
                Err(_) => self.sleep_ms(self.between(1, 20)).await,
            }
        }
    }
}

impl World {
    /// Returns the lock service of a process: a server's, or the core's own in the store.
    async fn lock_service(&self, runtime: &ProcessRuntime) -> Arc<dyn LockService> {
        let process = runtime.process;
        if !self.swarm.table_locks {
            return Arc::new(RemoteLocks {
                process,
                transport: self.transport.clone(),
                server: self.locks.clone(),
                endpoint: self.lock_endpoint.clone(),
                timeout: self.swarm.timeout,
            });
        }
        let (store, lifetime) = (self.remote_store(process), self.swarm.session_timeout);
        let clock = Arc::new(runtime.clone());
        let locks = TableLocks::open(&store, clock, lifetime.max(TOKEN_MIN)).await;
        Arc::new(locks.expect("the table is opened without the network"))
    }
}

fn new_runtime(executor: &Executor, swarm: &Swarm) -> ProcessRuntime {
    let process = executor.new_process();
    let clock = Arc::new(executor.draw(|rng| Clock::draw(rng, swarm)));
    ProcessRuntime { executor: executor.clone(), process, clock }
}

#[cfg(test)]
mod tests {
    use bigtable::Store as _;

    use super::*;

    #[test]
    fn every_eighth_seed_has_a_store_like_hbase_and_the_rest_of_its_world_as_before() {
        let mut like_hbase = 0;
        for seed in 0..64 {
            let world = World::new(seed, &Restrictions::default(), false);
            if !is_like_hbase(seed) {
                continue;
            }
            like_hbase += 1;
            let swarm = &world.swarm;
            assert!(!swarm.apart && swarm.life.is_some() && !swarm.one_step, "{swarm:?}");
            assert!(world.store.inner().locality_groups(), "{swarm:?}");
            assert!(world.store.inner().request_life_max().is_some(), "{swarm:?}");
            let drawn = Executor::new(seed, false).draw(Swarm::draw);
            assert_eq!(format!("{:?}", swarm.faults), format!("{:?}", drawn.faults));
        }
        assert_eq!(like_hbase, 8);
    }
}
