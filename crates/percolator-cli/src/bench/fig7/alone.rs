//! One program on a repository of its own, for so many documents: a process that does nothing else, so that
//! what a document takes can be counted.

use std::path::Path;

use clustering::batch::Batch;
use clustering::{Corpus, Document, KEYS_AT_FIRST, rule};

use super::engine::Engine;
use super::ours::{Ours, Served};
use crate::store::Durability;

/// Who clusters documents alone: the engine's own arm, and ours.
pub(crate) const ALONE: [&str; 2] = ["engine_document", "document"];
/// One after the other: how many requests are committed together would depend on the machine.
const SERVED: Served = Served { durability: Durability::Buffered, workers: 1, loaders: 1 };

/// Clusters a repository of so many documents and so many more; returns how many of them are not where the
/// rule puts them, if that is to be checked.
pub(crate) async fn alone(
    name: &str,
    dir: &Path,
    documents: u64,
    more: u64,
    seed: u64,
    check: bool,
) -> anyhow::Result<u64> {
    let corpus = Corpus::new(documents, seed);
    let total = documents + more;
    match name {
        "engine_document" => tokio::task::block_in_place(|| {
            let mut engine = Engine::create(dir, corpus, documents)?;
            let arrivals: Vec<Document> =
                (documents..total).map(|id| corpus.document(id)).collect();
            engine.cycle(&arrivals)?;
            if !check {
                return Ok(0);
            }
            let all: Vec<Document> = (0..total).map(|id| corpus.document(id)).collect();
            let (found, right) = (engine.clusters()?, rule::passes(&all, KEYS_AT_FIRST));
            let wrong = found.iter().zip(&right).filter(|(a, b)| a != b).count();
            Ok((wrong + found.len().abs_diff(right.len())) as u64)
        }),
        "document" => {
            let mut ours = Ours::open(dir, SERVED, corpus, 0).await?;
            ours.load(documents).await?;
            ours.load(more).await?;
            let wrong = match check {
                true => {
                    let found = ours.verify(KEYS_AT_FIRST).await?;
                    found.wrong + found.waiting + found.documents.abs_diff(total)
                }
                false => 0,
            };
            ours.close().await;
            Ok(wrong)
        }
        other => anyhow::bail!("there is no arm {other}; choose from {}", ALONE.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn both_cluster_as_the_rule_says() {
        for name in ALONE {
            let dir = tempfile::tempdir().unwrap();
            let wrong = alone(name, &dir.path().join("data"), 50, 30, 1, true).await.unwrap();
            assert_eq!(wrong, 0, "{name}");
        }
        let dir = tempfile::tempdir().unwrap();
        assert!(alone("page", dir.path(), 50, 30, 1, true).await.is_err());
    }
}
