//! The trait `Table` on an open store.

use std::sync::Arc;

use async_trait::async_trait;
use bigtable::{
    ConditionalMutation, Glance, Glanced, Page, PageLimit, Result, Row, RowKey, RowMutation,
};
use bigtable::{RowRange, Selection, Table};

use crate::edit::{Request, RowEdit};
use crate::engine::TableInfo;
use crate::key::Key;
use crate::mutants::{self, off};
use crate::scan::bounds;
use crate::store::Running;

/// A table of a [`FjallStore`](crate::FjallStore), with what the trait [`Table`] does not have:
/// [edits](FjallTable::edit_row) and [walking backwards](FjallTable::last_row). Keeps the store open.
///
/// See [`RowEdit`] for an example.
#[derive(Clone)]
pub struct FjallTable {
    pub(crate) store: Arc<Running>,
    pub(crate) info: Arc<TableInfo>,
}

impl std::fmt::Debug for FjallTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FjallTable").field("info", &self.info).finish_non_exhaustive()
    }
}

impl FjallTable {
    /// Changes one row as a decision says that sees the row, in one atomic step.
    ///
    /// # Errors
    /// As [`Table::mutate_row`].
    pub async fn edit_row(&self, edit: RowEdit) -> Result<()> {
        edit.check(&self.info.schema)?;
        self.store.engine.commit(&self.info, Request::Edit(edit)).await.map(|_| ())
    }

    /// Edits several rows; each edit is atomic by itself and has its own result, in their order.
    ///
    /// # Errors
    /// Each result's are those of [`edit_row`](FjallTable::edit_row).
    pub async fn edit_rows(&self, edits: Vec<RowEdit>) -> Vec<Result<()>> {
        let checks: Vec<_> = edits.iter().map(|edit| edit.check(&self.info.schema)).collect();
        let mut check = checks.iter();
        let mut sound = edits;
        sound.retain(|_| check.next().is_some_and(Result::is_ok));
        let sound = sound.into_iter().map(Request::Edit).collect();
        let mut outcomes = self.store.engine.commit_all(&self.info, sound).await.into_iter();
        let mut outcome = || outcomes.next().expect("one outcome for each sound edit").map(|_| ());
        checks.into_iter().map(|check| check.and_then(|()| outcome())).collect()
    }

    /// Has writes to this table go on in the last of the disk, as those to
    /// [`Options::upkeep_tables`](crate::Options::upkeep_tables).
    pub fn set_upkeep(&self) {
        self.info.upkeep.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// The key of the last row in the range that has a cell, for walking backwards.
    ///
    /// # Errors
    /// As [`Table::read_row`].
    pub fn last_row(&self, range: &RowRange) -> Result<Option<RowKey>> {
        self.store.engine.last_row(&self.info, range)
    }

    /// Waits for changes of several rows whose timestamp a reader of these may be too late for.
    async fn wait_for_pending(&self, select: &Selection, bounds: impl FnOnce() -> (Key, Key)) {
        let Some(s) = select.above else { return };
        if let Some(published) = self.store.engine.pending.met(s, bounds) {
            // It ends with an error, which says no more than that the group has ended.
            let _ = published.await;
        }
    }
}

#[async_trait]
impl Table for FjallTable {
    fn name(&self) -> &str {
        &self.info.name
    }

    async fn read_row(&self, row: &RowKey, select: &Selection) -> Result<Row> {
        row.check()?;
        select.check(&self.info.schema)?;
        let bounds = || Key::row_bounds(self.info.id, row.as_bytes());
        if !off(mutants::READ_PASSES_PENDING) {
            self.wait_for_pending(select, bounds).await;
        }
        self.store.engine.read_row(&self.info, row, select)
    }

    fn glance(&self, at: Glance<'_>) -> Result<Glanced> {
        self.store.engine.glance(&self.info, at)
    }

    async fn scan(&self, range: &RowRange, select: &Selection, limit: PageLimit) -> Result<Page> {
        select.check(&self.info.schema)?;
        if !off(mutants::SCAN_PASSES_PENDING) {
            self.wait_for_pending(select, || bounds(self.info.id, range)).await;
        }
        self.store.engine.scan(&self.info, range, select, limit)
    }

    async fn mutate_row(&self, request: RowMutation) -> Result<()> {
        request.check(&self.info.schema)?;
        let RowMutation { row, mutations, sync } = request;
        // Without a predicate, `otherwise` always applies.
        let request =
            ConditionalMutation { otherwise: mutations, sync, ..ConditionalMutation::new(row) };
        self.store.engine.commit(&self.info, Request::Conditional(request)).await.map(|_| ())
    }

    async fn check_and_mutate_row(&self, request: ConditionalMutation) -> Result<bool> {
        request.check(&self.info.schema)?;
        self.store.engine.commit(&self.info, Request::Conditional(request)).await
    }

    async fn check_and_mutate_rows(&self, requests: Vec<ConditionalMutation>) -> Vec<Result<bool>> {
        let checks: Vec<_> = requests.iter().map(|r| r.check(&self.info.schema)).collect();
        let mut check = checks.iter();
        let mut sound = requests;
        sound.retain(|_| check.next().is_some_and(Result::is_ok));
        let sound = sound.into_iter().map(Request::Conditional).collect();
        let mut outcomes = self.store.engine.commit_all(&self.info, sound).await.into_iter();
        let mut outcome = || outcomes.next().expect("one outcome for each sound request");
        checks.into_iter().map(|check| check.and_then(|()| outcome())).collect()
    }
}
