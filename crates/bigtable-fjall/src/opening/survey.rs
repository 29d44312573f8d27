//! Reads a store's directory without changing anything, and finds damage. A thorough survey
//! compares the checksums of all files. A survey for an opening reads runs only as far as the
//! engine would. It compares whole checksums in one small keyspace alone, that of the names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::damage::Damage;
use super::inventory::{self, Inventory};
use super::journal::{self, JOURNALS_DIR, Journal, Tail, journal_file};
use super::recovery::Recovery;
use super::runs::Runs;
use super::unsynced::{self, Unsynced};
use crate::directory;

/// The engine's file that states the format of the others.
const VERSION: &str = "version";
const VERSION_BYTES: &[u8] = b"FJL\x03";
pub(crate) const KEYSPACES_DIR: &str = "keyspaces";
/// The keyspace in which the engine keeps the names of the others. It is small.
pub(super) const NAMES: u64 = 0;

/// The extent to which runs are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Thorough {
    /// As much as the engine reads when it opens.
    No,
    /// Everything, to compare checksums.
    Yes,
}

/// The content of a store's directory.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The damage, by file.
    pub(crate) damages: Vec<Damage>,
    /// The inventory. `None` if the store has none.
    pub(crate) inventory: Option<Inventory>,
    /// The journals, by number, without gaps.
    pub(crate) journals: Vec<Journal>,
    /// The manifests of the keyspaces that could be read.
    pub(crate) runs: BTreeMap<u64, Runs>,
    /// The bytes to cut off the newest journal, if any.
    pub(crate) cut: Option<Recovery>,
    /// Whether the newest journal may lack unsynced batches.
    pub(crate) unsynced: Unsynced,
}

/// Reads the files of the store in `dir`. `expects_inventory` says whether its format has an
/// inventory.
pub(crate) fn survey(
    dir: &Path,
    engine: &Path,
    expects_inventory: bool,
    thorough: Thorough,
) -> Survey {
    let mut survey = Survey::default();
    match Inventory::read(dir) {
        Ok(None) if expects_inventory => {
            survey.damages.push(Damage::new(&dir.join(inventory::FILE), "it is missing"));
        }
        Ok(inventory) => survey.inventory = inventory,
        Err(damage) => survey.damages.push(damage),
    }
    if let Err(error) = directory::read_id(dir) {
        survey.damages.push(Damage::io(&dir.join(directory::ID_FILE), &error));
    }
    let version = engine.join(VERSION);
    match fs::read(&version) {
        Ok(bytes) if bytes.starts_with(VERSION_BYTES) => {}
        Ok(_) => survey.damages.push(Damage::new(&version, "it names no known format")),
        Err(error) => survey.damages.push(Damage::io(&version, &error)),
    }
    survey.read_keyspaces(&engine.join(KEYSPACES_DIR), thorough);
    survey.read_journals(dir, engine);
    survey
}

impl Survey {
    fn read_keyspaces(&mut self, keyspaces: &Path, thorough: Thorough) {
        let mut numbers = BTreeSet::from([NAMES]);
        if let Some(inventory) = &self.inventory {
            numbers.extend(inventory.keyspaces.keys());
        }
        let listed = numbers.clone();
        match numbered(keyspaces) {
            Ok(found) => numbers.extend(found),
            Err(error) => return self.damages.push(Damage::io(keyspaces, &error)),
        }
        for number in numbers {
            let dir = keyspaces.join(number.to_string());
            match read_keyspace(&dir, thorough == Thorough::Yes || number == NAMES) {
                Ok(Some((runs, damages))) => {
                    self.damages.extend(damages);
                    self.runs.insert(number, runs);
                }
                Ok(None) if listed.contains(&number) => {
                    let name = self.inventory.as_ref().and_then(|i| i.keyspaces.get(&number));
                    let problem = match name {
                        Some(name) => format!("the files of keyspace {name} are missing"),
                        None => "the files of a keyspace are missing".to_owned(),
                    };
                    self.damages.push(Damage::new(&dir, problem));
                }
                // The keyspace was just being created.
                Ok(None) => {}
                Err(damage) => self.damages.push(damage),
            }
        }
    }

