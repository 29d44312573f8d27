//! Tests oracles of several processes: which one leads, how soon another takes over, and that
//! no timestamp ever goes back (H40 to H43).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{AbortHandle, Abortable, BoxFuture};
use percolator_core::testing::VirtualRuntime;
use percolator_core::{
    Error, Incarnation, Oracle, OracleNode, OracleOptions, OracleRole, Runtime, Timestamp,
    WindowOracle,
};

use crate::faults::{Fault, Op, Weather};
use crate::world::{World, run, run_seed};

/// Virtual time on a clock that runs too fast or too slow.
#[derive(Debug)]
pub(crate) struct Clock {
    pub(crate) inner: VirtualRuntime,
    pub(crate) rate: f64,
}

impl Runtime for Clock {
    fn now(&self) -> Duration {
        self.inner.now().mul_f64(self.rate)
    }

    fn wall_ms(&self) -> u64 {
        self.inner.wall_ms()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.inner.sleep(duration.div_f64(self.rate))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.inner.spawn(task);
    }

    fn random(&self) -> u64 {
        self.inner.random()
    }
}

/// An oracle process. If it is paused, its memory can still be asked.
struct Process {
    node: Arc<OracleNode>,
    running: AbortHandle,
}

fn start(world: &World, address: &str, rate: f64) -> Process {
    let runtime = Arc::new(Clock { inner: world.runtime.clone(), rate });
    let options = OracleOptions { address: address.to_owned(), window: 1000 };
    let node = Arc::new(OracleNode::new(world.store.clone(), runtime, options).unwrap());
    let running = resume(world, &node);
    Process { node, running }
}

fn resume(world: &World, node: &Arc<OracleNode>) -> AbortHandle {
    let (running, registration) = AbortHandle::new_pair();
    let own = node.clone();
    let task = Abortable::new(async move { own.run().await }, registration);
    world.runtime.spawn(Box::pin(async move {
        let _ = task.await;
    }));
    running
}

impl Process {
    fn oracle(&self) -> Option<Arc<WindowOracle>> {
        match self.node.role() {
            OracleRole::Leads(oracle) => Some(oracle),
            OracleRole::StandsBy { .. } => None,
        }
    }

    async fn leads(&self, world: &World) -> Arc<WindowOracle> {
        loop {
            match self.oracle() {
                Some(oracle) => return oracle,
                None => world.sleep_ms(1).await,
            }
        }
    }

    fn leader(&self) -> Option<String> {
        match self.node.role() {
            OracleRole::StandsBy { leader, .. } => leader,
            OracleRole::Leads(_) => None,
        }
    }
}

async fn next(oracle: &WindowOracle) -> Timestamp {
    oracle.timestamp().await.unwrap().timestamp
}

#[test]
fn h41_a_standby_leads_within_three_seconds_of_a_leaders_death_and_above_it() {
    run(async |world| {
        let first = start(&world, "a:1", 1.0);
        let oracle = first.leads(&world).await;
        let (second, third) = (start(&world, "b:1", 1.0), start(&world, "c:1", 1.0));
        let mut last = Timestamp::ZERO;
        for _ in 0..50 {
            world.sleep_ms(200).await;
            let timestamp = next(&oracle).await;
            assert!(timestamp > last);
            last = timestamp;
        }
        assert_eq!(second.leader().as_deref(), Some("a:1"));
        first.running.abort();
        let died = world.runtime.now();
        let oracle =
            futures::future::select(Box::pin(second.leads(&world)), Box::pin(third.leads(&world)))
                .await
                .factor_first()
                .0;
        assert!(next(&oracle).await > last);
        let took = world.runtime.now() - died;
        assert!(took < Duration::from_secs(3), "{took:?}");
        world.sleep_ms(500).await;
        assert!(second.oracle().is_none() || third.oracle().is_none(), "one leads, not both");
        let addresses = [second.leader(), third.leader()];
        assert_eq!(addresses.iter().flatten().count(), 1, "the other knows: {addresses:?}");
    });
}

