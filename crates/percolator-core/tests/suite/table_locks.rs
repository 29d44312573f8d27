//! Tests the lock service in the store: tokens of processes that live and die, and advisory
//! locks (H17, H18).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigtable::{Family, Mutation, RowMutation, RowRange, Selection, TimeRange};
use futures::FutureExt;
use futures::future::{AbortHandle, Abortable, BoxFuture};
use percolator_core::testing::VirtualRuntime;
use percolator_core::{
    Bytes, Client, Error, Holder, Incarnation, LockService, Options, RowKey, Runtime, Services,
    TableLocks,
};

use crate::faults::{Fault, Weather};
use crate::leaders::Clock;
use crate::world::{A, BAL, World, run, run_seed};

const LIFETIME: Duration = TableLocks::LIFETIME;
const SECOND: Duration = Duration::from_secs(1);
const CLAIM: Family = Family::from_static("claim");

/// The lock service as one process sees it.
async fn process(world: &World, rate: f64) -> TableLocks {
    let runtime = Arc::new(Clock { inner: world.runtime.clone(), rate });
    loop {
        if let Ok(locks) = TableLocks::open(&*world.store, runtime.clone(), LIFETIME).await {
            return locks;
        }
    }
}

/// A piece of work of a client.
fn by(owner: Incarnation) -> Holder {
    Holder { owner, work: 0 }
}

/// How long it takes until `observer` takes `owner` for dead.
async fn death(world: &World, observer: &TableLocks, owner: Incarnation) -> Duration {
    let since = now(world);
    while observer.is_alive(owner).await.unwrap() {
        world.sleep_ms(100).await;
        assert!(now(world) - since < Duration::from_secs(60), "it never dies");
    }
    now(world) - since
}

fn now(world: &World) -> Duration {
    world.runtime.now()
}

async fn table(world: &World) -> Arc<dyn bigtable::Table> {
    let groups = vec![bigtable::LocalityGroup::on_disk("claim", bigtable::Layout::Versions)];
    let schema = bigtable::TableSchema { groups };
    world.store.inner.open_table("percolator.locks", &schema).await.unwrap()
}

async fn rows(world: &World) -> Vec<bigtable::Row> {
    let select = Selection::default().family(CLAIM, TimeRange::ALL, 1);
    table(world).await.scan(&RowRange::all(), &select, Default::default()).await.unwrap().rows
}

#[test]
fn h17_h18_a_token_lives_as_long_as_its_process_whatever_the_clocks() {
    for (own, others) in [(1.0, 1.0), (0.9, 1.1), (1.1, 0.9)] {
        run(async |world| {
            let (a, b) = (process(&world, own).await, process(&world, others).await);
            let (first, second) = (Incarnation(1), Incarnation(2));
            assert!(!b.is_alive(first).await.unwrap(), "nobody has registered it");
            a.register(first).await.unwrap();
            for _ in 0..300 {
                assert!(b.is_alive(first).await.unwrap());
                world.sleep_ms(200).await;
            }
            // The process dies with all of its tasks, and comes back with a new incarnation.
            drop(a);
            let again = process(&world, own).await;
            again.register(second).await.unwrap();
            let took = death(&world, &b, first).await;
            assert!(took >= LIFETIME.mul_f64(0.6) && took < LIFETIME.mul_f64(1.3), "{took:?}");
            assert!(b.is_alive(second).await.unwrap() && !b.is_alive(first).await.unwrap());
            // A process that looks for the first time need not wait, because the token is
            // gone.
            assert!(!process(&world, 1.0).await.is_alive(first).await.unwrap());
        });
    }
}

#[test]
fn h17_a_token_that_was_given_up_is_gone_at_once_and_stays_gone() {
    run(async |world| {
        let (a, b) = (process(&world, 1.0).await, process(&world, 1.0).await);
        let owner = Incarnation(1);
        a.register(owner).await.unwrap();
        a.register(owner).await.unwrap();
        assert!(a.try_lock(b"row", by(owner), 60 * SECOND).await.unwrap());
        a.unregister(owner);
        world.sleep_ms(1).await;
        for _ in 0..20 {
            assert!(!a.is_alive(owner).await.unwrap() && !b.is_alive(owner).await.unwrap());
            world.sleep_ms(1000).await;
        }
        assert!(rows(&world).await.is_empty(), "its advisory locks are gone, too");
    });
}

