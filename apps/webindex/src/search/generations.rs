//! Finds the directories of a search index's generations.
//!
//! Generation 0 lies in the directory that the settings name, and generation 7 in its subdirectory
//! `generation-7`. A subdirectory is always on the same volume, and every worker that can write to
//! the index can make it. A worker makes a new generation when it replaces a writer that hangs
//! (`writer.rs`). The record in the store says which generation is the present one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percolator::store::StoreId;

use super::SearchIndex;
use super::schema::{self, GENERATION, generation_of};
use crate::Error;

/// An open generation of a search index.
#[derive(Debug, Clone)]
pub(crate) struct Generation {
    pub(crate) number: u64,
    pub(crate) search: Arc<SearchIndex>,
}

impl Generation {
    /// Opens a generation, or creates its directory.
    pub(crate) fn open(base: &Path, number: u64, store: Option<StoreId>) -> Result<Self, Error> {
        let search = Arc::new(SearchIndex::open_of(&dir(base, number), store)?);
        Ok(Generation { number, search })
    }

    /// Opens a generation that exists. Changes nothing on disk.
    pub(crate) fn open_existing(base: &Path, number: u64) -> Result<Self, Error> {
        let search = Arc::new(SearchIndex::open_existing(&dir(base, number))?);
        Ok(Generation { number, search })
    }

    /// Whether the generation on disk has all pages. Opens and changes nothing.
    pub(crate) fn is_complete(base: &Path, number: u64) -> bool {
        let path = dir(base, number);
        schema::is_there(&path) && !schema::is_incomplete(&path)
    }

    /// Makes an empty directory for a generation above the present one, and becomes its writer.
    /// `None` if another process has the directory.
    pub(crate) fn make(
        base: &Path,
        number: u64,
        store: Option<StoreId>,
    ) -> Result<Option<Self>, Error> {
        let path = dir(base, number);
        let opened = match schema::open_empty(&path, store) {
            Err(Error::IndexInUse { .. }) => return Ok(None),
            opened => opened?,
        };
        let search = Arc::new(SearchIndex::over(&path, opened)?);
        // The present writer may have removed the directory before this process locked it.
        let is_made = search.claim()? && schema::is_there(&path);
        Ok(is_made.then_some(Generation { number, search }))
    }
}

impl SearchIndex {
    /// Finds the index in `path` to search in if the store cannot be asked. If a worker that hung
    /// was replaced, there may be several. The newest complete one is returned, or else the newest.
    pub fn newest(path: &Path) -> PathBuf {
        newest(path)
    }
}

/// The directory of a generation.
fn dir(base: &Path, number: u64) -> PathBuf {
    match number {
        0 => base.to_owned(),
        number => base.join(format!("{GENERATION}{number}")),
    }
}

/// The generations on disk, in order.
fn on_disk(base: &Path) -> Vec<u64> {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    let named = entries.filter_map(|entry| generation_of(entry.file_name().to_str()?));
    let mut numbers: Vec<u64> = named.chain([0]).collect();
    numbers.retain(|number| schema::is_there(&dir(base, *number)));
    numbers.sort_unstable();
    numbers
}

/// Finds the directory to search in without the store: the newest complete one, or else the newest.
fn newest(base: &Path) -> PathBuf {
    let numbers = on_disk(base);
    let complete = |number: &&u64| !schema::is_incomplete(&dir(base, **number));
    let newest = numbers.iter().rev().find(complete).or(numbers.last());
    dir(base, newest.copied().unwrap_or(0))
}

/// Finds the newest complete generation before `number`.
pub(crate) fn complete_before(base: &Path, number: u64) -> Option<u64> {
    let complete = |earlier: &u64| !schema::is_incomplete(&dir(base, *earlier));
    on_disk(base).into_iter().rev().filter(|earlier| *earlier < number).find(complete)
}

/// Removes the files of all generations but one, except of those that a process has locked. Returns
/// the removed directories.
pub(crate) fn remove_others(base: &Path, present: u64) -> Result<Vec<PathBuf>, Error> {
    let mut removed = Vec::new();
    for number in on_disk(base).into_iter().filter(|number| *number != present) {
        let path = dir(base, number);
        let gone = if number == 0 { schema::empty(&path) } else { schema::remove(&path) };
        match gone {
            Ok(()) => removed.push(path),
            Err(Error::IndexInUse { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(removed)
}
