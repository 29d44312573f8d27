//! Tests `admit`: loaders wait for observers, but not forever (H74).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use percolator_core::{Client, Error, Observed, Options, Registration, Runtime, Strength};
use percolator_core::{Table, WorkerOptions};

use crate::faults::Op;
use crate::long_runs::{Began, slow};
use crate::world::{BAL, World, observer, run_both, set};

const SECOND: Duration = Duration::from_secs(1);

fn bounded(backlog_max: usize) -> Options {
    Options { backlog_max, admit_wait_max: 20 * SECOND, ..Options::default() }
}

async fn load(client: &Client, table: &Table, rows: std::ops::Range<usize>) -> Result<(), Error> {
    for n in rows {
        client.admit().await?;
        set(client, table, &[(&n.to_string(), "1")]).await;
    }
    Ok(())
}

/// Workers with an observer whose run takes this long.
async fn work(world: &World, client: &Client, takes: Duration) -> percolator_core::Workers {
    let slow = Registration::strong("o", "t", &BAL, slow(world, takes, &Began::default()));
    let options = WorkerOptions { threads: 4, ..WorkerOptions::default() };
    client.observe(vec![slow], options).await.unwrap()
}

#[test]
fn admit_keeps_the_backlog_at_its_bound() {
    run_both(async |world| {
        let client = world.client_with(bounded(10)).await;
        let table = client.table("t").await.unwrap();
        let workers = work(&world, &client, SECOND).await;
        let most = Arc::new(AtomicUsize::new(0));
        let (watching, seen, runtime) = (client.clone(), most.clone(), world.runtime.clone());
        let _watch = world.beside(async move {
            loop {
                seen.fetch_max(watching.hints_waiting(), SeqCst);
                runtime.sleep(Duration::from_millis(1)).await;
            }
        });
        let since = world.runtime.now();
        load(&client, &table, 0..60).await.unwrap();
        let took = world.runtime.now() - since;
        assert!(took > 10 * SECOND, "60 seconds of work by four, less the backlog: {took:?}");
        assert!((10..=12).contains(&most.load(SeqCst)), "{most:?}");
        assert!(client.wait_idle(Some(60 * SECOND)).await.unwrap().idle);
        workers.stop().await;
    });
}

/// No worker here clears the backlog, so `admit` does not wait for it.
#[test]
fn admit_counts_only_what_a_living_worker_clears() {
    run_both(async |world| {
        let client = world.client_with(bounded(10)).await;
        let table = client.table("t").await.unwrap();
        let workers = work(&world, &client, 3600 * SECOND).await;
        set(&client, &table, &[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")]).await;
        world.sleep_ms(10).await;
        for n in 0..20 {
            set(&client, &table, &[(&n.to_string(), "1")]).await;
        }
        let error = client.admit().await.unwrap_err();
        assert!(matches!(&error, Error::Overloaded { waited, .. } if *waited >= 20 * SECOND));
        let text = error.to_string();
        assert!(text.contains("changes wait for observers of this process"), "{text}");
        let since = world.runtime.now();
        // One worker hangs in a run, and keeps the queue.
        drop(workers);
        assert!(client.hints_waiting() > 10);
        load(&client, &table, 100..200).await.unwrap();
        assert!(world.runtime.now() - since < 2 * SECOND, "no worker is there any more");
    });
}

#[test]
fn h74_an_observer_never_waits_to_be_admitted() {
    run_both(async |world| {
        let client = world.client_with(bounded(3)).await;
        let table = client.table("t").await.unwrap();
        let deep = client.clone();
        let admitted = observer(move |_, _| {
            let deep = deep.clone();
            Box::pin(async move { deep.admit().await })
        });
        let admitted = Registration::strong("o", "t", &BAL, admitted);
        let options = WorkerOptions { threads: 2, ..WorkerOptions::default() };
        let rows: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let cells: Vec<(&str, &str)> = rows.iter().map(|row| (row.as_str(), "1")).collect();
        let workers = client.observe(vec![admitted], options).await.unwrap();
        let since = world.runtime.now();
        set(&client, &table, &cells).await;
        assert!(client.wait_idle(Some(60 * SECOND)).await.unwrap().idle);
        assert!(world.runtime.now() - since < SECOND);
        assert_eq!(client.stats().observer_failures, 0);
        workers.stop().await;
    });
}

/// A loader in a cluster has no workers of its own. It looks into the store now and then.
#[test]
fn a_loader_without_workers_goes_by_what_waits_in_the_store() {
    run_both(async |world| {
        let options = Options { backlog_of_store: true, ..bounded(100) };
        let (loader, worker) = (world.client_with(options.clone()).await, world.client().await);
        let table = loader.table("t").await.unwrap();
        let (table_name, observer) = ("t".to_owned(), "o".to_owned());
        let (column, strength) = (BAL, Strength::Strong);
        let observed = Observed { table: table_name, column, observer, strength };
        loader.declare(std::slice::from_ref(&observed)).await.unwrap();
        loader.transact(async |mut tx| tx.set(&table, "a", &BAL, "1")).await.unwrap();
        world.sleep_ms(1000).await;
        loader.admit().await.unwrap();
        let before = world.store.count(Op::Scan);
        load(&loader, &table, 0..150).await.unwrap();
        assert!(world.store.count(Op::Scan) - before < 10, "not once for each call");
        world.sleep_ms(1000).await;
        let error = loader.admit().await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("more than 100 changes wait in the store"), "{text}");
        assert!(text.contains("the observer o"), "{text}");
        // An observer that waits for the end of the load does not count.
        let other = world.client_with(options).await;
        assert!(other.admit().await.is_err());
        other.leave_out_of_backlog([observed]);
        world.sleep_ms(1000).await;
        other.admit().await.unwrap();
        let workers = work(&world, &worker, Duration::from_millis(1)).await;
        load(&loader, &table, 150..400).await.unwrap();
        assert!(worker.wait_idle(Some(60 * SECOND)).await.unwrap().idle);
        workers.stop().await;
    });
}
