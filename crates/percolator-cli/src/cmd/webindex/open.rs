//! Opens a web index. The observers of an index in a directory run in the process that has the
//! directory open. The observers of an index in a cluster run in workers.

use std::path::Path;
use std::time::Duration;

use percolator::cluster::Config;
use percolator::{Percolator, WorkerOptions};
use webindex::search::SearchIndex;
use webindex::{SEARCH_DIR, WebIndex};

use crate::environment::SEARCH;
use crate::exit::Failure;
use crate::owner::asked;
use crate::store::{Place, StoreArgs, check_there, in_batches, outage_max};

/// Size of the store's cache in bytes, half of the default. The search index and the loader's
/// queues need memory too, and a load seldom reads anything twice.
const CACHE_BYTES: u64 = 64 << 20;

/// The functions that open a web index.
#[derive(Debug)]
pub struct Index;

/// Whether a store holds a web index.
pub(crate) async fn is_in(db: &Percolator) -> anyhow::Result<bool> {
    Ok(WebIndex::is_in(db).await?)
}

impl Index {
    /// Opens the index in a store, to load pages into it. Creates store and index if they do not
    /// exist.
    pub(crate) async fn open(store: &StoreArgs) -> anyhow::Result<WebIndex> {
        let (store, mut place) = (store.with_cache(CACHE_BYTES), store.place()?);
        if let Place::Cluster(config) = &mut place {
            in_batches(config)?;
        }
        Index::at(store.open_at(&place).await?, &place).await
    }

    /// Opens an index that must exist.
    pub(crate) async fn open_existing(store: &StoreArgs) -> anyhow::Result<WebIndex> {
        let (store, place) = (store.with_cache(CACHE_BYTES), store.place()?);
        let db = store.open_existing_at(&place).await?;
        if !is_in(&db).await? {
            return Err(no_index(&place));
        }
        Index::at(db, &place).await
    }

    /// Opens the index in an open store. In a directory its observers run here, in a cluster in
    /// other processes.
    pub(crate) async fn at(db: Percolator, place: &Place) -> anyhow::Result<WebIndex> {
        if let Some(asked) = asked::current() {
            // The observers run in this process already, or in none. Only they create a search
            // index, so an index that does not exist yet is left out.
            let dir = asked.dir().join(SEARCH_DIR);
            let newest = SearchIndex::newest(&dir);
            let search = SearchIndex::open_existing(&newest).is_ok().then_some(dir);
            return Ok(WebIndex::connect(db, search.as_deref()).await?);
        }
        match place {
            Place::Directory(dir) => Index::over(db, dir).await,
            Place::Cluster(config) => {
                let index = WebIndex::connect(db, search_dir(config)).await?;
                Ok(match outage_max(config) {
                    Duration::ZERO => index,
                    replaced => index.with_outage_max(replaced),
                })
            }
        }
    }

    /// Opens the index in an open directory, with its observers running here.
    pub async fn over(db: Percolator, data: &Path) -> anyhow::Result<WebIndex> {
        Ok(WebIndex::open(db, &data.join(SEARCH_DIR), WorkerOptions::default()).await?)
    }
}

/// Opens the search index of a store without opening the store. If the search index is missing,
/// incomplete or of an earlier version, the store is opened first. Its observers then make the
/// search index anew.
pub(crate) async fn search_only(store: &StoreArgs) -> anyhow::Result<SearchIndex> {
    let place = store.place()?;
    let data = match &place {
        Place::Directory(data) => data,
        Place::Cluster(config) => {
            let dir = search_dir(config).ok_or(webindex::Error::NoSearchIndex)?;
            return match SearchIndex::open_existing(&SearchIndex::newest(dir)) {
                Err(webindex::Error::NoIndex { .. }) => Err(no_index(&place)),
                opened => Ok(opened?),
            };
        }
    };
    check_there(data)?;
    let dir = data.join(SEARCH_DIR);
    match SearchIndex::open_existing(&SearchIndex::newest(&dir)) {
        Ok(search) if !search.is_incomplete() => return Ok(search),
        // If another process has the store open, that process completes the index. Until then
        // this one searches what is there.
        Ok(search) => {
            if complete(store).await.is_err() {
                return Ok(search);
            }
        }
        Err(webindex::Error::NoIndex { .. }) if !holds_store(data) => return Err(no_index(&place)),
        Err(webindex::Error::NoIndex { .. } | webindex::Error::IndexFormat { .. }) => {
            complete(store).await?;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(SearchIndex::open_existing(&SearchIndex::newest(&dir))?)
}

/// Has the observers of a store make its search index anew, and waits until it is complete.
async fn complete(store: &StoreArgs) -> anyhow::Result<()> {
    if asked::current().is_some() {
        return Err(Failure::no(
            "the search index is not complete yet",
            "the process that has the directory open is building it; run the command again later",
        ));
    }
    let index = Index::open_existing(store).await?;
    index.wait(None).await?;
    index.stop().await;
    Ok(())
}

/// Whether a directory holds an embedded store.
fn holds_store(data: &Path) -> bool {
    data.join("engine").is_dir()
}

fn no_index(place: &Place) -> anyhow::Error {
    Failure::no(
        format!("{place}: the store holds no web index"),
        "`percolator webindex load DIR --base URL` makes one, with --data or --config",
    )
}

/// Returns the directory where a cluster's workers keep the search index, if this machine has it.
pub(crate) fn search_dir(config: &Config) -> Option<&Path> {
    config.app(SEARCH.key.trim_start_matches("app.")).map(Path::new)
}