#[test]
fn h41_h42_a_paused_leader_that_wakes_answers_with_errors_and_stands_by() {
    run(async |world| {
        let first = start(&world, "a:1", 1.0);
        let paused = first.leads(&world).await;
        let last = next(&paused).await;
        let second = start(&world, "b:1", 1.0);
        world.sleep_ms(500).await;
        // No task of it runs any more, but it remembers its window.
        first.running.abort();
        let oracle = second.leads(&world).await;
        let new = next(&oracle).await;
        assert!(new > last);
        for _ in 0..3 {
            assert!(matches!(paused.timestamps(5).await, Err(Error::Oracle(_))));
            assert!(matches!(paused.peek().await, Err(Error::Oracle(_))));
            assert!(matches!(paused.schema_version().await, Err(Error::Oracle(_))));
            assert!(matches!(paused.raise_schema_version(9).await, Err(Error::Oracle(_))));
        }
        let _running = resume(&world, &first.node);
        world.sleep_ms(1000).await;
        assert_eq!(first.leader().as_deref(), Some("b:1"));
        assert!(next(&oracle).await > new);
    });
}

#[test]
fn a_leader_that_lives_is_left_alone_although_nobody_asks_it() {
    run(async |world| {
        let first = start(&world, "a:1", 1.09);
        let oracle = first.leads(&world).await;
        let second = start(&world, "b:1", 1.09);
        world.sleep_ms(60_000).await;
        assert!(second.oracle().is_none());
        let peeked = oracle.peek().await.unwrap();
        // Renewals fill the window up. If no timestamp was taken, they leave it alone.
        assert_eq!(next(&oracle).await.as_u64(), peeked.as_u64() + 1);
    });
}

#[test]
fn who_resigns_is_succeeded_at_once_and_serves_nothing_more() {
    run(async |world| {
        let first = start(&world, "a:1", 1.0);
        let old = first.leads(&world).await;
        let last = next(&old).await;
        let second = start(&world, "b:1", 1.0);
        world.sleep_ms(1000).await;
        let asked = world.runtime.now();
        first.node.resign().await.unwrap();
        assert!(matches!(old.timestamp().await, Err(Error::Oracle(_))));
        let oracle = second.leads(&world).await;
        assert!(world.runtime.now() - asked < Duration::from_millis(300));
        assert!(next(&oracle).await > last);
        world.sleep_ms(10_000).await;
        assert!(first.oracle().is_none(), "it does not stand by any more");
    });
}

#[test]
fn h42_who_resigns_serves_nothing_from_the_moment_its_record_may_say_so() {
    run(async |world| {
        let first = start(&world, "a:1", 1.0);
        let old = first.leads(&world).await;
        let last = next(&old).await;
        let second = start(&world, "b:1", 1.0);
        world.sleep_ms(1000).await;
        let slow = world.store.on(Op::System, "oracle", 1, Fault::HoldReply);
        let node = first.node.clone();
        let resigned = world.beside(async move { node.resign().await });
        slow.arrived().await;
        let oracle = second.leads(&world).await;
        let new = next(&oracle).await;
        assert!(new > last);
        // Another oracle leads. The one that resigns does not know yet that its record was
        // written.
        assert_eq!(old.timestamp_in_memory(), None, "after {new}");
        let asked = world.beside(async move { old.timestamp().await });
        world.sleep_ms(1).await;
        slow.release();
        resigned.await.unwrap().unwrap();
        assert!(matches!(asked.await.unwrap(), Err(Error::Oracle(_))));
        assert!(next(&oracle).await > new);
    });
}

#[test]
fn h43_a_lost_reply_of_any_write_changes_nothing_but_the_time() {
    for fault in [Fault::DropReply, Fault::Late, Fault::Fail, Fault::Duplicate] {
        for nth in 0..6 {
            run(async |world| {
                let first = start(&world, "a:1", 1.0);
                let mut rules = Vec::new();
                for n in 0..=nth {
                    let fault = if n < nth { Fault::Duplicate } else { fault };
                    rules.push(world.store.on(Op::System, "oracle", 1, fault));
                }
                let oracle = first.leads(&world).await;
                let mut last = Timestamp::ZERO;
                for _ in 0..30 {
                    world.sleep_ms(100).await;
                    let timestamp = next(&oracle).await;
                    assert!(timestamp > last);
                    last = timestamp;
                }
                for rule in rules {
                    rule.deliver().await;
                }
                assert!(next(&oracle).await > last, "{fault:?} of write {nth}");
            });
        }
    }
}

