//! Implements `restore`: makes a new store from a backup.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bigtable_fjall::{FjallStore, Options, Restored, Restoring};
use clap::Args;
use percolator::{OpenOptions, Percolator};
use serde_json::json;
use tokio::runtime::Handle;

use crate::clock::rfc3339;
use crate::cmd::check::records::{self, Records};
use crate::cmd::webindex::{self, Index};
use crate::context::Context;
use crate::exit::Exit;
use crate::output::grouped;

/// Make a new store from a backup.
///
/// The command compares the whole backup with its checksums before it makes the new directory. The
/// new store has a new id, and refuses processes that worked on the old store: start them again.
/// The new store's timestamps begin 2^40 above those of the backup. If the store holds a web index,
/// the command rebuilds the search index from the documents.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator restore --from B --data NEW
  percolator restore --from B --data NEW && percolator webindex verify --data NEW")]
pub(crate) struct Restore {
    /// The directory of the backup.
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// The directory for the new store. It is empty, or does not exist yet.
    #[arg(long, value_name = "NEW")]
    data: PathBuf,
}

impl Restore {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let out = context.out;
        let (from, to) = (self.from.clone(), self.data.clone());
        let begun = tokio::task::spawn_blocking(move || {
            let restoring = Restoring::begin(from, to)?;
            let records = raise(restoring.path())?;
            anyhow::Ok((restoring, records))
        });
        let (restoring, records) = begun.await??;
        let pages = match records {
            Some(Records { embedded: true, .. }) => {
                rebuild(restoring.path()).await.context("rebuilding the search index")?
            }
            _ => None,
        };
        let restored = tokio::task::spawn_blocking(move || restoring.finish()).await??;
        if out.json {
            out.json(&as_json(&restored, records, pages))?;
            return Ok(Exit::Done);
        }
        out.line(&format!(
            "restored the backup of {}: {} files, {} bytes",
            rfc3339(restored.made * 1000),
            grouped(restored.files as u64),
            grouped(restored.bytes)
        ))?;
        out.line(&format!("the new store's id is {}", restored.id))?;
        out.line(&match records {
            Some(Records { issued, .. }) => format!("timestamps begin above {issued}"),
            None => "the store holds no oracle's record, so no timestamps were raised".to_owned(),
        })?;
        if let Some(pages) = pages {
            out.line(&format!("the search index has {} pages", grouped(pages)))?;
        }
        Ok(Exit::Done)
    }
}

fn as_json(restored: &Restored, records: Option<Records>, pages: Option<u64>) -> serde_json::Value {
    json!({
        "backup_of": restored.from.to_string(),
        "made": rfc3339(restored.made * 1000),
        "id": restored.id.to_string(),
        "files": restored.files,
        "bytes": restored.bytes,
        "timestamps_above": records.map(|records| records.issued.as_u64()),
        "search_index_pages": pages,
    })
}

/// Raises the oracles' records of a store that no process uses yet. The old store went on after
/// the backup, and clients may have seen its later timestamps. Returns the raised records.
fn raise(store: &Path) -> anyhow::Result<Option<Records>> {
    let store = FjallStore::open(store, Options::default())?;
    let raised = Handle::current().block_on(records::raise_far(store.clone()));
    // The files may be removed only after the store is closed.
    let closed = store.close();
    let raised = raised?;
    closed?;
    Ok(raised)
}

/// Makes the search index of a database that may be a web index; returns how many pages it has.
async fn rebuild(store: &Path) -> anyhow::Result<Option<u64>> {
    let db =
        Percolator::open_with(store, OpenOptions { gc: None, ..OpenOptions::default() }).await?;
    let pages = pages(&db, store).await;
    // The files may be removed only after the store is closed.
    let closed = db.close().await;
    let pages = pages?;
    closed?;
    Ok(pages)
}

async fn pages(db: &Percolator, store: &Path) -> anyhow::Result<Option<u64>> {
    if !webindex::is_in(db).await? {
        return Ok(None);
    }
    let index = Index::over(db.clone(), store).await?;
    let pages = async {
        index.wait(None).await?;
        anyhow::Ok(index.stats().await?.searchable as u64)
    };
    let pages = pages.await;
    index.stop().await;
    pages.map(Some)
}
