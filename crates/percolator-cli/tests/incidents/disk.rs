//! Tests what a table server logs while its disk is full.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use bigtable::{
    Family, Layout, LocalityGroup, Mutation, RowMutation, Store, TableSchema, Timestamp,
};
use bigtable_grpc::{ClientOptions, GrpcStore};

use crate::cast::Process;

/// A file system in memory, which ends with the test.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn at(dir: &'a Path) -> Option<Self> {
        let mut mount = Command::new("mount");
        let done = mount.args(["-t", "tmpfs", "-o", "size=64m", "tmpfs"]).arg(dir).output();
        done.is_ok_and(|done| done.status.success()).then_some(Mounted(dir))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

/// Writes values that cannot be compressed until the server refuses one.
async fn fill(address: &str) -> bigtable::Error {
    let address = format!("bigtable://{address}/p/i").parse().unwrap();
    let store = GrpcStore::open(&address, ClientOptions::default()).await.unwrap();
    let schema = TableSchema { groups: vec![LocalityGroup::on_disk("f", Layout::Versions)] };
    let table = store.open_table("t", &schema).await.unwrap();
    let mut value = vec![0; 1 << 20];
    for row in 0..100 {
        rand::RngCore::fill_bytes(&mut rand::rng(), &mut value);
        let set = Mutation::set(Family::from_static("f"), "q", Timestamp::ZERO, value.clone());
        let written = table.mutate_row(RowMutation::new(format!("{row}")).mutation(set)).await;
        if let Err(error) = written {
            return error;
        }
    }
    panic!("the disk is never full");
}

#[test]
fn a_full_disk_and_its_end_are_logged() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_mounted) = Mounted::at(dir.path()) else {
        let why = "this user may not mount a tmpfs";
        let _ = writeln!(std::io::stderr(), "SKIPPED: the log of a full disk, because {why}");
        return;
    };
    let other = dir.path().join("other");
    std::fs::write(&other, vec![0; 30 << 20]).unwrap();
    let table = Process::table(dir.path(), &[]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let refused = runtime.block_on(fill(&table.address));
    assert!(matches!(refused, bigtable::Error::Full { .. }), "{refused:?}");
    table.wait_for("disk_full");
    std::fs::remove_file(other).unwrap();
    table.wait_for("writable");
    let log = table.end("-TERM", 0);
    let full = log.lines().find(|line| line.contains("disk_full")).unwrap();
    assert!(full.contains("ERROR") && full.contains("free some space"), "{full}");
}
