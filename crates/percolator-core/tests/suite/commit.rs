//! Tests the commit point, lost replies, and who decides a transaction (H07 to H13, H16, H20,
//! H23).

use std::time::Duration;

use percolator_core::{AbortReason, Error, Options};

use crate::faults::{Fault, LOCK, Op, ROLLBACK, WRITE};
use crate::world::{BAL, add, get, is_aborted, number, run, set, writing};

#[test]
fn h07_lost_replies_of_the_commit_leave_one_record_and_the_first_timestamp() {
    for (drops, late) in [(1, 0), (3, 0), (0, 1), (1, 2), (0, 3)] {
        run(async |world| {
            let client = world.client().await;
            let table = client.table("t").await.unwrap();
            let dropped = world.store.on(Op::CommitPrimary, "a", drops, Fault::DropReply);
            let held = world.store.on(Op::CommitPrimary, "a", late, Fault::Late);
            let mut tx = client.begin().await.unwrap();
            add(&mut tx, &table, "a", &BAL, 1).await.unwrap();
            let commit_ts = tx.commit().await.unwrap();
            assert_eq!(dropped.count() + held.count(), drops + late);
            assert_eq!(world.raw(&table, "a", WRITE, &BAL).await, [commit_ts]);
            held.deliver().await;
            assert_eq!(world.raw(&table, "a", WRITE, &BAL).await, [commit_ts]);
            assert_eq!(get(&client, &table, "a").await.as_deref(), Some("1"));
            world.audit(&table).await;
        });
    }
}

#[test]
fn h07_transact_never_runs_again_after_an_unknown_outcome() {
    run(async |world| {
        let options = Options { commit_deadline: Duration::from_secs(3), ..Options::default() };
        let client = world.client_with(options).await;
        let table = client.table("t").await.unwrap();
        let late = world.store.on(Op::CommitPrimary, "a", 1000, Fault::Late);
        let runs = std::sync::atomic::AtomicU32::new(0);
        let result = client
            .transact(async |mut tx| {
                runs.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                add(&mut tx, &table, "a", &BAL, 1).await
            })
            .await;
        assert!(matches!(result, Err(Error::Unknown { .. })), "{result:?}");
        assert_eq!(runs.into_inner(), 1);
        assert_eq!(client.stats().unknown, 1);
        assert!(!result.unwrap_err().is_retryable());
        late.release();
        late.deliver().await;
        assert_eq!(get(&client, &table, "a").await.as_deref(), Some("1"));
    });
}

#[test]
fn h07_a_commit_refused_before_and_rolled_back_meanwhile_is_aborted() {
    run(async |world| {
        let (owner, other) = (world.client().await, world.client().await);
        let table = owner.table("t").await.unwrap();
        let late = world.store.on(Op::CommitPrimary, "p", 1, Fault::Late);
        let tx = writing(&owner, &table, &[("p", "1"), ("s", "1")]).await;
        let prewritten = tx.prewrite().await.unwrap();
        let commit = world.beside(prewritten.commit_primary());
        late.arrived().await;
        world.declare_dead(&owner);
        assert_eq!(get(&other, &table, "p").await, None);
        assert!(is_aborted(&commit.await.unwrap()));
        assert!(matches!(late.deliver().await[..], [Ok(false)]));
        assert_eq!(get(&other, &table, "s").await, None);
        world.audit(&table).await;
    });
}

#[test]
fn h08_the_commit_timestamp_is_asked_for_after_the_last_prewrite() {
    run(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        for row in ["p", "s", "u"] {
            let held = world.store.on(Op::Prewrite, row, 1, Fault::HoldReply);
            let tx = writing(&client, &table, &[("p", "1"), ("s", "1"), ("u", "1")]).await;
            let s = tx.start_ts();
            let commit = world.beside(tx.commit());
            held.arrived().await;
            world.sleep_ms(50).await;
            assert_eq!(world.oracle.peek().await.unwrap(), s, "no timestamp while {row} is held");
            let between = world.oracle.timestamp().await.unwrap().timestamp;
            held.release();
            assert!(commit.await.unwrap().unwrap() > between);
        }
    });
}

#[test]
fn h10_secondaries_stay_when_the_outcome_is_unknown() {
    run(async |world| {
        let options = Options { commit_deadline: Duration::from_secs(2), ..Options::default() };
        let (owner, other) = (world.client_with(options).await, world.client().await);
        let table = owner.table("t").await.unwrap();
        world.store.on(Op::CommitPrimary, "p", 1, Fault::DropReply);
        // The primary cannot be read either, so its owner cannot find out.
        let unreachable = world.store.when(1000, Fault::Fail, |request| {
            request.row == "p".into() && request.op != Op::Prewrite
        });
        let tx = writing(&owner, &table, &[("p", "1"), ("s", "1")]).await;
        let result = tx.commit().await;
        assert!(matches!(result, Err(Error::Unknown { .. })), "{result:?}");
        assert_eq!(world.raw(&table, "s", LOCK, &BAL).await.len(), 1);
        unreachable.release();
        assert_eq!(get(&other, &table, "s").await.as_deref(), Some("1"));
        assert_eq!(get(&other, &table, "p").await.as_deref(), Some("1"));
    });
}

