//! Tests events: which ones come, in which order, and how a client treats a watcher that
//! misbehaves.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use percolator_core::testing::{VirtualRuntime, client_on};
use percolator_core::{
    Access, Batch, BatchObserver, Change, Client, Column, CommitPath, Error, Event, LockFate,
    Options, Registration, Result, RunEnd, Runtime, Services, Spans, Timestamp, Transaction, Watch,
    WorkerOptions,
};

use crate::faults::{Fault, Op};
use crate::notifications::one_thread;
use crate::world::{A, B, BAL, World, get, observer, run, run_both, set, writing};

const CHANGED: Column = Column::literal("f:changed");

/// Keeps each event as a line.
#[derive(Debug, Default)]
struct Log {
    lines: Mutex<Vec<String>>,
    spans: Mutex<Vec<Spans>>,
}

impl Log {
    /// A client's options with this watcher.
    fn options(self: &Arc<Self>) -> Options {
        Options { watch: Some(self.clone()), ..Options::default() }
    }

    fn lines(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock().unwrap())
    }
}

impl Watch for Log {
    fn on_event(&self, event: &Event<'_>) {
        if let Event::Committed { spans, .. } | Event::Ended { spans, .. } = event {
            self.spans.lock().unwrap().push(*spans);
        }
        if !matches!(event, Event::Sampled { .. }) {
            self.lines.lock().unwrap().push(line(event));
        }
    }
}

fn line(event: &Event<'_>) -> String {
    match event {
        Event::Committed { tx, path, written, .. } => {
            let name = tx.name.unwrap_or("a transaction");
            let cells: Vec<_> = written.cells().map(|cell| cell.row.to_string()).collect();
            let notified: Vec<_> = written.notified().map(|cell| cell.row.to_string()).collect();
            let causes = rows(tx.causes);
            format!("{name} {path:?} wrote {cells:?} notified {notified:?} because of {causes:?}")
        }
        Event::Ended { tx, why, .. } => {
            let why = match why {
                Error::Aborted { reason, .. } => {
                    format!("{reason:?}").split('(').next().map(String::from)
                }
                _ => Some("unknown".to_owned()),
            };
            format!("{} ended: {}", tx.name.unwrap_or("a transaction"), why.unwrap())
        }
        Event::LockFound { cell, fate, .. } => {
            let fate = if let LockFate::RollForward(_) = fate {
                "committed"
            } else {
                &format!("{fate:?}")
            };
            format!("found a lock on {}: {fate}", cell.row)
        }
        Event::Resolved { commit_ts, cells, .. } => {
            let forward = if commit_ts.is_some() { "forward" } else { "back" };
            format!("rolled {cells} {forward}")
        }
        Event::Ran { observer, changes, end, .. } => {
            let end = match end {
                RunEnd::Committed { .. } => "committed".to_owned(),
                RunEnd::Failed { attempts, error } => format!("failed {attempts}: {error}"),
                RunEnd::Interrupted { error } => format!("interrupted: {error}"),
                end => format!("{end:?}").to_lowercase(),
            };
            format!("{observer} ran on {:?}: {end}", rows(changes))
        }
        Event::SetAside { observer, cell, attempts, error } => {
            format!("set {} of {observer} aside after {attempts}: {error}", cell.row)
        }
        Event::Collected { report, .. } => format!("collected {}", report.counts.writes),
        Event::Sampled { row, access, .. } => format!("{access:?} {row}"),
        event => format!("{event:?}"),
    }
}

fn rows(changes: &[Change]) -> Vec<String> {
    changes.iter().map(|change| change.row.to_string()).collect()
}

/// A client over a store in memory that commits in one step.
fn in_memory<T>(log: &Arc<Log>, test: impl AsyncFnOnce(Client) -> T) -> T {
    let runtime = VirtualRuntime::new(1);
    runtime.clone().block_on(async move {
        let store = Arc::new(bigtable::MemoryStore::new());
        test(client_on(&runtime, store, log.options()).await.unwrap()).await
    })
}

