//! Prepares a store for the engine: repairs the traces of a crash, and refuses damage before
//! anything in the directory has changed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

use bigtable::Error;

use super::damage::Damage;
use super::inventory::Inventory;
use super::journal::{JOURNALS_DIR, journal_file};
use super::recovery::Recovery;
use super::survey::{Survey, Thorough, survey};
use super::unsynced::{self, Unsynced};
use crate::directory::{link, remove, sync_directory};
use crate::failure::fault;
use crate::mutants::{self, off};

/// The state of the journals that the engine finds.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) inventory: Inventory,
    pub(crate) recovery: Option<Recovery>,
    /// Whether the machine has restarted since batches were left unsynced, and no caller has
    /// acknowledged the restart.
    pub(crate) restarted: bool,
    pub(crate) newest: u64,
    /// The end of the newest journal, in bytes.
    pub(crate) end: u64,
}

/// Checks a store and prepares it for the engine. `has_inventory` says whether the store's
/// format has an inventory.
pub(crate) fn look(dir: &Path, engine: &Path, has_inventory: bool) -> Result<Prepared, Error> {
    let sound = survey(dir, engine, has_inventory, Thorough::No);
    refuse(dir, &sound.damages)?;
    let prepared = prepare(dir, engine, sound);
    let prepared = prepared.map_err(|e| fault::io(dir, "preparing the journals", &e))?;
    if let Some(cut) = &prepared.recovery {
        tracing::warn!("{}: {cut}", dir.display());
    }
    Ok(prepared)
}

/// Returns an error if the store has any damage.
pub(super) fn refuse(dir: &Path, damages: &[Damage]) -> Result<(), Error> {
    let Some(Damage { path, problem }) = damages.first() else { return Ok(()) };
    let more = match damages.len() - 1 {
        0 => String::new(),
        1 => "; one more file is damaged".to_owned(),
        more => format!("; {more} more files are damaged"),
    };
    let remedy = format!(
        "nothing was changed. `percolator check {dir}` lists the damage, and `percolator check {dir} \
         --repair --to NEW` writes what can be saved to a new directory",
        dir = dir.display()
    );
    Err(fault::files(path, format!("{problem}{more}"), &remedy))
}

/// Prepares a sound store for the engine. A crash during this also leaves a sound store.
fn prepare(dir: &Path, engine: &Path, sound: Survey) -> io::Result<Prepared> {
    name_journals(dir, engine, &sound)?;
    let newest = sound.journals.last().expect("a sound store has a journal");
    if sound.cut.is_some() || sound.unsynced != Unsynced::No {
        let file = OpenOptions::new().write(true).open(journal_file(engine, newest.id))?;
        if let Some(cut) = &sound.cut {
            cut.keep(dir)?;
            file.set_len(cut.at)?;
        }
        // Sync, because the inventory will state for each journal up to which batch it is
        // synced.
        file.sync_all()?;
    }
    let journals = sound.journals.iter().map(|journal| (journal.id, journal.own.unwrap_or(0)));
    let (journals, old) = (journals.collect(), sound.inventory);
    let keyspaces = old.as_ref().map(|old| old.keyspaces.clone()).unwrap_or_default();
    let inventory = Inventory { keyspaces, journals };
    if old.as_ref() != Some(&inventory) {
        inventory.write(dir)?;
    }
    if sound.unsynced == Unsynced::Restarted && !off(mutants::RESTART_IS_FORGOTTEN) {
        unsynced::keep_restart(dir)?;
    }
    unsynced::unmark(dir)?;
    let lock = engine.join("lock");
    if !lock.exists() {
        File::create(lock)?;
    }
    let (newest, end) = (newest.id, newest.end);
    let restarted = sound.unsynced == Unsynced::Restarted || unsynced::has_restarted(dir)?;
    Ok(Prepared { inventory, recovery: sound.cut, restarted, newest, end })
}

/// Gives each journal both of its names, and removes second names that the inventory no longer
/// lists.
fn name_journals(dir: &Path, engine: &Path, sound: &Survey) -> io::Result<()> {
    let second = dir.join(JOURNALS_DIR);
    fs::create_dir_all(&second)?;
    let mut changed = false;
    for journal in &sound.journals {
        let names = (journal_file(engine, journal.id), journal_file(&second, journal.id));
        match journal.path == names.1 {
            true => link(&names.1, &names.0)?,
            false if is_same_file(&names.0, &names.1) => continue,
            false => {
                // If the directory was copied, the second name belongs to a separate copy of
                // the file.
                remove(&names.1)?;
                link(&names.0, &names.1)?;
            }
        }
        changed = true;
    }
    for name in fs::read_dir(&second)? {
        let path = name?.path();
        if !sound.journals.iter().any(|journal| path == journal_file(&second, journal.id)) {
            remove(&path)?;
        }
    }
    if changed {
        sync_directory(engine)?;
        sync_directory(&second)?;
    }
    Ok(())
}

#[cfg(unix)]
fn is_same_file(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    id(one).is_some_and(|file| id(other) == Some(file))
}

#[cfg(not(unix))]
fn is_same_file(_: &Path, _: &Path) -> bool {
    false
}
