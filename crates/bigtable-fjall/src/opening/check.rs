//! Checks a closed store without changing anything in its directory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};

use bigtable::{Error, PageLimit, Result, RowRange, Selection, Store, TimeRange, Timestamp};
use futures::executor::block_on;

use super::damage::Damage;
use super::journal::journal_file;
use super::shadow;
use super::survey::{Survey, Thorough, survey};
use crate::directory::{self, ENGINE_DIR};
use crate::failure::fault;
use crate::options::{Durability, Options};
use crate::store::FjallStore;

/// A difference between a store's directory and what the store wrote there.
///
/// See [`check`](crate::check) for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The file or directory.
    pub path: PathBuf,
    /// The damage, in words.
    pub problem: String,
}

impl Problem {
    /// A problem with a file or directory.
    pub fn new(path: &Path, problem: impl Into<String>) -> Self {
        Problem { path: path.to_owned(), problem: problem.into() }
    }
}

/// The result of [`check`](crate::check).
///
/// See [`check`](crate::check) for an example.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checked {
    /// The damaged or missing files. Empty if there are none.
    pub problems: Vec<Problem>,
    /// The number of journals.
    pub journals: usize,
    /// The number of files of runs and of large values.
    pub files: usize,
    /// The number of cells in each table. Empty if files are damaged: then no cell was read.
    pub tables: BTreeMap<String, u64>,
    /// The highest timestamp of any cell.
    pub newest: Timestamp,
    /// The store's floor.
    pub floor: Timestamp,
}

/// Checks a store; [`check`](crate::check) says what it checks.
pub(crate) fn check(
    dir: impl AsRef<Path>,
    more: impl FnOnce(FjallStore) -> Vec<Problem>,
) -> Result<Checked> {
    let closed = Closed::look(dir.as_ref(), Thorough::Yes)?;
    let mut checked = Checked {
        problems: closed.problems(),
        journals: closed.survey.journals.len(),
        files: closed
            .survey
            .runs
            .values()
            .map(|runs| runs.tables().count() + runs.values.len())
            .sum(),
        ..Checked::default()
    };
    if !closed.survey.damages.is_empty() {
        return Ok(checked);
    }
    let stand_in = closed.stand_in()?;
    // A panic while values are read must not look like the end of a table.
    let read = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let options = Options { durability: Durability::Buffered, ..Options::default() };
        let store = FjallStore::open(stand_in.path(), options.clone())?;
        checked.floor = store.floor();
        count_cells(&store, &mut checked)?;
        drop(store);
        // Open the store a second time, because `more` opens tables by schemas with bounds,
        // which the catalog does not keep.
        let store = FjallStore::open(stand_in.path(), options)?;
        checked.problems.extend(more(store));
        Ok::<(), Error>(())
    }));
    let problem = match read {
        Ok(Ok(())) => return Ok(checked),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the engine cannot read its files".to_owned(),
    };
    let problem = problem.replace(&stand_in.path().display().to_string(), ".");
    checked.problems.push(Problem::new(&closed.dir, problem));
    Ok(checked)
}

fn count_cells(store: &FjallStore, checked: &mut Checked) -> Result<()> {
    for name in block_on(store.table_names())? {
        let schema = store.stored_schema(&name)?;
        let families = schema.groups.iter().flat_map(|group| &group.families);
        let all = families.fold(Selection::default(), |all, family| {
            all.family(family.family.clone(), TimeRange::ALL, u32::MAX)
        });
        let table = block_on(store.open_table(&name, &schema))?;
        let count = checked.tables.entry(name).or_default();
        let mut next = Some(RowRange::all());
        while let Some(range) = next {
            let page = block_on(table.scan(&range, &all, PageLimit::default()))?;
            for cell in page.rows.iter().flat_map(|row| &row.cells) {
                *count += 1;
                checked.newest = checked.newest.max(cell.timestamp);
            }
            next = page.resume;
        }
    }
    Ok(())
}

/// A closed store, locked so that no process can open it meanwhile.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) dir: PathBuf,
    pub(super) survey: Survey,
    /// Keeps writers away until the file is closed.
    pub(super) lock: Option<File>,
}

impl Closed {
    pub(super) fn look(dir: &Path, thorough: Thorough) -> Result<Closed> {
        let format = directory::format(dir)?;
        let lock = directory::lock_shared(dir)?;
        let has_inventory = directory::has_inventory(format);
        let survey = survey(dir, &dir.join(ENGINE_DIR), has_inventory, thorough);
        Ok(Closed { dir: dir.to_owned(), survey, lock })
    }

    pub(super) fn problems(&self) -> Vec<Problem> {
        let damages = self.survey.damages.iter().cloned();
        let mut problems: Vec<_> =
            damages.map(|Damage { path, problem }| Problem::new(&path, problem)).collect();
        if let Some(cut) = &self.survey.cut {
            let path = journal_file(&self.dir.join(ENGINE_DIR), cut.journal);
            let problem = format!("opening the store would cut off an unfinished batch: {cut}");
            problems.push(Problem::new(&path, problem));
        }
        problems
    }

    pub(super) fn stand_in(&self) -> Result<tempfile::TempDir> {
        let io = |e: io::Error| fault::io(&std::env::temp_dir(), "writing temporary files", &e);
        let to = tempfile::tempdir().map_err(io)?;
        shadow::make(&self.dir, &self.dir.join(ENGINE_DIR), &self.survey, to.path()).map_err(io)?;
        Ok(to)
    }
}