#[test]
fn h11_a_lock_of_another_transaction_on_the_primary_is_left_alone() {
    run(async |world| {
        let (first, second, reader) = (
            world.process(Default::default(), 0).await,
            world.client().await,
            world.client().await,
        );
        let table = second.table("t").await.unwrap();
        let held = world.store.on(Op::Prewrite, "p", 1, Fault::Late);
        let never = world.store.on(Op::Prewrite, "p", 1000, Fault::Hold);
        let tx = writing(&first.client, &table, &[("p", "1"), ("s", "1")]).await;
        let s = tx.start_ts();
        first.spawn(async move { drop(tx.commit().await) });
        never.arrived().await;
        first.crash();
        never.release();
        let prewritten = writing(&second, &table, &[("p", "2")]).await.prewrite().await.unwrap();
        assert_eq!(get(&reader, &table, "s").await, None);
        assert_eq!(world.raw(&table, "p", LOCK, &BAL).await.len(), 1, "the second's lock stays");
        assert_eq!(world.raw(&table, "p", ROLLBACK, &BAL).await, [s]);
        prewritten.commit_primary().await.unwrap();
        assert!(matches!(held.deliver().await[..], [Ok(true)]));
        assert_eq!(get(&reader, &table, "p").await.as_deref(), Some("2"));
    });
}

#[test]
fn h12_a_late_commit_of_a_secondary_revives_nothing() {
    run(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let late = world.store.on(Op::Commit, "s", 1, Fault::Late);
        set(&client, &table, &[("p", "1"), ("s", "1")]).await;
        assert_eq!(get(&client, &table, "s").await.as_deref(), Some("1"), "rolled forward");
        client.transact(async |mut tx| tx.delete(&table, "s", &BAL)).await.unwrap();
        // Do what garbage collection does to a deleted cell.
        let all = bigtable::TimeRange::ALL;
        let erase = bigtable::Mutation::delete(WRITE, BAL.to_bytes(), all);
        let erase = bigtable::RowMutation::new("s").mutation(erase);
        world.raw_table(&table).await.mutate_row(erase).await.unwrap();
        assert!(matches!(late.deliver().await[..], [Ok(false)]));
        assert_eq!(get(&client, &table, "s").await, None);
    });
}

#[test]
fn h13_the_primary_is_one_of_the_final_writes() {
    run(async |world| {
        let (owner, other) = (world.client().await, world.client().await);
        let table = owner.table("t").await.unwrap();
        let mut tx = owner.begin().await.unwrap();
        tx.set(&table, "a", &BAL, "1").unwrap();
        tx.set(&table, "b", &BAL, "1").unwrap();
        tx.delete(&table, "a", &BAL).unwrap();
        drop(tx.prewrite().await.unwrap().commit_primary().await.unwrap());
        world.declare_dead(&owner);
        assert_eq!(get(&other, &table, "b").await.as_deref(), Some("1"));
        assert_eq!(get(&other, &table, "a").await, None);
    });
}

/// Wherever the owner stops, and for however long, all cells have the same outcome, and its
/// answer is true.
#[test]
fn h16_an_owner_that_was_cleaned_up_and_wakes_tells_the_truth() {
    let steps = [
        (Op::Prewrite, "p"),
        (Op::Prewrite, "s"),
        (Op::CommitPrimary, "p"),
        (Op::Commit, "s"),
        (Op::Commit, "u"),
    ];
    for (op, row) in steps {
        for fault in [Fault::Hold, Fault::HoldReply] {
            for first in ["p", "s", "u"] {
                run(async |world| {
                    let (owner, other) = (world.client().await, world.client().await);
                    let table = owner.table("t").await.unwrap();
                    let held = world.store.on(op, row, 1, fault);
                    let cells = [("p", "1"), ("s", "1"), ("u", "1")];
                    let commit = world.beside(writing(&owner, &table, &cells).await.commit());
                    held.arrived().await;
                    world.declare_dead(&owner);
                    let seen = get(&other, &table, first).await;
                    held.release();
                    let result = commit.await.unwrap();
                    let tomb = !world.raw(&table, "p", ROLLBACK, &BAL).await.is_empty();
                    assert_eq!(is_aborted(&result), tomb, "{op:?} {row} {fault:?}");
                    assert_eq!(seen.is_some(), result.is_ok() && seen.is_some());
                    for (row, _) in cells {
                        let value = get(&other, &table, row).await;
                        assert_eq!(value.is_some(), result.is_ok(), "{op:?} {row} {fault:?}");
                    }
                    assert_eq!(world.cells(&table, LOCK).await, 0);
                    world.audit(&table).await;
                });
            }
        }
    }
}

