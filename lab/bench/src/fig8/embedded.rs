//! Opens the stores in this process, with switches for their optimisations, and the bare engine.
//! `bed.rs` creates these stores, in directories of these names:
//!
//! ```text
//!   paper_faithful     the paper's form: all versions of a column together, nothing cached
//!   with_newest_apart  the newest versions apart from older ones, nothing cached
//!   main               all optimisations, for the raw tables and for transactions
//!   ten                all optimisations; each transaction writes ten cells
//!   two-mutations      all optimisations; two row mutations in place of each transaction
//!   two_phases         all optimisations; the client commits in two phases
//!   with_memory        as two_phases, but the client keeps no short values in its records
//!   sync               all optimisations; acknowledged changes survive a power cut
//!   sync-alone         as sync, but every change is synced by itself
//! ```

use std::path::Path;
use std::sync::Arc;

use bigtable::layer::StoreLayer;
use bigtable::{Layout, LocalityGroup, OnFull, Result, Store, Table, TableSchema};
use bigtable_fjall::{Durability, FjallStore};
use fjall::KeyspaceCreateOptions;
use percolator::transaction::CommitPath;
use percolator::watch::Sampling;
use percolator::{Client, Options, Percolator};

use super::caller::CELLS_MAX;
use super::cells::{Place, VERSIONS, pack_versions};
use crate::micro::bed::NEWEST;

/// New cells of a keyspace in memory, before they are written out as a sorted run.
const WRITE_BUFFER_BYTES: u64 = 64 << 20;
/// Memory for blocks read from disk, in each engine.
pub(super) const CACHE_BYTES: u64 = 128 << 20;
/// Memory for the committer's cache: all cells of all copies in one store, because the paper's
/// were all cached.
const RECENT_BYTES: usize = 256 << 20;

#[derive(Debug, Clone, Copy)]
pub(super) struct Switches {
    pub(super) sync: bool,
    /// Stores the newest write records apart from older ones.
    pub(super) newest_apart: bool,
    /// Caches newest versions in the committer.
    pub(super) remembers: bool,
    /// Commits simultaneous changes in one batch with one sync.
    pub(super) groups: bool,
}

impl Switches {
    pub(super) const ALL: Switches =
        Switches { sync: false, newest_apart: true, remembers: true, groups: true };
    pub(super) const PAPER: Switches =
        Switches { sync: false, newest_apart: false, remembers: false, groups: true };

    pub(super) fn open(self, dir: &Path) -> Result<Arc<dyn Store>> {
        let all = bigtable_fjall::Options {
            durability: if self.sync { Durability::Sync } else { Durability::Buffered },
            cache_bytes: CACHE_BYTES,
            write_buffer_bytes: WRITE_BUFFER_BYTES,
            ..bigtable_fjall::Options::default()
        };
        let options = bigtable_fjall::Options {
            recent_bytes: if self.remembers { RECENT_BYTES } else { 0 },
            group_rows_max: if self.groups { all.group_rows_max } else { 1 },
            ..all
        };
        let store = Arc::new(FjallStore::open(dir, options)?);
        Ok(if self.newest_apart { store } else { Arc::new(Together(store)) })
    }
}

/// The options of a client that commits in the paper's two phases, with short values in its
/// records or not.
pub(super) fn two_phases(short_values: bool) -> Options {
    let all = Options::default();
    Options {
        commit_path: CommitPath::TwoPhases,
        short_value_bytes_max: if short_values { all.short_value_bytes_max } else { 0 },
        ..all
    }
}

pub(super) fn recorded() -> Options {
    Options { watch: Some(Arc::new(percolator_console::Recorder::new())), ..Options::default() }
}

pub(super) fn traced() -> Options {
    Options { trace: Sampling::All, ..Options::default() }
}

/// Opens a table with transactions, through a client of its own.
pub(super) async fn transactions(
    db: &Percolator,
    options: Options,
    name: &str,
) -> anyhow::Result<Place> {
    let client = Client::open(db.services().clone(), options).await?;
    let table = client.table(name).await?;
    Ok(Place::Percolator { client, table })
}

pub(super) async fn raw(
    store: &dyn Store,
    name: &str,
    newest_apart: bool,
) -> anyhow::Result<Place> {
    let (group, family) = if newest_apart {
        (LocalityGroup::on_disk("newest", Layout::NewestFirst), NEWEST)
    } else {
        (LocalityGroup::on_disk("versions", Layout::Versions), VERSIONS)
    };
    let table = store.open_table(name, &TableSchema { groups: vec![group] }).await?;
    Ok(Place::Raw { table, family })
}

/// Opens a table of the store beneath, for the mutations of two phases.
pub(super) async fn twice(store: &dyn Store, name: &str) -> anyhow::Result<Place> {
    // In the same layout as the locks of transactions.
    let locks = LocalityGroup::in_memory("locks", OnFull::Refuse { cells_max: CELLS_MAX });
    let newest = LocalityGroup::on_disk("newest", Layout::NewestFirst);
    let table = store.open_table(name, &TableSchema { groups: vec![locks, newest] }).await?;
    Ok(Place::Twice { table })
}

pub(super) fn bare(dir: &Path, sync: bool) -> anyhow::Result<Place> {
    let db = fjall::Database::builder(dir).cache_size(CACHE_BYTES).open()?;
    let keyspace = db.keyspace("cells", buffered)?;
    Ok(Place::Fjall { db, keyspace, sync })
}

/// Opens keyspaces of the bare engine, to be written like our raw table.
pub(super) fn packs(dir: &Path) -> anyhow::Result<Place> {
    let db = fjall::Database::builder(dir).cache_size(CACHE_BYTES).open()?;
    let (newest, history) = (db.keyspace("newest", buffered)?, db.keyspace("history", buffered)?);
    let versions = pack_versions(&bigtable_fjall::Options::default());
    Ok(Place::Packs { db, newest, history, versions })
}

/// Opens a keyspace of the bare engine with its optimistic transactions.
pub(super) fn optimistic(dir: &Path, sync: bool) -> anyhow::Result<Place> {
    let db = fjall::OptimisticTxDatabase::builder(dir).cache_size(CACHE_BYTES).open()?;
    let keyspace = db.keyspace("cells", buffered)?;
    Ok(Place::Optimistic { db, keyspace, sync })
}

/// Opens a keyspace with the engine's transactions that take turns.
pub(super) fn single_writer(dir: &Path, sync: bool) -> anyhow::Result<Place> {
    let db = fjall::SingleWriterTxDatabase::builder(dir).cache_size(CACHE_BYTES).open()?;
    let keyspace = db.keyspace("cells", buffered)?;
    Ok(Place::SingleWriter { db, keyspace, sync })
}

/// The same buffer for all, because a smaller one means more files to write and to read.
fn buffered() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default().max_memtable_size(WRITE_BUFFER_BYTES)
}

/// A store whose tables keep all versions of a column together. It changes only schemas.
#[derive(Debug)]
struct Together(Arc<FjallStore>);

impl StoreLayer for Together {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    async fn open_table(&self, name: &str, schema: &TableSchema) -> Result<Arc<dyn Table>> {
        let together = |group: &LocalityGroup| match group.layout {
            Layout::NewestFirst => LocalityGroup { layout: Layout::Versions, ..group.clone() },
            Layout::Versions | Layout::InMemory(_) => group.clone(),
        };
        let groups = schema.groups.iter().map(together).collect();
        self.0.open_table(name, &TableSchema { groups }).await
    }
}
