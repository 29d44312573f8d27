//! Tests the timestamp oracle: windows, restarts, successors, lost replies (H40 to H45, H77).

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};

use percolator_core::{Error, Incarnation, Oracle, Runtime, Timestamp, WindowOracle};

use crate::faults::{Fault, Op};
use crate::world::{World, run};

async fn open(world: &World, holder: u128) -> WindowOracle {
    WindowOracle::open(&*world.store, Incarnation(holder)).await.unwrap()
}

async fn lead(world: World, holder: u128) -> WindowOracle {
    let runtime = Arc::new(world.runtime.clone());
    WindowOracle::lead(&*world.store, Incarnation(holder), runtime, 10).await.unwrap()
}

async fn next(oracle: &dyn Oracle) -> Timestamp {
    oracle.timestamp().await.unwrap().timestamp
}

#[test]
fn h40_a_restart_at_any_step_of_a_window_begins_above_all_given_out() {
    for fault in [None, Some(Fault::Fail), Some(Fault::Late), Some(Fault::DropReply)] {
        run(async |world| {
            let mut last = Timestamp::ZERO;
            for life in 10..20 {
                let oracle = open(&world, life).await;
                for n in 0..4 {
                    let fault = fault.filter(|_| n < 2);
                    let rule = fault.map(|fault| world.store.on(Op::System, "oracle", 1, fault));
                    // Without an answer the window was not extended, and no timestamp is
                    // issued.
                    if let Ok(stamp) = oracle.timestamp().await {
                        assert!(stamp.timestamp > last);
                        last = stamp.timestamp;
                    }
                    if let Some(rule) = rule {
                        rule.release();
                        rule.deliver().await;
                    }
                    assert!(oracle.peek().await.unwrap() >= last);
                }
            }
            assert!(
                last.as_u64() > 10 * 1_000_000 - 1_000_000,
                "each life reserved its own window"
            );
        });
    }
}

#[test]
fn h41_h42_an_oracle_that_was_superseded_serves_nothing_once_it_knows() {
    run(async |world| {
        let first = open(&world, 10).await;
        let a = next(&first).await;
        let second = open(&world, 11).await;
        let b = next(&second).await;
        assert!(b > a);
        assert!(matches!(first.raise_schema_version(7).await, Err(Error::Oracle(_))));
        assert!(matches!(first.timestamp().await, Err(Error::Oracle(_))));
        assert!(matches!(first.peek().await, Err(Error::Oracle(_))));
        assert!(next(&second).await > b);
        assert_eq!(second.schema_version().await.unwrap(), 0);
    });
}

/// The window alone does not stop an oracle that wakes from issuing timestamps below its
/// successor's. Its lease does.
#[test]
fn h41_a_leader_serves_while_its_lease_holds_and_its_successor_waits_for_that() {
    run(async |world| {
        let first = lead(world.clone(), 10).await;
        let mut last = next(&first).await;
        let second = world.beside(lead(world.clone(), 11));
        for _ in 0..3 {
            world.sleep_ms(500).await;
            // The second oracle has taken over, but it issues no timestamp above the first
            // one's yet.
            let timestamp = next(&first).await;
            assert!(timestamp > last);
            last = timestamp;
        }
        let second = second.await.unwrap();
        assert!(next(&second).await > last);
        // The first oracle has window left, and does not know yet that it was superseded.
        assert!(matches!(first.timestamp().await, Err(Error::Oracle(_))));
        assert!(matches!(first.peek().await, Err(Error::Oracle(_))));
        assert!(matches!(first.schema_version().await, Err(Error::Oracle(_))));
        assert!(next(&second).await > last);
    });
}

#[test]
fn h41_h43_a_leader_whose_lease_has_run_out_asks_the_store_before_it_serves() {
    run(async |world| {
        let oracle = lead(world.clone(), 10).await;
        let mut last = next(&oracle).await;
        for fault in [None, Some(Fault::DropReply), Some(Fault::Fail)] {
            world.sleep_ms(10_000).await;
            let rule = fault.map(|fault| world.store.on(Op::System, "oracle", 1, fault));
            let served = oracle.timestamp().await.map(|stamp| stamp.timestamp);
            assert_eq!(served.is_ok(), fault != Some(Fault::Fail));
            assert!(rule.is_none_or(|rule| rule.count() == 1));
            let timestamp = next(&oracle).await;
            assert!(timestamp > served.unwrap_or(last));
            last = timestamp;
        }
    });
}

#[test]
fn h43_a_write_of_its_own_whose_reply_was_lost_does_not_stop_an_oracle() {
    for fault in [Fault::DropReply, Fault::Late] {
        run(async |world| {
            let oracle = open(&world, 10).await;
            let mut last = Timestamp::ZERO;
            for version in 1..5 {
                let rule = world.store.on(Op::System, "oracle", 1, fault);
                let raised = oracle.raise_schema_version(2 * version - 1).await;
                assert_eq!(raised.is_ok(), fault == Fault::DropReply);
                // The request arrives after its sender has given it up, and asks for something
                // else.
                rule.deliver().await;
                let version = 2 * version;
                oracle.raise_schema_version(version).await.unwrap();
                let stamp = oracle.timestamp().await.unwrap();
                assert!(stamp.timestamp > last && stamp.schema_version == version);
                last = stamp.timestamp;
            }
            let after = open(&world, 11).await;
            assert!(next(&after).await > last);
            assert_eq!(after.schema_version().await.unwrap(), 8);
        });
    }
}

