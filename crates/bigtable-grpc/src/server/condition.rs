//! What the server says while its store takes no writes: a line in the log, and NOT_SERVING to
//! whoever asks for its health.
//!
//! The store notices by itself when it stops taking writes. That it may write again nobody may
//! notice, because clients stay away from a server that does not serve; so the server looks for
//! that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bigtable_fjall::{Condition, FjallStore};
use tonic_health::server::HealthReporter;

use super::data::Data;
use crate::proto::data::bigtable_server::BigtableServer;

/// How often the server looks whether its store takes writes again.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often the log says that it still does not.
const REMIND_EVERY: Duration = Duration::from_secs(600);

/// Follows the condition of the store. Returns why the store has halted, if it has.
pub(crate) async fn follow(store: Arc<FjallStore>, health: HealthReporter) -> String {
    loop {
        health.set_serving::<BigtableServer<Data>>().await;
        let condition = store.other_condition_than(&Condition::Writable).await;
        health.set_not_serving::<BigtableServer<Data>>().await;
        if let Condition::Halted { why } = wait_for_writes(&store, condition).await {
            return why;
        }
    }
}

/// Returns when the store takes writes again, or has halted.
async fn wait_for_writes(store: &Arc<FjallStore>, mut condition: Condition) -> Condition {
    let began = Instant::now();
    let mut said: Option<Instant> = None;
    while condition != Condition::Writable {
        if let Condition::Halted { .. } = condition {
            return condition;
        }
        if said.is_none_or(|said| said.elapsed() >= REMIND_EVERY) {
            said = Some(Instant::now());
            say(store, &condition, began.elapsed());
        }
        tokio::time::sleep(LOOK_EVERY).await;
        condition = look(store).await;
    }
    let seconds = began.elapsed().as_secs();
    tracing::warn!(
        target: "percolator::store", event = "writable", seconds,
        "writes go on"
    );
    condition
}

/// Looks at the disk; the store may have to be opened anew for that, which blocks.
async fn look(store: &Arc<FjallStore>) -> Condition {
    let looking = store.clone();
    let looked = tokio::task::spawn_blocking(move || looking.condition()).await;
    // The runtime ends.
    looked.unwrap_or(Condition::Writable)
}

fn say(store: &FjallStore, condition: &Condition, since: Duration) {
    let (dir, seconds) = (store.directory().display(), since.as_secs());
    match condition {
        Condition::Full { free, wanted } => tracing::error!(
            target: "percolator::store", event = "disk_full", %dir, free, wanted, seconds,
            "the disk is full: writes are refused, reads go on; free some space on this file system"
        ),
        other => tracing::error!(
            target: "percolator::store", event = "not_writable", %dir, condition = ?other, seconds,
            "the disk fails: writes are refused, reads go on"
        ),
    }
}
