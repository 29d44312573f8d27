//! Looks up entries of the trace, by the timestamp of a transaction or of a change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bigtable::{PageLimit, RowRange, Selection, Table, TimeRange, Timestamp};
use bytes::Bytes;

use crate::Result;
use crate::records::layout::{SYSTEM, find_system};
use crate::shared::Shared;
use crate::trace::record::{Entry, Link, TraceRecord, commits, decode};
use crate::trace::rows::{ENTRIES, TABLE, bucket_of, prefix_of};

/// How many buckets are cached while one request is answered.
const BUCKETS_MAX: usize = 64;

/// Finds transactions and the runs that they set off. Caches the buckets that it reads.
pub(super) struct Finder<'s> {
    shared: &'s Shared,
    /// `None` if no client has ever written a trace.
    table: Option<Arc<dyn Table>>,
    buckets: BTreeMap<u64, Bucket>,
}

#[derive(Debug, Default)]
struct Bucket {
    transactions: BTreeMap<Timestamp, TraceRecord>,
    links: BTreeMap<Timestamp, BTreeSet<Link>>,
}

impl<'s> Finder<'s> {
    pub(super) async fn open(shared: &'s Shared) -> Result<Self> {
        let table = find_system(&*shared.services().store, TABLE).await?;
        Ok(Finder { shared, table, buckets: BTreeMap::new() })
    }

    /// The transaction that committed at `ts`, or that began at `ts` and wrote nothing.
    pub(super) async fn transaction(&mut self, ts: Timestamp) -> Result<Option<&TraceRecord>> {
        Ok(self.bucket(ts).await?.transactions.get(&ts))
    }

    /// The runs that handled the changes of the transaction that committed at `ts`.
    pub(super) async fn set_off_by(
        &mut self,
        ts: Timestamp,
    ) -> Result<impl Iterator<Item = &Link>> {
        Ok(self.bucket(ts).await?.links.get(&ts).into_iter().flatten())
    }

    async fn bucket(&mut self, ts: Timestamp) -> Result<&Bucket> {
        let number = bucket_of(ts);
        if !self.buckets.contains_key(&number) {
            let bucket = self.read(number).await?;
            while self.buckets.len() >= BUCKETS_MAX {
                self.buckets.pop_first();
            }
            self.buckets.insert(number, bucket);
        }
        Ok(&self.buckets[&number])
    }

    async fn read(&self, number: u64) -> Result<Bucket> {
        let mut bucket = Bucket::default();
        let Some(table) = &self.table else { return Ok(bucket) };
        let add = |entries: &Bytes| decode(entries).for_each(|entry| bucket.add(entry));
        read_bucket(self.shared, &**table, number, add).await?;
        Ok(bucket)
    }
}

/// Adds to `traced` the transactions with a cause that is in the trace. `causes` has each cause
/// with a transaction, in order of the causes, so that each bucket is read once.
pub(super) async fn add_traced(
    shared: &Shared,
    table: &dyn Table,
    causes: Vec<(Timestamp, Timestamp)>,
    traced: &mut BTreeSet<Timestamp>,
) -> Result<()> {
    let mut last = None;
    for (cause, transaction) in causes {
        if traced.contains(&transaction) {
            continue;
        }
        let number = bucket_of(cause);
        let found = match last.take() {
            Some((of, found)) if of == number => found,
            _ => {
                let mut found = BTreeSet::new();
                read_bucket(shared, table, number, |entries| found.extend(commits(entries)))
                    .await?;
                found
            }
        };
        if found.contains(&cause) {
            traced.insert(transaction);
        }
        last = Some((number, found));
    }
    Ok(())
}

/// Reads the entries of each row of a bucket.
async fn read_bucket(
    shared: &Shared,
    table: &dyn Table,
    number: u64,
    mut each: impl FnMut(&Bytes),
) -> Result<()> {
    let select = Selection::default().column(SYSTEM, ENTRIES, TimeRange::ALL, 1);
    let mut left = Some(RowRange::prefix(prefix_of(number)));
    while let Some(range) = left {
        let page = table.scan(&range, &select, PageLimit::default()).await?;
        shared.take_turn(page.rows.len()).await;
        page.rows.iter().flat_map(|row| &row.cells).for_each(|cell| each(&cell.value));
        left = page.resume;
    }
    Ok(())
}

impl Bucket {
    fn add(&mut self, entry: Entry) {
        match entry {
            Entry::Transaction(record) => {
                self.transactions.insert(record.commit_ts, record);
            }
            Entry::Link(link) => {
                self.links.entry(link.cause).or_default().insert(link);
            }
        }
    }
}
