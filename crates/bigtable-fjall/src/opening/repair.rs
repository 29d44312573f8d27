//! Writes everything that can be saved of a damaged store to a new store.

use std::fs;
use std::panic::AssertUnwindSafe;
use std::path::Path;

use bigtable::sync::locked;
use bigtable::{Error, Result};
use fjall::Database;

use super::check::{Closed, Problem};
use super::damage::Damage;
use super::journal::leave_out_wrong_numbers;
use super::rebuild::{Rebuilt, rebuild};
use super::survey::Thorough;
use super::tables::open_group;
use crate::commit::puts::Puts;
use crate::commit::write::write_batch;
use crate::directory::ENGINE_DIR;
use crate::engine::{Engine, Lead};
use crate::failure::fault::{self, Fault};
use crate::layout::catalog::{self, Catalog};
use crate::options::{Durability, Options};
use crate::store::FjallStore;
use crate::upkeep::full::seal_full;

/// The bytes that are written to a new store in one batch.
const BATCH_BYTES: u64 = 1 << 20;

/// A plan to save the readable part of a damaged store.
///
/// ```
/// use bigtable_fjall::{FjallStore, Options, Repair};
/// # let dir = tempfile::tempdir().unwrap();
/// # let (dir, new) = (dir.path().join("store"), dir.path().join("new"));
/// drop(FjallStore::open(&dir, Options::default())?);
/// std::fs::remove_file(dir.join("INVENTORY")).unwrap();
/// let repair = Repair::plan(&dir)?;
/// assert!(repair.dropped()[0].path.ends_with("INVENTORY"));
/// let saved = repair.write(&new)?;
/// assert_eq!(saved.unreadable, 0);
/// assert!(FjallStore::open(&new, Options::default()).is_ok());
/// # Ok::<(), bigtable::Error>(())
/// ```
#[derive(Debug)]
pub struct Repair {
    closed: Closed,
    dropped: Vec<Problem>,
    remade: Vec<Problem>,
    _rebuilt: Option<Rebuilt>,
}

/// The result of [`Repair::write`].
///
/// See [`Repair`] for an example.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Saved {
    /// The number of engine entries that were written. An entry holds one cell, or several.
    pub entries: u64,
    /// The number of entries that could not be read. They are not in the new store.
    pub unreadable: u64,
}

impl Repair {
    /// Finds out which parts of the store in `dir` can be saved. Changes nothing there.
    ///
    /// # Errors
    /// [`Error::InUse`] if a process has the directory open. [`Error::Files`] if the directory
    /// holds no store, or if nothing can be saved. Nothing can be saved if both the engine's
    /// list of keyspaces and the store's inventory are damaged.
    pub fn plan(dir: impl AsRef<Path>) -> Result<Repair> {
        let mut closed = Closed::look(dir.as_ref(), Thorough::Yes)?;
        let mut dropped = closed.problems();
        let rebuilt = rebuild(&mut closed.survey, &closed.dir.join(ENGINE_DIR))?;
        let mut remade = Vec::new();
        if let Some(Rebuilt { notes, unreadable, .. }) = &rebuilt {
            let of = |Damage { path, problem }: &Damage| Problem::new(path, problem.clone());
            dropped
                .retain(|dropped| notes.iter().all(|note| !dropped.path.starts_with(&note.path)));
            dropped.extend(unreadable.iter().map(of));
            remade.extend(notes.iter().map(of));
        }
        leave_out_wrong_numbers(&mut closed.survey.journals)
            .map_err(|e| fault::io(&closed.dir, "reading the journals", &e))?;
        for journal in &closed.survey.journals {
            let behind = journal.behind().map_err(|e| fault::io(&journal.path, "reading", &e))?;
            if let Some(first) = behind.batches.first() {
                let (from, to, count) = (journal.end, first.at, behind.batches.len());
                let problem = format!(
                    "bytes {from} to {to} are dropped, and the {count} sound batches behind them \
                     are kept: transactions whose batches were dropped may be incomplete"
                );
                dropped.push(Problem::new(&journal.path, problem));
            }
        }
        Ok(Repair { closed, dropped, remade, _rebuilt: rebuilt })
    }

