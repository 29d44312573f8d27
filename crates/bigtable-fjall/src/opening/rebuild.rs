//! Rebuilds the lists by which the engine finds its files, for a repair: the manifest of a
//! keyspace, and the list of keyspaces.
//!
//! ```text
//!   lost                    replacement
//!   `current`, a manifest   the files in the newest manifest, if they are all the files that
//!                           exist, and whole; otherwise every readable file in the keyspace's
//!                           directory
//!   the list of keyspaces   a new one, from the numbers and names in the store's inventory
//! ```
//!
//! A new manifest loses the levels. This is harmless for a repair, which reads keyspaces from
//! end to end. Entries that are in several files are ordered by their numbers. A file whose
//! content was merged into another file may still exist. Then cells that the merge removed may
//! reappear.
//!
//! The engine itself writes the list and the empty manifests, into a directory among the
//! temporary files. So this module knows no more of their format than `runs.rs` does.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use bigtable::{Error, Result};
use fjall::{Database, KeyspaceCreateOptions, KvSeparationOptions};

use super::damage::Damage;
use super::runs::{Named, Runs, Span};
use super::survey::{KEYSPACES_DIR, NAMES, Survey, numbered};
use crate::failure::fault;

/// The most runs of a level: the engine stores the count in a byte.
const RUNS_MAX: usize = 255;

/// The lists and manifests that a repair rebuilt.
#[derive(Debug)]
pub(super) struct Rebuilt {
    /// The rebuilt lists and manifests, by directory, with their damage.
    pub(super) notes: Vec<Damage>,
    /// Files that are in no manifest, because they cannot be read.
    pub(super) unreadable: Vec<Damage>,
    /// Keeps the rebuilt list of keyspaces, to which the survey then refers.
    _template: Template,
}

/// Adds the missing lists and manifests of the keyspaces in `engine` to the survey. Returns
/// `None` if nothing is missing.
///
/// # Errors
/// If the list of keyspaces is damaged and there is no inventory to replace it, or if
/// temporary files cannot be written.
pub(super) fn rebuild(survey: &mut Survey, engine: &Path) -> Result<Option<Rebuilt>> {
    let keyspaces = engine.join(KEYSPACES_DIR);
    let list = keyspaces.join(NAMES.to_string());
    let list_lost = survey.damages.iter().find(|damage| damage.path.starts_with(&list)).cloned();
    let names = match (&survey.inventory, &list_lost) {
        (Some(inventory), _) => inventory.keyspaces.clone(),
        (None, None) => Default::default(),
        (None, Some(Damage { path, problem })) => {
            let problem = format!(
                "{problem}: it is the engine's list of keyspaces, and the inventory that repeats \
                 it is damaged, too, so the names of the keyspaces are lost"
            );
            return Err(fault::files(path, problem, fault::BACKUP));
        }
    };
    // A keyspace that the inventory does not list was just being created, and is empty.
    let listed: BTreeSet<u64> = match &survey.inventory {
        Some(inventory) => inventory.keyspaces.keys().copied().collect(),
        None => numbered(&keyspaces).into_iter().flatten().filter(|n| *n != NAMES).collect(),
    };
    let lost: Vec<u64> =
        listed.iter().copied().filter(|number| !survey.runs.contains_key(number)).collect();
    if lost.is_empty() && list_lost.is_none() {
        return Ok(None);
    }
    let kinds = listed.iter().map(|number| {
        let name = names.get(number).cloned().unwrap_or_else(|| format!("keyspace {number}"));
        let has_values = match survey.runs.get(number) {
            Some(runs) => runs.has_values(),
            // The engine creates this folder together with a keyspace that has such files.
            None => keyspaces.join(number.to_string()).join("blobs").exists(),
        };
        (*number, name, has_values)
    });
    let template = Template::make(&kinds.collect::<Vec<_>>())?;
    let damages = survey.damages.clone();
    let note = |dir: &Path, done: &str| {
        let of = damages.iter().find(|damage| damage.path.starts_with(dir));
        let problem = of.map_or("it is damaged", |damage| &damage.problem);
        Damage::new(dir, format!("{problem}; {done}"))
    };
    let (mut notes, mut unreadable) = (Vec::new(), Vec::new());
    if list_lost.is_some() {
        notes.push(note(
            &list,
            "the list of keyspaces is rebuilt from the inventory, and no data is lost",
        ));
    }
    if survey.inventory.is_some() {
        // Replace this list too, so that it gives each keyspace the kind of its manifest, even
        // if the keyspace's folder is gone.
        survey.runs.insert(NAMES, template.manifest(NAMES)?);
    }
    for number in lost {
        let dir = keyspaces.join(number.to_string());
        let (runs, done) = match by_newest_manifest(&dir, template.manifest(number)?) {
            Ok(runs) => {
                let done = "the newest manifest names these files, all of them are whole, and no \
                            data is lost";
                (runs, done.to_owned())
            }
            Err(empty) => by_files(&dir, empty, &mut unreadable)?,
        };
        notes.push(note(&dir, &done));
        survey.runs.insert(number, runs);
    }
    Ok(Some(Rebuilt { notes, unreadable, _template: template }))
}

/// A list of keyspaces, and empty manifests, as written by the engine.
#[derive(Debug)]
struct Template(tempfile::TempDir);

