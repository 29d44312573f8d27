//! Lists the files that a backup copies, as of one moment, under the commit lock.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bigtable::{Error, Result};
use fjall::{AbstractTree, Keyspace};

use crate::backup::running::Entered;
use crate::engine::Engine;
use crate::failure::fault;
use crate::opening::{
    Damage, Inventory, JOURNALS_DIR, KEYSPACES_DIR, Runs, journal_file, list_journals, numbered,
};

/// How often a manifest is read, if the engine keeps replacing it meanwhile.
const READS_MAX: usize = 10_000;

/// The files of the store between two batches.
pub(super) struct Moment {
    /// The journals by number. Together they hold every batch that is in no run.
    pub(super) journals: Vec<(u64, PathBuf)>,
    /// Every batch has a number below this one.
    pub(super) end: u64,
    /// A lower bound for the number of the last batch, if one is known.
    pub(super) reaches: Option<u64>,
    pub(super) inventory: Inventory,
    /// The keyspaces by number.
    pub(super) keyspaces: BTreeMap<u64, Runs>,
    /// Keeps the files of the keyspaces on disk.
    _held: Vec<Box<dyn std::any::Any>>,
    /// Declared after `_held`, and so dropped later: the engine must not end while its files
    /// are held.
    pub(super) engine: Arc<Engine>,
    entered: Entered,
}

impl Moment {
    /// Lists the files.
    pub(super) fn take(engine: &Arc<Engine>, entered: Entered) -> Result<Moment> {
        let _lead = engine.wait_to_lead()?;
        let end = engine.db.visible_seqno();
        let (inventory, reaches) = engine.journals().known();
        // List the journals first. Every batch that a manifest lacks is then in one of them,
        // even if the engine writes buffers out meanwhile.
        let journals = journals(engine, &inventory)?;
        let mut held: Vec<Box<dyn std::any::Any>> = Vec::new();
        let keyspaces = keyspaces(engine, &mut held)?;
        let engine = engine.clone();
        Ok(Moment { journals, end, reaches, inventory, keyspaces, _held: held, engine, entered })
    }

    /// Returns a check that runs between two parts of a copy. It ends the copy when the store
    /// is being closed.
    pub(super) fn between(&self) -> impl FnMut(u64) -> io::Result<()> {
        |_| {
            let stops = self.entered.is_stopping();
            if stops { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
        }
    }
}

/// Lists the engine's journals. Each has a name that stays for as long as the store needs the
/// journal.
fn journals(engine: &Engine, inventory: &Inventory) -> Result<Vec<(u64, PathBuf)>> {
    let listing = |e| fault::io(&engine.path, "listing the journals", &e);
    let first = list_journals(&engine.directory.engine()).map_err(listing)?;
    let mut journals: BTreeMap<u64, PathBuf> = first.into_iter().collect();
    let second = engine.path.join(JOURNALS_DIR);
    journals.extend(inventory.journals.keys().map(|&n| (n, journal_file(&second, n))));
    Ok(journals.into_iter().collect())
}

fn keyspaces(
    engine: &Engine,
    held: &mut Vec<Box<dyn std::any::Any>>,
) -> Result<BTreeMap<u64, Runs>> {
    let dir = engine.directory.engine().join(KEYSPACES_DIR);
    let open = engine.db.supervisor.keyspaces.read().map_err(|_| fault::stopped())?;
    let number_of = |keyspace: &Keyspace| {
        keyspace.path().file_name().and_then(|name| name.to_str()?.parse::<u64>().ok())
    };
    let open: BTreeMap<u64, Keyspace> =
        open.values().filter_map(|one| Some((number_of(one)?, one.clone()))).collect();
    let numbers = numbered(&dir).map_err(|e| fault::io(&dir, "listing the keyspaces", &e))?;
    let mut keyspaces = BTreeMap::new();
    for number in numbers {
        let path = dir.join(number.to_string());
        // The engine's list of names, which has no handle, changes under the commit lock only.
        let runs = match open.get(&number) {
            None => Runs::read(&path).map_err(|damage| damaged(&damage))?,
            Some(keyspace) => Some(runs_of(keyspace, &path, held)?),
        };
        // A keyspace without a manifest is being created, and nothing was ever written to it.
        keyspaces.extend(runs.map(|runs| (number, runs)));
    }
    Ok(keyspaces)
}

/// Reads the manifest of a keyspace, and keeps the files that it names on disk.
fn runs_of(
    keyspace: &Keyspace,
    path: &Path,
    held: &mut Vec<Box<dyn std::any::Any>>,
) -> Result<Runs> {
    let mut reads = 0;
    loop {
        reads += 1;
        let version = keyspace.tree.current_version();
        match Runs::read(path) {
            Ok(Some(runs)) if runs.number == version.id() => {
                held.push(Box::new(version));
                return Ok(runs);
            }
            // The engine is replacing the manifest: the numbers on disk and in memory differ,
            // or a file went away between two reads.
            Err(damage) if reads >= READS_MAX => return Err(damaged(&damage)),
            _ if reads >= READS_MAX => {
                let why = format!("the engine keeps replacing the manifest in {}", path.display());
                return Err(Error::Unavailable { why });
            }
            _ => std::thread::yield_now(),
        }
    }
}

/// The error of a store whose file is not as the store wrote it.
pub(super) fn damaged(damage: &Damage) -> Error {
    fault::files(
        &damage.path,
        format!("the store is damaged, and no backup was made: {}", damage.problem),
        "stop the process that has the store open; `percolator check` then lists the damage. \
         Earlier backups are unchanged",
    )
}
