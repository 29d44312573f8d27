//! Tests garbage collection on stores that drop superseded versions by themselves (H79).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigtable::layer::{StoreLayer, TableLayer};
use bigtable::{ConditionalMutation, Family, MemoryStore, Store, Timestamp};
use percolator_core::{GcOptions, RowKey, Runtime};

use crate::faults::{DATA, Fault, Op, WRITE};
use crate::world::{BAL, get, run_dropping, run_on, set, writing};

const NOW: Duration = Duration::ZERO;

#[test]
fn h79_the_store_drops_short_versions_and_collection_those_whose_values_lie_apart() {
    run_dropping(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let long = |n: usize| n.to_string().repeat(2000);
        let write = async |n: usize| {
            set(&client, &table, &[("short", &n.to_string()), ("long", &long(n))]).await;
        };
        for n in 1..=4 {
            write(n).await;
        }
        let reader = client.snapshot().await.unwrap();
        for n in 5..=6 {
            write(n).await;
        }
        let read = async |row: &str| reader.get(&table, row, &BAL).await.unwrap().unwrap();
        let report = client.gc(NOW).await.unwrap();
        assert_eq!(report.safe_point, reader.timestamp());
        assert_eq!((report.counts.writes, report.counts.values), (3, 3), "the long ones");
        assert_eq!(world.cells(&table, WRITE).await, 6, "versions 4 to 6 of two cells");
        assert_eq!(world.cells(&table, DATA).await, 3);
        assert_eq!((read("short").await, read("long").await), ("4".into(), long(4).into()));
        drop(reader);
        let report = client.gc(NOW).await.unwrap();
        assert_eq!((report.counts.writes, report.counts.values), (2, 2));
        assert_eq!((world.cells(&table, WRITE).await, world.cells(&table, DATA).await), (2, 1));
        assert_eq!(get(&client, &table, "long").await, Some(long(6)));
        world.audit(&table).await;
    });
}

/// Notes when it is synced, and when it may drop versions.
#[derive(Debug, Clone)]
struct Noting {
    inner: Arc<dyn Store>,
    noted: Arc<Mutex<Vec<&'static str>>>,
}

impl StoreLayer for Noting {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn table(&self, inner: Arc<dyn bigtable::Table>) -> Arc<dyn bigtable::Table> {
        Arc::new(NotingTable { inner, noted: self.noted.clone() })
    }

    async fn sync(&self) -> bigtable::Result<()> {
        self.noted.lock().unwrap().push("synced");
        self.inner.sync().await
    }
}

#[derive(Debug)]
struct NotingTable {
    inner: Arc<dyn bigtable::Table>,
    noted: Arc<Mutex<Vec<&'static str>>>,
}

impl TableLayer for NotingTable {
    fn inner(&self) -> &dyn bigtable::Table {
        &*self.inner
    }

    async fn check_and_mutate_row(&self, request: ConditionalMutation) -> bigtable::Result<bool> {
        if request.row == RowKey::from("secondary") {
            self.noted.lock().unwrap().push("rolled forward");
        }
        self.inner.check_and_mutate_row(request).await
    }

    fn drop_superseded(&self, family: &Family, up_to: Timestamp, keep: fn(&[u8]) -> bool) -> bool {
        self.noted.lock().unwrap().push("may drop");
        self.inner.drop_superseded(family, up_to, keep)
    }
}

#[test]
fn h79_what_the_sweep_wrote_is_durable_before_the_store_drops() {
    let noted = Arc::new(Mutex::new(Vec::new()));
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let store = Arc::new(Noting { inner, noted: noted.clone() });
    run_on(store, async |world| {
        let (owner, other) = (world.client().await, world.client().await);
        let table = owner.table("t").await.unwrap();
        let tx = writing(&owner, &table, &[("primary", "new"), ("secondary", "new")]).await;
        drop(tx.prewrite().await.unwrap().commit_primary().await.unwrap());
        set(&other, &table, &[("primary", "newer")]).await;
        noted.lock().unwrap().clear();
        other.gc(NOW).await.unwrap();
        let found = noted.lock().unwrap().clone();
        let first = |what| found.iter().position(|noted| *noted == what);
        let in_order = ["rolled forward", "synced", "may drop"].map(first);
        assert!(in_order.iter().all(Option::is_some) && in_order.is_sorted(), "{found:?}");
    });
}

#[test]
fn the_store_drops_more_while_rounds_that_read_all_tables_rest() {
    run_dropping(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let seconds = Duration::from_secs;
        let options =
            GcOptions { retention: seconds(10), interval: seconds(10), ..GcOptions::default() };
        for value in ["1", "2"] {
            set(&client, &table, &[("a", value)]).await;
        }
        // The first round takes two minutes, so the next one may begin a quarter of an hour later.
        let slow = world
            .store
            .when(1, Fault::Hold, |request| request.op == Op::Scan && request.table == "t");
        let collector = client.collect_in_background(options);
        slow.arrived().await;
        world.runtime.sleep(seconds(120)).await;
        slow.release();
        world.runtime.sleep(seconds(5)).await;
        let last = client.gc_status(NOW).await.unwrap().last.unwrap();
        assert_eq!(world.cells(&table, WRITE).await, 1);
        for value in ["3", "4", "5"] {
            set(&client, &table, &[("a", value)]).await;
        }
        let reader = client.snapshot().await.unwrap();
        set(&client, &table, &[("a", "6")]).await;
        world.runtime.sleep(seconds(60)).await;
        assert_eq!(world.cells(&table, WRITE).await, 2, "what the reader sees, and the newest");
        assert_eq!(client.gc_status(NOW).await.unwrap().last, Some(last), "no round read all");
        // The reader holds the safe point, so there is nothing to do.
        let before = world.store.count(Op::Scan);
        world.runtime.sleep(seconds(60)).await;
        assert_eq!(world.store.count(Op::Scan), before);
        drop((reader, collector));
    });
}
