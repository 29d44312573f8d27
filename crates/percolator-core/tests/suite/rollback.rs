//! Tests rollback, and requests that arrive after it (H01 to H05, H24, H25).

use percolator_core::{AbortReason, Error};

use crate::faults::{Fault, LOCK, Op, ROLLBACK};
use crate::world::{BAL, get, is_aborted, run, set, writing};
use percolator_core::Runtime;

#[test]
fn h01_late_prewrite_after_rollback_is_rejected() {
    run(async |world| {
        let (owner, other) = (world.client().await, world.client().await);
        let table = owner.table("t").await.unwrap();
        set(&owner, &table, &[("p", "old"), ("s", "old")]).await;
        let copy = world.store.on(Op::Prewrite, "p", 1, Fault::Duplicate);
        let tx = writing(&owner, &table, &[("p", "new"), ("s", "new")]).await;
        let s = tx.start_ts();
        let prewritten = tx.prewrite().await.unwrap();
        world.declare_dead(&owner);
        assert_eq!(get(&other, &table, "p").await.as_deref(), Some("old"));
        assert!(matches!(copy.deliver().await[..], [Ok(true)]), "the tomb rejects the copy");
        let result = prewritten.commit_primary().await;
        assert!(matches!(result, Err(Error::Aborted { reason: AbortReason::RolledBack, .. })));
        assert!(!world.raw(&table, "p", LOCK, &BAL).await.contains(&s));
        assert_eq!(world.raw(&table, "p", ROLLBACK, &BAL).await, [s]);
        for row in ["p", "s"] {
            assert_eq!(get(&other, &table, row).await.as_deref(), Some("old"));
        }
        world.audit(&table).await;
    });
}

#[test]
fn h01_abort_by_the_owner_leaves_a_tomb_too() {
    run(async |world| {
        let (owner, other) = (world.client().await, world.client().await);
        let table = owner.table("t").await.unwrap();
        let copy = world.store.on(Op::Prewrite, "a", 1, Fault::Duplicate);
        let tx = writing(&owner, &table, &[("a", "1"), ("b", "1")]).await;
        set(&other, &table, &[("b", "2")]).await;
        assert!(is_aborted(&tx.commit().await));
        assert!(matches!(copy.deliver().await[..], [Ok(true)]));
        assert_eq!(world.cells(&table, LOCK).await, 0);
        assert_eq!(get(&other, &table, "a").await, None);
    });
}

#[test]
fn h02_prewrite_of_the_primary_after_its_secondary_was_resolved_is_rejected() {
    run(async |world| {
        let (owner, other) = (world.client().await, world.client().await);
        let table = owner.table("t").await.unwrap();
        let held = world.store.on(Op::Prewrite, "p", 1, Fault::Hold);
        let tx = writing(&owner, &table, &[("p", "1"), ("s", "1")]).await;
        let s = tx.start_ts();
        let commit = world.beside(tx.commit());
        held.arrived().await;
        // The owner lives, so no client decides before the lock on the secondary has expired.
        let before = world.runtime.now();
        assert_eq!(get(&other, &table, "s").await, None);
        assert!(world.runtime.now() - before >= owner.options().lock_lifetime);
        assert_eq!(world.raw(&table, "p", ROLLBACK, &BAL).await, [s]);
        held.release();
        let result = commit.await.unwrap();
        assert!(matches!(result, Err(Error::Aborted { reason: AbortReason::RolledBack, .. })));
        assert_eq!(world.cells(&table, LOCK).await, 0);
    });
}

#[test]
fn h03_secondary_without_primary_is_resolved_at_once_when_the_owner_is_gone() {
    run(async |world| {
        let (owner, other) = (world.process(Default::default(), 0).await, world.client().await);
        let table = other.table("t").await.unwrap();
        let held = world.store.on(Op::Prewrite, "p", 1, Fault::Hold);
        let tx = writing(&owner.client, &table, &[("p", "1"), ("s", "1")]).await;
        owner.spawn(async move { drop(tx.commit().await) });
        held.arrived().await;
        owner.crash();
        let before = world.runtime.now();
        assert_eq!(get(&other, &table, "s").await, None);
        assert!(world.runtime.now() - before < std::time::Duration::from_millis(100));
        set(&other, &table, &[("s", "2")]).await;
        assert_eq!(get(&other, &table, "s").await.as_deref(), Some("2"));
    });
}

