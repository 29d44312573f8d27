//! Tests that no log contains keys or values, at any level.

use std::io::Write;
use std::sync::{Arc, Mutex};

use bigtable::MemoryStore;
use percolator::cluster::Cluster;
use percolator::{Column, Percolator};

use crate::world::start;

/// The text of the log.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Runs the oracle and its client on this thread, and records all events, those of the
/// transport included.
#[tokio::test]
async fn keys_and_values() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _capturing = tracing::subscriber::set_default(subscriber);

    let store = Arc::new(MemoryStore::new());
    let process = start(&store).await;
    process.leads().await;
    let db = Percolator::connect(store, Cluster::new(vec![process.address()])).await.unwrap();
    let table = db.table("t").await.unwrap();
    let column = Column::literal("column-7f3a-marked");
    let row = "row-7f3a-marked";
    for _ in 0..3 {
        db.transact(async |mut tx| tx.set(&table, row, &column, "value-7f3a-marked"))
            .await
            .unwrap();
    }
    let seen = db.snapshot().await.unwrap().get(&table, row, &column).await.unwrap();
    assert!(seen.is_some());
    // A transaction that conflicts and gives up must not log them either.
    let (mut one, mut two) = (db.begin().await.unwrap(), db.begin().await.unwrap());
    one.set(&table, row, &column, "value-7f3a-marked").unwrap();
    two.set(&table, row, &column, "value-7f3a-marked").unwrap();
    one.commit().await.unwrap();
    two.commit().await.unwrap_err();

    let logged = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(logged.contains("this process serves timestamps"), "no log");
    for line in logged.lines() {
        assert!(!line.contains("7f3a-marked"), "{line}");
    }
}
