//! Expiry: rows of the trace that are too old are deleted, from the oldest on.

use std::time::Duration;

use bigtable::{
    Mutation, PageLimit, Row, RowKey, RowMutation, RowRange, Selection, Syncing, Table, TimeRange,
};

use crate::Result;
use crate::records::layout::SYSTEM;
use crate::shared::Shared;
use crate::trace::queue::Trace;
use crate::trace::rows::{
    BUCKET_BITS, ENTRIES, SHARDS, TIME, bucket_of, bucket_of_row, open_existing,
};

/// The trace of how many timestamps is kept, as a power of two, where everything is traced.
const KEPT_BITS: u32 = 21;
/// For how long a row is kept at most.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);
/// How often a client sweeps, if it traces anything meanwhile.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// How many rows are read at a time.
const ROWS_MAX: usize = 64;

/// Where the sweeps of a client have ended.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    /// When the last one ended.
    last: Option<Duration>,
    /// The first row of each shard that was young.
    young: Vec<Option<RowKey>>,
}

impl Sweeper {
    /// Deletes the rows that are too old, if it is time for that.
    pub(super) async fn sweep(&mut self, shared: &Shared, trace: &Trace) -> Result<()> {
        let now = shared.runtime().now();
        if self.last.is_some_and(|last| now.saturating_sub(last) < SWEEP_EVERY) {
            return Ok(());
        }
        self.last = Some(now);
        let Some(table) = open_existing(&*shared.services().store).await? else { return Ok(()) };
        let kept = (1 << (KEPT_BITS - BUCKET_BITS)) * trace.sampling().one_of();
        // Issues none.
        let latest = bucket_of(shared.oracle().peek().await?);
        let old = Old {
            below: latest.saturating_sub(kept),
            before_ms: shared.runtime().wall_ms().saturating_sub(KEPT_FOR.as_millis() as u64),
        };
        self.young.resize(SHARDS.into(), None);
        for shard in 0..SHARDS {
            let from = self.young[usize::from(shard)].take();
            let young = sweep_shard(shared, &*table, (shard, from), &old).await?;
            self.young[usize::from(shard)] = young;
        }
        Ok(())
    }
}

/// Which rows are too old.
struct Old {
    below: u64,
    before_ms: u64,
}

impl Old {
    fn is(&self, row: &Row) -> bool {
        let time = row.cells.first().and_then(|cell| cell.value[..].try_into().ok());
        let written_ms = time.map_or(0, u64::from_be_bytes);
        bucket_of_row(&row.key).is_none_or(|bucket| bucket < self.below)
            || written_ms < self.before_ms
    }
}

/// Deletes the rows of a shard from one on that are too old. Returns the first that is not.
async fn sweep_shard(
    shared: &Shared,
    table: &dyn Table,
    (shard, from): (u8, Option<RowKey>),
    old: &Old,
) -> Result<Option<RowKey>> {
    let mut range = RowRange::prefix(vec![shard]);
    if let Some(from) = from {
        range.start = std::ops::Bound::Included(from);
    }
    let select = Selection::default().column(SYSTEM, TIME, TimeRange::ALL, 1);
    let limit = PageLimit { rows_max: ROWS_MAX, ..PageLimit::default() };
    let mut left = Some(range);
    while let Some(range) = left {
        let page = table.scan(&range, &select, limit).await?;
        shared.take_turn(page.rows.len()).await;
        for row in page.rows {
            if !old.is(&row) {
                return Ok(Some(row.key));
            }
            let delete = |qualifier| Mutation::delete(SYSTEM, qualifier, TimeRange::ALL);
            let request = RowMutation::new(row.key).sync(Syncing::MayBeLost);
            let request = request.mutation(delete(ENTRIES)).mutation(delete(TIME));
            table.mutate_row(request).await?;
        }
        left = page.resume;
    }
    Ok(None)
}
