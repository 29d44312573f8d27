//! Gives back the space of what changes leave behind, some of it in each round.
//!
//! * **Dead cells of in-memory families, and of the guards' family.** Most cells there are soon
//!   deleted or replaced. HBase keeps a dead cell until all files of its family are compacted, and
//!   every read must skip it until then.
//! * **Guards of empty rows.** A row keeps its guard when its last cell is deleted. Rows that stand
//!   for a lock or for a process are never used again, so their guards would pile up.
//!
//! A table has at most one round in five minutes, or in the longest life of a request if that is
//! longer.
//!
//! # Why a guard may go
//!
//! A round finds rows that have a guard and nothing else. A later round deletes each of these
//! guards, if it is still the same. Every mutation replaces the guard, so such a row was empty all
//! the time. At least the longest life of a request passes between the end of the search and the
//! deletion.
//!
//! Without a guard, two states of a row look alike: before it was ever changed, and after its guard
//! was dropped. A request relies on that difference when it is sent again after a lost answer. It
//! expects a row without a guard, so its first copy was not applied. If that copy was applied, a
//! guard of its own was there. A round must find that guard before another drops it, and by then
//! the request's life is over.
//!
//! The guard's family has `NEW_VERSION_BEHAVIOR`. Without it, the deletion would hide all later
//! guards, which have the same timestamp.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;

use bigtable::sync::locked;
use bigtable::{PageLimit, Result, RowKey, RowRange, Table};
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use tokio::time::Instant;

use crate::encode;
use crate::failure::Failure;
use crate::guard::has_guard;
use crate::proto::{
    Action, Column, MultiRequest, MultiResponse, RegionAction, RegionSpecifier, Scan,
};
use crate::regions::Region;
use crate::scan::Rows;
use crate::store::HbaseStore;
use crate::table::{AT_ONCE, HbaseTable};
use crate::upkeep::Empty;

/// Most rows of a table that one round looks at.
const ROWS_MAX: usize = 50_000;
/// Most rows of one page.
const PAGE_ROWS: usize = 1_000;

impl HbaseStore {
    /// Does a round for each table that is due.
    pub(crate) async fn upkeep(&self, pause: Duration) -> Result<()> {
        let mut failed = Ok(());
        for table in self.opened() {
            let is_due = {
                let mut upkeep = locked(&table.upkeep);
                let is_due = upkeep.last.is_none_or(|last| last.elapsed() >= pause);
                upkeep.last = if is_due { Some(Instant::now()) } else { upkeep.last };
                is_due
            };
            if is_due {
                let round = self.round(&table, pause).await;
                locked(&table.upkeep).last = Some(Instant::now());
                failed = failed.and(round);
            }
        }
        failed
    }

    async fn round(&self, table: &HbaseTable, pause: Duration) -> Result<()> {
        table.drop_guards(pause).await;
        // Rows that were found too short a time ago wait for a later round.
        if locked(&table.upkeep).empty.is_none() {
            table.find_empty_rows().await.map_err(Failure::of_read)?;
        }
        let families = table.families_of_dead_cells();
        let families: Vec<&str> = families.iter().map(String::as_str).collect();
        self.compact_table(table, Some(&families), true).await
    }
}

impl HbaseTable {
    /// Deletes the guards that were found at least `pause` ago, unless they have changed. A guard
    /// whose deletion fails is found again.
    async fn drop_guards(&self, pause: Duration) {
        let ripe = |empty: &mut Empty| empty.found_at.elapsed() >= pause;
        let Some(empty) = locked(&self.upkeep).empty.take_if(ripe) else { return };
        let drops = empty.rows.into_iter().map(|(row, guard)| self.drop_guard(row, guard));
        let drops: Vec<_> = drops.collect();
        let results: Vec<Result<()>> = stream::iter(drops).buffered(AT_ONCE).collect().await;
        let failed: Vec<bigtable::Error> = results.into_iter().filter_map(Result::err).collect();
        if let Some(error) = failed.first() {
            tracing::warn!(
                table = self.name(), failed = failed.len(), %error,
                "guards of empty rows could not be dropped: a later round tries again"
            );
        }
    }

