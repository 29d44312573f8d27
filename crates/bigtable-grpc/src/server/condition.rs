//! Reports that the store takes no writes: by a line in the log, and by NOT_SERVING to health
//! checks.
//!
//! The store notices by itself when it stops taking writes. It would not notice that it can
//! write again, because clients avoid a server that does not serve. So the server checks for
//! that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bigtable_fjall::{Condition, FjallStore};
use tonic::server::NamedService;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::data::Data;
use crate::proto::data::bigtable_server::BigtableServer;

/// Interval at which the server checks whether the store takes writes again.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Interval at which the log repeats that the store takes no writes.
const REMIND_EVERY: Duration = Duration::from_secs(600);

/// Follows the condition of the store until it halts, and returns the reason.
pub(crate) async fn follow(store: Arc<FjallStore>, health: HealthReporter) -> String {
    loop {
        set(&health, ServingStatus::Serving).await;
        let condition = store.other_condition_than(&Condition::Writable).await;
        set(&health, ServingStatus::NotServing).await;
        if let Condition::Halted { why } = wait_for_writes(&store, condition).await {
            return why;
        }
    }
}

/// Reports the state of the server as a whole, and of its service.
pub(crate) async fn set(health: &HealthReporter, status: ServingStatus) {
    for service in ["", <BigtableServer<Data> as NamedService>::NAME] {
        health.set_service_status(service, status).await;
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
        "the store accepts writes again"
    );
    condition
}

/// Checks the disk. The store may have to reopen its files for that, which blocks the thread.
async fn look(store: &Arc<FjallStore>) -> Condition {
    let looking = store.clone();
    let looked = tokio::task::spawn_blocking(move || looking.condition()).await;
    // The runtime ends, so the answer no longer matters.
    looked.unwrap_or(Condition::Writable)
}

fn say(store: &FjallStore, condition: &Condition, since: Duration) {
    let (dir, seconds) = (store.directory().display(), since.as_secs());
    match condition {
        Condition::Full { free, wanted } => tracing::error!(
            target: "percolator::store", event = "disk_full", %dir, free, wanted, seconds,
            "the disk is full: the store refuses writes and answers reads; free some space on this \
             file system"
        ),
        other => tracing::error!(
            target: "percolator::store", event = "not_writable", %dir, condition = ?other, seconds,
            "the disk fails: the store refuses writes and answers reads"
        ),
    }
}
