//! Tests that no log contains keys or values, at any level.

use std::io::Write;
use std::sync::{Arc, Mutex};

use bigtable::{
    ConditionalMutation, Family, Layout, LocalityGroup, PageLimit, Probe, RowKey, RowMutation,
    RowRange, Selection, Store, TableSchema, TimeRange, Timestamp,
};

use super::*;

const ROW: &str = "row-7f3a-marked";
const COLUMN: &str = "column-7f3a-marked";
const VALUE: &str = "value-7f3a-marked";

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

/// Runs the server and the client on this thread, and records all events, those of the
/// transport included.
#[tokio::test]
async fn keys_and_values() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _capturing = tracing::subscriber::set_default(subscriber);

    let dir = tempfile::tempdir().unwrap();
    let address = start(dir.path(), ServeOptions::default()).await;
    let store = ask(address, None).await.unwrap();
    let schema = TableSchema { groups: vec![LocalityGroup::on_disk("f", Layout::Versions)] };
    let table = store.open_table("t", &schema).await.unwrap();
    let family = Family::from_static("f");
    let set = bigtable::Mutation::set(family.clone(), COLUMN, Timestamp::ZERO, VALUE);
    table.mutate_row(RowMutation::new(ROW).mutation(set.clone())).await.unwrap();
    let select = Selection::default().family(family.clone(), TimeRange::ALL, 1);
    assert_eq!(table.read_row(&RowKey::from(ROW), &select).await.unwrap().cells.len(), 1);
    let page = table.scan(&RowRange::all(), &select, PageLimit::default()).await.unwrap();
    assert_eq!(page.rows.len(), 1);
    let probe = Probe::new(family, COLUMN, TimeRange::ALL);
    let predicate = vec![probe];
    let request =
        ConditionalMutation { predicate, then: vec![set], ..ConditionalMutation::new(ROW) };
    assert!(table.check_and_mutate_row(request).await.unwrap());
    // Refused requests must not appear either.
    let mut world = World::connect(&address.to_string()).await;
    let long = format!("{ROW}{}", "x".repeat(5000));
    refused(world.mutate(&long, vec![super::set("f:q", 0, VALUE)]).await, Code::InvalidArgument);
    refused(world.mutate(ROW, vec![super::set("g:q", 0, VALUE)]).await, Code::NotFound);
    refused(world.mutate(ROW, vec![super::set("f:q", 1, VALUE)]).await, Code::InvalidArgument);
    let regex = filter(WireFilter::RowKeyRegexFilter(format!("{ROW}[").into()));
    refused(world.filtered(regex).await, Code::InvalidArgument);

    let logged = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(logged.contains("google.bigtable.v2.Bigtable") || logged.contains("TRACE"), "no log");
    for line in logged.lines() {
        assert!(!line.contains("7f3a-marked"), "{line}");
    }
}
