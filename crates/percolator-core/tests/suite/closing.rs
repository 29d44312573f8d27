//! Tests closing a client: `close` waits for the work in the background, and everything fails
//! from then on.

use std::time::Duration;

use percolator_core::{
    CommitPath, Error, GcOptions, LockService, Options, Registration, Runtime, Secondaries,
    WorkerOptions,
};

use crate::faults::{Fault, LOCK, Op};
use crate::long_runs::{Began, slow};
use crate::world::{BAL, get, run_both, set, writing};

const SECOND: Duration = Duration::from_secs(1);

fn is_closed<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Closed))
}

#[test]
fn close_waits_for_workers_and_everything_fails_from_then_on() {
    run_both(async |world| {
        let (client, other) = (world.client().await, world.client().await);
        let table = client.table("t").await.unwrap();
        let began = Began::default();
        let slow = || Registration::strong("o", "t", &BAL, slow(&world, 5 * SECOND, &began));
        let workers = client.observe(vec![slow()], WorkerOptions::default()).await.unwrap();
        let collector = client.collect_in_background(GcOptions::default());
        let reads = client.begin().await.unwrap();
        let writes = writing(&client, &table, &[("b", "1")]).await;
        let snapshot = client.snapshot().await.unwrap();
        set(&client, &table, &[("a", "1")]).await;
        world.sleep_ms(1000).await;
        let (since, clone) = (world.runtime.now(), client.clone());
        client.close().await;
        assert_eq!(world.runtime.now() - since, 4 * SECOND, "the run goes on to its end");
        assert!(!world.locks.is_alive(client.incarnation()).await.unwrap());
        assert!(is_closed(&clone.begin().await) && is_closed(&clone.snapshot().await));
        assert!(is_closed(&clone.admit().await) && is_closed(&clone.table("new").await));
        assert!(is_closed(&clone.observe(vec![slow()], WorkerOptions::default()).await));
        assert!(is_closed(&reads.get(&table, "a", &BAL).await));
        assert!(is_closed(&reads.get_many(&table, &["a".into()], &[BAL]).await));
        assert!(is_closed(&reads.scan(&table).collect().await));
        assert!(is_closed(&snapshot.get(&table, "a", &BAL).await));
        assert!(is_closed(&writes.commit().await));
        assert_eq!(get(&other, &table, "b").await, None);
        assert!(other.wait_idle(Some(SECOND)).await.unwrap().idle);
        let since = world.runtime.now();
        client.close().await;
        workers.stop().await;
        assert_eq!(world.runtime.now(), since);
        // A collection that begins afterwards ends at once.
        drop((collector, client.collect_in_background(GcOptions::default())));
    });
}

#[test]
fn close_waits_for_secondaries_and_for_commits_that_nobody_waits_for() {
    run_both(async |world| {
        for dropped in [false, true] {
            let options = Options {
                secondaries: Secondaries::Background,
                commit_path: CommitPath::TwoPhases,
                ..Options::default()
            };
            let (client, other) = (world.client_with(options).await, world.client().await);
            let table = client.table("t").await.unwrap();
            let held = world.store.on(Op::Commit, "b", 1, Fault::Hold);
            let mut commit =
                Box::pin(writing(&client, &table, &[("a", "1"), ("b", "1")]).await.commit());
            if dropped {
                let timeout = world.runtime.sleep(Duration::from_nanos(1));
                let _ = futures::future::select(&mut commit, timeout).await;
            } else {
                (&mut commit).await.unwrap();
            }
            drop(commit);
            held.arrived().await;
            let report = client.close_within(SECOND).await;
            assert_eq!((report.runs_abandoned, report.commits_left), (0, 1));
            let (runtime, opens) = (world.runtime.clone(), held.clone());
            let _beside = world.beside(async move {
                runtime.sleep(3 * SECOND).await;
                opens.release();
            });
            let since = world.runtime.now();
            client.close().await;
            assert!(world.runtime.now() - since >= 3 * SECOND);
            assert_eq!(world.cells(&table, LOCK).await, 0, "no lock is left");
            assert_eq!(get(&other, &table, "b").await.as_deref(), Some("1"));
            other.transact(async |mut tx| tx.delete(&table, "b", &BAL)).await.unwrap();
        }
    });
}

#[test]
fn close_within_abandons_runs_that_hang() {
    run_both(async |world| {
        let (client, other) = (world.client().await, world.client().await);
        let table = client.table("t").await.unwrap();
        let began = Began::default();
        let hangs = Registration::strong("o", "t", &BAL, slow(&world, 3600 * SECOND, &began));
        let _workers = client.observe(vec![hangs], WorkerOptions::default()).await.unwrap();
        set(&client, &table, &[("a", "1")]).await;
        world.sleep_ms(10).await;
        let since = world.runtime.now();
        assert_eq!(client.close_within(2 * SECOND).await.runs_abandoned, 1);
        assert_eq!(world.runtime.now() - since, 2 * SECOND);
        assert_eq!(other.backlog().await.unwrap()[0].cells, 1, "the change waits for the next");
    });
}
