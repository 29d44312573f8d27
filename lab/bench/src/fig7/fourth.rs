//! Adds a fourth clustering key to the running repository. By the paper's section 3.1 that
//! takes one more lookup for each document, where MapReduce needs one more pass over the
//! repository.

use std::time::Duration;

use super::Fig7;
use super::ours::{Meter, Ours, Work, workers};

/// Divisor of the repository for the documents that arrive while the key is being added.
const ARRIVING: u64 = 100;

#[derive(Debug)]
pub(super) struct Fourth {
    /// New documents before, with three keys.
    pub(super) before: Work,
    /// Updating the existing documents while others arrive.
    pub(super) added: Work,
    /// Number of documents that arrived meanwhile.
    pub(super) arrived: u64,
    /// New documents afterwards, with four keys.
    pub(super) after: Work,
}

/// Adds the key to a repository and measures before, during and after.
pub(super) async fn run(ours: &mut Ours, settings: &Fig7) -> anyhow::Result<Fourth> {
    // The first block warms up.
    ours.load(settings.block()).await?;
    let before = all(ours, settings.block()).await?;
    let there = ours.next;
    let arrived = there / ARRIVING;
    let meter = Meter::start(ours);
    let repository = ours.repository.clone();
    let added = tokio::spawn({
        let options = workers(settings.workers);
        async move { repository.add_key(options).await }
    });
    ours.load(arrived).await?;
    let workers = added.await??;
    idle(ours).await?;
    let added = meter.stop(ours, there);
    let after = all(ours, settings.block()).await?;
    workers.stop().await;
    Ok(Fourth { before, added, arrived, after })
}

/// Loads documents, and waits until all their effects are done.
async fn all(ours: &mut Ours, documents: u64) -> anyhow::Result<Work> {
    let meter = Meter::start(ours);
    ours.load(documents).await?;
    idle(ours).await?;
    Ok(meter.stop(ours, documents))
}

async fn idle(ours: &Ours) -> anyhow::Result<()> {
    let longest = Duration::from_secs(600);
    let report = ours.repository.database().wait_idle(Some(longest)).await?;
    anyhow::ensure!(report.idle, "observers were not done after {} s", longest.as_secs());
    Ok(())
}