#[test]
fn ranges_are_checked_and_may_be_larger_than_the_window() {
    run(async |world| {
        let first = start(&world, "a:1", 1.0);
        let oracle = first.leads(&world).await;
        for count in [0, percolator_core::TIMESTAMPS_MAX + 1, u32::MAX] {
            assert!(matches!(oracle.timestamps(count).await, Err(Error::Invalid { .. })));
        }
        let mut above = 0;
        for count in [1, 999, 1000, 1001, 65_536, 1] {
            let range = oracle.timestamps(count).await.unwrap();
            assert!(range.first.as_u64() > above);
            assert_eq!(range.count, count);
            above = range.stamp(count - 1).unwrap().timestamp.as_u64();
        }
        assert_eq!(oracle.peek().await.unwrap().as_u64(), above);
        let options = OracleOptions { address: "x".repeat(256), window: 1 };
        let clock = Arc::new(world.runtime.clone());
        assert!(OracleNode::new(world.store.clone(), clock.clone(), options).is_err());
        let options = OracleOptions { address: String::new(), window: 0 };
        assert!(OracleNode::new(world.store.clone(), clock, options).is_err());
    });
}

/// The last timestamps are issued, and then there is a clear error (H46).
#[test]
fn h46_at_the_end_of_the_numbers_there_is_an_error() {
    run(async |world| {
        let schema = bigtable::TableSchema {
            groups: vec![bigtable::LocalityGroup::on_disk("system", bigtable::Layout::Versions)],
        };
        let system = world.store.inner.open_table("percolator.system", &schema).await.unwrap();
        let limit = Timestamp::MAX.as_u64() - 50;
        let record = [&1u64.to_be_bytes()[..], &limit.to_be_bytes(), &[0; 24]].concat();
        let family = bigtable::Family::from_static("system");
        let set = bigtable::Mutation::set(family, "window", Timestamp::ZERO, record);
        system.mutate_row(bigtable::RowMutation::new("oracle").mutation(set)).await.unwrap();
        let first = start(&world, "a:1", 1.0);
        let oracle = first.leads(&world).await;
        world.sleep_ms(1000).await;
        let mut last = Timestamp::ZERO;
        while let Ok(stamp) = oracle.timestamp().await {
            assert!(stamp.timestamp > last && stamp.timestamp < Timestamp::MAX);
            last = stamp.timestamp;
        }
        assert!(last.as_u64() >= limit);
        assert!(matches!(oracle.timestamps(2).await, Err(Error::Oracle(_))));
    });
}

/// The observations of a storm, over all processes.
#[derive(Default)]
struct Storm {
    /// Every oracle that ever led, and until when it is paused on the true clock.
    oracles: Vec<(Arc<WindowOracle>, Duration)>,
    highest: Option<Timestamp>,
    version: u64,
    answers: usize,
}

impl Storm {
    /// An oracle that once led and is not paused; usually the latest.
    fn one(&self, world: &World) -> Option<Arc<WindowOracle>> {
        let now = world.runtime.now();
        let mut awake = self.oracles.iter().rev().filter(|(_, until)| *until <= now);
        let skipped = world.runtime.random() % 3;
        awake.nth(skipped as usize).map(|(oracle, _)| oracle.clone())
    }

    fn meet(&mut self, oracle: Option<Arc<WindowOracle>>) {
        let known = |oracle: &Arc<WindowOracle>| {
            self.oracles.iter().any(|(known, _)| Arc::ptr_eq(known, oracle))
        };
        if let Some(oracle) = oracle.filter(|oracle| !known(oracle)) {
            self.oracles.push((oracle, Duration::ZERO));
        }
    }

    fn pause(&mut self, oracle: &Arc<WindowOracle>, until: Duration) {
        let paused = self.oracles.iter_mut().find(|(known, _)| Arc::ptr_eq(known, oracle));
        paused.into_iter().for_each(|(_, paused)| *paused = until);
    }
}

