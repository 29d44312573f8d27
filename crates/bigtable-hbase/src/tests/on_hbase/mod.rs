//! Tests the store over a real HBase cluster, which `scripts/hbase.sh` starts.

mod cluster;
mod compactions;
mod guards;
mod large;
mod regions;

use super::{conformance, cut_answers};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_suite_passes() {
    let Some(store) = cluster::store().await else { return };
    conformance::run(store).await;
}

/// The proxy reads frames, which it cannot do with TLS.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_connections_lose_and_repeat_no_change() {
    let Some(store) = cluster::store().await else { return };
    if cluster::options().tls.is_none() {
        cut_answers::run(store).await;
    }
}
