//! Tests an unused database: which requests it sends, how often, and which of its writes may
//! be lost (H71).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bigtable::Syncing;
use percolator_core::{
    Batch, BatchObserver, Change, Column, Holder, Incarnation, LockService, Options, Oracle,
    OracleNode, OracleOptions, OracleRole, Registration, Result, Runtime, Services, TableLocks,
    Transaction, WorkerOptions,
};

use crate::faults::OwnWrite;
use crate::notifications::COUNT;
use crate::world::{A, World, counting, run};

const CHANGED: Column = Column::literal("f:changed");
const TOKEN: &str = "token/";

fn of_row<'w>(writes: &'w [OwnWrite], prefix: &'static str) -> impl Iterator<Item = &'w OwnWrite> {
    writes.iter().filter(move |write| write.row.as_bytes().starts_with(prefix.as_bytes()))
}

#[test]
fn h71_renewals_alone_may_be_lost_and_each_names_one_exact_version() {
    run(async |world| {
        let options = OracleOptions { address: "a:1".to_owned(), window: 1000 };
        let runtime = Arc::new(world.runtime.clone());
        let node = OracleNode::new(world.store.clone(), runtime.clone(), options).unwrap();
        let (node, own) = (Arc::new(node), Arc::new(world.runtime.clone()));
        own.spawn(Box::pin({
            let node = node.clone();
            async move { node.run().await }
        }));
        let locks = TableLocks::open(&*world.store, runtime, TableLocks::LIFETIME).await.unwrap();
        locks.register(Incarnation(1)).await.unwrap();
        let holder = Holder { owner: Incarnation(1), work: 0 };
        assert!(locks.try_lock(b"row", holder, Duration::from_secs(1)).await.unwrap());
        locks.unlock(b"row", holder);
        world.sleep_ms(10_000).await;
        let OracleRole::Leads(oracle) = node.role() else { panic!("it is the only one") };
        oracle.timestamp().await.unwrap();
        world.sleep_ms(1000).await;
        oracle.raise_schema_version(7).await.unwrap();
        node.resign().await.unwrap();
        let writes = world.store.own_writes();
        assert!(writes.iter().all(|write| write.exact), "{writes:?}");
        let synced = |write: &&OwnWrite| write.sync == Syncing::Always;
        let may_be_lost = |write: &&OwnWrite| write.sync == Syncing::MayBeLost;
        // The world's own oracle makes the record. This one takes over, fills its window,
        // fills it again, raises the version, and resigns.
        assert_eq!(of_row(&writes, "oracle").filter(synced).count(), 6, "{writes:?}");
        let renewals = of_row(&writes, "oracle").filter(may_be_lost).count();
        assert!((15..30).contains(&renewals), "{renewals} renewals of the lease");
        assert_eq!(of_row(&writes, "oracle").count(), 6 + renewals);
        let tokens: Vec<_> = of_row(&writes, TOKEN).collect();
        assert_eq!(tokens[0].sync, Syncing::AsStore, "a token is there before its client is");
        assert!(tokens.len() >= 5 && tokens[1..].iter().all(may_be_lost), "{tokens:?}");
        let of_locks = of_row(&writes, "lock/").filter(|write| write.sync == Syncing::AsStore);
        assert_eq!(of_locks.count(), 2, "{writes:?}");
    });
}

/// Counts the changes that it receives.
struct Export(Arc<AtomicUsize>);

impl BatchObserver for Export {
    async fn observe(&self, tx: &mut Transaction, changes: &[Change]) -> Result<()> {
        self.0.fetch_add(changes.len(), SeqCst);
        tx.set(&changes[0].table, "export", &COUNT, changes.len().to_string())
    }
}

/// A client of a cluster.
async fn client(world: &World) -> percolator_core::Client {
    let runtime: Arc<dyn Runtime> = Arc::new(world.runtime.clone());
    let locks = TableLocks::open(&*world.store, runtime.clone(), TableLocks::LIFETIME).await;
    let (store, oracle) = (world.store.clone(), world.oracle.clone());
    let services = Services { store, oracle, locks: Arc::new(locks.unwrap()), runtime };
    percolator_core::Client::open(services, Options::default()).await.unwrap()
}