/// A client that watches two orphans of one transaction must not take the second lock for a
/// sign of life.
#[test]
fn h03_two_secondaries_without_primary_expire_although_both_are_watched() {
    run(async |world| {
        let (owner, other) = (world.client().await, world.client().await);
        let table = other.table("t").await.unwrap();
        let held = world.store.on(Op::Prewrite, "p", 1, Fault::Hold);
        let tx = writing(&owner, &table, &[("p", "1"), ("s", "1"), ("u", "1")]).await;
        let _commit = world.beside(tx.commit());
        held.arrived().await;
        let tx = other.begin().await.unwrap();
        let (s, u) =
            futures::future::join(tx.get(&table, "s", &BAL), tx.get(&table, "u", &BAL)).await;
        assert_eq!((s.unwrap(), u.unwrap()), (None, None));
        assert!(world.runtime.now() < 2 * owner.options().lock_lifetime);
    });
}

#[test]
fn h05_a_newer_tomb_does_not_hide_an_older_one() {
    run(async |world| {
        let other = world.client().await;
        let table = other.table("t").await.unwrap();
        let mut copies = Vec::new();
        for _ in 0..3 {
            let owner = world.client().await;
            copies.push(world.store.on(Op::Prewrite, "p", 1, Fault::Duplicate));
            let tx = writing(&owner, &table, &[("p", "new"), ("s", "new")]).await;
            let prewritten = tx.prewrite().await.unwrap();
            world.declare_dead(&owner);
            assert_eq!(get(&other, &table, "p").await, None);
            assert!(is_aborted(&prewritten.commit_primary().await));
        }
        for copy in copies {
            assert!(matches!(copy.deliver().await[..], [Ok(true)]));
        }
        assert_eq!(world.raw(&table, "p", ROLLBACK, &BAL).await.len(), 3);
        assert!(world.raw(&table, "p", LOCK, &BAL).await.is_empty());
    });
}

#[test]
fn h24_prewrites_that_land_after_the_abort_hold_nobody_up() {
    run(async |world| {
        let (owner, other) = (world.client().await, world.client().await);
        let table = owner.table("t").await.unwrap();
        let late = world.store.on(Op::Prewrite, "c", 20, Fault::Late);
        let tx = writing(&owner, &table, &[("a", "1"), ("b", "1"), ("c", "1")]).await;
        set(&other, &table, &[("b", "2")]).await;
        assert!(is_aborted(&tx.commit().await));
        assert!(late.count() > 0);
        late.release();
        late.deliver().await;
        assert_eq!(world.cells(&table, LOCK).await, 1, "the orphan is there");
        set(&other, &table, &[("a", "3"), ("b", "3"), ("c", "3")]).await;
        assert_eq!(world.cells(&table, LOCK).await, 0);
        world.audit(&table).await;
    });
}

#[test]
fn h25_a_transaction_that_only_writes_gets_past_dead_locks() {
    run(async |world| {
        let other = world.client().await;
        let table = other.table("t").await.unwrap();
        // If the owner is known to be dead, the writer gets past at once. If it is only
        // silent, the writer gets past after the lock's lifetime.
        for (dead, seconds) in [(true, 0..1), (false, 10..40)] {
            let owner = world.client().await;
            let tx = writing(&owner, &table, &[("p", "1"), ("s", "1")]).await;
            drop(tx.prewrite().await.unwrap());
            if dead {
                world.declare_dead(&owner);
            }
            let before = world.runtime.now();
            other
                .transact(async |mut tx| {
                    tx.set(&table, "s", &BAL, "2")?;
                    tx.set(&table, "p", &BAL, "2")
                })
                .await
                .unwrap();
            let waited = (world.runtime.now() - before).as_secs();
            assert!(seconds.contains(&waited), "{waited} s");
            drop(owner);
        }
    });
}

#[test]
fn h25_a_conflict_with_a_committed_transaction_rolls_it_forward_at_once() {
    run(async |world| {
        let (owner, other) = (world.client().await, world.client().await);
        let table = owner.table("t").await.unwrap();
        let tx = writing(&owner, &table, &[("p", "1"), ("s", "1")]).await;
        let decided = tx.prewrite().await.unwrap().commit_primary().await.unwrap();
        let commit_ts = decided.commit_ts();
        drop(decided);
        let before = world.runtime.now();
        set(&other, &table, &[("s", "2")]).await;
        assert!(world.runtime.now() - before < std::time::Duration::from_millis(100));
        let past = other.snapshot_at(commit_ts).await.unwrap();
        assert_eq!(past.get(&table, "s", &BAL).await.unwrap().as_deref(), Some(&b"1"[..]));
    });
}