/// Another process took a living process for dead. The next renewal corrects that.
#[test]
fn h17_a_token_that_was_removed_wrongly_comes_back() {
    run(async |world| {
        let (a, b) = (process(&world, 1.0).await, process(&world, 1.0).await);
        let owner = Incarnation(1);
        a.register(owner).await.unwrap();
        b.unregister(owner);
        world.sleep_ms(1).await;
        assert!(b.is_alive(owner).await.unwrap(), "only its own process gives it up");
        let token = rows(&world).await.remove(0).key;
        let delete = Mutation::delete(CLAIM, "", TimeRange::ALL);
        table(&world).await.mutate_row(RowMutation::new(token).mutation(delete)).await.unwrap();
        assert!(!b.is_alive(owner).await.unwrap());
        world.sleep_ms(2500).await;
        assert!(b.is_alive(owner).await.unwrap());
    });
}

#[test]
fn advisory_locks_exclude_and_run_out_on_the_observers_clock() {
    run(async |world| {
        let (a, b) = (process(&world, 1.0).await, process(&world, 1.0).await);
        let (one, two) = (Incarnation(1), Incarnation(2));
        for name in [Vec::new(), b"row".to_vec(), vec![0xff; 5000], vec![0xff; 5001]] {
            a.register(one).await.unwrap();
            b.register(two).await.unwrap();
            assert!(a.try_lock(&name, by(one), 5 * SECOND).await.unwrap());
            assert!(!b.try_lock(&name, by(two), 5 * SECOND).await.unwrap());
            assert!(!a.try_lock(&name, by(one), 5 * SECOND).await.unwrap(), "nor its holder again");
            // Only the holder can give the lock up.
            b.unlock(&name, by(one));
            a.unlock(&name, by(two));
            world.sleep_ms(1).await;
            assert!(!b.try_lock(&name, by(two), 5 * SECOND).await.unwrap());
            world.sleep_ms(5001).await;
            assert!(b.try_lock(&name, by(two), 5 * SECOND).await.unwrap(), "it has run out");
            // This request is late: the lock belongs to another process by now.
            a.unlock(&name, by(one));
            world.sleep_ms(1).await;
            assert!(!a.try_lock(&name, by(one), 5 * SECOND).await.unwrap());
            b.unlock(&name, by(two));
            world.sleep_ms(60).await;
            assert!(a.try_lock(&name, by(one), 5 * SECOND).await.unwrap());
        }
    });
}

/// A worker that has handled one column of a row often comes back at once for another one.
#[test]
fn an_advisory_lock_that_was_just_given_up_is_had_again_by_its_process_and_then_by_others() {
    run(async |world| {
        let (a, b) = (process(&world, 1.0).await, process(&world, 1.0).await);
        let (one, two) = (Incarnation(1), Incarnation(2));
        a.register(one).await.unwrap();
        b.register(two).await.unwrap();
        let claim = async || {
            let rows = rows(&world).await;
            let lock = rows.iter().find(|row| row.key.as_bytes().starts_with(b"lock/"));
            lock.map(|row| row.cells[0].value.clone())
        };
        assert!(a.try_lock(b"row", by(one), 5 * SECOND).await.unwrap());
        let first = claim().await.unwrap();
        for _ in 0..3 {
            a.unlock(b"row", by(one));
            world.sleep_ms(20).await;
            assert!(a.try_lock(b"row", by(one), 5 * SECOND).await.unwrap());
            assert!(
                !a.try_lock(b"row", by(one), 5 * SECOND).await.unwrap(),
                "nor its holder again"
            );
            assert!(!b.try_lock(b"row", by(two), 5 * SECOND).await.unwrap());
            assert_eq!(claim().await.as_ref(), Some(&first), "no request was needed");
        }
        // The pauses after which a given-up lock leaves the store have passed meanwhile, one
        // by one.
        world.sleep_ms(100).await;
        assert_eq!(claim().await.as_ref(), Some(&first), "it is used");
        a.unlock(b"row", by(one));
        world.sleep_ms(60).await;
        assert_eq!(claim().await, None);
        assert!(b.try_lock(b"row", by(two), 5 * SECOND).await.unwrap());
        // Others have watched an old claim for a long time, so it is replaced by a new one.
        let old = claim().await.unwrap();
        world.sleep_ms(2_000).await;
        b.unlock(b"row", by(two));
        assert!(b.try_lock(b"row", by(two), 5 * SECOND).await.unwrap());
        assert_ne!(claim().await.unwrap(), old);
        world.sleep_ms(100).await;
        assert!(!a.try_lock(b"row", by(one), 5 * SECOND).await.unwrap(), "it is used");
    });
}

