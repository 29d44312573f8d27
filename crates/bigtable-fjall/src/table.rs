//! Implements the trait `Table` on an open store.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use bigtable::{
    ConditionalMutation, Family, Glance, Glanced, Page, PageLimit, Result, Row, RowKey, RowMutation,
};
use bigtable::{RowRange, Selection, Table, Timestamp};

use crate::commit::begin::{Begun, add_seen, begin, begin_all, matched};
use crate::commit::edit::{Request, RowEdit};
use crate::commit::queue::GROUP_OPS_MAX;
use crate::engine::Engine;
use crate::failure::fault;
use crate::failure::reopen::{Running, TableSlot};
use crate::layout::key::Key;
use crate::layout::table_info::{FamilyInfo, TableInfo};
use crate::mutants::{self, off};
use crate::read::glance::glance;
use crate::read::row::read_row;
use crate::read::scan::{bounds, last_row, scan};
use crate::upkeep::superseded::Rule;

/// A table of a [`FjallStore`](crate::FjallStore). In addition to the trait [`Table`] it has
/// [edits](FjallTable::edit_row) and [reading backwards](FjallTable::last_row). It keeps the
/// store open.
///
/// See [`RowEdit`] for an example.
#[derive(Clone)]
pub struct FjallTable {
    pub(crate) store: Arc<Running>,
    pub(crate) slot: Arc<TableSlot>,
}

impl std::fmt::Debug for FjallTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FjallTable").field("name", &self.slot.name).finish_non_exhaustive()
    }
}

impl FjallTable {
    /// Changes one row in one atomic step, as decided by a function that sees the row.
    ///
    /// # Errors
    /// The errors of [`Table::mutate_row`].
    pub async fn edit_row(&self, edit: RowEdit) -> Result<()> {
        edit.check(&self.slot.schema)?;
        self.matched(self.begin(Request::Edit(edit))?).await.map(|_| ())
    }

    /// Edits several rows. Each edit is atomic by itself and has its own result, in the order
    /// of `edits`.
    ///
    /// # Errors
    /// Each result has the errors of [`edit_row`](FjallTable::edit_row).
    pub async fn edit_rows(&self, edits: Vec<RowEdit>) -> Vec<Result<()>> {
        let checks: Vec<_> = edits.iter().map(|edit| edit.check(&self.slot.schema)).collect();
        let mut check = checks.iter();
        let mut sound = edits;
        sound.retain(|_| check.next().is_some_and(Result::is_ok));
        let sound = sound.into_iter().map(Request::Edit).collect();
        let mut outcomes = self.commit_all(sound).await.into_iter();
        let mut outcome = || outcomes.next().expect("one outcome for each sound edit").map(|_| ());
        checks.into_iter().map(|check| check.and_then(|()| outcome())).collect()
    }

    /// Lets writes to this table use the last part of the disk, like writes to the tables in
    /// [`Options::upkeep_tables`](crate::Options::upkeep_tables).
    pub fn set_upkeep(&self) {
        let set = |_: &Arc<Engine>, info: &Arc<TableInfo>| {
            info.upkeep.store(true, Ordering::Relaxed);
            Ok(())
        };
        // An error means that the store has halted, so it takes no writes at all.
        let _ = self.store.with(&self.slot.open, set);
    }

    /// Returns the key of the last row in the range that has a cell, for reading backwards.
    ///
    /// # Errors
    /// The errors of [`Table::read_row`].
    pub fn last_row(&self, range: &RowRange) -> Result<Option<RowKey>> {
        self.store.with(&self.slot.open, |engine, info| last_row(engine, info, range))
    }

    /// Passes one request to the committer of an engine. Also returns the engine's generation.
    fn begin(&self, request: Request) -> Result<(u64, Begun)> {
        let mut request = Some(request);
        self.store.with(&self.slot.open, |engine, info| {
            let request = request.take().ok_or_else(fault::reopened)?;
            Ok((engine.generation, begin(engine, info, request)))
        })
    }

    /// Waits for the outcome of a request. Returns whether its predicate held.
    async fn matched(&self, (of, begun): (u64, Begun)) -> Result<bool> {
        self.store.answer(of, begun.outcome().await).map(matched)
    }

