//! Opening a web index, with its observers running.

use std::path::Path;

use percolator::{Percolator, WorkerOptions};
use webindex::{SEARCH_DIR, WebIndex};

use crate::exit::Failure;
use crate::store::StoreArgs;

/// An open index.
pub(crate) struct Index;

/// Whether a store holds a web index.
pub(crate) async fn is_in(db: &Percolator) -> anyhow::Result<bool> {
    Ok(WebIndex::is_in(db).await?)
}

impl Index {
    /// Opens the index in a store, creating both if they are not there.
    pub(crate) async fn open(store: &StoreArgs) -> anyhow::Result<WebIndex> {
        Index::over(store.open().await?, &store.data).await
    }

    /// Opens an index that must be there.
    pub(crate) async fn open_existing(store: &StoreArgs) -> anyhow::Result<WebIndex> {
        let db = store.open_existing().await?;
        if !is_in(&db).await? {
            return Err(Failure::no(
                format!("{}: the store holds no web index", store.data.display()),
                "`percolator webindex load DIR --base URL --data DIR` makes one",
            ));
        }
        Index::over(db, &store.data).await
    }

    /// Opens the index in a store that is open.
    pub(crate) async fn over(db: Percolator, data: &Path) -> anyhow::Result<WebIndex> {
        Ok(WebIndex::open(db, &data.join(SEARCH_DIR), WorkerOptions::default()).await?)
    }
}
