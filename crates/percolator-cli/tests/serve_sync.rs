//! Tests `percolator serve table` on a disk whose syncs fail. The server goes on if it can find
//! out what the disk holds. Otherwise it ends with exit status 7.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

#[path = "../../bigtable-fjall/tests/failing_sync/mod.rs"]
mod failing;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bigtable::{Error, Family, Layout, LocalityGroup, Mutation, RowKey, RowMutation, Selection};
use bigtable::{Store, Table, TableSchema, TimeRange, Timestamp};
use bigtable_grpc::{ClientOptions, GrpcStore};
use failing::FailingSync;

const FAMILY: Family = Family::from_static("f");
/// How long a server that has halted may take to end.
const ENDING_MAX: Duration = Duration::from_secs(60);

struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(data: &Path, disk: Option<&FailingSync>) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
        command.args(["serve", "table", "--listen", "127.0.0.1:0", "--data"]).arg(data);
        if let Some(disk) = disk {
            disk.under(&mut command);
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        assert!(address.starts_with("127.0.0.1:"), "it says where it listens: {address:?}");
        Server { child, address: address.trim_end().to_owned() }
    }

    async fn table(&self) -> Arc<dyn Table> {
        let address = format!("bigtable://{}/p/i", self.address).parse().unwrap();
        let store = GrpcStore::open(&address, ClientOptions::default()).await.unwrap();
        let groups = vec![LocalityGroup::on_disk("f", Layout::Versions)];
        store.open_table("t", &TableSchema { groups }).await.unwrap()
    }

    /// Waits until the server has ended.
    fn ends(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            match self.child.try_wait().unwrap() {
                Some(status) => return status,
                None => assert!(begun.elapsed() < ENDING_MAX, "the server does not end"),
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes a row with a conditional mutation, which the client sends only once.
async fn write(table: &dyn Table, row: usize) -> Result<(), Error> {
    let cell = Mutation::set(FAMILY, "q", Timestamp::new(1).unwrap(), format!("value {row}"));
    let request = bigtable::ConditionalMutation {
        otherwise: vec![cell],
        ..bigtable::ConditionalMutation::new(format!("row {row}"))
    };
    table.check_and_mutate_row(request).await.map(drop)
}

async fn is_there(table: &dyn Table, row: usize) -> bool {
    let select = Selection::default().column(FAMILY, "q", TimeRange::ALL, 1);
    let read = table.read_row(&RowKey::from(format!("row {row}")), &select).await.unwrap();
    let right = format!("value {row}");
    assert!(read.cells.iter().all(|cell| *cell.value == *right.as_bytes()), "row {row} is whole");
    !read.cells.is_empty()
}

#[tokio::test]
async fn a_server_survives_a_sync_that_fails_and_ends_with_7_when_none_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = FailingSync::build(dir.path()) else { return };
    let data = dir.path().join("s");
    let mut server = Server::start(&data, Some(&disk));
    let table = server.table().await;
    for row in 0..20 {
        write(&*table, row).await.unwrap();
    }

    disk.fail_once(".jnl");
    // The server knows that the request was not applied. The client may not know, because it
    // sends such a request only once.
    let error = write(&*table, 20).await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. } | Error::Unavailable { .. }), "{error}");
    assert!(!disk.is_armed(), "a sync has failed");
    assert!(!is_there(&*table, 20).await, "what was not acknowledged is not shown");
    for row in 21..40 {
        write(&*table, row).await.unwrap();
    }
    for row in (0..20).chain(21..40) {
        assert!(is_there(&*table, row).await, "row {row}");
    }
    let failed = disk.none_is_kept(&data);
    assert!(failed.len() == 1 && failed[0].ends_with(".jnl"), "{failed:?}");

    disk.fail_always("/engine/");
    let error = write(&*table, 40).await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. } | Error::Unavailable { .. }), "{error}");
    assert_eq!(server.ends().code(), Some(7));
    drop((table, server));

    // The disk works again.
    let server = Server::start(&data, None);
    let table = server.table().await;
    for row in (0..20).chain(21..40) {
        assert!(is_there(&*table, row).await, "row {row}");
    }
    assert!(!is_there(&*table, 20).await);
    let row = RowMutation::new("row 41");
    let cell = Mutation::set(FAMILY, "q", Timestamp::new(1).unwrap(), "value 41");
    table.mutate_row(row.mutation(cell)).await.unwrap();
    assert!(is_there(&*table, 41).await);
}
