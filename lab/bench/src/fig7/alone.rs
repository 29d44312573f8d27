//! Runs one program on a repository of its own, for a given number of documents. The process
//! does nothing else, so that the cost of a document can be counted.

use std::path::Path;

use clustering::{Corpus, KEYS_AT_FIRST};

use super::ours::Ours;
use super::rivals::Rival;
use crate::system::{Io, io};

/// The programs that can run alone: the engine's arm, and ours.
pub(crate) const ALONE: [&str; 2] = ["engine_document", "document"];
/// Clusters a repository of `documents` and then `more`. Returns the file operations for the
/// latter, and the number of wrongly clustered documents, if `check` asks for it.
pub(crate) async fn alone(
    name: &str,
    dir: &Path,
    documents: u64,
    more: u64,
    seed: u64,
    check: bool,
) -> anyhow::Result<(Option<Io>, u64)> {
    let corpus = Corpus::new(documents, seed);
    match name {
        "engine_document" => tokio::task::block_in_place(|| {
            let mut engine = Rival::engine(dir, corpus, documents)?;
            engine.cycle(more)?;
            let asked = io();
            Ok((asked, if check { engine.wrong()? } else { 0 }))
        }),
        "document" => {
            // Documents come one at a time: otherwise the number of requests committed together
            // would depend on the machine.
            let mut ours = Ours::open(dir, 1, corpus, 0).await?;
            ours.load(documents).await?;
            ours.load(more).await?;
            let (asked, mut wrong) = (io(), 0);
            if check {
                let found = ours.verify(KEYS_AT_FIRST).await?;
                wrong = found.wrong + found.waiting + found.documents.abs_diff(documents + more);
            }
            ours.close().await;
            Ok((asked, wrong))
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
            let (_, wrong) = alone(name, &dir.path().join("data"), 50, 30, 1, true).await.unwrap();
            assert_eq!(wrong, 0, "{name}");
        }
        let dir = tempfile::tempdir().unwrap();
        assert!(alone("page", dir.path(), 50, 30, 1, true).await.is_err());
    }
}
