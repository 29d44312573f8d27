//! Checks a closed store, or a backup.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use bigtable::{Error, Result};

use crate::backup::lay_out::{How, lay_out, verify};
use crate::backup::list::{List, content_file};
use crate::directory;
use crate::failure::fault;
use crate::opening::{self, Checked, Problem};
use crate::store::FjallStore;

/// Checks the store in `dir`, which no process may have open. The check covers journals,
/// checksums of all files, the inventory, the catalog, and every cell of every table.
///
/// The check changes nothing in the directory, and needs no permission to. It reads cells from
/// a stand-in among the temporary files, which takes the space of the journals. The function
/// `more` receives the stand-in for further checks, and returns the problems that it finds.
///
/// If `dir` holds a backup, its checksums are compared, and the store that a restore would
/// make is checked.
///
/// An unfinished batch at the end of the newest journal counts as a problem: either a crash or
/// damage may have left it.
///
/// ```
/// use bigtable_fjall::{FjallStore, Options, check};
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path().join("store");
/// drop(FjallStore::open(&dir, Options::default())?);
/// assert!(check(&dir, |_store| Vec::new())?.problems.is_empty());
/// std::fs::write(dir.join("INVENTORY"), "gibberish").unwrap();
/// let problems = check(&dir, |_store| Vec::new())?.problems;
/// assert!(problems[0].path.ends_with("INVENTORY"));
/// # Ok::<(), bigtable::Error>(())
/// ```
///
/// # Errors
/// [`Error::InUse`] if a process has the directory open, or writes a backup to it.
/// [`Error::Files`] if it holds neither a store nor a backup, or if there is no room for the
/// stand-in.
pub fn check(
    dir: impl AsRef<Path>,
    more: impl FnOnce(FjallStore) -> Vec<Problem>,
) -> Result<Checked> {
    let dir = dir.as_ref();
    let _lock = directory::lock_shared(dir)?;
    let list = match List::read(dir) {
        Ok(None) => return opening::check(dir, more),
        Ok(Some(list)) => list,
        Err(error) => return Ok(with_problems(vec![problem(dir, &error)])),
    };
    let contents: BTreeSet<_> = list.files.iter().map(|(_, content)| *content).collect();
    let verified = contents.iter().map(|content| verify(&content_file(dir, *content), *content));
    let problems: Vec<_> = verified.filter_map(|one| Some(problem(dir, &one.err()?))).collect();
    if !problems.is_empty() {
        return Ok(with_problems(problems));
    }
    let io = |e: io::Error| fault::io(&std::env::temp_dir(), "writing temporary files", &e);
    let store = tempfile::tempdir().map_err(io)?;
    lay_out(dir, &list, store.path(), How::Linked)?;
    let mut checked = opening::check(store.path(), more)?;
    for problem in &mut checked.problems {
        // As if the store lay in the directory of its backup.
        if let Ok(inside) = problem.path.strip_prefix(store.path()) {
            problem.path = dir.join(inside);
        }
    }
    Ok(checked)
}

fn problem(dir: &Path, error: &Error) -> Problem {
    match error {
        Error::Files { path, problem, .. } => Problem::new(path, problem.clone()),
        error => Problem::new(dir, error.to_string()),
    }
}

fn with_problems(problems: Vec<Problem>) -> Checked {
    Checked { problems, ..Checked::default() }
}
