//! Tests the one-step commit: its records, its results, and when it takes the two phases
//! instead.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bigtable::layer::StoreLayer;
use bigtable::{
    AtCommit, COMMIT_ROWS_MAX, CommitRows, Error as StoreError, Mutation, RowsOutcome, Store,
};
use futures::FutureExt;
use percolator_core::{
    AbortReason, Client, CommitPath, Error, Incarnation, Options, Registration, Services,
    Timestamp, WindowOracle,
};

use crate::faults::{Caught, DATA, Fault, FaultyStore, LOCK, NOTIFY, Op, ROLLBACK, WRITE};
use crate::notifications::{COUNT, one_thread, register};
use crate::world::{
    A, B, BAL, World, add, counting, get, get_column, is_aborted, number, observer, run, set,
    writing,
};

/// The fate of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Applied,
    /// The request is applied, and its sender gets `Unknown`.
    ReplyLost,
    /// The sender gets `Unknown`. The request is applied when the test says so.
    Late,
    /// The request is refused with `Unavailable`.
    Refused,
    /// The timestamp is taken. The test decides when the commit is published and when its
    /// sender gets the reply.
    Slow,
}

/// The timestamp of a commit, which was taken before the commit's mutations are written.
#[derive(Debug)]
struct Taken {
    at: Arc<dyn AtCommit>,
    commit_ts: Mutex<Option<Timestamp>>,
    written: bool,
}

impl AtCommit for Taken {
    fn timestamp(&self) -> Option<Timestamp> {
        let mut commit_ts = self.commit_ts.lock().unwrap();
        *commit_ts = commit_ts.or_else(|| self.at.timestamp());
        commit_ts.filter(|_| self.written)
    }

    fn mutations(&self, row: usize, commit_ts: Timestamp) -> Vec<Mutation> {
        self.at.mutations(row, commit_ts)
    }
}

/// The world's store, with one-step commits.
#[derive(Debug)]
struct OneStep {
    inner: Arc<FaultyStore>,
    fates: Mutex<VecDeque<Fate>>,
    late: Mutex<Vec<CommitRows>>,
    committed: Mutex<usize>,
    /// The first is released when a slow commit may be published, the second when its sender
    /// may get the reply.
    publish: Arc<Caught>,
    reply: Arc<Caught>,
}

impl OneStep {
    fn over(world: &World, fates: &[Fate]) -> Arc<Self> {
        Arc::new(OneStep {
            inner: world.store.clone(),
            fates: Mutex::new(fates.iter().copied().collect()),
            late: Mutex::default(),
            committed: Mutex::default(),
            publish: Caught::gate(),
            reply: Caught::gate(),
        })
    }

    async fn client(self: &Arc<Self>, world: &World, options: Options) -> Client {
        let services = Services {
            store: self.clone(),
            oracle: world.oracle.clone(),
            locks: world.locks.clone(),
            runtime: Arc::new(world.runtime.clone()),
        };
        Client::open(services, options).await.unwrap()
    }

    async fn apply(&self, request: CommitRows) -> bigtable::Result<RowsOutcome> {
        let outcome = self.inner.inner.commit_rows(request).await;
        *self.committed.lock().unwrap() +=
            usize::from(matches!(outcome, Ok(RowsOutcome::Committed(_))));
        outcome
    }

    async fn apply_slowly(&self, request: CommitRows) -> bigtable::Result<RowsOutcome> {
        let published = self.inner.begin_publishing();
        let taken = |commit_ts, written| {
            let at = request.at.clone();
            Arc::new(Taken { at, commit_ts: Mutex::new(commit_ts), written })
        };
        let first = taken(None, false);
        // Evaluate the predicates and take the timestamp. Nothing is written.
        let asked = CommitRows { at: first.clone(), ..request.clone() };
        let outcome = self.inner.inner.commit_rows(asked).await?;
        assert_eq!(outcome, RowsOutcome::NoTimestamp, "nothing is in the way");
        self.publish.opened().await;
        let commit_ts = *first.commit_ts.lock().unwrap();
        let outcome = self.apply(CommitRows { at: taken(commit_ts, true), ..request }).await;
        published.release();
        self.reply.opened().await;
        outcome
    }

    /// Applies the late requests.
    async fn deliver(&self) -> Vec<bigtable::Result<RowsOutcome>> {
        let late = std::mem::take(&mut *self.late.lock().unwrap());
        let mut outcomes = Vec::new();
        for request in late {
            outcomes.push(self.apply(request).await);
        }
        outcomes
    }

