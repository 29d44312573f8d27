//! Tests a server whose disk becomes full: its refusals, its health, and the errors of our
//! clients.

use std::process::Command;
use std::time::{Duration, Instant};

use rand::RngCore;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::*;

const LONGEST: Duration = Duration::from_secs(60);
const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;

fn mount(dir: &Path, options: &str) -> bool {
    let mut mount = Command::new("mount");
    let done = mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(dir).output();
    done.is_ok_and(|done| done.status.success())
}

struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

/// Waits until the server reports this health, as a whole and for its service.
async fn health(world: &World, wanted: i32) {
    let (mut client, began) = (HealthClient::new(world.channel.clone()), Instant::now());
    loop {
        let mut statuses = Vec::new();
        for service in ["", "google.bigtable.v2.Bigtable"] {
            let request = HealthCheckRequest { service: service.to_owned() };
            statuses.push(client.check(request).await.unwrap().into_inner().status);
        }
        if statuses == [wanted; 2] {
            return;
        }
        assert!(began.elapsed() < LONGEST, "the health never becomes {wanted}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_writes_and_shows_in_the_health() {
    let dir = tempfile::tempdir().unwrap();
    if !mount(dir.path(), "size=32m") {
        use std::io::Write;
        let why = "this user may not mount a tmpfs";
        let _ = writeln!(std::io::stderr(), "SKIPPED: a full disk under a server, because {why}");
        return;
    }
    let _mounted = Mounted(dir.path());
    let mut world = World::with_table(dir.path(), &["f"]).await;
    let mut value = vec![0; 1 << 20];
    let mut rows = 0;
    let refused = loop {
        rand::rng().fill_bytes(&mut value);
        let cell = SetCell {
            family_name: "f".to_owned(),
            column_qualifier: b"q".to_vec().into(),
            timestamp_micros: 1000,
            value: value.clone().into(),
        };
        let set = Mutation { mutation: Some(Wire::SetCell(cell)) };
        match world.mutate(&format!("{rows:04}"), vec![set]).await {
            Ok(()) => rows += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("the disk is full"), "{refused}");
    assert!(rows > 2, "{rows}");
    health(&world, NOT_SERVING).await;
    let keys = world.read(ReadRowsRequest::default()).await.unwrap();
    assert_eq!(keys.len(), rows, "reads go on");
    // A removal still works; a small write that removes nothing does not.
    let small = || vec![set("f:q", 1000, "small")];
    assert_eq!(world.mutate("small", small()).await.unwrap_err().code(), Code::Unavailable);
    let delete = Mutation { mutation: Some(Wire::DeleteFromRow(DeleteFromRow {})) };
    world.mutate("0000", vec![delete]).await.unwrap();

    // Nobody writes, so the server itself must notice the free space.
    assert!(mount(dir.path(), "remount,size=96m"));
    health(&world, SERVING).await;
    world.mutate("small", small()).await.unwrap();
    assert_eq!(world.read(ReadRowsRequest::default()).await.unwrap().len(), rows);
    world.stop().await;
}
