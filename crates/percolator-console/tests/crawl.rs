//! Looking changes nothing: no GET takes a timestamp, or writes to a store that has no lock of a
//! dead owner.

#![allow(clippy::unwrap_used, reason = "tests and their helpers")]

mod shared;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use percolator::Percolator;
use percolator::store::layer::{StoreLayer, TableLayer};
use percolator::store::{CommitRows, ConditionalMutation, MemoryStore, RowMutation, RowsOutcome};
use percolator::store::{Store, Table};
use percolator_console::{Console, Recorder};

use shared::{READS, TEXT, ask, database_over, get, observe};

/// A store that counts what changes it.
#[derive(Debug)]
struct Counted(MemoryStore, Arc<AtomicUsize>);

#[derive(Debug)]
struct CountedTable(Arc<dyn Table>, Arc<AtomicUsize>);

impl StoreLayer for Counted {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn table(&self, table: Arc<dyn Table>) -> Arc<dyn Table> {
        Arc::new(CountedTable(table, self.1.clone()))
    }

    async fn commit_rows(&self, request: CommitRows) -> percolator::store::Result<RowsOutcome> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.commit_rows(request).await
    }

    fn try_commit_rows(
        &self,
        request: CommitRows,
    ) -> std::result::Result<percolator::store::Result<RowsOutcome>, CommitRows> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.try_commit_rows(request)
    }

    async fn raise_floor(&self, floor: percolator::Timestamp) -> percolator::store::Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.raise_floor(floor).await
    }
}

impl TableLayer for CountedTable {
    fn inner(&self) -> &dyn Table {
        &*self.0
    }

    async fn mutate_row(&self, request: RowMutation) -> percolator::store::Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.mutate_row(request).await
    }

    async fn check_and_mutate_row(
        &self,
        request: ConditionalMutation,
    ) -> percolator::store::Result<bool> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.check_and_mutate_row(request).await
    }

    async fn check_and_mutate_rows(
        &self,
        requests: Vec<ConditionalMutation>,
    ) -> Vec<percolator::store::Result<bool>> {
        self.1.fetch_add(requests.len(), Ordering::Relaxed);
        self.0.check_and_mutate_rows(requests).await
    }
}

async fn seeded(recorder: &Arc<Recorder>) -> (Percolator, Arc<AtomicUsize>) {
    let writes = Arc::<AtomicUsize>::default();
    let store = Arc::new(Counted(MemoryStore::new(), writes.clone()));
    let db = database_over(recorder, store).await;
    let workers = observe(&db).await;
    let docs = db.table("docs").await.unwrap();
    db.transact(async |mut tx| tx.set(&docs, "b", &TEXT, "bad")).await.unwrap();
    db.wait_idle(None).await.unwrap();
    workers.stop().await;
    // A change that waits.
    db.transact(async |mut tx| tx.set(&docs, "c", &TEXT, "later")).await.unwrap();
    (db, writes)
}

#[tokio::test]
async fn no_get_writes_or_takes_a_timestamp() {
    let recorder = Arc::new(Recorder::new());
    let (db, writes) = seeded(&recorder).await;
    // In the table whose rows are read there is no lock: reading would resolve or wait for it.
    let other = db.table("other").await.unwrap();
    let mut tx = db.begin().await.unwrap();
    tx.set(&other, "locked", &TEXT, "never").unwrap();
    // The owner of this lock lives: a reader waits for it, and a console that looks does not.
    let held = tx.prewrite().await.unwrap();
    let console = Console::new(&db).recorder(recorder).learn(true).open_search(true);
    let console = console.listen("127.0.0.1:0").await.unwrap();
    let before = (writes.load(Ordering::Relaxed), db.oracle().peek().await.unwrap());
    assert!(before.0 > 0, "writes are counted");
    let begun = Instant::now();
    let mut rounds = 0;
    // Longer than a look is good for, so that a second one is among these.
    while begun.elapsed() < Duration::from_millis(2_500) || rounds < 3 {
        let others = ["/metrics", "/readyz", "/healthz", "/", "/search?q=x", "/app.js"];
        for path in READS.iter().chain(&others) {
            let answer = get(&console, path).await;
            assert!(matches!(answer.status, 200 | 404), "{path}: {}", answer.body);
        }
        rounds += 1;
    }
    let after = (writes.load(Ordering::Relaxed), db.oracle().peek().await.unwrap());
    assert_eq!(after, before, "{rounds} rounds");
    held.commit_primary().await.unwrap();
}

/// A console that is asked all the time keeps nobody from seeing that all is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_idleness_returns_while_a_console_is_asked() {
    let recorder = Arc::new(Recorder::new());
    let (db, _) = seeded(&recorder).await;
    let console = Console::new(&db).recorder(recorder).listen("127.0.0.1:0").await.unwrap();
    let workers = observe(&db).await;
    let asking = async {
        loop {
            for path in READS {
                ask(&console, "GET", path, "", &[]).await;
            }
        }
    };
    let idle = tokio::select! {
        () = asking => unreachable!("it asks for ever"),
        report = db.wait_idle(Some(Duration::from_secs(30))) => report.unwrap().idle,
    };
    assert!(idle);
    workers.stop().await;
}
