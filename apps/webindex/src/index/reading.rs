//! Finds the generation of the search index that an index reads.
//!
//! A worker may publish another generation at any time (`writer.rs`), so each search reads the
//! record first. While the new generation is incomplete, searches stay with the earlier one, which
//! lacks only the latest changes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use percolator::Percolator;
use percolator::store::sync::locked;

use crate::Error;
use crate::search::SearchIndex;
use crate::search::generations::{self, Generation};
use crate::tables::Tables;
use crate::writer;

/// The search index as an index reads it.
#[derive(Debug)]
pub(super) struct Reading {
    base: PathBuf,
    held: Mutex<Generation>,
}

impl Reading {
    /// Opens the present generation, or creates its directory. If the present generation is
    /// incomplete and `needs_all` is set, an earlier one that is complete is opened.
    pub(super) async fn open(
        db: &Percolator,
        tables: &Tables,
        base: &Path,
        needs_all: bool,
    ) -> Result<Self, Error> {
        let (present, store) = (writer::generation(db, tables).await?, db.services().store.id());
        let mut held = Generation::open(base, present, store)?;
        if needs_all && held.search.is_incomplete() {
            let complete = generations::complete_before(base, present);
            let earlier = complete.map(|number| Generation::open_existing(base, number));
            held = earlier.and_then(Result::ok).unwrap_or(held);
        }
        Ok(Reading { base: base.to_owned(), held: Mutex::new(held) })
    }

    pub(super) fn held(&self) -> Generation {
        locked(&self.held).clone()
    }

    /// Returns the search index to read now.
    pub(super) async fn current(
        &self,
        db: &Percolator,
        tables: &Tables,
    ) -> Result<Arc<SearchIndex>, Error> {
        let held = self.held();
        // A search works without the store, too.
        let Ok(present) = writer::generation(db, tables).await else { return Ok(held.search) };
        if present == held.number {
            return Ok(held.search);
        }
        match Generation::open_existing(&self.base, present) {
            Ok(present) if !present.search.is_incomplete() => {
                *locked(&self.held) = present.clone();
                Ok(present.search)
            }
            Ok(_) | Err(Error::NoIndex { .. }) => Ok(held.search),
            Err(error) => Err(error),
        }
    }

    /// Whether the present generation has all pages, or no worker has ever reported. Without a
    /// worker nobody completes it.
    pub(super) async fn is_complete(
        &self,
        db: &Percolator,
        tables: &Tables,
    ) -> Result<bool, Error> {
        let record = writer::current(db, tables).await?;
        Ok(record.is_none_or(|record| Generation::is_complete(&self.base, record.generation)))
    }
}
