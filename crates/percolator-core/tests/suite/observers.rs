//! Tests failing observers, weak observers, and late timestamps (H56, H57, H60).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use percolator_core::testing::VirtualRuntime;
use percolator_core::{
    Client, Column, Error, Options, Oracle, Registration, Result, Runtime, Services, Stamp,
    Timestamp, WorkerOptions, async_trait,
};

use crate::faults::{Fault, NOTIFY, Op};
use crate::notifications::{COUNT, observe, one_thread};
use crate::world::{A, B, BAL, World, add, counting, get, get_column, observer, run_both, set};

const CHANGED: Column = Column::literal("f:changed");

#[test]
fn h56_an_observer_that_panics_is_tried_again_and_holds_nobody_up() {
    run_both(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let panics = Arc::new(AtomicU32::new(0));
        let counter = panics.clone();
        let shaky = observer(move |tx, change| {
            let panics = counter.clone();
            Box::pin(async move {
                assert!(change.row != "bad".into() || panics.fetch_add(1, SeqCst) >= 5, "not yet");
                add(tx, &change.table, &change.row, &COUNT, 1).await
            })
        });
        let workers = observe(&client, "o", shaky).await;
        let cells = [("a", "1"), ("bad", "1"), ("c", "1"), ("d", "1")];
        set(&client, &table, &cells).await;
        world.sleep_ms(50).await;
        for row in ["a", "c", "d"] {
            assert_eq!(get_column(&client, &table, row, &COUNT).await.as_deref(), Some("1"));
        }
        let report = client.wait_idle(None).await.unwrap();
        assert!(report.set_aside.is_empty());
        assert_eq!(panics.load(SeqCst), 6);
        assert_eq!(get_column(&client, &table, "bad", &COUNT).await.as_deref(), Some("1"));
        workers.stop().await;
    });
}

/// The system that the observer feeds is down for longer than the observer's attempts would
/// last.
#[test]
fn h56_a_change_is_not_set_aside_because_what_its_observer_feeds_is_away() {
    run_both(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let starts = Arc::new(AtomicU32::new(0));
        let counter = starts.clone();
        let feeding = observer(move |tx, change| {
            let start = counter.fetch_add(1, SeqCst);
            Box::pin(async move {
                if start < 20 {
                    return Err(Error::Unavailable("the printer is out of paper".to_owned()));
                }
                add(tx, &change.table, &change.row, &COUNT, 1).await
            })
        });
        let options = WorkerOptions { failures_max: 2, ..one_thread() };
        let registration = Registration::strong("o", "t", &BAL, feeding);
        let workers = client.observe(vec![registration], options).await.unwrap();
        set(&client, &table, &[("r", "1")]).await;
        let report = client.wait_idle(None).await.unwrap();
        assert!(report.idle && report.set_aside.is_empty(), "{report:?}");
        assert_eq!(starts.load(SeqCst), 21);
        assert_eq!(get_column(&client, &table, "r", &COUNT).await.as_deref(), Some("1"));
        workers.stop().await;
    });
}

#[test]
fn h56_what_keeps_failing_is_set_aside_and_comes_back_by_replay() {
    run_both(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let broken = Arc::new(AtomicBool::new(true));
        let registration = |name: &str, counter: Column| {
            let broken = broken.clone();
            let run_both = observer(move |tx, change| {
                let (broken, counter) = (broken.load(SeqCst), counter.clone());
                Box::pin(async move {
                    if broken {
                        return Err(Error::application("e".repeat(100_000)));
                    }
                    add(tx, &change.table, &change.row, &counter, 1).await
                })
            });
            Registration::strong(name, "t", &BAL, run_both)
        };
        let registrations = vec![
            registration("one", A),
            Registration::strong("sound", "t", &BAL, counting(COUNT)),
            registration("two", B),
        ];
        let options = WorkerOptions { failures_max: 3, ..one_thread() };
        let workers = client.observe(registrations, options).await.unwrap();
        set(&client, &table, &[("r", "1")]).await;
        let report = client.wait_idle(None).await.unwrap();
        let names: Vec<&str> = report.set_aside.iter().map(|aside| &*aside.observer).collect();
        assert_eq!(names, ["one", "two"]);
        assert!(
            report.set_aside.iter().all(|aside| aside.attempts == 3 && aside.error.len() < 5000)
        );
        assert_eq!(get_column(&client, &table, "r", &COUNT).await.as_deref(), Some("1"));
        broken.store(false, SeqCst);
        assert_eq!(client.replay(Some("nobody")).await.unwrap(), 0);
        assert_eq!(client.replay(Some("two")).await.unwrap(), 1);
        let report = client.wait_idle(None).await.unwrap();
        assert!(report.idle && report.set_aside.is_empty());
        for column in [A, B, COUNT] {
            assert_eq!(get_column(&client, &table, "r", &column).await.as_deref(), Some("1"));
        }
        workers.stop().await;
    });
}