    async fn drop_guard(&self, row: Bytes, guard: Bytes) -> Result<()> {
        let request = |region: &Region| MultiRequest {
            region_action: vec![RegionAction {
                region: RegionSpecifier::named(&region.name),
                atomic: Some(true),
                action: vec![Action {
                    index: Some(0),
                    mutation: Some(encode::deleted_guard(&row)),
                    get: None,
                }],
                condition: Some(has_guard(&row, &guard)),
            }],
        };
        let (place, until) = ((self.id(), &row[..]), self.client().deadline());
        let sent: Result<(MultiResponse, _), Failure> =
            self.client().on_region(place, "Multi", request, false, until).await;
        match sent {
            // With a lost answer the guard may be there or not. Both are sound.
            Ok(_) | Err(Failure::Lost(_)) => Ok(()),
            Err(failure) => Err(failure.of_mutation()),
        }
    }

    /// Looks at the next rows of the table, and remembers those that are empty.
    async fn find_empty_rows(&self) -> Result<(), Failure> {
        let mut next = locked(&self.upkeep).next.clone();
        let (mut empty, mut looked) = (Vec::new(), 0);
        while looked < ROWS_MAX {
            let range = RowRange {
                start: Bound::Included(RowKey::from(next.clone())),
                end: Bound::Unbounded,
            };
            let guards = Scan { column: vec![encode::guard_column()], ..Scan::default() };
            let (guards, rest) = self.page(guards, &range).await?;
            looked += guards.len().max(1);
            if let (Some((first, _)), Some((last, _))) = (guards.first(), guards.last()) {
                let there = self.rows_with_cells(first, last).await?;
                let found = guards.iter().filter(|(row, _)| !there.contains(row));
                empty.extend(
                    found.filter_map(|(row, cells)| {
                        Some((row.clone(), cells.first()?.value.clone()))
                    }),
                );
            }
            next = match rest {
                Some(RowRange { start: Bound::Included(row), .. }) => row.to_bytes(),
                Some(RowRange { start: Bound::Excluded(row), .. }) => {
                    [row.as_bytes(), &[0]].concat().into()
                }
                // The table's end: the next round begins anew.
                Some(_) | None => Bytes::new(),
            };
            if next.is_empty() {
                break;
            }
        }
        let empty = Empty { rows: empty, found_at: Instant::now() };
        let mut upkeep = locked(&self.upkeep);
        (upkeep.next, upkeep.empty) = (next, Some(empty));
        Ok(())
    }

    /// The rows between two that have cells beside their guards.
    async fn rows_with_cells(
        &self,
        first: &Bytes,
        last: &Bytes,
    ) -> Result<BTreeSet<Bytes>, Failure> {
        let column =
            |of: &bigtable::Family| Column { family: encode::family(of), qualifier: Vec::new() };
        let families = self.schema().groups.iter().flat_map(|group| &group.families);
        let column: Vec<Column> = families.map(|of| column(&of.family)).collect();
        let filter = Some(encode::first_key_alone());
        let scan = Scan { column, filter, ..Scan::default() };
        let mut rows = BTreeSet::new();
        let mut range = Some(RowRange {
            start: Bound::Included(RowKey::from(first.clone())),
            end: Bound::Included(RowKey::from(last.clone())),
        });
        while let Some(wanted) = range {
            let (found, rest) = self.page(scan.clone(), &wanted).await?;
            rows.extend(found.into_iter().map(|(row, _)| row));
            range = rest;
        }
        Ok(rows)
    }

    async fn page(
        &self,
        scan: Scan,
        range: &RowRange,
    ) -> Result<(Vec<crate::scan::Found>, Option<RowRange>), Failure> {
        let limit = PageLimit { rows_max: PAGE_ROWS, ..PageLimit::default() };
        let rows = Rows { client: self.client(), table: self.id(), scan };
        rows.page(range, limit, HbaseTable::split).await
    }
}
