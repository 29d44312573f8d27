//! Builds a stand-in for a store's directory, which the engine may change freely.
//!
//! The engine changes the files that it opens. So a reader that must leave a store untouched
//! opens a stand-in. It has links to the files of runs and values, which are never written,
//! and copies of the other files that the engine needs. Damaged files of runs, damaged batches
//! of journals, and files of values that cannot be opened are left out.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use super::inventory::Inventory;
use super::journal::{JOURNALS_DIR, journal_file};
use super::runs::Runs;
use super::survey::Survey;

/// Creates the stand-in in `to` for the store in `dir`. The store's engine files are in
/// `engine`.
pub(super) fn make(dir: &Path, engine: &Path, survey: &Survey, to: &Path) -> io::Result<()> {
    let into = to.join("engine");
    for (number, runs) in &survey.runs {
        make_keyspace(runs, survey, &into.join("keyspaces").join(number.to_string()))?;
    }
    for name in ["version", "lock"] {
        if engine.join(name).exists() {
            fs::copy(engine.join(name), into.join(name))?;
        }
    }
    let mut inventory = Inventory::default();
    for journal in &survey.journals {
        journal.copy_sound(&mut File::create(journal_file(&into, journal.id))?)?;
        inventory.journals.insert(journal.id, 0);
    }
    fill_gaps(&into, &mut inventory)?;
    fs::create_dir_all(to.join(JOURNALS_DIR))?;
    inventory.write(to)?;
    fs::copy(dir.join("FORMAT"), to.join("FORMAT")).map(drop)
}

/// Replaces each lost journal with an empty one. A store without journals gets one.
fn fill_gaps(engine: &Path, inventory: &mut Inventory) -> io::Result<()> {
    let first = inventory.journals.first_key_value().map_or(0, |(number, _)| *number);
    let last = inventory.journals.last_key_value().map_or(0, |(number, _)| *number);
    for number in first..=last {
        if inventory.journals.insert(number, 0).is_none() {
            File::create(journal_file(engine, number))?;
        }
    }
    Ok(())
}

fn make_keyspace(runs: &Runs, survey: &Survey, to: &Path) -> io::Result<()> {
    let is_damaged = |path: &Path| survey.damages.iter().any(|damage| damage.path == path);
    fs::create_dir_all(to.join("tables"))?;
    for file in runs.tables().filter(|file| !is_damaged(&file.path)) {
        link(&file.path, &to.join("tables"))?;
    }
    fs::create_dir_all(to.join("blobs"))?;
    // Keep damaged files, because most of their values can be read.
    for file in runs.values.iter().filter(|file| file.open_values().is_ok()) {
        link(&file.path, &to.join("blobs"))?;
    }
    let keep = |path: &Path| {
        let name = path.file_name().expect("a file of the engine has a name");
        let folder = path.parent().and_then(Path::file_name).expect("it lies in a folder");
        to.join(folder).join(name).exists()
    };
    let manifest = runs.manifest_of(keep)?;
    let name = runs.manifest.file_name().expect("a manifest has a name");
    File::create(to.join(name))?.write_all(&manifest.content)?;
    File::create(to.join("current"))?.write_all(&manifest.current)?;
    Ok(())
}

/// Makes the file available in another folder.
fn link(file: &Path, folder: &Path) -> io::Result<()> {
    let name = folder.join(file.file_name().expect("a file of the engine has a name"));
    #[cfg(unix)]
    return std::os::unix::fs::symlink(std::path::absolute(file)?, name);
    #[cfg(not(unix))]
    return fs::copy(file, name).map(drop);
}
