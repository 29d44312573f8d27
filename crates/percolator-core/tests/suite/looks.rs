//! Tests prewrite with two requests for each row: a read, and then the conditional mutation.
//! The paper's section 2.5 made them one request (H20).

use percolator_core::{AbortReason, Error, Options};

use crate::faults::{Fault, LOCK, Op};
use crate::world::{BAL, get, is_aborted, run, set, writing};

fn looking() -> Options {
    Options { prewrite_in_one_request: false, ..Options::default() }
}

#[test]
fn each_row_is_read_before_the_first_is_locked() {
    run(async |world| {
        let (usual, looking) = (world.client().await, world.client_with(looking()).await);
        let table = usual.table("t").await.unwrap();
        let phases = [(&usual, ["a", "b"], vec![]), (&looking, ["c", "d"], vec![Op::Read; 2])];
        for (client, [first, second], looks) in phases {
            // The schema of observers is read once.
            set(client, &table, &[("other", "1")]).await;
            let tx = writing(client, &table, &[(first, "1"), (second, "1")]).await;
            world.store.clear_trace();
            let before = client.stats().looks;
            let prewritten = tx.prewrite().await.unwrap();
            let asked: Vec<Op> = world.store.trace().iter().map(|request| request.op).collect();
            assert_eq!(client.stats().looks - before, looks.len() as u64);
            assert_eq!(asked, [looks, vec![Op::Prewrite; 2]].concat());
            prewritten.commit_primary().await.unwrap();
        }
        assert_eq!(looking.stats().looks_outrun, 0);
    });
}

#[test]
fn who_sees_a_conflict_locks_nothing() {
    run(async |world| {
        let (other, client) = (world.client().await, world.client_with(looking()).await);
        let table = client.table("t").await.unwrap();
        let late = writing(&client, &table, &[("a", "late"), ("b", "late")]).await;
        set(&other, &table, &[("b", "first")]).await;
        world.store.clear_trace();
        let result = late.commit().await;
        let Err(Error::Aborted { reason: AbortReason::Conflict(conflict), .. }) = result else {
            panic!("{result:?}")
        };
        assert_eq!(conflict.cell.row, "b".into());
        assert_eq!(world.store.count(Op::Prewrite), 0);
        // A living owner's lock is a conflict as well.
        let prewritten = writing(&other, &table, &[("a", "held")]).await.prewrite().await.unwrap();
        world.store.clear_trace();
        let late = writing(&client, &table, &[("a", "late"), ("b", "late")]).await;
        assert!(is_aborted(&late.commit().await));
        assert_eq!(world.store.count(Op::Prewrite), 0);
        prewritten.commit_primary().await.unwrap();
        assert_eq!(get(&client, &table, "a").await.as_deref(), Some("held"));
    });
}

#[test]
fn h20_what_comes_between_a_look_and_its_prewrite_is_seen() {
    for commits in [true, false] {
        run(async |world| {
            let (other, client) = (world.client().await, world.client_with(looking()).await);
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
            assert_eq!((client.stats().looks, client.stats().looks_outrun), (2, 1));
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
fn a_look_clears_the_dead_away_and_may_fail() {
    run(async |world| {
        let (dead, client) = (world.client().await, world.client_with(looking()).await);
        let table = client.table("t").await.unwrap();
        let _left = writing(&dead, &table, &[("a", "dead")]).await.prewrite().await.unwrap();
        world.declare_dead(&dead);
        set(&client, &table, &[("a", "next")]).await;
        // The prewrite found no conflicting record.
        assert_eq!(client.stats().looks_outrun, 0);
        let failed = world.store.on(Op::Read, "a", 1, Fault::Fail);
        let tx = writing(&client, &table, &[("a", "last")]).await;
        tx.commit().await.unwrap();
        assert_eq!(failed.count(), 1);
        assert_eq!(get(&client, &table, "a").await.as_deref(), Some("last"));
        world.audit(&table).await;
    });
}