#[test]
fn h20_h64_every_message_twice_and_late_leaves_one_record() {
    run(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let copies = world.store.when(10_000, Fault::Duplicate, |request| request.op != Op::System);
        for round in 0..20 {
            let row = ["p", "s", "u"][round % 3];
            client
                .transact(async |mut tx| {
                    add(&mut tx, &table, row, &BAL, 1).await?;
                    add(&mut tx, &table, "all", &BAL, 1).await
                })
                .await
                .unwrap();
            if round % 4 == 0 {
                copies.deliver().await;
            }
        }
        copies.release();
        copies.deliver().await;
        assert_eq!(
            number(client.begin().await.unwrap().get(&table, "all", &BAL).await.unwrap()),
            20
        );
        client.begin().await.unwrap().scan(&table).collect().await.unwrap();
        assert_eq!(world.cells(&table, LOCK).await, 0);
        world.audit(&table).await;
    });
}

#[test]
fn h20_what_comes_before_a_prewrite_arrives_is_seen() {
    for commits in [true, false] {
        run(async |world| {
            let (other, client) = (world.client().await, world.client().await);
            let table = client.table("t").await.unwrap();
            let tx = writing(&client, &table, &[("a", "late"), ("b", "late")]).await;
            let held = world.store.on(Op::Prewrite, "a", 1, Fault::Hold);
            let commit = world.beside(tx.commit());
            held.arrived().await;
            let faster = writing(&other, &table, &[("a", "first")]).await.prewrite().await.unwrap();
            let mut open = Some(faster);
            if commits {
                open.take().unwrap().commit_primary().await.unwrap();
            }
            held.release();
            assert!(is_aborted(&commit.await.unwrap()));
            if let Some(faster) = open {
                faster.commit_primary().await.unwrap();
            }
            assert_eq!(get(&client, &table, "a").await.as_deref(), Some("first"));
            assert_eq!(get(&client, &table, "b").await, None);
            assert!(world.raw(&table, "b", LOCK, &BAL).await.is_empty());
            world.audit(&table).await;
        });
    }
}

#[test]
fn h23_a_lost_reply_of_any_prewrite_changes_nothing() {
    for row in ["a", "b", "c"] {
        for fault in [Fault::DropReply, Fault::Late, Fault::Fail] {
            run(async |world| {
                let client = world.client().await;
                let table = client.table("t").await.unwrap();
                let rule = world.store.on(Op::Prewrite, row, 2, fault);
                set(&client, &table, &[("a", "1"), ("b", "1"), ("c", "1")]).await;
                assert!(rule.count() > 0);
                rule.deliver().await;
                for row in ["a", "b", "c"] {
                    assert_eq!(get(&client, &table, row).await.as_deref(), Some("1"));
                }
                assert_eq!(world.cells(&table, LOCK).await, 0);
                assert_eq!(client.stats().aborted, 0);
                world.audit(&table).await;
            });
        }
    }
}

#[test]
fn a_conflict_names_the_winner_by_its_commit_or_by_its_owner() {
    run(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let conflict = |result| match result {
            Err(Error::Aborted { reason: AbortReason::Conflict(conflict), .. }) => conflict,
            result => panic!("the second must lose: {result:?}"),
        };
        let one = writing(&client, &table, &[("x", "1")]).await;
        let two = writing(&client, &table, &[("x", "2")]).await;
        let (s, c) = (one.start_ts(), one.commit().await.unwrap());
        let lost = conflict(two.commit().await);
        assert_eq!(lost.cell.to_string(), "t/x/bal");
        assert_eq!((lost.winner_start_ts, lost.winner_commit_ts), (s, Some(c)));
        assert_eq!(lost.winner_owner, None);
        let one = writing(&client, &table, &[("x", "1")]).await;
        let two = writing(&client, &table, &[("x", "2")]).await;
        let s = one.start_ts();
        let _prewritten = one.prewrite().await.unwrap();
        let lost = conflict(two.commit().await);
        assert_eq!((lost.winner_start_ts, lost.winner_commit_ts), (s, None));
        assert_eq!(lost.winner_owner, Some(client.incarnation()));
    });
}

#[test]
fn h22_the_helper_reads_again_before_it_writes_again() {
    run(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        set(&client, &table, &[("x", "0")]).await;
        let add_one = || client.transact(async |mut tx| add(&mut tx, &table, "x", &BAL, 1).await);
        let (one, two) = futures::join!(add_one(), add_one());
        assert!(one.is_ok() && two.is_ok());
        assert_eq!(get(&client, &table, "x").await.as_deref(), Some("2"));
    });
}