/// The timers and clocks of a process may disagree (simulator, seed 22).
#[test]
fn an_advisory_lock_that_was_given_up_goes_however_slow_the_clock_is() {
    for rate in [0.9, 0.97, 1.0, 1.1] {
        run(async |world| {
            let (a, b) = (process(&world, rate).await, process(&world, 1.0).await);
            let (one, two) = (Incarnation(1), Incarnation(2));
            a.register(one).await.unwrap();
            b.register(two).await.unwrap();
            assert!(a.try_lock(b"row", by(one), 60 * SECOND).await.unwrap());
            a.unlock(b"row", by(one));
            world.sleep_ms(100).await;
            assert!(b.try_lock(b"row", by(two), 60 * SECOND).await.unwrap(), "rate {rate}");
            b.unlock(b"row", by(two));
            world.sleep_ms(100).await;
            assert!(a.try_lock(b"row", by(one), 60 * SECOND).await.unwrap(), "rate {rate}");
        });
    }
}

#[test]
fn a_question_for_an_advisory_lock_that_is_given_up_keeps_nobody_away() {
    run(async |world| {
        let a = process(&world, 1.0).await;
        a.register(Incarnation(1)).await.unwrap();
        let row = bigtable::RowKey::from("lock/row");
        let held = world.store.when(1, Fault::Hold, move |request| request.row == row);
        assert!(a.try_lock(b"row", by(Incarnation(1)), SECOND).now_or_never().is_none());
        assert_eq!(held.count(), 1);
        assert!(a.try_lock(b"row", by(Incarnation(1)), SECOND).await.unwrap());
    });
}

/// A row that a dead worker had locked is free once the worker's token is gone, before the
/// lock's lifetime ends.
#[test]
fn h17_an_advisory_lock_of_the_dead_is_free_once_its_token_is_gone() {
    run(async |world| {
        let (a, b) = (process(&world, 1.0).await, process(&world, 1.0).await);
        let (one, two) = (Incarnation(1), Incarnation(2));
        a.register(one).await.unwrap();
        b.register(two).await.unwrap();
        assert!(a.try_lock(b"row", by(one), 60 * SECOND).await.unwrap());
        let since = now(&world);
        drop(a);
        while !b.try_lock(b"row", by(two), 60 * SECOND).await.unwrap() {
            world.sleep_ms(100).await;
        }
        let took = now(&world) - since;
        assert!(took < LIFETIME.mul_f64(1.3), "{took:?}");
    });
}

#[test]
fn what_the_dead_left_is_swept_although_nobody_asks_for_it() {
    run(async |world| {
        let (a, b) = (process(&world, 1.0).await, process(&world, 1.0).await);
        b.register(Incarnation(0)).await.unwrap();
        for n in 1..=300_u128 {
            a.register(Incarnation(n)).await.unwrap();
            assert!(a.try_lock(&n.to_be_bytes(), by(Incarnation(n)), SECOND).await.unwrap());
        }
        drop(a);
        assert_eq!(rows(&world).await.len(), 601);
        world.sleep_ms(120_000).await;
        assert_eq!(rows(&world).await.len(), 1, "the living one's token");
        assert!(b.is_alive(Incarnation(0)).await.unwrap());
    });
}