    fn read_journals(&mut self, dir: &Path, engine: &Path) {
        let files = match self.journal_files(dir, engine) {
            Ok(files) => files,
            Err(damage) => return self.damages.push(damage),
        };
        let mut last = None;
        for file in &files {
            match Journal::read(file, last, |_| {}) {
                Ok(journal) => {
                    last = journal.last;
                    self.journals.push(journal);
                }
                Err(error) => return self.damages.push(Damage::io(&file.1, &error)),
            }
        }
        match unsynced::read(dir) {
            Ok(unsynced) => self.unsynced = unsynced,
            Err(error) => {
                self.damages.push(Damage::io(&dir.join(unsynced::FILE), &error));
            }
        }
        let reaches = |id| self.inventory.as_ref().and_then(|i| i.journals.get(id).copied());
        let mut damages = Vec::new();
        for (position, journal) in self.journals.iter().enumerate() {
            let newest = position + 1 == self.journals.len();
            match judge(journal, newest, reaches(&journal.id), self.unsynced) {
                Ok(None) => {}
                Ok(cut) => self.cut = cut,
                Err(damage) => damages.push(damage),
            }
        }
        self.damages.extend(damages);
    }

    /// The path of each journal that the store must have, by number.
    fn journal_files(&self, dir: &Path, engine: &Path) -> Result<Vec<(u64, PathBuf)>, Damage> {
        let list = journal::list(engine).map_err(|e| Damage::io(engine, &e))?;
        let mut files: BTreeMap<u64, PathBuf> = list.into_iter().collect();
        let second = dir.join(JOURNALS_DIR);
        for &number in self.inventory.iter().flat_map(|inventory| inventory.journals.keys()) {
            let path = journal_file(&second, number);
            if !files.contains_key(&number) && path.exists() {
                files.insert(number, path);
            }
            if !files.contains_key(&number) {
                return Err(Damage::new(&journal_file(engine, number), "the journal is missing"));
            }
        }
        let numbers = files.first_key_value().zip(files.last_key_value());
        let Some(((&first, _), (&last, _))) = numbers else {
            return Err(Damage::new(engine, "there is no journal"));
        };
        match (first..=last).find(|number| !files.contains_key(number)) {
            Some(number) => {
                Err(Damage::new(&journal_file(engine, number), "the journal is missing"))
            }
            None => Ok(files.into_iter().collect()),
        }
    }
}

/// Judges a journal: sound, sound after a cut, or damaged.
fn judge(
    journal: &Journal,
    newest: bool,
    reaches: Option<u64>,
    unsynced: Unsynced,
) -> Result<Option<Recovery>, Damage> {
    let Journal { path, end, last, .. } = journal;
    let last = last.unwrap_or(0);
    let damaged = |problem: String| {
        Err(Damage::new(path, format!("the journal is damaged at byte {end}: {problem}")))
    };
    let (why, bytes) = match &journal.tail {
        Tail::OutOfOrder { number } => {
            return damaged(format!("a batch with number {number} follows batch {last}"));
        }
        Tail::Clean => ("it ends there", 0),
        Tail::Unsound { why, bytes } => (*why, *bytes),
    };
    let behind = journal.behind().map_err(|error| Damage::io(path, &error))?;
    let restarted = unsynced == Unsynced::Restarted;
    if let (false, Some(first)) = (newest && restarted, behind.batches.first()) {
        let (count, number, at) = (behind.batches.len(), first.number, first.at);
        return damaged(format!(
            "{why}; sound batches follow, {count} of them, from batch {number} at byte {at}"
        ));
    }
    if let Some(reaches) = reaches.filter(|reaches| last < *reaches) {
        return damaged(format!("{why}, and batch {reaches} or a later one was in it"));
    }
    match journal.tail {
        Tail::Clean => Ok(None),
        _ if !newest => damaged(format!("{why}, in a journal that was complete")),
        _ => {
            let follow = behind.batches.iter().map(|batch| batch.number);
            let batches = behind.torn.into_iter().chain(follow).collect();
            Ok(Some(Recovery { journal: journal.id, at: *end, bytes, batches, restarted }))
        }
    }
}

/// The keyspace's manifest, and the damage of the files that it lists. `None` if there is no
/// manifest.
fn read_keyspace(dir: &Path, whole: bool) -> Result<Option<(Runs, Vec<Damage>)>, Damage> {
    let Some(runs) = Runs::read(dir)? else { return Ok(None) };
    // The engine's reader panics over content that a file with a correct checksum never has.
    let opened = std::panic::catch_unwind(|| runs.check_openable());
    let mut damages = match opened {
        Ok(damages) => damages,
        Err(_) => vec![Damage::new(dir, "the engine cannot read a run")],
    };
    if whole && damages.is_empty() {
        damages = runs.verify();
    }
    Ok(Some((runs, damages)))
}

/// Lists the files or directories in a folder whose names are numbers.
pub(crate) fn numbered(folder: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if let Some(number) = name.to_str().and_then(|name| name.parse().ok()) {
            numbers.push(number);
        }
    }
    Ok(numbers)
}