/// Asks the oracles, and checks each answer against all answers that arrived before the
/// question.
async fn ask(world: World, storm: Rc<RefCell<Storm>>) {
    for round in 0..400 {
        world.sleep_ms(world.runtime.random() % 120).await;
        let Some(oracle) = storm.borrow().one(&world) else { continue };
        let (before, version) = (storm.borrow().highest, storm.borrow().version);
        if round % 10 == 9 {
            if oracle.raise_schema_version(version + 1).await.is_ok() {
                let mut storm = storm.borrow_mut();
                storm.version = storm.version.max(version + 1);
            }
        } else if round % 10 == 5 {
            if let Ok(peeked) = oracle.peek().await {
                assert!(Some(peeked) >= before, "peeked {peeked} after {before:?}");
            }
        } else {
            let count = 1 + (world.runtime.random() % 20) as u32;
            if let Ok(range) = oracle.timestamps(count).await {
                assert!(Some(range.first) > before, "{range:?} after {before:?}");
                assert!(range.schema_version >= version, "{range:?} after version {version}");
                let last = range.stamp(count - 1).unwrap().timestamp;
                let mut storm = storm.borrow_mut();
                storm.highest = storm.highest.max(Some(last));
                storm.answers += 1;
            }
        }
    }
}

/// Pauses processes with their memory, and starts others in their place.
async fn trouble(world: World, storm: Rc<RefCell<Storm>>) {
    let rates = [0.915, 1.0, 1.085];
    let begin = |n: usize| start(&world, &format!("p:{n}"), rates[n]);
    let mut processes = [begin(0), begin(1), begin(2)];
    loop {
        for _ in 0..20 {
            world.sleep_ms(20 + world.runtime.random() % 60).await;
            processes.iter().for_each(|process| storm.borrow_mut().meet(process.oracle()));
        }
        let leader = processes.iter().position(|process| process.oracle().is_some());
        let victim = leader.unwrap_or(0);
        let process = &mut processes[victim];
        match (world.runtime.random() % 4, process.oracle()) {
            (0 | 1, Some(oracle)) => {
                process.running.abort();
                let pause = Duration::from_millis(600 + world.runtime.random() % 4000);
                storm.borrow_mut().pause(&oracle, world.runtime.now() + pause);
                if world.runtime.random().is_multiple_of(2) {
                    *process = begin(victim);
                } else {
                    let (world, node) = (world.clone(), process.node.clone());
                    process.running = {
                        let runtime = world.runtime.clone();
                        let (running, registration) = AbortHandle::new_pair();
                        let task = Abortable::new(
                            async move {
                                runtime.sleep(pause).await;
                                node.run().await;
                            },
                            registration,
                        );
                        world.runtime.spawn(Box::pin(async move {
                            let _ = task.await;
                        }));
                        running
                    };
                }
            }
            (2, Some(_)) => {
                let _ = process.node.resign().await;
                process.running.abort();
                *process = begin(victim);
            }
            _ => {}
        }
    }
}

/// Processes pause, die, resign and come back. Clocks differ by nearly a fifth. Requests are
/// lost, late and repeated. Every answer must lie above all answers that arrived before it was
/// requested.
#[test]
fn h41_h42_h43_no_storm_makes_timestamps_go_back() {
    let (answers, led) = (AtomicUsize::new(0), AtomicUsize::new(0));
    for seed in 0..40 {
        run_seed(seed, async |world| {
            world.store.set_weather(Weather {
                delay_max: Duration::from_millis(if seed % 2 == 0 { 5 } else { 200 }),
                fail: 25,
                drop_reply: 25,
                late: 25,
                duplicate: 15,
                late_max: Duration::from_secs(4),
            });
            let storm: Rc<RefCell<Storm>> = Rc::default();
            let clients = (0..4).map(|_| ask(world.clone(), storm.clone()));
            let clients = futures::future::join_all(clients);
            let trouble = trouble(world.clone(), storm.clone());
            futures::future::select(Box::pin(clients), Box::pin(trouble)).await;
            answers.fetch_add(storm.borrow().answers, Ordering::Relaxed);
            led.fetch_add(storm.borrow().oracles.len(), Ordering::Relaxed);
        });
    }
    let (answers, led) = (answers.into_inner(), led.into_inner());
    assert!(answers > 40 * 150 && led > 40 * 2, "{answers} answers of {led} leaders");
}

/// A node takes over the record of an oracle that ran alone, like any other record (H40).
#[test]
fn h40_a_node_begins_above_the_window_of_an_oracle_that_was_alone() {
    run(async |world| {
        // The world's own oracle was opened alone.
        let last = world.oracle.timestamp().await.unwrap().timestamp;
        let first = start(&world, "a:1", 1.0);
        let oracle = first.leads(&world).await;
        assert!(next(&oracle).await > last);
        let again = WindowOracle::open(&*world.store, Incarnation(77)).await.unwrap();
        assert!(next(&again).await > next(&oracle).await);
    });
}