#[test]
fn h45_concurrent_and_cancelled_requests_get_each_timestamp_once() {
    run(async |world| {
        let oracle = Arc::new(open(&world, 10).await);
        let held = world.store.on(Op::System, "oracle", 1, Fault::Hold);
        let requests = (0..64).map(|n| {
            let oracle = oracle.clone();
            let patience = percolator_core::Runtime::sleep(
                &world.runtime,
                std::time::Duration::from_millis(if n % 3 == 1 { 1 } else { 1000 }),
            );
            world.beside(async move {
                let request = std::pin::pin!(oracle.timestamp());
                match futures::future::select(request, patience).await {
                    futures::future::Either::Left((stamp, _)) => Some(stamp.unwrap().timestamp),
                    futures::future::Either::Right(_) => None,
                }
            })
        });
        let requests: Vec<_> = requests.collect();
        held.arrived().await;
        world.sleep_ms(10).await;
        held.release();
        let mut seen = BTreeSet::new();
        let mut served = 0;
        for request in requests {
            if let Some(timestamp) = request.await.unwrap() {
                served += 1;
                assert!(seen.insert(timestamp));
            }
        }
        assert_eq!(served, 64 - 21);
        assert!(next(&*oracle).await > *seen.last().unwrap());
    });
}

/// An impossible record is refused. The oracle does not go on counting from it (H46).
#[test]
fn h46_an_impossible_record_is_an_error_and_no_panic() {
    run(async |world| {
        let schema = bigtable::TableSchema {
            groups: vec![bigtable::LocalityGroup::on_disk("system", bigtable::Layout::Versions)],
        };
        let system = world.store.inner.open_table("percolator.system", &schema).await.unwrap();
        for limit in [0, u64::MAX, 1 << 53, Timestamp::MAX.as_u64()] {
            let record = [&1u64.to_be_bytes()[..], &limit.to_be_bytes(), &[0; 24]].concat();
            let set = bigtable::Mutation::set(
                bigtable::Family::from_static("system"),
                "window",
                Timestamp::ZERO,
                record,
            );
            system.mutate_row(bigtable::RowMutation::new("oracle").mutation(set)).await.unwrap();
            let result = match WindowOracle::open(&*world.store, Incarnation(9)).await {
                Ok(oracle) => oracle.timestamp().await.map(drop),
                Err(error) => Err(error),
            };
            assert!(matches!(result, Err(Error::Corrupt { .. } | Error::Oracle(_))), "{limit}");
        }
    });
}

/// For example, the future of a branch of `select!` while another branch awaits.
#[test]
fn h77_a_call_of_the_oracle_that_is_not_polled_holds_up_no_other() {
    run(async |world| {
        let oracle = open(&world, 10).await;
        // The first call extends the empty window.
        let held = world.store.on(Op::System, "oracle", 1, Fault::Hold);
        let first = Box::pin(oracle.timestamp());
        let Either::Right(((), first)) = select(first, pin!(held.arrived())).await else {
            panic!("it was not held");
        };
        held.release();
        let second = pin!(oracle.timestamp());
        let waited = pin!(world.runtime.sleep(Duration::from_secs(60)));
        let Either::Left((second, _)) = select(second, waited).await else {
            panic!("it waits for one that is not polled");
        };
        assert!(first.await.unwrap().timestamp > second.unwrap().timestamp);
    });
}

/// Otherwise each of them tries in turn while the store is away, and the last one waits for as
/// many failures as there are requests.
#[test]
fn an_attempt_that_fails_answers_all_who_wait_for_it() {
    run(async |world| {
        let oracle = Arc::new(lead(world.clone(), 10).await);
        let held = world.store.on(Op::System, "oracle", 1, Fault::Hold);
        let requests = (0..64).map(|_| {
            let oracle = oracle.clone();
            world.beside(async move { oracle.timestamp().await })
        });
        let requests: Vec<_> = requests.collect();
        held.arrived().await;
        // The held attempt began before the other requests were made, so its failure would be no
        // answer to them. Its lease is over when it succeeds, and the next attempt fails.
        world.sleep_ms(10_000).await;
        let failed = world.store.on(Op::System, "oracle", 2, Fault::Fail);
        held.release();
        for request in requests {
            let answer = request.await.unwrap();
            assert!(matches!(answer, Err(Error::Store(_))), "{answer:?}");
        }
        assert_eq!(failed.count(), 1);
        // A request that is made after a failure begins an attempt of its own.
        assert!(matches!(oracle.timestamp().await, Err(Error::Store(_))));
        assert_eq!(failed.count(), 2);
        next(&*oracle).await;
    });
}

#[test]
fn a_request_that_waited_long_gets_no_failure_from_before_a_success() {
    run(async |world| {
        let oracle = lead(world.clone(), 10).await;
        let held = world.store.on(Op::System, "oracle", 1, Fault::Hold);
        let mut first = Box::pin(oracle.timestamp());
        assert!(futures::poll!(&mut first).is_pending());
        let mut waits = Box::pin(oracle.timestamp());
        assert!(futures::poll!(&mut waits).is_pending());
        world.sleep_ms(10_000).await;
        let failed = world.store.on(Op::System, "oracle", 1, Fault::Fail);
        held.release();
        assert!(matches!(first.await, Err(Error::Store(_))));
        assert_eq!(failed.count(), 1);
        // The store is back. Others empty the window before anyone polls the second request.
        let last = oracle.timestamps(10).await.unwrap();
        assert!(waits.await.unwrap().timestamp > last.first);
    });
}
