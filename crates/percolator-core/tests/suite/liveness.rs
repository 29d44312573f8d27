//! Tests liveness: heartbeats, tokens, clocks, and transactions that get past each other (H15,
//! H17 to H19, H22, H26, H77).

use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use percolator_core::{Error, LockService, Options, Runtime};

use crate::faults::{Fault, LOCK, Op};
use crate::world::{BAL, add, get, is_aborted, number, run, run_seed, set, writing};

#[test]
fn h15_a_late_heartbeat_revives_no_lock() {
    run(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let beat = world.store.on(Op::Heartbeat, "p", 1, Fault::Late);
        let slow = world.store.on(Op::Prewrite, "s", 1, Fault::HoldReply);
        let tx = writing(&client, &table, &[("p", "1"), ("s", "1")]).await;
        let commit = world.beside(tx.commit());
        beat.arrived().await;
        slow.release();
        commit.await.unwrap().unwrap();
        assert!(matches!(beat.deliver().await[..], [Ok(false)]));
        assert_eq!(world.cells(&table, LOCK).await, 0);
    });
}

/// Each phase lasts ten lifetimes. Heartbeats fail, lose their replies or come late, and a
/// late copy of the prewrite arrives in between.
#[test]
fn h15_nobody_cleans_up_a_long_commit_that_keeps_its_lock_fresh() {
    let slow_points = [(Op::Prewrite, Fault::HoldReply), (Op::CommitPrimary, Fault::Hold)];
    for faults in [
        &[][..],
        &[Fault::Fail],
        &[Fault::DropReply],
        &[Fault::Late, Fault::Fail, Fault::DropReply],
    ] {
        run(async |world| {
            let (owner, other) = (world.client().await, world.client().await);
            let table = owner.table("t").await.unwrap();
            let lifetime = owner.options().lock_lifetime;
            let rules = faults.iter().map(|fault| world.store.on(Op::Heartbeat, "p", 1, *fault));
            let rules: Vec<_> = rules.collect();
            let copy = world.store.on(Op::Prewrite, "p", 1, Fault::Duplicate);
            let rows = ["s", "p"];
            let held: Vec<_> = std::iter::zip(slow_points, rows)
                .map(|((op, fault), row)| world.store.on(op, row, 1, fault))
                .collect();
            let tx = writing(&owner, &table, &[("p", "1"), ("s", "1")]).await;
            let commit = world.beside(tx.commit());
            for held in &held {
                held.arrived().await;
                let until = world.runtime.now() + 10 * lifetime;
                while world.runtime.now() < until {
                    let read = other.begin().await.unwrap().get(&table, "p", &BAL).await;
                    assert!(matches!(read, Err(Error::Locked { .. })), "{faults:?}: {read:?}");
                    copy.deliver().await;
                    for rule in &rules {
                        rule.deliver().await;
                    }
                }
                held.release();
            }
            commit.await.unwrap().unwrap();
            assert!(owner.stats().heartbeats >= 40);
            assert_eq!(get(&other, &table, "p").await.as_deref(), Some("1"));
        });
    }
}

#[test]
fn h15_heartbeats_end_with_the_longest_life() {
    run(async |world| {
        let options =
            Options { transaction_life_max: Duration::from_secs(20), ..Options::default() };
        let (owner, other) = (world.client_with(options).await, world.client().await);
        let table = owner.table("t").await.unwrap();
        let held = world.store.on(Op::Prewrite, "s", 1, Fault::HoldReply);
        let tx = writing(&owner, &table, &[("p", "1"), ("s", "1")]).await;
        let commit = world.beside(tx.commit());
        held.arrived().await;
        world.sleep_ms(15_000).await;
        assert_eq!(get(&other, &table, "p").await, None);
        let waited = world.runtime.now().as_secs();
        assert!((25..45).contains(&waited), "{waited} s");
        held.release();
        assert!(is_aborted(&commit.await.unwrap()));
    });
}

/// No client accepts so long a lifetime, but the owner must still renew its lock in time.
#[test]
fn h15_a_very_long_lifetime_is_still_renewed() {
    run(async |world| {
        let options = Options {
            lock_lifetime: Duration::from_secs(24 * 3600),
            transaction_life_max: Duration::from_secs(24 * 3600),
            ..Options::default()
        };
        let (owner, other) = (world.client_with(options).await, world.client().await);
        let table = owner.table("t").await.unwrap();
        let held = world.store.on(Op::CommitPrimary, "p", 1, Fault::Hold);
        let commit = world.beside(writing(&owner, &table, &[("p", "1")]).await.commit());
        held.arrived().await;
        for _ in 0..100 {
            let read = other.begin().await.unwrap().get(&table, "p", &BAL).await;
            assert!(matches!(read, Err(Error::Locked { .. })), "{read:?}");
        }
        held.release();
        commit.await.unwrap().unwrap();
    });
}

#[test]
fn h17_a_new_life_of_the_same_process_does_not_keep_the_old_ones_locks() {
    run(async |world| {
        let crashed = world.process(Options::default(), 0).await;
        let table = crashed.client.table("t").await.unwrap();
        let tx = writing(&crashed.client, &table, &[("p", "1"), ("s", "1")]).await;
        let prewritten = tx.prewrite().await.unwrap();
        crashed.crash();
        let again = world.process(Options::default(), 0).await;
        assert_ne!(again.client.incarnation(), crashed.client.incarnation());
        let before = world.runtime.now();
        assert_eq!(get(&again.client, &table, "s").await, None);
        assert!(world.runtime.now() - before < Duration::from_millis(50));
        drop(prewritten);
    });
}