#[test]
fn h47_h56_setting_a_change_aside_spares_the_notification_of_a_later_write() {
    run_both(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let broken = Arc::new(AtomicBool::new(true));
        let observer_broken = broken.clone();
        let failing = observer(move |tx, change| {
            let broken = observer_broken.load(SeqCst);
            Box::pin(async move {
                if broken {
                    Err(Error::application("it was told to fail"))
                } else {
                    add(tx, &change.table, &change.row, &COUNT, 1).await
                }
            })
        });
        let options = WorkerOptions { failures_max: 1, ..one_thread() };
        let registration = Registration::strong("o", "t", &BAL, failing);
        let workers = client.observe(vec![registration], options).await.unwrap();
        let aside = world.store.on(Op::SetAside, "r", 1, Fault::Hold);
        set(&client, &table, &[("r", "1")]).await;
        aside.arrived().await;
        broken.store(false, SeqCst);
        set(&client, &table, &[("r", "2")]).await;
        aside.release();
        let report = client.wait_idle(None).await.unwrap();
        assert!(report.idle && report.set_aside.len() == 1, "{report:?}");
        let ran = get_column(&client, &table, "r", &COUNT).await;
        assert_eq!(ran.as_deref(), Some("1"), "nobody was notified of the later write");
        workers.stop().await;
    });
}

/// An oracle that can be switched off, or can hold its replies back.
#[derive(Debug)]
struct Moody {
    oracle: Arc<dyn Oracle>,
    runtime: VirtualRuntime,
    off: AtomicBool,
    slow: AtomicBool,
}

impl Moody {
    fn new(world: &World) -> Arc<Self> {
        Arc::new(Moody {
            oracle: world.oracle.clone(),
            runtime: world.runtime.clone(),
            off: AtomicBool::new(false),
            slow: AtomicBool::new(false),
        })
    }
}

#[async_trait]
impl Oracle for Moody {
    async fn timestamp(&self) -> Result<Stamp> {
        if self.off.load(SeqCst) {
            return Err(Error::Oracle("switched off".to_owned()));
        }
        let stamp = self.oracle.timestamp().await;
        while self.slow.load(SeqCst) {
            self.runtime.sleep(Duration::from_millis(1)).await;
        }
        stamp
    }

    async fn peek(&self) -> Result<Timestamp> {
        self.oracle.peek().await
    }

    async fn schema_version(&self) -> Result<u64> {
        self.oracle.schema_version().await
    }

    async fn raise_schema_version(&self, version: u64) -> Result<()> {
        self.oracle.raise_schema_version(version).await
    }
}

#[test]
fn h60_a_write_while_an_observers_timestamp_is_in_flight_is_handled() {
    run_both(async |world| {
        let writer = world.client().await;
        let table = writer.table("t").await.unwrap();
        let oracle = Moody::new(&world);
        let services = Services { oracle: oracle.clone(), ..writer.services().clone() };
        let worker = Client::open(services, Options::default()).await.unwrap();
        let seen = Arc::default();
        let workers = observe(&worker, "o", recording(&seen)).await;
        oracle.slow.store(true, SeqCst);
        set(&writer, &table, &[("r", "1")]).await;
        world.sleep_ms(5_000).await;
        set(&writer, &table, &[("r", "2")]).await;
        oracle.slow.store(false, SeqCst);
        worker.wait_idle(None).await.unwrap();
        let seen = seen.lock().unwrap().clone();
        assert_eq!(seen, [Some("1".to_owned()), Some("2".to_owned())]);
        workers.stop().await;
    });
}