impl Template {
    /// Makes the engine create keyspaces with these numbers and names. The flag marks those
    /// with files of large values.
    fn make(keyspaces: &[(u64, String, bool)]) -> Result<Template> {
        let io = |e: io::Error| fault::io(&std::env::temp_dir(), "writing temporary files", &e);
        let dir = tempfile::tempdir().map_err(io)?;
        let failed = |e: fjall::Error| fault::engine(dir.path(), "writing temporary files", &e);
        let database = Database::builder(dir.path()).worker_threads(1).open().map_err(failed)?;
        let last = keyspaces.iter().map(|(number, ..)| *number).max().unwrap_or(0);
        for number in 1..=last {
            let known = keyspaces.iter().find(|(known, ..)| *known == number);
            let name =
                known.map_or_else(|| format!("keyspace {number}"), |(_, name, _)| name.clone());
            let options = || {
                let values = known.is_some_and(|(.., values)| *values);
                let values = values.then(KvSeparationOptions::default);
                KeyspaceCreateOptions::default().with_kv_separation(values)
            };
            let keyspace = database.keyspace(&name, options).map_err(failed)?;
            if keyspace.path().file_name() != Some(number.to_string().as_ref()) {
                let problem =
                    format!("the engine gave keyspace {name} another number than {number}");
                return Err(fault::files(dir.path(), problem, fault::BACKUP));
            }
        }
        Ok(Template(dir))
    }

    fn manifest(&self, number: u64) -> Result<Runs> {
        let dir = self.0.path().join(KEYSPACES_DIR).join(number.to_string());
        let runs = Runs::read(&dir).map_err(of_damage)?;
        runs.ok_or_else(|| fault::files(&dir, "the engine wrote no manifest", fault::BACKUP))
    }
}

fn of_damage(Damage { path, problem }: Damage) -> Error {
    fault::files(&path, problem, fault::BACKUP)
}

/// The files in the newest manifest, under two conditions: they are all the files that exist,
/// and each has the checksum in the manifest. The manifest itself may be damaged, so nothing
/// else in it is used.
fn by_newest_manifest(dir: &Path, empty: Runs) -> std::result::Result<Runs, Runs> {
    let newest = || {
        let manifests = fs::read_dir(dir).ok()?.filter_map(|entry| {
            let name = entry.ok()?.file_name();
            name.to_str()?.strip_prefix('v')?.parse::<u64>().ok()
        });
        let number = manifests.max()?;
        let manifest = dir.join(format!("v{number}"));
        let content = fs::read(&manifest).ok()?;
        let runs = Runs::parse(dir, manifest, number, &content).ok()?;
        let folders = ["tables", "blobs"].map(|folder| dir.join(folder));
        let there: BTreeSet<_> = folders
            .iter()
            .flat_map(|folder| {
                numbered(folder).unwrap_or_default().into_iter().map(|n| folder.join(n.to_string()))
            })
            .collect();
        let named: BTreeSet<_> = runs.files().map(|file| file.path.clone()).collect();
        let whole = catch_unwind(|| runs.check_openable().is_empty() && runs.verify().is_empty());
        (there == named && whole.unwrap_or(false)).then_some(runs)
    };
    match newest() {
        Some(runs) => empty.with_files_of(runs),
        None => Err(empty),
    }
}

/// A manifest of all readable files of runs and of large values in the directory.
fn by_files(dir: &Path, empty: Runs, unreadable: &mut Vec<Damage>) -> Result<(Runs, String)> {
    let mut spans = Vec::new();
    let mut values = Vec::new();
    for (folder, table) in [("tables", true), ("blobs", false)] {
        let folder = dir.join(folder);
        let mut numbers = match numbered(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            numbers => numbers.map_err(|e| of_damage(Damage::io(&folder, &e)))?,
        };
        numbers.sort_unstable();
        for number in numbers {
            // The engine's reader panics over content that a file with a correct checksum
            // never has.
            let read = catch_unwind(AssertUnwindSafe(|| {
                let file = Named::found(&folder, number, table)?;
                if table {
                    spans.push((file.span()?, file))
                } else {
                    file.open_values()?;
                    values.push(file);
                }
                Ok(())
            }));
            match read {
                Ok(Ok(())) => {}
                Ok(Err(damage)) => unreadable.push(damage),
                Err(_) => {
                    let path = folder.join(number.to_string());
                    unreadable.push(Damage::new(&path, "the engine cannot read it"));
                }
            }
        }
    }
    let done = format!(
        "a manifest is rebuilt from the readable files, {} of runs and {} of large values: cells \
         that a merge removed may reappear",
        spans.len(),
        values.len()
    );
    let runs = in_runs(spans);
    if runs.len() > RUNS_MAX {
        let problem =
            format!("its files overlap in {} runs, and at most {RUNS_MAX} are allowed", runs.len());
        return Err(fault::files(dir, problem, fault::BACKUP));
    }
    Ok((empty.with_files(runs, values), done))
}

/// Arranges files in as few runs as possible, so that no two files of a run overlap. The
/// newest run is first.
fn in_runs(mut files: Vec<(Span, Named)>) -> Vec<Vec<Named>> {
    files.sort_by(|(one, _), (other, _)| one.first.cmp(&other.first));
    let mut runs: Vec<(Span, Vec<Named>)> = Vec::new();
    for (span, file) in files {
        match runs.iter_mut().find(|(run, _)| run.last < span.first) {
            Some((run, files)) => {
                (run.last, run.newest) = (span.last, run.newest.max(span.newest));
                files.push(file);
            }
            None => runs.push((span, vec![file])),
        }
    }
    runs.sort_by_key(|(run, _)| std::cmp::Reverse(run.newest));
    runs.into_iter().map(|(_, files)| files).collect()
}
