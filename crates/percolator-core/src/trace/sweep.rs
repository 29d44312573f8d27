//! Deletes rows of the trace that are too old or too many, from the oldest on.
//!
//! A cell of its own holds the time at which a row was written and its number of transactions.
//! So counting reads a few bytes of each row. Timestamps cannot be counted instead, because
//! each process that opens a store skips up to a million of them.

use std::collections::BTreeMap;
use std::time::Duration;

use bigtable::{
    Mutation, PageLimit, Row, RowKey, RowMutation, RowRange, Selection, Syncing, Table, TimeRange,
};
use bytes::{BufMut, Bytes, BytesMut};

use crate::records::codec::Reader;
use crate::records::layout::{SYSTEM, find_system};
use crate::shared::Shared;
use crate::trace::rows::{ENTRIES, SHARDS, TABLE, TIME, bucket_of_row};
use crate::{Result, Runtime};

/// How many transactions are kept.
const KEPT_MAX: u64 = 1 << 20;
/// For how long a row is kept at most.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);
/// How often a client sweeps, if it traces anything meanwhile.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// After this many transactions of its own, a client counts those of all clients.
const COUNT_EVERY: u64 = 1 << 14;
/// How many rows are read at a time.
const ROWS_MAX: usize = 256;

/// Where the sweeps of a client have ended.
#[derive(Debug)]
pub(super) struct Sweeper {
    /// When the last sweep began.
    last: Option<Duration>,
    /// The first row of each shard that the last sweep kept.
    young: Vec<Option<RowKey>>,
    /// How many transactions this client has written since it counted those of all.
    uncounted: u64,
    /// Rows of buckets before this one are too many.
    below: u64,
}

impl Sweeper {
    /// Creates a sweeper that begins at a random point between two counts. So some of many
    /// short-lived clients count.
    pub(super) fn new(runtime: &dyn Runtime) -> Self {
        let uncounted = runtime.random() % COUNT_EVERY;
        Sweeper { last: None, young: vec![None; SHARDS.into()], uncounted, below: 0 }
    }

    /// Deletes the rows that are too old or too many, if it is time for that. `written` is the
    /// number of transactions that this client has written since the last call.
    pub(super) async fn sweep(&mut self, shared: &Shared, written: u64) -> Result<()> {
        self.uncounted += written;
        let now = shared.runtime().now();
        if self.last.is_some_and(|last| now.saturating_sub(last) < SWEEP_EVERY) {
            return Ok(());
        }
        self.last = Some(now);
        let store = &*shared.services().store;
        let Some(table) = find_system(store, TABLE).await? else { return Ok(()) };
        if self.uncounted >= COUNT_EVERY {
            self.below = first_kept(&count(shared, &*table).await?, KEPT_MAX);
            self.uncounted = 0;
        }
        let now_ms = shared.runtime().wall_ms();
        let before_ms = now_ms.saturating_sub(KEPT_FOR.as_millis() as u64);
        let old = Old { below: self.below, before_ms };
        for (shard, young) in (0..SHARDS).zip(&mut self.young) {
            *young = sweep_shard(shared, &*table, (shard, young.take()), &old).await?;
        }
        Ok(())
    }
}

/// The cell that says when a row is written, and how many transactions it holds.
pub(super) fn time_of(wall_ms: u64, transactions: u64) -> Bytes {
    let mut out = BytesMut::with_capacity(16);
    out.put_u64(wall_ms);
    out.put_u64(transactions);
    out.freeze()
}

/// When a row was written, and how many transactions it holds; zeros if that is damaged.
fn read_time(row: &Row) -> (u64, u64) {
    let mut reader =
        Reader::new(&row.cells.first().map(|cell| cell.value.clone()).unwrap_or_default());
    reader.u64().zip(reader.u64()).unwrap_or_default()
}

/// Which rows are too old or too many.
struct Old {
    below: u64,
    before_ms: u64,
}

impl Old {
    fn is(&self, row: &Row) -> bool {
        let (written_ms, _) = read_time(row);
        bucket_of_row(&row.key).is_none_or(|bucket| bucket < self.below)
            || written_ms < self.before_ms
    }
}

/// Counts the transactions of each bucket.
async fn count(shared: &Shared, table: &dyn Table) -> Result<BTreeMap<u64, u64>> {
    let mut counts = BTreeMap::new();
    let select = Selection::default().column(SYSTEM, TIME, TimeRange::ALL, 1);
    let mut left = Some(RowRange::all());
    while let Some(range) = left {
        let page = table.scan(&range, &select, PageLimit::default()).await?;
        shared.take_turn(page.rows.len()).await;
        for row in &page.rows {
            let (_, transactions) = read_time(row);
            let bucket = bucket_of_row(&row.key).unwrap_or_default();
            *counts.entry(bucket).or_default() += transactions.max(1);
        }
        left = page.resume;
    }
    Ok(counts)
}

/// Returns the first bucket to keep, so that the kept buckets hold at most `kept_max`
/// transactions.
fn first_kept(counts: &BTreeMap<u64, u64>, kept_max: u64) -> u64 {
    let (mut kept, mut first) = (0, u64::MAX);
    for (bucket, transactions) in counts.iter().rev() {
        kept += transactions;
        if kept > kept_max {
            return first;
        }
        first = *bucket;
    }
    0
}

/// Deletes the rows of a shard, from one on, that are too old or too many. Returns the first that
/// is neither.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_buckets_are_kept_as_far_as_there_is_room() {
        let counts = BTreeMap::from([(3, 40), (5, 30), (9, 30)]);
        let first = |kept_max| first_kept(&counts, kept_max);
        assert_eq!([first(100), first(99), first(60), first(59)], [0, 5, 5, 9]);
        assert_eq!(first(29), u64::MAX, "one bucket alone is too many");
        assert_eq!(first_kept(&BTreeMap::new(), 0), 0);
    }
}