#[test]
fn h56_an_outage_of_oracle_or_store_is_not_counted_against_the_observers() {
    run_both(async |world| {
        let writer = world.client().await;
        let table = writer.table("t").await.unwrap();
        let outage = Moody::new(&world);
        let services = Services { oracle: outage.clone(), ..writer.services().clone() };
        let worker = Client::open(services, Options::default()).await.unwrap();
        let workers = observe(&worker, "o", counting(COUNT)).await;
        outage.off.store(true, SeqCst);
        set(&writer, &table, &[("r", "1")]).await;
        world.sleep_ms(60_000).await;
        outage.off.store(false, SeqCst);
        let storm = world.store.when(100_000, Fault::Fail, |request| {
            matches!(request.op, Op::Read | Op::Prewrite) && request.row == "r".into()
        });
        world.sleep_ms(60_000).await;
        storm.release();
        let report = worker.wait_idle(None).await.unwrap();
        assert!(report.set_aside.is_empty());
        assert_eq!(get_column(&writer, &table, "r", &COUNT).await.as_deref(), Some("1"));
        assert_eq!(worker.stats().observer_failures, 0);
        workers.stop().await;
    });
}

/// Records the value of the cell beside the notification, as a weak observer saw it.
fn recording(seen: &Arc<Mutex<Vec<Option<String>>>>) -> impl percolator_core::Observer + use<> {
    let seen = seen.clone();
    observer(move |tx, change| {
        let seen = seen.clone();
        Box::pin(async move {
            let value = tx.get(&change.table, change.row.clone(), &BAL).await?;
            let value = value.map(|value| String::from_utf8(value.to_vec()).unwrap());
            seen.lock().unwrap().push(value);
            Ok(())
        })
    })
}

/// A weak observer may run between the writer's start and its commit, or between its
/// notification and its commit point. The change must not stay unseen.
#[test]
fn h57_a_weak_notification_is_seen_with_its_change() {
    for hold in [Op::Prewrite, Op::CommitPrimary] {
        run_both(async |world| {
            let (worker, writer) = (world.client().await, world.client().await);
            let table = worker.table("t").await.unwrap();
            let seen = Arc::default();
            let weak = Registration::weak("w", "t", &CHANGED, recording(&seen));
            let workers = worker.observe(vec![weak], one_thread()).await.unwrap();
            let mut tx = writer.begin().await.unwrap();
            tx.set(&table, "r", &BAL, "new").unwrap();
            tx.notify(&table, "r", &CHANGED).unwrap();
            let held = world.store.on(hold, "r", 1, Fault::Hold);
            let commit = world.beside(tx.commit());
            held.arrived().await;
            // Another change of the row notifies, and is handled meanwhile.
            let mut other = writer.begin().await.unwrap();
            other.notify(&table, "r", &CHANGED).unwrap();
            other.commit().await.unwrap();
            world.sleep_ms(5_000).await;
            held.release();
            commit.await.unwrap().unwrap();
            worker.wait_idle(None).await.unwrap();
            assert_eq!(seen.lock().unwrap().last(), Some(&Some("new".to_owned())), "{hold:?}");
            assert_eq!(world.cells(&table, NOTIFY).await, 0);
            workers.stop().await;
        });
    }
}

#[test]
fn h57_a_writer_that_dies_at_its_commit_point_has_notified() {
    run_both(async |world| {
        let (worker, writer) = (world.client().await, world.process(Options::default(), 0).await);
        let table = worker.table("t").await.unwrap();
        let seen = Arc::default();
        let weak = Registration::weak("w", "t", &CHANGED, recording(&seen));
        let workers = worker.observe(vec![weak], one_thread()).await.unwrap();
        let mut tx = writer.client.begin().await.unwrap();
        tx.set(&table, "r", &BAL, "new").unwrap();
        tx.notify(&table, "r", &CHANGED).unwrap();
        let held = world.store.on(Op::CommitPrimary, "r", 1, Fault::HoldReply);
        writer.spawn(async move { drop(tx.commit().await) });
        held.arrived().await;
        writer.crash();
        worker.wait_idle(None).await.unwrap();
        assert_eq!(*seen.lock().unwrap(), [Some("new".to_owned())]);
        workers.stop().await;
    });
}

#[test]
fn stopped_workers_let_go_of_the_client_at_once() {
    run_both(async |world| {
        let holders = Arc::strong_count(&world.store);
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let never = observer(|_, _| Box::pin(async { Err(Error::application("no")) }));
        let workers = observe(&client, "o", never).await;
        set(&client, &table, &[("r", "1")]).await;
        // The next attempt is more than a second away.
        world.sleep_ms(2_000).await;
        workers.stop().await;
        drop(client);
        world.sleep_ms(1).await;
        assert_eq!(Arc::strong_count(&world.store), holders, "something still holds the store");
        let again = world.client().await;
        assert_eq!(get(&again, &table, "r").await.as_deref(), Some("1"));
    });
}