#[test]
fn a_commit_in_one_step_is_one_event_with_its_cells() {
    let log = Arc::new(Log::default());
    in_memory(&log, async |client| {
        let table = client.table("t").await.unwrap();
        set(&client.named("transfer"), &table, &[("a", "1"), ("b", "1")]).await;
        set(&client, &table, &[("a", "2")]).await;
        get(&client, &table, "a").await.unwrap();
        client.begin().await.unwrap().commit().await.unwrap();
        let first = r#"transfer OneStep wrote ["a", "b"] notified [] because of []"#;
        let second = r#"a transaction OneStep wrote ["a"] notified [] because of []"#;
        assert_eq!(log.lines(), [first, second], "reads commit nothing");
    });
}

#[test]
fn every_way_to_begin_gives_the_transaction_the_name() {
    let log = Arc::new(Log::default());
    in_memory(&log, async |client| {
        let table = client.table("t").await.unwrap();
        let named = client.named("mine");
        named.transact(async |mut tx| tx.set(&table, "a", &BAL, "1")).await.unwrap();
        named.transact_receipt(async |mut tx| tx.set(&table, "b", &BAL, "1")).await.unwrap();
        let mut tx = named.clone().begin().await.unwrap();
        tx.set(&table, "c", &BAL, "1").unwrap();
        tx.commit().await.unwrap();
        let lines = log.lines();
        assert!(
            lines.len() == 3 && lines.iter().all(|line| line.starts_with("mine ")),
            "{lines:?}"
        );
    });
}

#[test]
fn a_commit_in_two_phases_is_reported_at_its_commit_point_with_its_times() {
    run(async |world| {
        let log = Arc::new(Log::default());
        let client = world.client_with(log.options()).await;
        let table = client.table("t").await.unwrap();
        let prewrite = world.store.on(Op::Prewrite, "s", 1, Fault::HoldReply);
        let primary = world.store.on(Op::CommitPrimary, "p", 1, Fault::HoldReply);
        let secondary = world.store.on(Op::Commit, "s", 1, Fault::HoldReply);
        let tx = writing(&client, &table, &[("p", "1"), ("s", "1")]).await;
        world.sleep_ms(1).await;
        let commit = world.beside(tx.commit());
        prewrite.arrived().await;
        world.sleep_ms(20).await;
        prewrite.release();
        primary.arrived().await;
        world.sleep_ms(300).await;
        assert_eq!(log.lines(), [""; 0], "the reply of the commit point is on its way");
        primary.release();
        secondary.arrived().await;
        let expected = r#"a transaction TwoPhases wrote ["p", "s"] notified [] because of []"#;
        assert_eq!(log.lines(), [expected]);
        world.sleep_ms(4000).await;
        secondary.release();
        commit.await.unwrap().unwrap();
        assert_eq!(log.lines(), [""; 0]);
        let spans = log.spans.lock().unwrap()[0];
        let within = |span: Duration, ms: u64| (ms..ms + 5).contains(&(span.as_millis() as u64));
        assert!(within(spans.prewrite, 20) && within(spans.commit, 300), "{spans:?}");
        assert!(within(spans.total, 321), "{spans:?}");
    });
}

#[test]
fn the_two_phases_one_by_one_are_reported_too() {
    run(async |world| {
        let log = Arc::new(Log::default());
        let client = world.client_with(log.options()).await;
        let table = client.table("t").await.unwrap();
        let prewritten = writing(&client, &table, &[("p", "1")]).await.prewrite().await.unwrap();
        assert_eq!(log.lines(), [""; 0]);
        prewritten.commit_primary().await.unwrap().commit_secondaries().await;
        assert_eq!(log.lines().len(), 1);
    });
}

