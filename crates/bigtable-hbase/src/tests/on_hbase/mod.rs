//! Tests the store over a real HBase cluster, which `scripts/hbase.sh` starts.

mod cluster;
mod compactions;
mod guards;
mod large;
mod regions;

use super::conformance;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_suite_passes() {
    let Some(store) = cluster::store().await else { return };
    conformance::run(store).await;
}
