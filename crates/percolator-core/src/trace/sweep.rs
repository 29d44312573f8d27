//! Deletes rows of the trace that are too old or too many, from the oldest on.
//!
//! A cell of its own holds the time at which a row was written and its number of transactions.
//! So counting reads a few bytes of each row. Timestamps cannot be counted instead, because
//! each process that opens a store skips up to a million of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bigtable::{
    ConditionalMutation, Mutation, PageLimit, Row, RowKey, RowRange, Selection, Syncing, Table,
    TimeRange,
};
use bytes::{BufMut, Bytes, BytesMut};
use futures::lock::Mutex;

use crate::records::codec::Reader;
use crate::records::layout::{SYSTEM, find_system};
use crate::shared::Shared;
use crate::trace::rows::{ENTRIES, SHARDS, TABLE, TIME, bucket_of_row};
use crate::{Error, Result, Runtime};

/// How many transactions are kept.
const KEPT_MAX: u64 = 1 << 20;
/// For how long a row is kept at most.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);
/// How often a client sweeps, if it traces anything meanwhile.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// How often a sweep passes over all rows. A run may handle an old change, and its entry then lies
/// behind the rows at which the sweeps have ended.
const WHOLE_EVERY: Duration = Duration::from_secs(3600);
/// After this many transactions of its own, a client counts those of all clients.
const COUNT_EVERY: u64 = 1 << 14;
/// How many rows are read at a time.
const ROWS_MAX: usize = 256;

/// The sweeps of a client. At most one goes on at a time.
#[derive(Debug)]
pub(super) struct Sweeper {
    /// When the last sweep began.
    last: Option<Duration>,
    /// How many transactions this client has written since then.
    written: u64,
    swept: Arc<Mutex<Swept>>,
}

/// Where the sweeps of a client have ended.
#[derive(Debug)]
struct Swept {
    /// The first row of each shard that the last sweep kept.
    young: Vec<Option<RowKey>>,
    /// When a sweep passes over all rows again.
    whole_at: Duration,
    /// How many transactions this client has written since it counted those of all.
    uncounted: u64,
    /// Rows of buckets before this one are too many.
    below: u64,
}

impl Sweeper {
    /// Creates a sweeper that begins at a random point between two counts. So some of many
    /// short-lived clients count.
    pub(super) fn new(runtime: &dyn Runtime) -> Self {
        let swept = Swept {
            young: vec![None; SHARDS.into()],
            whole_at: runtime.now() + WHOLE_EVERY,
            uncounted: runtime.random() % COUNT_EVERY,
            below: 0,
        };
        Sweeper { last: None, written: 0, swept: Arc::new(Mutex::new(swept)) }
    }

    /// Begins to delete the rows that are too old or too many, if it is time for that. This is a
    /// task of its own, so that writing does not wait for it. `written` is the number of
    /// transactions that this client has written since the last call.
    pub(super) fn sweep(&mut self, shared: &Arc<Shared>, written: u64) {
        self.written += written;
        let now = shared.runtime().now();
        if self.last.is_some_and(|last| now.saturating_sub(last) < SWEEP_EVERY) {
            return;
        }
        let Some(mut swept) = self.swept.try_lock_owned() else { return };
        self.last = Some(now);
        swept.uncounted += std::mem::take(&mut self.written);
        // The sweep must not keep the client open.
        let client = Arc::downgrade(shared);
        shared.runtime().spawn(Box::pin(async move {
            if let Err(error) = swept.sweep(&client).await {
                // The next sweep goes on where this one ended.
                tracing::debug!(target: "percolator::trace", event = "trace_not_swept", %error);
            }
        }));
    }
}

impl Swept {
    async fn sweep(&mut self, client: &Weak<Shared>) -> Result<()> {
        let shared = still_open(client)?;
        let (now, now_ms) = (shared.runtime().now(), shared.runtime().wall_ms());
        let found = find_system(&*shared.services().store, TABLE).await?;
        let Some(table) = found else { return Ok(()) };
        drop(shared);
        if self.uncounted >= COUNT_EVERY {
            self.below = first_kept(&count(client, &*table).await?, KEPT_MAX);
            self.uncounted = 0;
        }
        let before_ms = now_ms.saturating_sub(KEPT_FOR.as_millis() as u64);
        let old = Old { below: self.below, before_ms };
        let whole = now >= self.whole_at;
        for (shard, young) in (0..SHARDS).zip(&mut self.young) {
            let mut range = RowRange::prefix(vec![shard]);
            if let Some(from) = young.clone().filter(|_| !whole) {
                range.start = std::ops::Bound::Included(from);
            }
            let kept = delete_old(client, &*table, range, &old, whole).await?;
            if !whole {
                *young = kept;
            }
        }
        if whole {
            self.whole_at = now + WHOLE_EVERY;
        }
        Ok(())
    }
}

/// The client, unless it was closed or dropped.
fn still_open(client: &Weak<Shared>) -> Result<Arc<Shared>> {
    let shared = client.upgrade().ok_or(Error::Closed)?;
    shared.check_open()?;
    Ok(shared)
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
async fn count(client: &Weak<Shared>, table: &dyn Table) -> Result<BTreeMap<u64, u64>> {
    let mut counts = BTreeMap::new();
    let select = Selection::default().column(SYSTEM, TIME, TimeRange::ALL, 1);
    let mut left = Some(RowRange::all());
    while let Some(range) = left {
        let page = table.scan(&range, &select, PageLimit::default()).await?;
        still_open(client)?.take_turn(page.rows.len()).await;
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

/// Deletes the rows of a range that are too old or too many, up to the first that is neither; if
/// `whole`, all of them. Returns the first row that is neither.
async fn delete_old(
    client: &Weak<Shared>,
    table: &dyn Table,
    range: RowRange,
    old: &Old,
    whole: bool,
) -> Result<Option<RowKey>> {
    let select = Selection::default().column(SYSTEM, TIME, TimeRange::ALL, 1);
    let limit = PageLimit { rows_max: ROWS_MAX, ..PageLimit::default() };
    let (mut left, mut first) = (Some(range), None);
    while let Some(range) = left {
        let page = table.scan(&range, &select, limit).await?;
        still_open(client)?.take_turn(page.rows.len()).await;
        let mut requests = Vec::new();
        left = page.resume;
        for row in page.rows {
            if old.is(&row) {
                requests.push(deletion(row.key));
                continue;
            }
            first.get_or_insert(row.key);
            if !whole {
                left = None;
                break;
            }
        }
        for result in table.check_and_mutate_rows(requests).await {
            result?;
        }
    }
    Ok(first)
}

fn deletion(row: RowKey) -> ConditionalMutation {
    let delete = |qualifier| Mutation::delete(SYSTEM, qualifier, TimeRange::ALL);
    let (otherwise, sync) = (vec![delete(ENTRIES), delete(TIME)], Syncing::MayBeLost);
    ConditionalMutation { otherwise, sync, ..ConditionalMutation::new(row) }
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