#[test]
fn renewals_that_fail_now_and_then_kill_nobody() {
    for seed in 0..10 {
        run_seed(seed, async |world| {
            world.store.set_weather(Weather {
                delay_max: Duration::from_millis(200),
                fail: 6,
                drop_reply: 6,
                ..Weather::default()
            });
            let (a, b) = (process(&world, 1.0).await, process(&world, 1.0).await);
            while a.register(Incarnation(1)).await.is_err() {}
            for _ in 0..200 {
                if let Ok(alive) = b.is_alive(Incarnation(1)).await {
                    assert!(alive);
                }
                world.sleep_ms(300).await;
            }
        });
    }
}

/// A runtime that can end all of its tasks at once.
#[derive(Debug)]
struct Mortal {
    inner: VirtualRuntime,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl Runtime for Mortal {
    fn now(&self) -> Duration {
        self.inner.now()
    }

    fn wall_ms(&self) -> u64 {
        self.inner.wall_ms()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.inner.sleep(duration)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let (handle, registration) = AbortHandle::new_pair();
        self.tasks.lock().unwrap().push(handle);
        let task = Abortable::new(task, registration);
        self.inner.spawn(Box::pin(async move {
            let _ = task.await;
        }));
    }

    fn random(&self) -> u64 {
        self.inner.random()
    }
}

/// The whole sequence: a process dies between prewrite and commit. Another process, with a
/// lock service of its own over the same table, rolls the transaction back. It does so once
/// the dead process's token has run out, long before its locks have.
#[test]
fn h16_the_locks_of_a_dead_process_are_resolved_when_its_token_has_run_out() {
    run(async |world| {
        let open = async || {
            let mortal = Mortal { inner: world.runtime.clone(), tasks: Mutex::default() };
            let runtime = Arc::new(mortal);
            let locks = TableLocks::open(&*world.store, runtime.clone(), LIFETIME).await.unwrap();
            let services = Services {
                store: world.store.clone(),
                oracle: world.oracle.clone(),
                locks: Arc::new(locks),
                runtime: runtime.clone(),
            };
            let options = Options { lock_lifetime: 300 * SECOND, ..Options::default() };
            (Client::open(services, options).await.unwrap(), runtime)
        };
        let ((dying, runtime), (living, _)) = (open().await, open().await);
        let table = dying.table("t").await.unwrap();
        let mut tx = dying.begin().await.unwrap();
        tx.set(&table, "Bob", &BAL, "3").unwrap();
        tx.set(&table, "Joe", &A, "4").unwrap();
        let _prewritten = tx.prewrite().await.unwrap();
        world.sleep_ms(20_000).await;
        let seen_by = LockService::is_alive(&*living.services().locks, dying.incarnation());
        assert!(seen_by.await.unwrap());
        // The process ends as by kill -9.
        runtime.tasks.lock().unwrap().iter().for_each(AbortHandle::abort);
        let since = now(&world);
        let table = living.table("t").await.unwrap();
        let mut tx = living.begin().await.unwrap();
        assert_eq!(tx.get(&table, "Bob", &BAL).await.unwrap(), None::<Bytes>);
        tx.set(&table, "Bob", &BAL, "5").unwrap();
        tx.commit().await.unwrap();
        let took = now(&world) - since;
        assert!(took < 15 * SECOND, "{took:?}");
    });
}

#[test]
fn a_lifetime_that_cannot_be_kept_is_refused() {
    run(async |world| {
        let runtime = Arc::new(world.runtime.clone());
        for (lifetime_ms, right) in [(99, false), (100, true), (600_000, true), (600_001, false)] {
            let lifetime = Duration::from_millis(lifetime_ms);
            let opened = TableLocks::open(&*world.store, runtime.clone(), lifetime).await;
            let refused = matches!(opened, Err(Error::Invalid { .. }));
            assert_eq!(refused, !right, "{lifetime:?}");
        }
    });
}

/// Two pieces of work of one process, and one of another, take a lock one after the other.
#[test]
fn h73_a_renewal_never_takes_back_a_lock_that_another_has() {
    run(async |world| {
        let (a, b) = (process(&world, 1.0).await, process(&world, 1.0).await);
        let (one, two) = (Incarnation(1), Incarnation(2));
        a.register(one).await.unwrap();
        b.register(two).await.unwrap();
        let late = |work| Holder { owner: one, work };
        assert!(a.try_lock(b"row", late(1), SECOND).await.unwrap());
        assert!(!b.try_lock(b"row", by(two), SECOND).await.unwrap());
        world.sleep_ms(900).await;
        assert!(a.renew(b"row", late(1), SECOND).await.unwrap());
        world.sleep_ms(900).await;
        assert!(!b.try_lock(b"row", by(two), SECOND).await.unwrap(), "it was renewed");
        world.sleep_ms(1100).await;
        assert!(b.try_lock(b"row", by(two), SECOND).await.unwrap(), "it has run out");
        assert!(!a.renew(b"row", late(1), SECOND).await.unwrap());
        a.unlock(b"row", late(1));
        world.sleep_ms(100).await;
        assert!(b.renew(b"row", by(two), SECOND).await.unwrap(), "it is still theirs");
        b.unlock(b"row", by(two));
        world.sleep_ms(100).await;
        // The same holds among the workers of one process.
        assert!(a.try_lock(b"row", late(2), SECOND).await.unwrap());
        world.sleep_ms(1100).await;
        assert!(a.try_lock(b"row", late(3), SECOND).await.unwrap(), "it has run out");
        assert!(!a.renew(b"row", late(2), SECOND).await.unwrap());
        a.unlock(b"row", late(2));
        world.sleep_ms(100).await;
        assert!(!b.try_lock(b"row", by(two), SECOND).await.unwrap(), "nor was it given up");
        assert!(a.renew(b"row", late(3), SECOND).await.unwrap());
        // A lock that was given up does not come back either.
        a.unlock(b"row", late(3));
        assert!(!a.renew(b"row", late(3), SECOND).await.unwrap());
        world.sleep_ms(100).await;
        assert!(b.try_lock(b"row", by(two), SECOND).await.unwrap());
    });
}

/// The same holds for the lock service of one process.
#[test]
fn h73_no_renewal_takes_back_a_lock_in_one_process() {
    run(async |world| {
        let (locks, owner) = (world.locks.clone(), Incarnation(7));
        let work = |work| Holder { owner, work };
        assert!(locks.try_lock(b"row", work(1), SECOND).await.unwrap());
        world.sleep_ms(900).await;
        assert!(locks.renew(b"row", work(1), SECOND).await.unwrap());
        world.sleep_ms(900).await;
        assert!(!locks.try_lock(b"row", work(2), SECOND).await.unwrap());
        world.sleep_ms(200).await;
        assert!(locks.try_lock(b"row", work(2), SECOND).await.unwrap());
        assert!(!locks.renew(b"row", work(1), SECOND).await.unwrap());
        locks.unlock(b"row", work(1));
        assert!(!locks.try_lock(b"row", work(3), SECOND).await.unwrap());
    });
}

/// After a renewal without a reply, its sender does not know whether it arrived. The next
/// renewal must be right in both cases.
#[test]
fn h73_a_renewal_whose_reply_was_lost_is_followed_by_another() {
    for lost in [Fault::DropReply, Fault::Fail] {
        run(async |world| {
            let (a, b) = (process(&world, 1.0).await, process(&world, 1.0).await);
            let (one, two) = (Incarnation(1), Incarnation(2));
            a.register(one).await.unwrap();
            b.register(two).await.unwrap();
            assert!(a.try_lock(b"row", by(one), SECOND).await.unwrap());
            let row = RowKey::from("lock/row");
            let _fault = world.store.when(1, lost, move |request| request.row == row);
            a.renew(b"row", by(one), SECOND).await.unwrap_err();
            for _ in 0..5 {
                world.sleep_ms(600).await;
                assert!(a.renew(b"row", by(one), SECOND).await.unwrap());
                assert!(!b.try_lock(b"row", by(two), SECOND).await.unwrap());
            }
            a.unlock(b"row", by(one));
            world.sleep_ms(100).await;
            assert!(b.try_lock(b"row", by(two), SECOND).await.unwrap(), "nothing is left of it");
        });
    }
}
