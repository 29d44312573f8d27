//! Opens the engine's files, once `prepare.rs` has found no damage. `Engine::new` then makes
//! the open store from them, with its floor, caches and queues.

use std::path::Path;
use std::sync::Arc;

use bigtable::Result;
use fjall::compaction::filter::Factory;
use fjall::{Database, KeyspaceCreateOptions};

use super::prepare::Prepared;
use crate::commit::room::Disk;
use crate::directory::{Directory, guarded};
use crate::engine::OpenFiles;
use crate::failure::fault;
use crate::layout::catalog::{self, Catalog};
use crate::options::Options;
use crate::upkeep::journals::Journals;
use crate::upkeep::merges::{Follows, Merges};

/// The number of engine threads. This one thread writes buffers out and compacts. With several
/// threads, the first does not compact. While the others compact, it keeps returning
/// compactions to the queue, and keeps a core busy (fjall 3.1).
const ENGINE_THREADS: usize = 1;

/// Opens the engine's files, and starts tracking its journals: those of a prepared store, or
/// of a new one.
pub(crate) fn open_files(
    dir: &Path,
    options: Options,
    directory: &Directory,
    prepared: Option<Prepared>,
) -> Result<OpenFiles> {
    let disk = Disk::of(dir).map_err(|e| fault::io(dir, "opening the directory", &e))?;
    let merges = Arc::default();
    let db = guarded(dir, || open_engine(directory, &options, &merges))?;
    let catalog = guarded(dir, || open_catalog(&db))?;
    let journals = Journals::new(dir, &directory.engine(), prepared).and_then(|mut journals| {
        journals.add_keyspaces(std::iter::once(&catalog.0))?;
        Ok(journals)
    });
    let journals = journals.map_err(|e| fault::io(dir, "writing the inventory", &e))?;
    Ok(OpenFiles { path: dir.to_owned(), options, db, catalog, journals, disk, merges })
}

fn open_engine(
    directory: &Directory,
    options: &Options,
    merges: &Arc<Merges>,
) -> fjall::Result<Database> {
    let all = merges.clone();
    let follow = move |keyspace: &str| -> Option<Arc<dyn Factory>> {
        Some(Arc::new(Follows { all: all.clone(), keyspace: keyspace.to_owned() }))
    };
    Database::builder(directory.engine())
        .cache_size(options.cache_bytes)
        .worker_threads(ENGINE_THREADS)
        // Unlimited for the engine, because the committer limits the journals
        // (`old_journals.rs`).
        .max_journaling_size(u64::MAX)
        .with_compaction_filter_factories(Arc::new(follow))
        .open()
}

fn open_catalog(db: &Database) -> fjall::Result<Catalog> {
    // Never full for the engine, because the committer seals full buffers (`seal.rs`).
    let tuned = || KeyspaceCreateOptions::default().max_memtable_size(u64::MAX);
    Ok(Catalog(db.keyspace(catalog::KEYSPACE, tuned)?))
}