    fn committed(&self) -> usize {
        *self.committed.lock().unwrap()
    }
}

impl StoreLayer for OneStep {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn commits_rows(&self) -> bool {
        true
    }

    async fn commit_rows(&self, request: CommitRows) -> bigtable::Result<RowsOutcome> {
        let unknown = || StoreError::Unknown { why: "the reply was lost".to_owned() };
        let fate = self.fates.lock().unwrap().pop_front();
        match fate.unwrap_or(Fate::Applied) {
            Fate::Applied => self.apply(request).await,
            Fate::ReplyLost => {
                self.apply(request).await?;
                Err(unknown())
            }
            Fate::Late => {
                self.late.lock().unwrap().push(request);
                Err(unknown())
            }
            Fate::Slow => self.apply_slowly(request).await,
            Fate::Refused => Err(StoreError::Unavailable { why: "busy".to_owned() }),
        }
    }

    /// Refuses, so that every request goes through `commit_rows` and gets a fate.
    fn try_commit_rows(
        &self,
        request: CommitRows,
    ) -> Result<bigtable::Result<RowsOutcome>, CommitRows> {
        Err(request)
    }
}

/// But for values of a length that only the record of one step takes, which the next test writes.
#[test]
fn it_leaves_what_the_two_phases_leave_and_never_a_lock() {
    let dump = |commit_path| {
        run(async move |world| {
            let store = OneStep::over(&world, &[]);
            let options = Options { commit_path, ..Options::default() };
            let client = store.client(&world, options).await;
            let (t, u) = (client.table("t").await.unwrap(), client.table("u").await.unwrap());
            register(&client, "watcher").await;
            let long = "x".repeat(2000);
            for value in ["1", long.as_str()] {
                let mut tx = client.begin().await.unwrap();
                tx.set(&t, "a", &BAL, value.to_owned()).unwrap();
                tx.set(&t, "a", &B, "b").unwrap();
                tx.set(&u, "a", &A, "u").unwrap();
                tx.delete(&t, "z", &BAL).unwrap();
                tx.commit().await.unwrap();
            }
            let one_step = store.committed();
            assert_eq!(one_step, if commit_path == CommitPath::OneStep { 2 } else { 0 });
            assert_eq!(client.stats().committed_one_step, one_step as u64);
            let locked = world.store.count(Op::Prewrite) > 0;
            assert_eq!(locked, commit_path == CommitPath::TwoPhases);
            let mut rows = Vec::new();
            for table in [&t, &u] {
                let raw = world.raw_table(table).await;
                let all = table_families(bigtable::Selection::default());
                let limit = bigtable::PageLimit::default();
                rows.extend(raw.scan(&bigtable::RowRange::all(), &all, limit).await.unwrap().rows);
            }
            rows
        })
    };
    let (one, two) = (dump(CommitPath::OneStep), dump(CommitPath::TwoPhases));
    assert_eq!(one, two, "cell by cell");
    assert!(one.iter().flat_map(|row| &row.cells).all(|cell| cell.family != LOCK));
    assert!(one.iter().flat_map(|row| &row.cells).any(|cell| cell.family == NOTIFY));
}

/// A lock would carry the value a second time, so the bound is lower in two phases (ADR-22).
#[test]
fn a_record_of_one_step_takes_values_of_four_times_the_short_length() {
    for (commit_path, short) in [(CommitPath::TwoPhases, 256), (CommitPath::OneStep, 1024)] {
        run(async move |world| {
            let store = OneStep::over(&world, &[]);
            let options = Options { commit_path, ..Options::default() };
            let client = store.client(&world, options).await;
            let table = client.table("t").await.unwrap();
            let before = client.begin().await.unwrap();
            for (length, apart) in [(short, 0), (short + 1, 1), (short, 1)] {
                let value = "x".repeat(length);
                let mut tx = client.begin().await.unwrap();
                tx.set(&table, "a", &BAL, value.clone()).unwrap();
                tx.commit().await.unwrap();
                assert_eq!(world.cells(&table, DATA).await, apart, "{commit_path:?}: {length}");
                let reader = client.begin().await.unwrap();
                let found = reader.get(&table, "a", &BAL).await.unwrap();
                assert_eq!(found.as_deref(), Some(value.as_bytes()));
            }
            assert_eq!(before.get(&table, "a", &BAL).await.unwrap(), None);
        });
    }
}

