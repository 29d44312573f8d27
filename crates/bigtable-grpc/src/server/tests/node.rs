//! Tests the server with Google's client for Node. Prints SKIPPED where node or the client is not
//! installed:
//!
//! ```text
//! npm ci --prefix crates/bigtable-grpc/tests/node
//! cargo test -p bigtable-grpc node
//! ```

use std::process::{Command, Output, Stdio};

use super::*;
use crate::server::collect;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node");

fn is_installed() -> bool {
    let node = Command::new("node").arg("--version").stdout(Stdio::null()).status();
    let client = Path::new(FOLDER).join("node_modules/@google-cloud/bigtable");
    client.is_dir() && node.is_ok_and(|status| status.success())
}

/// Runs the client's script beside the server, which shares this thread.
async fn script(address: &str, args: &'static [&str]) -> Output {
    let mut command = Command::new("node");
    command.arg("client.mjs").args(args).current_dir(FOLDER);
    // Otherwise the client looks for credentials of a machine of Google's.
    command.env("METADATA_SERVER_DETECTION", "none").env("BIGTABLE_EMULATOR_HOST", address);
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

#[track_caller]
fn succeeded(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn googles_node_client_is_content() {
    if !is_installed() {
        return processes::skipped(
            "Google's client for Node (npm ci --prefix crates/bigtable-grpc/tests/node)",
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    succeeded(&script(&world.address, &[]).await);
    let now = mutate::now();
    collect::round(world.tables.as_ref().unwrap(), now).await;
    succeeded(&script(&world.address, &["collected"]).await);
    world.stop().await;
}