#[test]
fn a_transaction_that_only_notifies_is_reported_with_what_it_notifies() {
    run_both(async |world| {
        let log = Arc::new(Log::default());
        let client = world.client_with(log.options()).await;
        let table = client.table("t").await.unwrap();
        let weak =
            Registration::weak("o", "t", &CHANGED, observer(|_, _| Box::pin(async { Ok(()) })));
        client.observe(vec![weak], one_thread()).await.unwrap().stop().await;
        log.lines();
        let notify = async |row: &str| {
            let mut tx = client.named("n").begin().await.unwrap();
            tx.notify(&table, row, &CHANGED).unwrap();
            tx.commit().await
        };
        notify("a").await.unwrap();
        assert_eq!(log.lines(), [r#"n TwoPhases wrote [] notified ["a"] because of []"#]);
        world.store.when(1, Fault::Refuse, |request| request.op == Op::Notify);
        notify("b").await.unwrap_err();
        assert_eq!(log.lines(), ["n ended: unknown"]);
    });
}

#[test]
fn a_commit_that_fails_is_reported_once_with_the_reason() {
    run(async |world| {
        let log = Arc::new(Log::default());
        let options = Options { commit_deadline: Duration::from_secs(2), ..log.options() };
        let client = world.client_with(options).await;
        let table = client.table("t").await.unwrap();
        let late = writing(&client.named("late"), &table, &[("p", "1"), ("s", "1")]).await;
        set(&client, &table, &[("s", "2")]).await;
        log.lines();
        late.commit().await.unwrap_err();
        assert_eq!(log.lines(), ["late ended: Conflict"]);
        world.store.on(Op::CommitPrimary, "p", 1, Fault::DropReply);
        world.store.when(1000, Fault::Fail, |request| {
            request.row == "p".into() && request.op != Op::Prewrite
        });
        writing(&client, &table, &[("p", "1")]).await.commit().await.unwrap_err();
        assert_eq!(log.lines(), ["a transaction ended: unknown"]);
        let spans = log.spans.lock().unwrap().pop().unwrap();
        assert!(spans.commit > Duration::from_secs(2) && spans.total >= spans.commit, "{spans:?}");
    });
}

#[test]
fn a_conflict_in_one_step_is_reported() {
    let log = Arc::new(Log::default());
    in_memory(&log, async |client| {
        let table = client.table("t").await.unwrap();
        let late = writing(&client, &table, &[("a", "1")]).await;
        set(&client, &table, &[("a", "2")]).await;
        log.lines();
        late.commit().await.unwrap_err();
        assert_eq!(log.lines(), ["a transaction ended: Conflict"]);
    });
}

#[test]
fn locks_of_the_dead_are_found_and_then_resolved() {
    run(async |world| {
        let log = Arc::new(Log::default());
        let (owner, reader) = (world.client().await, world.client_with(log.options()).await);
        let table = reader.table("t").await.unwrap();
        // One transaction has not decided, and one has.
        let undecided = writing(&owner, &table, &[("a", "1"), ("b", "1")]).await;
        drop(undecided.prewrite().await.unwrap());
        let decided = writing(&owner, &table, &[("p", "1"), ("s", "1")]).await;
        drop(decided.prewrite().await.unwrap().commit_primary().await.unwrap());
        world.declare_dead(&owner);
        assert_eq!(get(&reader, &table, "b").await, None);
        let of_b = ["found a lock on b: OwnerDead", "rolled 1 back", "rolled 1 back"];
        assert_eq!(log.lines(), of_b, "the primary's, and its own");
        assert_eq!(get(&reader, &table, "a").await, None);
        assert_eq!(log.lines(), [""; 0]);
        assert_eq!(get(&reader, &table, "s").await.as_deref(), Some("1"));
        assert_eq!(log.lines(), ["found a lock on s: committed", "rolled 1 forward"]);
    });
}

#[test]
fn a_lock_of_the_living_is_found_again_and_again_while_somebody_waits() {
    #[derive(Debug, Default)]
    struct Waits(Mutex<Vec<(LockFate, Duration)>>);
    impl Watch for Waits {
        fn on_event(&self, event: &Event<'_>) {
            if let Event::LockFound { fate, waited, .. } = event {
                self.0.lock().unwrap().push((*fate, *waited));
            }
        }
    }
    run(async |world| {
        let waits = Arc::new(Waits::default());
        let options = Options { watch: Some(waits.clone()), ..Options::default() };
        let (owner, reader) = (world.client().await, world.client_with(options).await);
        let table = reader.table("t").await.unwrap();
        let locked = writing(&owner, &table, &[("a", "1")]).await.prewrite().await.unwrap();
        let waiting = {
            let (reader, table) = (reader.clone(), table.clone());
            world.beside(async move { get(&reader, &table, "a").await })
        };
        world.sleep_ms(1000).await;
        drop(locked.commit_primary().await.unwrap());
        assert_eq!(waiting.await.unwrap(), None, "its snapshot is older");
        let waits = waits.0.lock().unwrap();
        assert!(waits.len() > 3 && waits[0].1.is_zero(), "{waits:?}");
        assert!(waits.iter().all(|(fate, _)| *fate == LockFate::OwnerAlive), "{waits:?}");
        assert!(waits.is_sorted_by(|a, b| a.1 < b.1) && waits[3].1 > Duration::ZERO, "{waits:?}");
        assert!(waits.last().unwrap().1 > Duration::from_millis(800), "{waits:?}");
    });
}

/// Fails twice, is interrupted once, and then sets another column.
fn shaky() -> impl percolator_core::Observer {
    let runs = AtomicUsize::new(0);
    observer(move |tx, change| {
        let run = runs.fetch_add(1, SeqCst);
        Box::pin(async move {
            match run {
                0 | 1 => Err(Error::application("no luck")),
                2 => Err(Error::Unavailable("out of paper".to_owned())),
                _ => tx.set(&change.table, &change.row, &A, "done"),
            }
        })
    })
}

#[test]
fn an_observer_s_runs_are_reported_with_their_ends_and_causes() {
    run_both(async |world| {
        let log = Arc::new(Log::default());
        let client = world.client_with(log.options()).await;
        let table = client.table("t").await.unwrap();
        let shaky = Registration::strong("shaky", "t", &BAL, shaky());
        let workers = client.observe(vec![shaky], one_thread()).await.unwrap();
        set(&client, &table, &[("r", "1")]).await;
        assert!(client.wait_idle(None).await.unwrap().idle);
        let expected = [
            r#"a transaction TwoPhases wrote ["r"] notified [] because of []"#,
            r#"shaky ran on ["r"]: failed 1: no luck"#,
            r#"shaky ran on ["r"]: failed 2: no luck"#,
            r#"shaky ran on ["r"]: interrupted: out of paper"#,
            r#"shaky TwoPhases wrote ["r"] notified [] because of ["r"]"#,
            r#"shaky ran on ["r"]: committed"#,
        ];
        assert_eq!(log.lines(), expected);
        workers.stop().await;
    });
}

#[test]
fn an_observer_that_meets_a_conflict_is_reported_to_run_again() {
    run_both(async |world| {
        let log = Arc::new(Log::default());
        let (client, other) = (world.client_with(log.options()).await, world.client().await);
        let table = client.table("t").await.unwrap();
        let first = AtomicUsize::new(0);
        let contended = observer(move |tx, change| {
            let (other, is_first) = (other.clone(), first.fetch_add(1, SeqCst) == 0);
            Box::pin(async move {
                tx.set(&change.table, "common", &A, "1")?;
                if is_first {
                    let set = async |mut tx: percolator_core::Attempt| {
                        tx.set(&change.table, "common", &A, "2")
                    };
                    other.transact(set).await?;
                }
                Ok(())
            })
        });
        let contended = Registration::strong("contended", "t", &BAL, contended);
        let workers = client.observe(vec![contended], one_thread()).await.unwrap();
        set(&client, &table, &[("r", "1")]).await;
        client.wait_idle(None).await.unwrap();
        let expected = [
            r#"a transaction TwoPhases wrote ["r"] notified [] because of []"#,
            "contended ended: Conflict",
            r#"contended ran on ["r"]: conflicted"#,
            r#"contended TwoPhases wrote ["common"] notified [] because of ["r"]"#,
            r#"contended ran on ["r"]: committed"#,
        ];
        assert_eq!(log.lines(), expected);
        workers.stop().await;
    });
}

#[test]
fn what_keeps_failing_is_listed_until_it_is_reported_to_be_set_aside() {
    run_both(async |world| {
        let log = Arc::new(Log::default());
        let client = world.client_with(log.options()).await;
        let table = client.table("t").await.unwrap();
        let fails = || observer(|_, _| Box::pin(async { Err(Error::application("no luck")) }));
        let registrations = vec![
            Registration::strong("one", "t", &BAL, fails()),
            Registration::strong("two", "t", &BAL, fails()),
        ];
        let delay = Duration::from_secs(10);
        let options = WorkerOptions { failures_max: 2, failure_delay: delay, ..one_thread() };
        let workers = client.observe(registrations, options).await.unwrap();
        set(&client, &table, &[("r", "1"), ("s", "1")]).await;
        world.sleep_ms(1000).await;
        let failing = client.failing(100);
        let listed: Vec<_> = failing
            .iter()
            .map(|f| (&*f.table, f.row.to_string(), &*f.observer, f.attempts, &*f.error))
            .collect();
        let line = |row: &str, observer| ("t", row.to_owned(), observer, 1, "no luck");
        let expected = [line("r", "one"), line("r", "two"), line("s", "one"), line("s", "two")];
        assert_eq!(listed, expected);
        assert!(failing.iter().all(|f| f.column == BAL && f.next_attempt > delay / 2));
        assert!(failing.iter().all(|f| f.next_attempt < delay));
        assert_eq!(client.failing(3), failing[..3]);
        log.lines();
        client.wait_idle(None).await.unwrap();
        assert_eq!(client.failing(100), []);
        let aside = |line: &&String| line.starts_with("set ");
        let lines: Vec<String> = log.lines().iter().filter(aside).cloned().collect();
        for (row, observer) in [("r", "one"), ("r", "two"), ("s", "one"), ("s", "two")] {
            let line = format!("set {row} of {observer} aside after 2: no luck");
            assert!(lines.len() == 4 && lines.contains(&line), "{lines:?}");
        }
        workers.stop().await;
    });
}

/// One process fails on a change that another process can handle.
#[test]
fn what_another_process_has_handled_is_not_listed_as_failing() {
    run_both(async |world| {
        let (failing, other) = (world.client().await, world.client().await);
        let table = failing.table("t").await.unwrap();
        let fails = observer(|_, _| Box::pin(async { Err(Error::application("no luck")) }));
        let fails = Registration::strong("o", "t", &BAL, fails);
        let workers = failing.observe(vec![fails], one_thread()).await.unwrap();
        set(&failing, &table, &[("r", "1")]).await;
        world.sleep_ms(10).await;
        assert_eq!(failing.failing(10).len(), 1);
        let sound = observer(|_, _| Box::pin(async { Ok(()) }));
        let sound = Registration::strong("o", "t", &BAL, sound);
        let sound = other.observe(vec![sound], one_thread()).await.unwrap();
        assert!(other.wait_idle(None).await.unwrap().idle);
        world.sleep_ms(1000).await;
        assert_eq!(failing.failing(10), []);
        workers.stop().await;
        sound.stop().await;
    });
}

/// Fails for one row.
struct Export;

impl BatchObserver for Export {
    async fn observe(&self, tx: &mut Transaction, changes: &[Change]) -> Result<()> {
        if changes.iter().any(|change| change.row == "r07".into()) {
            return Err(Error::application("poison"));
        }
        tx.set(&changes[0].table, "export", &B, changes.len().to_string())
    }
}

#[test]
fn a_batch_is_reported_with_all_its_changes_as_causes() {
    run(async |world| {
        let log = Arc::new(Log::default());
        let client = world.client_with(log.options()).await;
        let table = client.table("t").await.unwrap();
        let batch = Batch { changes_max: 100, interval: Duration::from_millis(100) };
        let export = Registration::batched("export", "t", &CHANGED, batch, Export);
        let workers = client.observe(vec![export], one_thread()).await.unwrap();
        let notify = async |rows: std::ops::Range<usize>| {
            let mut tx = client.begin().await.unwrap();
            rows.for_each(|n| tx.notify(&table, format!("r{n:02}"), &CHANGED).unwrap());
            tx.commit().await.unwrap();
            client.wait_idle(None).await.unwrap();
            log.lines()
        };
        let lines = notify(10..60).await;
        let changes: Vec<String> = (10..60).map(|n| format!("r{n}")).collect();
        let commit =
            format!(r#"export TwoPhases wrote ["export"] notified [] because of {changes:?}"#);
        assert_eq!(lines[1..], [commit, format!("export ran on {changes:?}: committed")]);
        let lines = notify(7..9).await;
        assert_eq!(lines[1], r#"export ran on ["r07", "r08"]: failed 0: poison"#);
        assert_eq!(lines[2], r#"export ran on ["r07"]: failed 1: poison"#);
        assert_eq!(lines[4], r#"export ran on ["r08"]: committed"#);
        let last = "set r07 of export aside after 6: poison";
        assert_eq!(lines.last().unwrap(), last, "{lines:?}");
        workers.stop().await;
    });
}

#[test]
fn a_round_of_collection_is_reported() {
    run(async |world| {
        let log = Arc::new(Log::default());
        let client = world.client_with(log.options()).await;
        let table = client.table("t").await.unwrap();
        for value in ["1", "2", "3"] {
            set(&client, &table, &[("a", value)]).await;
        }
        log.lines();
        client.gc(Duration::ZERO).await.unwrap();
        assert_eq!(log.lines(), ["collected 2"]);
    });
}

/// Counts the sampled accesses: reads and writes.
#[derive(Debug, Default)]
struct Samples {
    reads: AtomicUsize,
    writes: AtomicUsize,
}

impl Watch for Samples {
    fn on_event(&self, event: &Event<'_>) {
        if let Event::Sampled { table, access, .. } = event {
            assert_eq!(*table, "t");
            let of = if *access == Access::Read { &self.reads } else { &self.writes };
            of.fetch_add(1, SeqCst);
        }
    }
}

#[test]
fn one_access_of_64_is_sampled_whatever_it_is() {
    run(async |world| {
        let samples = Arc::new(Samples::default());
        let options = Options { watch: Some(samples.clone()), ..Options::default() };
        let client = world.client_with(options).await;
        let table = client.table("t").await.unwrap();
        let rows: Vec<String> = (0..128).map(|n| n.to_string()).collect();
        let cells: Vec<(&str, &str)> = rows.iter().map(|row| (&**row, "1")).collect();
        set(&client, &table, &cells).await;
        assert_eq!(samples.writes.load(SeqCst), 2);
        let tx = client.begin().await.unwrap();
        for row in &rows {
            tx.get(&table, row.as_str(), &BAL).await.unwrap().unwrap();
        }
        assert_eq!(samples.reads.load(SeqCst), 2);
        let keys: Vec<_> = rows.iter().map(|row| row.as_str().into()).collect();
        tx.get_many(&table, &keys, [&BAL]).await.unwrap();
        assert_eq!(samples.reads.load(SeqCst), 4);
        assert_eq!(tx.scan(&table).collect().await.unwrap().len(), 128);
        assert_eq!((samples.reads.load(SeqCst), samples.writes.load(SeqCst)), (6, 2));
    });
}

/// A clock that a watcher can move forward. So time passes while the watcher blocks its
/// thread.
#[derive(Debug)]
struct Clock {
    inner: VirtualRuntime,
    ahead_ms: AtomicU64,
    looks: AtomicUsize,
}

impl Runtime for Clock {
    fn now(&self) -> Duration {
        self.looks.fetch_add(1, SeqCst);
        self.inner.now() + Duration::from_millis(self.ahead_ms.load(SeqCst))
    }

    fn wall_ms(&self) -> u64 {
        self.inner.wall_ms()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.inner.sleep(duration)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.inner.spawn(task);
    }

    fn random(&self) -> u64 {
        self.inner.random()
    }
}

/// Panics or blocks, and counts how often it was called.
#[derive(Debug)]
struct Bad {
    clock: Arc<Clock>,
    blocks_ms: Option<u64>,
    calls: AtomicUsize,
}

impl Watch for Bad {
    fn on_event(&self, _: &Event<'_>) {
        self.calls.fetch_add(1, SeqCst);
        match self.blocks_ms {
            Some(ms) => self.clock.ahead_ms.fetch_add(ms, SeqCst),
            None => panic!("by test"),
        };
    }
}

/// Commits five times. Returns how often the watcher was called, and how often a call failed.
async fn five_commits(world: &World, blocks_ms: Option<u64>) -> (usize, u64) {
    let inner = world.runtime.clone();
    let clock = Arc::new(Clock { inner, ahead_ms: 0.into(), looks: 0.into() });
    let bad = Arc::new(Bad { clock: clock.clone(), blocks_ms, calls: 0.into() });
    let services = Services {
        store: world.store.clone(),
        oracle: world.oracle.clone(),
        locks: world.locks.clone(),
        runtime: clock,
    };
    let options = Options { watch: Some(bad.clone()), ..Options::default() };
    let client = Client::open(services, options).await.unwrap();
    let table = client.table("t").await.unwrap();
    for n in 1..=5 {
        set(&client, &table, &[("a", &n.to_string())]).await;
        assert_eq!(get(&client, &table, "a").await, Some(n.to_string()));
    }
    (bad.calls.load(SeqCst), client.stats().watcher_failures)
}

#[test]
fn a_watcher_that_panics_ends_nothing_and_is_called_three_times() {
    run(async |world| assert_eq!(five_commits(&world, None).await, (3, 3)));
}

#[test]
fn a_watcher_that_blocks_is_called_three_times() {
    run(async |world| {
        assert_eq!(five_commits(&world, Some(1_001)).await, (3, 3));
        assert_eq!(five_commits(&world, Some(1_000)).await, (5, 0), "a second is allowed");
    });
}

#[test]
fn without_a_watcher_a_transaction_reads_no_clock() {
    let runtime = VirtualRuntime::new(1);
    runtime.clone().block_on(async move {
        let looks = async |watch: Option<Arc<dyn Watch>>, commit_path| {
            let store = Arc::new(bigtable::MemoryStore::new());
            let client = client_on(&runtime, store, Options::default()).await.unwrap();
            let inner = runtime.clone();
            let clock = Arc::new(Clock { inner, ahead_ms: 0.into(), looks: 0.into() });
            let services = Services { runtime: clock.clone(), ..client.services().clone() };
            let options = Options { watch, commit_path, ..Options::default() };
            let client = Client::open(services, options).await.unwrap();
            let table = client.table("t").await.unwrap();
            let before = clock.looks.load(SeqCst);
            let add = async |mut tx: percolator_core::Attempt| {
                tx.get(&table, "a", &BAL).await?;
                tx.set(&table, "a", &BAL, "1")
            };
            client.named("n").transact(add).await.unwrap();
            clock.looks.load(SeqCst) - before
        };
        assert_eq!(looks(None, CommitPath::OneStep).await, 0);
        // One look for the heartbeat, and one for the deadline of the commit.
        assert_eq!(looks(None, CommitPath::TwoPhases).await, 2);
        assert!(looks(Some(Arc::new(Log::default())), CommitPath::OneStep).await > 0);
    });
}

/// With and without a watcher every outcome is the same, timestamps included.
#[test]
fn a_watcher_changes_no_outcome() {
    let outcome = |watch: Option<Arc<dyn Watch>>| {
        run(async |world| {
            let client = world.client_with(Options { watch, ..Options::default() }).await;
            let table = client.table("t").await.unwrap();
            let shaky = Registration::strong("shaky", "t", &BAL, shaky());
            let workers = client.observe(vec![shaky], one_thread()).await.unwrap();
            let mut commits: Vec<Timestamp> = Vec::new();
            for n in 0..10 {
                commits.push(set(&client, &table, &[("a", &n.to_string()), ("b", "1")]).await);
                world.sleep_ms(7).await;
            }
            client.wait_idle(None).await.unwrap();
            workers.stop().await;
            (commits, client.oracle().peek().await.unwrap(), world.runtime.now())
        })
    };
    assert_eq!(outcome(None), outcome(Some(Arc::new(Log::default()))));
}