fn table_families(select: bigtable::Selection) -> bigtable::Selection {
    let families = ["data", "lock", "write", "rollback", "notify"];
    families.into_iter().fold(select, |select, family| {
        let family = bigtable::Family::from_static(family);
        select.family(family, bigtable::TimeRange::ALL, u32::MAX)
    })
}

#[test]
fn a_conflict_names_the_winner_and_writes_nothing() {
    run(async |world| {
        let client = OneStep::over(&world, &[]).client(&world, Options::default()).await;
        let table = client.table("t").await.unwrap();
        let late = writing(&client, &table, &[("a", "late"), ("b", "late")]).await;
        let start_ts = late.start_ts();
        let winner = set(&client, &table, &[("b", "first")]).await;
        let error = late.commit().await.unwrap_err();
        let Error::Aborted { reason: AbortReason::Conflict(conflict), .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(conflict.winner_commit_ts, Some(winner));
        assert_eq!(conflict.cell.row, "b".into());
        assert_eq!(world.raw(&table, "a", WRITE, &BAL).await, []);
        assert_eq!(world.raw(&table, "a", ROLLBACK, &BAL).await, [], "nothing to keep out");
        assert!(start_ts < winner && client.stats().conflicts == 1);
        world.audit(&table).await;
    });
}

#[test]
fn h25_a_dead_owner_s_lock_is_cleared_and_a_living_one_s_is_a_conflict() {
    run(async |world| {
        let client = OneStep::over(&world, &[]).client(&world, Options::default()).await;
        let table = client.table("t").await.unwrap();
        let owner = world.client().await;
        let theirs = owner.table("t").await.unwrap();
        let locked = writing(&owner, &theirs, &[("a", "1"), ("b", "1")]).await;
        let locked = locked.prewrite().await.unwrap();
        let tx = writing(&client, &table, &[("b", "2")]).await;
        assert!(is_aborted(&tx.commit().await), "its owner lives");
        drop(locked);
        world.declare_dead(&owner);
        set(&client, &table, &[("b", "2")]).await;
        assert_eq!(get(&client, &table, "b").await.as_deref(), Some("2"));
        assert_eq!(get(&client, &table, "a").await, None);
        world.audit(&table).await;
    });
}

#[test]
fn h07_a_lost_reply_is_settled_by_the_primary_s_row() {
    run(async |world| {
        let store = OneStep::over(&world, &[Fate::Refused, Fate::ReplyLost]);
        let client = store.client(&world, Options::default()).await;
        let table = client.table("t").await.unwrap();
        let mut tx = client.begin().await.unwrap();
        add(&mut tx, &table, "a", &BAL, 1).await.unwrap();
        let commit_ts = tx.commit().await.unwrap();
        assert_eq!(world.raw(&table, "a", WRITE, &BAL).await, [commit_ts]);
        assert_eq!(client.stats().committed, 1);
    });
}

#[test]
fn h07_h02_a_request_that_is_late_is_kept_out_by_a_tomb() {
    run(async |world| {
        let store = OneStep::over(&world, &[Fate::Late]);
        let client = store.client(&world, Options::default()).await;
        let table = client.table("t").await.unwrap();
        let tx = writing(&client, &table, &[("a", "1"), ("b", "1")]).await;
        let start_ts = tx.start_ts();
        assert!(is_aborted(&tx.commit().await));
        assert_eq!(world.raw(&table, "a", ROLLBACK, &BAL).await, [start_ts]);
        let late = store.deliver().await;
        assert!(matches!(late[..], [Ok(RowsOutcome::Rejected { row: 0 })]), "{late:?}");
        assert_eq!(get(&client, &table, "b").await, None);
        world.audit(&table).await;
    });
}

#[test]
fn h06_h07_what_was_committed_late_and_collected_is_not_called_aborted() {
    run(async |world| {
        let store = OneStep::over(&world, &[Fate::Late]);
        let client = store.client(&world, Options::default()).await;
        let other = world.client().await;
        let table = client.table("t").await.unwrap();
        let tomb = world.store.on(Op::RollBackPrimary, "a", 1, Fault::Hold);
        let tx = writing(&client, &table, &[("a", "1")]).await;
        let commit = world.beside(tx.commit());
        // The look found nothing. The request arrives, is overwritten, and its record is
        // collected.
        tomb.arrived().await;
        assert!(matches!(store.deliver().await[..], [Ok(RowsOutcome::Committed(_))]));
        let theirs = other.table("t").await.unwrap();
        set(&other, &theirs, &[("a", "2")]).await;
        let report = other.gc(std::time::Duration::ZERO).await.unwrap();
        assert_eq!(report.counts.writes, 1);
        tomb.release();
        let result = commit.await.unwrap();
        assert!(matches!(result, Err(Error::Unknown { .. })), "{result:?}");
        world.audit(&table).await;
    });
}

#[test]
fn h25_many_dead_locks_are_no_contention() {
    run(async |world| {
        let client = OneStep::over(&world, &[]).client(&world, Options::default()).await;
        let table = client.table("t").await.unwrap();
        let owner = world.client().await;
        let rows: Vec<String> = (0..40).map(|row| format!("{row:02}")).collect();
        let cells: Vec<_> = rows.iter().map(|row| (row.as_str(), "v")).collect();
        let theirs = owner.table("t").await.unwrap();
        drop(writing(&owner, &theirs, &cells).await.prewrite().await.unwrap());
        world.declare_dead(&owner);
        set(&client, &table, &cells).await;
        world.audit(&table).await;
    });
}

#[test]
fn transact_counts_right_whatever_befalls_its_requests() {
    use Fate::{Applied, Late, Refused, ReplyLost};
    run(async |world| {
        let fates = [ReplyLost, Late, Refused, Applied, Late, ReplyLost, Late];
        let store = OneStep::over(&world, &fates);
        let client = store.client(&world, Options::default()).await;
        let table = client.table("t").await.unwrap();
        for _ in 0..5 {
            client.transact(async |mut tx| add(&mut tx, &table, "a", &BAL, 1).await).await.unwrap();
            store.deliver().await;
        }
        let value = get(&client, &table, "a").await;
        assert_eq!(number(value.map(Into::into)), 5);
    });
}

#[test]
fn h59_an_observer_registered_meanwhile_is_notified_through_two_phases() {
    run(async |world| {
        let store = OneStep::over(&world, &[]);
        let client = store.client(&world, Options::default()).await;
        let table = client.table("t").await.unwrap();
        let tx = writing(&client, &table, &[("a", "1")]).await;
        let worker = world.client().await;
        register(&worker, "watcher").await;
        let commit_ts = tx.commit().await.unwrap();
        assert_eq!(store.committed(), 0, "its schema is older than the timestamp's");
        assert_eq!(world.raw(&table, "a", NOTIFY, &BAL).await, [commit_ts]);
        set(&client, &table, &[("b", "1")]).await;
        assert_eq!(store.committed(), 1, "the next one knows");
        assert_eq!(world.notified(&table, "b", &BAL).await, 1);
    });
}

#[test]
fn a_window_that_is_used_up_is_extended_by_the_two_phases() {
    run(async |mut world| {
        let runtime = Arc::new(world.runtime.clone());
        let lead = WindowOracle::lead(&*world.store, Incarnation(9), runtime, 3).await.unwrap();
        world.oracle = Arc::new(lead);
        let store = OneStep::over(&world, &[]);
        let client = store.client(&world, Options::default()).await;
        let table = client.table("t").await.unwrap();
        for n in 0..9 {
            set(&client, &table, &[("a", n.to_string().as_str())]).await;
        }
        assert_eq!(get(&client, &table, "a").await.as_deref(), Some("8"));
        assert!((1..9).contains(&store.committed()), "{} in one step", store.committed());
    });
}

#[test]
fn many_rows_take_the_two_phases() {
    run(async |world| {
        let store = OneStep::over(&world, &[]);
        let client = store.client(&world, Options::default()).await;
        let table = client.table("t").await.unwrap();
        for (rows, one_step) in [(COMMIT_ROWS_MAX, 1), (COMMIT_ROWS_MAX + 1, 1)] {
            let mut tx = client.begin().await.unwrap();
            for row in 0..rows {
                tx.set(&table, format!("{row:05}").into_bytes(), &BAL, "v").unwrap();
            }
            tx.commit().await.unwrap();
            assert_eq!(store.committed(), one_step, "{rows} rows");
        }
        let mut tx = client.begin().await.unwrap();
        for row in 0..9 {
            tx.set(&table, format!("{row:05}").into_bytes(), &BAL, vec![0; 1 << 20]).unwrap();
        }
        tx.commit().await.unwrap();
        assert_eq!(store.committed(), 1, "nine megabytes");
    });
}

#[test]
fn weak_notifications_go_with_the_commit_and_observers_run() {
    const CHANGED: percolator_core::Column = percolator_core::Column::literal("f:changed");
    run(async |world| {
        let store = OneStep::over(&world, &[]);
        let client = store.client(&world, Options::default()).await;
        let table = client.table("t").await.unwrap();
        let weak = Registration::weak("weak", "t", &CHANGED, counting(COUNT));
        let workers = client.observe(vec![weak], one_thread()).await.unwrap();
        let mut tx = client.begin().await.unwrap();
        tx.set(&table, "m", &BAL, "1").unwrap();
        // Notify a row before, at and after the written row.
        for row in ["a", "m", "z"] {
            tx.notify(&table, row, &CHANGED).unwrap();
        }
        let commit_ts = tx.commit().await.unwrap();
        assert!(client.wait_idle(None).await.unwrap().idle);
        workers.stop().await;
        for row in ["a", "m", "z"] {
            assert_eq!(get_column(&client, &table, row, &COUNT).await.as_deref(), Some("1"));
        }
        assert_eq!(world.raw(&table, "m", WRITE, &BAL).await, [commit_ts]);
        assert_eq!(store.committed(), 4, "the writer and three runs");
        world.audit(&table).await;
    });
}

/// An observer in table `b` writes to table `a`, which is observed, too. Its commit removes
/// the notification in `b` and leaves one in `a`. A client that looks at `a` before the commit
/// and at `b` afterwards finds neither.
#[test]
fn h48_nothing_is_idle_while_a_commit_in_one_step_is_not_published() {
    run(async |world| {
        let store = OneStep::over(&world, &[]);
        let worker = store.client(&world, Options::default()).await;
        let (a, b) = (worker.table("a").await.unwrap(), worker.table("b").await.unwrap());
        let target = a.clone();
        let copies = observer(move |tx, change| {
            let target = target.clone();
            Box::pin(async move { tx.set(&target, change.row.clone(), &BAL, "copy") })
        });
        let registrations = vec![
            Registration::strong("copies", "b", &BAL, copies),
            Registration::strong("counts", "a", &BAL, counting(COUNT)),
        ];
        let workers = worker.observe(registrations, one_thread()).await.unwrap();
        let beside = Arc::new(world.store.beside());
        let services = Services { store: beside.clone(), ..worker.services().clone() };
        let waiter = Client::open(services, Options::default()).await.unwrap();
        store.fates.lock().unwrap().extend([Fate::Applied, Fate::Slow]);
        set(&worker, &b, &[("r", "1")]).await;
        while !world.store.is_publishing() {
            world.sleep_ms(1).await;
        }
        let second =
            beside.when(1, Fault::Hold, |request| request.op == Op::Scan && request.table == "b");
        let mut idle = world.beside(async move { waiter.wait_idle(None).await });
        world.sleep_ms(1).await;
        store.publish.release();
        world.sleep_ms(1).await;
        second.release();
        world.sleep_ms(1).await;
        assert!(idle.try_recv().unwrap().is_none(), "it is told idle, and table a is dirty");
        store.reply.release();
        assert!(idle.await.unwrap().unwrap().idle);
        assert_eq!(get_column(&worker, &a, "r", &COUNT).await.as_deref(), Some("1"));
        workers.stop().await;
    });
}

/// The request is with the store, or its outcome is being found out. Counters, hints and the
/// settling must go on.
#[test]
fn h72_a_commit_in_one_step_whose_caller_lets_go_is_settled() {
    for fate in [Fate::Slow, Fate::ReplyLost] {
        run(async |world| {
            let store = OneStep::over(&world, &[fate]);
            let (client, other) =
                (store.client(&world, Options::default()).await, world.client().await);
            let table = client.table("t").await.unwrap();
            let settling = world.store.on(Op::Read, "p", 1, Fault::Hold);
            let tx = writing(&client, &table, &[("p", "1"), ("s", "1")]).await;
            let mut commit = Box::pin(tx.commit());
            assert!((&mut commit).now_or_never().is_none(), "{fate:?}: it has to wait");
            drop(commit);
            for gate in [&store.publish, &store.reply, &settling] {
                gate.release();
            }
            world.sleep_ms(10).await;
            assert_eq!(client.stats().committed_one_step, 1, "{fate:?}");
            let theirs = other.table("t").await.unwrap();
            assert_eq!(get(&other, &theirs, "s").await.as_deref(), Some("1"), "{fate:?}");
        });
    }
}