#[test]
fn h17_losing_the_token_does_not_keep_a_living_owner_from_committing() {
    run(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let tx = writing(&client, &table, &[("p", "1"), ("s", "1")]).await;
        let prewritten = tx.prewrite().await.unwrap();
        world.declare_dead(&client);
        assert!(!world.locks.is_alive(client.incarnation()).await.unwrap());
        prewritten.commit_primary().await.unwrap().commit_secondaries().await;
        assert_eq!(get(&client, &table, "s").await.as_deref(), Some("1"));
    });
}

#[test]
fn h18_clocks_an_hour_off_neither_kill_the_living_nor_keep_the_dead() {
    const HOUR_MS: i64 = 3_600_000;
    for offset in [-HOUR_MS, 0, HOUR_MS] {
        run(async |world| {
            let owner = world.process(Options::default(), offset).await.client;
            let other = world.client().await;
            let table = owner.table("t").await.unwrap();
            let lifetime = owner.options().lock_lifetime;
            // The transaction is abandoned, and the owner's token still exists.
            drop(writing(&owner, &table, &[("dead", "1")]).await.prewrite().await.unwrap());
            let before = world.runtime.now();
            assert_eq!(get(&other, &table, "dead").await, None);
            let waited = world.runtime.now() - before;
            assert!(waited >= lifetime && waited <= 2 * lifetime, "{offset}: {waited:?}");
            // The transaction is committing, and sends heartbeats.
            let held = world.store.on(Op::CommitPrimary, "alive", 1, Fault::Hold);
            let commit = world.beside(writing(&owner, &table, &[("alive", "1")]).await.commit());
            held.arrived().await;
            for _ in 0..3 {
                let read = other.begin().await.unwrap().get(&table, "alive", &BAL).await;
                assert!(matches!(read, Err(Error::Locked { .. })), "{offset}: {read:?}");
            }
            held.release();
            commit.await.unwrap().unwrap();
        });
    }
}

#[test]
fn h19_h22_crossed_writers_all_get_through_and_lose_no_update() {
    for clients in [2, 4, 8, 16] {
        run_seed(clients, async |world| {
            let table = world.client().await.table("t").await.unwrap();
            let mut ends = Vec::new();
            world.store.set_weather(crate::faults::Weather {
                delay_max: Duration::from_millis(1),
                ..Default::default()
            });
            for number in 0..clients {
                let client = world.client().await;
                let table = table.clone();
                let order = if number % 2 == 0 { ["a", "b"] } else { ["b", "a"] };
                ends.push(world.beside(async move {
                    client
                        .transact(async |mut tx| {
                            for row in order {
                                add(&mut tx, &table, row, &BAL, 1).await?;
                            }
                            Ok(())
                        })
                        .await
                }));
            }
            for end in ends {
                end.await.unwrap().unwrap();
            }
            let tx = world.client().await.begin().await.unwrap();
            for row in ["a", "b"] {
                let sum = number(tx.get(&table, row, &BAL).await.unwrap());
                assert_eq!(sum, clients as i64);
            }
        });
    }
}

#[test]
fn h26_many_readers_of_one_dead_transaction_decide_it_once() {
    run(async |world| {
        let (owner, reader) = (world.client().await, world.client().await);
        let table = owner.table("t").await.unwrap();
        set(&owner, &table, &[("p", "old")]).await;
        let rows: Vec<String> = (0..100).map(|n| format!("s{n:03}")).collect();
        let mut tx = owner.begin().await.unwrap();
        tx.set(&table, "p", &BAL, "new").unwrap();
        for row in &rows {
            tx.set(&table, row.as_str(), &BAL, "new").unwrap();
        }
        drop(tx.prewrite().await.unwrap());
        world.declare_dead(&owner);
        world.store.set_weather(crate::faults::Weather {
            delay_max: Duration::from_millis(1),
            ..Default::default()
        });
        world.store.clear_trace();
        let mut ends = Vec::new();
        for n in 0..500 {
            let (reader, table, row) = (reader.clone(), table.clone(), rows[n % 100].clone());
            ends.push(world.beside(async move { get(&reader, &table, &row).await }));
        }
        for end in ends {
            assert_eq!(end.await.unwrap(), None);
        }
        assert_eq!(world.store.count(Op::RollBackPrimary), 1);
        let primary_reads = world
            .store
            .trace()
            .iter()
            .filter(|request| request.op == Op::Read && request.row == "p".into())
            .count();
        assert_eq!(primary_reads, 1, "the others take the verdict from the cache");
    });
}

/// For example, the future of a branch of `select!` while another branch awaits.
#[test]
fn h77_a_reader_that_is_not_polled_holds_up_no_other() {
    run(async |world| {
        let (owner, reader) = (world.client().await, world.client().await);
        let table = owner.table("t").await.unwrap();
        drop(writing(&owner, &table, &[("p", "1"), ("s", "1"), ("t", "1")]).await.prewrite().await);
        world.declare_dead(&owner);
        // The first reader asks the primary, and gets no answer.
        let held = world.store.on(Op::Read, "p", 1, Fault::Hold);
        let first = Box::pin(get(&reader, &table, "s"));
        let Either::Right(((), first)) = select(first, pin!(held.arrived())).await else {
            panic!("it was not held");
        };
        let before = world.runtime.now();
        assert_eq!(get(&reader, &table, "t").await, None);
        let waited = world.runtime.now() - before;
        assert!(waited < Duration::from_secs(2), "{waited:?}");
        held.release();
        assert_eq!(first.await, None);
    });
}