#[test]
fn idle_workers_hardly_ask_anything_and_a_change_of_their_own_is_handled_soon() {
    run(async |world| {
        let client = client(&world).await;
        let table = client.table("t").await.unwrap();
        let exported = Arc::new(AtomicUsize::new(0));
        let batch = Batch { changes_max: 10, interval: Duration::from_millis(200) };
        let observers = vec![
            Registration::strong("count", "t", &A, counting(COUNT)),
            Registration::batched("export", "t", &CHANGED, batch, Export(exported.clone())),
        ];
        let idle_max = Duration::from_secs(10);
        let options = WorkerOptions { threads: 4, idle_max, ..WorkerOptions::default() };
        let workers = client.observe(observers, options).await.unwrap();
        world.sleep_ms(60_000).await;
        let woken = world.runtime.woken();
        world.store.clear_trace();
        let (before, tablets) = (world.store.own_writes().len(), world.store.tablets_asked());
        world.sleep_ms(60_000).await;
        let (asked, woken) = (world.store.trace().len(), world.runtime.woken() - woken);
        // All workers together make six scans of two halves each. There are also six looks of
        // the batch, and some sweeps of tokens.
        assert!(asked <= 36, "{asked} requests in a minute");
        let tablets = world.store.tablets_asked() - tablets;
        assert!(tablets <= 2, "asked {tablets} times for tablets");
        let writes = &world.store.own_writes()[before..];
        assert!(writes.iter().all(|write| write.row.as_bytes().starts_with(TOKEN.as_bytes())));
        assert!((25..=31).contains(&writes.len()), "{} renewals", writes.len());
        assert!(woken <= 120, "{woken} times something was woken");
        let mut tx = client.begin().await.unwrap();
        tx.notify(&table, "row", &CHANGED).unwrap();
        tx.commit().await.unwrap();
        let since = world.runtime.now();
        while exported.load(SeqCst) == 0 {
            world.sleep_ms(10).await;
            let waited = world.runtime.now() - since;
            assert!(waited < Duration::from_secs(1), "a change of its own waits for {waited:?}");
        }
        workers.stop().await;
    });
}

/// How many requests idle workers send in a minute: first in an idle store, then in one where a
/// transaction begins that writes nothing. At last another client's change must be handled within
/// `waits_max`.
fn requests_of_idle_workers(peek_every: Option<Duration>, waits_max: Duration) -> (usize, usize) {
    run(async |world| {
        let (worker, writer) = (client(&world).await, client(&world).await);
        let table = writer.table("t").await.unwrap();
        let batch = Batch { changes_max: 10, interval: Duration::from_millis(200) };
        let observers = vec![
            Registration::strong("count", "t", &A, counting(COUNT)),
            Registration::batched("export", "t", &CHANGED, batch, Export(Arc::default())),
        ];
        let idle_max = Duration::from_secs(10);
        let options = WorkerOptions { idle_max, peek_every, ..WorkerOptions::default() };
        let workers = worker.observe(observers, options).await.unwrap();
        let asked_in_a_minute = async || {
            world.store.clear_trace();
            world.sleep_ms(60_000).await;
            world.store.trace().len()
        };
        asked_in_a_minute().await;
        let idle = asked_in_a_minute().await;
        drop(writer.begin().await.unwrap());
        let begun = asked_in_a_minute().await;

        let since = world.runtime.now();
        let mut tx = writer.begin().await.unwrap();
        tx.set(&table, "row", &A, "1").unwrap();
        tx.commit().await.unwrap();
        // A snapshot issues no timestamp, so the change alone wakes the workers.
        let count = async || writer.snapshot().await?.get(&table, "row", &COUNT).await;
        while count().await.unwrap().is_none() {
            world.sleep_ms(10).await;
            let waited = world.runtime.now() - since;
            assert!(waited < waits_max, "another client's change waits for {waited:?}");
        }
        workers.stop().await;
        (idle, begun)
    })
}

/// A worker keeps the timer of its next scan. A change of its own makes that scan come sooner.
#[test]
fn an_idle_worker_scans_soon_after_a_change_of_its_own() {
    run(async |world| {
        let (worker, writer) = (client(&world).await, client(&world).await);
        let table = writer.table("t").await.unwrap();
        let count = Registration::strong("count", "t", &A, counting(COUNT));
        let idle_max = Duration::from_secs(60);
        let options =
            WorkerOptions { threads: 1, idle_max, peek_every: None, ..WorkerOptions::default() };
        let workers = worker.observe(vec![count], options).await.unwrap();
        // Then the next scan is far away.
        world.sleep_ms(200_000).await;
        for (client, row) in [(&worker, "own"), (&writer, "another's")] {
            let since = world.runtime.now();
            let mut tx = client.begin().await.unwrap();
            tx.set(&table, row, &A, "1").unwrap();
            tx.commit().await.unwrap();
            let count = async || writer.snapshot().await?.get(&table, row, &COUNT).await;
            while count().await.unwrap().is_none() {
                world.sleep_ms(10).await;
                let waited = world.runtime.now() - since;
                assert!(waited < Duration::from_secs(1), "{row}: handled after {waited:?}");
            }
        }
        workers.stop().await;
    });
}

#[test]
fn idle_workers_that_peek_scan_only_if_a_timestamp_was_issued() {
    let (idle, _) = requests_of_idle_workers(None, Duration::from_secs(11));
    let peek_every = Some(Duration::from_millis(500));
    let (peeking, begun) = requests_of_idle_workers(peek_every, Duration::from_millis(600));
    assert!(peeking <= idle, "{peeking} requests in a minute, {idle} without questions");
    // Two more scans of two halves, and two looks of the batch.
    assert!(begun <= idle + 6, "{begun} requests in a minute, {idle} if no transaction began");
}