    /// Commits several requests. Returns for each whether its predicate held.
    async fn commit_all(&self, requests: Vec<Request>) -> Vec<Result<bool>> {
        let mut outcomes = Vec::with_capacity(requests.len());
        let mut requests = requests.into_iter().peekable();
        while requests.peek().is_some() {
            let mut chunk: Vec<_> = requests.by_ref().take(GROUP_OPS_MAX).collect();
            let mut of = 0;
            let begun = self.store.with(&self.slot.open, |engine, info| {
                of = engine.generation;
                add_seen(engine, info, &mut chunk);
                Ok(begin_all(engine, info, std::mem::take(&mut chunk)))
            });
            match begun {
                Ok(begun) => {
                    for begun in begun {
                        let outcome = self.store.answer(of, begun.outcome().await);
                        outcomes.push(outcome.map(matched));
                    }
                }
                Err(error) => outcomes.extend(chunk.iter().map(|_| Err(error.clone()))),
            }
        }
        outcomes
    }

    /// The engine and the table that the handle uses now.
    #[cfg(test)]
    pub(crate) fn opened(&self) -> (Arc<Engine>, Arc<TableInfo>) {
        let opened =
            self.store.with(&self.slot.open, |engine, info| Ok((engine.clone(), info.clone())));
        opened.expect("the store is open")
    }

    /// Waits for a pending group whose commit timestamp may be visible to this reader.
    async fn wait_for_pending(
        &self,
        select: &Selection,
        bounds: impl FnOnce(&TableInfo) -> (Key, Key),
    ) {
        let Some(s) = select.above else { return };
        let mut bounds = Some(bounds);
        let found = self.store.with(&self.slot.open, |engine, info| {
            Ok(bounds.take().and_then(|bounds| engine.pending.end_of_group(s, || bounds(info))))
        });
        if let Ok(Some(end)) = found {
            // The wait always ends with an error, which only means that the group has ended.
            let _ = end.await;
        }
    }
}

#[async_trait]
impl Table for FjallTable {
    fn name(&self) -> &str {
        &self.slot.name
    }

    async fn read_row(&self, row: &RowKey, select: &Selection) -> Result<Row> {
        row.check()?;
        select.check(&self.slot.schema)?;
        if !off(mutants::READ_PASSES_PENDING) {
            self.wait_for_pending(select, |info| Key::row_bounds(info.id, row.as_bytes())).await;
        }
        self.store.with(&self.slot.open, |engine, info| read_row(engine, info, row, select))
    }

    fn glance(&self, at: Glance<'_>) -> Result<Glanced> {
        self.store.with(&self.slot.open, |engine, info| glance(engine, info, at))
    }

    async fn scan(&self, range: &RowRange, select: &Selection, limit: PageLimit) -> Result<Page> {
        select.check(&self.slot.schema)?;
        if !off(mutants::SCAN_PASSES_PENDING) {
            self.wait_for_pending(select, |info| bounds(info.id, range)).await;
        }
        self.store.with(&self.slot.open, |engine, info| scan(engine, info, range, select, limit))
    }

    fn drop_superseded(&self, family: &Family, up_to: Timestamp, keep: fn(&[u8]) -> bool) -> bool {
        let set = |engine: &Arc<Engine>, info: &Arc<TableInfo>| {
            let described = info.families.iter().find(|described| described.family == *family);
            let described = described.filter(|of| info.groups[of.group].history.is_some());
            if let Some(FamilyInfo { number, .. }) = described {
                let up_to = up_to.min(engine.floor());
                engine.merges.superseded.set(info.id, *number, Rule { up_to, keep });
            }
            Ok(described.is_some())
        };
        // An error means that the store has halted, so it merges nothing.
        self.store.with(&self.slot.open, set).unwrap_or(false)
    }

    async fn mutate_row(&self, request: RowMutation) -> Result<()> {
        request.check(&self.slot.schema)?;
        let RowMutation { row, mutations, sync } = request;
        // Without a predicate, `otherwise` always applies.
        let request =
            ConditionalMutation { otherwise: mutations, sync, ..ConditionalMutation::new(row) };
        self.matched(self.begin(Request::Conditional(request, None))?).await.map(|_| ())
    }

    async fn check_and_mutate_row(&self, request: ConditionalMutation) -> Result<bool> {
        request.check(&self.slot.schema)?;
        self.matched(self.begin(Request::Conditional(request, None))?).await
    }

    async fn check_and_mutate_rows(&self, requests: Vec<ConditionalMutation>) -> Vec<Result<bool>> {
        let checks: Vec<_> = requests.iter().map(|r| r.check(&self.slot.schema)).collect();
        let mut check = checks.iter();
        let mut sound = requests;
        sound.retain(|_| check.next().is_some_and(Result::is_ok));
        let sound = sound.into_iter().map(|request| Request::Conditional(request, None)).collect();
        let mut outcomes = self.commit_all(sound).await.into_iter();
        let mut outcome = || outcomes.next().expect("one outcome for each sound request");
        checks.into_iter().map(|check| check.and_then(|()| outcome())).collect()
    }
}
