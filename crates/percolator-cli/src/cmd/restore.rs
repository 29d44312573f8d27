//! Implements `restore`: makes a new store from a backup.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bigtable::Timestamp;
use bigtable_fjall::{FjallStore, Options, Restored, Restoring};
use clap::Args;
use percolator::{OpenOptions, Percolator};
use serde_json::json;
use tokio::runtime::Handle;

use crate::clock::rfc3339;
use crate::cmd::check::ABOVE;
use crate::cmd::check::records;
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
            let begin = raise(restoring.path())?;
            anyhow::Ok((restoring, begin))
        });
        let (restoring, begin) = begun.await??;
        let pages = rebuild(restoring.path()).await.context("rebuilding the search index")?;
        let restored = tokio::task::spawn_blocking(move || restoring.finish()).await??;
        if out.json {
            out.json(&as_json(&restored, begin, pages))?;
            return Ok(Exit::Done);
        }
        out.line(&format!(
            "restored the backup of {}: {} files, {} bytes",
            rfc3339(restored.made * 1000),
            grouped(restored.files as u64),
            grouped(restored.bytes)
        ))?;
        out.line(&format!("the new store's id is {}", restored.id))?;
        out.line(&match begin {
            Some(above) => format!("timestamps begin above {above}"),
            None => "the store holds no oracle's record, so no timestamps were raised".to_owned(),
        })?;
        if let Some(pages) = pages {
            out.line(&format!("the search index has {} pages", grouped(pages)))?;
        }
        Ok(Exit::Done)
    }
}

fn as_json(restored: &Restored, begin: Option<Timestamp>, pages: Option<u64>) -> serde_json::Value {
    json!({
        "backup_of": restored.from.to_string(),
        "made": rfc3339(restored.made * 1000),
        "id": restored.id.to_string(),
        "files": restored.files,
        "bytes": restored.bytes,
        "timestamps_above": begin.map(Timestamp::as_u64),
        "search_index_pages": pages,
    })
}

/// Raises the oracle's record of a store that no process uses yet. The old store went on after
/// the backup, and clients may have seen its later timestamps. Returns the timestamp above
/// which the new store's timestamps begin.
fn raise(store: &Path) -> anyhow::Result<Option<Timestamp>> {
    let open = || FjallStore::open(store, Options::default());
    let opened = open()?;
    let records = Handle::current().block_on(records::read(opened.clone()))?;
    opened.close()?;
    let Some(records) = records else { return Ok(None) };
    let above = Timestamp::new(records.issued.as_u64().saturating_add(ABOVE));
    let above = above.context("the store's timestamps are used up")?;
    let opened = open()?;
    Handle::current().block_on(records::raise(opened.clone(), above))?;
    opened.close()?;
    Ok(Some(above))
}

/// Makes the search index of a web index; returns how many pages it has.
async fn rebuild(store: &Path) -> anyhow::Result<Option<u64>> {
    let there = FjallStore::open(store, Options::default())?;
    let is_database = records::is_database(&there).await?;
    tokio::task::spawn_blocking(move || there.close()).await??;
    if !is_database {
        return Ok(None);
    }
    let db =
        Percolator::open_with(store, OpenOptions { gc: None, ..OpenOptions::default() }).await?;
    let pages = if webindex::is_in(&db).await? {
        let index = Index::over(db.clone(), store).await?;
        index.wait(None).await?;
        let pages = index.stats().await?.searchable;
        index.stop().await;
        Some(pages as u64)
    } else {
        None
    };
    db.close().await?;
    Ok(pages)
}