    /// The parts that the new store will lack, by damaged file. If a file of a run is dropped,
    /// its cells are missing, and earlier versions of them may reappear.
    pub fn dropped(&self) -> &[Problem] {
        &self.dropped
    }

    /// The lost lists by which the engine finds its files, by directory, with their
    /// replacements. These are the list of keyspaces, and manifests of keyspaces.
    pub fn remade(&self) -> &[Problem] {
        &self.remade
    }

    /// Writes everything that can be saved to a new store in `to`. That directory must be
    /// empty or not exist.
    ///
    /// # Errors
    /// [`Error::Files`] if `to` cannot hold a new store, or if the rest of the damaged store
    /// cannot be read.
    pub fn write(&self, to: impl AsRef<Path>) -> Result<Saved> {
        let to = to.as_ref();
        if fs::read_dir(to).is_ok_and(|mut entries| entries.next().is_some()) {
            let problem = "the directory for the repaired store is not empty";
            return Err(fault::files(to, problem, "choose an empty directory, or a new one"));
        }
        let stand_in = self.closed.stand_in()?;
        let path = stand_in.path().join(ENGINE_DIR);
        let reading = |fault: Fault| fault.at(&self.closed.dir, "reading what is left");
        let source = Database::builder(path).worker_threads(1).open();
        let source = source.map_err(|e| reading(e.into()))?;
        let open = |name: &str| source.keyspace(name, Default::default);
        let catalog = Catalog(open(catalog::KEYSPACE).map_err(|e| reading(e.into()))?);
        let groups = catalog.groups().map_err(reading)?;
        let keyspaces = self.closed.survey.inventory.iter().flat_map(|i| i.keyspaces.values());
        if groups.is_empty() && keyspaces.clone().any(|name| name != catalog::KEYSPACE) {
            let problem = "the catalog, which describes the tables, is lost: nothing can be saved";
            return Err(fault::files(&self.closed.dir, problem, fault::BACKUP));
        }
        let options = Options { durability: Durability::Buffered, ..Options::default() };
        let store = FjallStore::open(to, options)?;
        let running = &store.running;
        running.with(&running.open, |engine, ()| {
            let saved = take_all_of(engine, &source, &catalog, reading)?;
            let synced = engine.db.persist(fjall::PersistMode::SyncAll);
            synced.map_err(|e| fault::engine(to, "writing", &e)).map(|()| saved)
        })
    }
}

/// Copies all entries of another store's engine to this new store.
fn take_all_of(
    engine: &Engine,
    source: &Database,
    catalog: &Catalog,
    reading: impl Fn(Fault) -> Error,
) -> Result<Saved> {
    let mut lead = engine.wait_to_lead()?;
    let open = |name: &str| source.keyspace(name, Default::default);
    let mut saved = Saved::default();
    let mut keyspaces = vec![(catalog.0.clone(), engine.catalog.0.clone())];
    for schema in catalog.groups().map_err(&reading)? {
        let group = open_group(engine, &mut lead, &schema).map_err(|e| reading(e.into()))?;
        for keyspace in group.keyspaces() {
            let from = open(keyspace.name()).map_err(|e| reading(e.into()))?;
            keyspaces.push((from, keyspace.clone()));
        }
    }
    for (from, to) in &keyspaces {
        let mut puts = Puts::default();
        for entry in from.iter() {
            // The engine may panic over a value in a lost file.
            let read = std::panic::catch_unwind(AssertUnwindSafe(|| entry.into_inner()));
            match read {
                Ok(Ok((key, value))) => {
                    puts.insert(to, key, value);
                    saved.entries += 1;
                }
                Ok(Err(_)) | Err(_) => saved.unreadable += 1,
            }
            if puts.bytes() >= BATCH_BYTES {
                write_and_seal(engine, &lead, std::mem::take(&mut puts))?;
            }
        }
        write_and_seal(engine, &lead, puts)?;
    }
    Ok(saved)
}

fn write_and_seal(engine: &Engine, lead: &Lead, puts: Puts) -> Result<()> {
    let bytes = puts.bytes();
    // The cache does not hear of these puts (H80).
    locked(&engine.recent).is_forgetting();
    write_batch(engine, puts.into(), false)?;
    seal_full(engine, lead, bytes);
    engine.check_usable()
}
