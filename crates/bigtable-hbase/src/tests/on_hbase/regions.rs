//! Tests the store while the cluster splits, merges and moves its regions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{cluster, conformance};
use crate::admin::Reshape;
use crate::{HbaseAddress, HbaseStore};

/// On a busy machine a move takes many seconds, and the suite allows no request to fail.
const DEADLINE: Duration = Duration::from_secs(60);
/// The pause between two changes of regions.
const PAUSE: Duration = Duration::from_secs(2);

/// Splits, moves and merges regions until the tests are over. Returns what was changed.
async fn reshape_until(over: Arc<AtomicBool>, store: HbaseStore) -> Vec<String> {
    let mut changed = Vec::new();
    for kind in [Reshape::Split, Reshape::Move, Reshape::Split, Reshape::Merge].into_iter().cycle()
    {
        if over.load(Ordering::Relaxed) {
            break;
        }
        // A region that was changed a moment ago is refused.
        if let Ok(Some(what)) = store.reshape(kind, rand::random()).await {
            eprintln!("{what}");
            changed.push(what);
        }
        tokio::time::sleep(PAUSE).await;
    }
    changed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_suite_passes_while_regions_are_split_merged_and_moved() {
    let Some(address) = cluster::address() else { return };
    let address = HbaseAddress { deadline: DEADLINE, ..address };
    let connect = async || {
        let connecting = HbaseStore::connect(&address, cluster::options());
        connecting.await.expect("a connection to HBase")
    };
    let over = Arc::new(AtomicBool::new(false));
    let reshaping = tokio::spawn(reshape_until(over.clone(), connect().await));
    conformance::run_some(connect().await, &["model::", "threads::"]).await;
    over.store(true, Ordering::Relaxed);
    let changed = reshaping.await.expect("the task ends");
    for kind in ["split", "moved", "merged"] {
        let count = changed.iter().filter(|what| what.contains(kind)).count();
        eprintln!("{kind} {count} times");
        assert!(count > 0 || kind == "merged", "no region was {kind}: {changed:?}");
    }
}
