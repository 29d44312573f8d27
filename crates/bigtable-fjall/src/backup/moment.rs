//! Lists the files that a backup copies, as of one moment, under the commit lock.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bigtable::{Error, Result};
use fjall::{AbstractTree, Keyspace};

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
    held: Held,
    /// Declared after `held`, and so dropped later: the engine must not end while its files
    /// are held.
    pub(super) engine: Arc<Engine>,
}

/// Keeps the files of a moment, which the engine may remove meanwhile.
#[derive(Default)]
struct Held {
    /// The engine's own handles of keyspaces keep their files on disk.
    versions: Vec<Box<dyn std::any::Any>>,
    /// The journals, and the files of keyspaces without a handle.
    open: BTreeMap<PathBuf, File>,
}

impl Moment {
    /// Lists the files.
    pub(super) fn take(engine: &Arc<Engine>) -> Result<Moment> {
        let _lead = engine.wait_to_lead()?;
        let end = engine.db.visible_seqno();
        let (inventory, reaches) = engine.journals().known();
        // List the journals first. Every batch that a manifest lacks is then in one of them,
        // even if the engine writes buffers out meanwhile.
        let mut held = Held::default();
        let journals = journals(engine, &inventory, &mut held)?;
        let keyspaces = keyspaces(engine, &mut held)?;
        let engine = engine.clone();
        Ok(Moment { journals, end, reaches, inventory, keyspaces, held, engine })
    }

    /// Opens a file of the moment at its beginning. Use it before the file is opened again.
    pub(super) fn open(&self, path: &Path) -> io::Result<File> {
        match self.held.open.get(path) {
            None => File::open(path),
            Some(held) => {
                let mut file = held.try_clone()?;
                file.rewind()?;
                Ok(file)
            }
        }
    }

    /// Returns a check that runs between two parts of a copy. It ends the copy when the engine
    /// is being closed.
    pub(super) fn between(&self) -> impl FnMut(u64) -> io::Result<()> {
        |_| {
            let stops = self.engine.closing.load(Ordering::SeqCst);
            if stops { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
        }
    }
}

/// Lists and opens the engine's journals.
fn journals(
    engine: &Engine,
    inventory: &Inventory,
    held: &mut Held,
) -> Result<Vec<(u64, PathBuf)>> {
    let listing = |e| fault::io(&engine.path, "listing the journals", &e);
    let (first, second) = (engine.directory.engine(), engine.path.join(JOURNALS_DIR));
    let listed = list_journals(&first).map_err(listing)?;
    let mut numbers: BTreeSet<u64> = listed.into_iter().map(|(number, _)| number).collect();
    numbers.extend(inventory.journals.keys());
    let mut journals = Vec::new();
    for number in numbers {
        let path = journal_file(&first, number);
        // The engine may have removed the first name. The commit lock keeps the second one.
        let file = File::open(&path).or_else(|_| File::open(journal_file(&second, number)));
        held.open.insert(path.clone(), file.map_err(|e| damaged(&Damage::io(&path, &e)))?);
        journals.push((number, path));
    }
    Ok(journals)
}

fn keyspaces(engine: &Engine, held: &mut Held) -> Result<BTreeMap<u64, Runs>> {
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
            None => held.runs_in(&path).map_err(|damage| damaged(&damage))?,
            Some(keyspace) => Some(runs_of(keyspace, &path, held)?),
        };
        // A keyspace without a manifest is being created, and nothing was ever written to it.
        keyspaces.extend(runs.map(|runs| (number, runs)));
    }
    Ok(keyspaces)
}

impl Held {
    /// Reads the manifest of a keyspace without a handle, and opens the files that it names.
    fn runs_in(&mut self, path: &Path) -> std::result::Result<Option<Runs>, Damage> {
        let runs = Runs::read(path)?;
        for file in runs.iter().flat_map(Runs::files) {
            let open = File::open(&file.path).map_err(|e| Damage::io(&file.path, &e))?;
            self.open.insert(file.path.clone(), open);
        }
        Ok(runs)
    }
}

/// Reads the manifest of a keyspace, and keeps the files that it names on disk.
fn runs_of(keyspace: &Keyspace, path: &Path, held: &mut Held) -> Result<Runs> {
    let mut reads = 0;
    loop {
        reads += 1;
        let version = keyspace.tree.current_version();
        match Runs::read(path) {
            Ok(Some(runs)) if runs.number == version.id() => {
                held.versions.push(Box::new(version));
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
