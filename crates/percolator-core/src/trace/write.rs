//! Writes the trace: a task of the client's runtime gathers waiting entries into rows.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bigtable::{Mutation, RowMutation, Syncing, Table, Timestamp};
use bytes::{BufMut, Bytes, BytesMut};
use futures::future::select;

use crate::Result;
use crate::records::layout::{SYSTEM, open_system};
use crate::shared::Shared;
use crate::trace::find::add_traced;
use crate::trace::queue::{Queued, Trace, Writing};
use crate::trace::rows::{ENTRIES, TABLE, TIME, row_of};
use crate::trace::sweep::{Sweeper, time_of};

/// How long entries are gathered before they are written.
const GATHERED_FOR: Duration = Duration::from_millis(500);
/// The most bytes of one row.
const ROW_BYTES_MAX: usize = 64 << 10;
/// How long the end of a client waits for the rest of its trace.
const FLUSHED_WITHIN: Duration = Duration::from_secs(2);

/// Writes a client's trace from now on, until the client is closed or dropped.
pub(crate) fn start(shared: &Arc<Shared>) {
    let Some(trace) = shared.trace().cloned() else { return };
    let runtime = shared.runtime().clone();
    let shared = Arc::downgrade(shared);
    runtime.clone().spawn(Box::pin(async move {
        let mut sweeper = Sweeper::new(&*runtime);
        loop {
            let rung = trace.bell.rung();
            // An idle client causes no wake-ups.
            if trace.is_empty() && shared.strong_count() > 0 {
                trace.bell.after(rung).await;
            }
            runtime.sleep(GATHERED_FOR).await;
            let Some(shared) = shared.upgrade().filter(|shared| shared.check_open().is_ok()) else {
                return;
            };
            let written = write(&shared, &trace).await;
            sweeper.sweep(&shared, written);
        }
    }));
}

/// Writes the waiting entries when a client is about to end. Also waits for a write in
/// progress. The entries that are left then are counted.
pub(crate) async fn flush(shared: &Shared) {
    let Some(trace) = shared.trace() else { return };
    select(pin!(write(shared, trace)), shared.runtime().sleep(FLUSHED_WITHIN)).await;
    shared.counters().trace_dropped.add(trace.end());
    // Wake the task, so that it ends.
    trace.wake();
}

/// Writes the waiting entries, and returns how many transactions were written. Rows that
/// cannot be written are counted and left out, because more entries would be waiting at the
/// next try.
async fn write(shared: &Shared, trace: &Trace) -> u64 {
    let mut writing = trace.writing.lock().await;
    decide_held(shared, trace, &mut writing).await;
    let mut left = Unwritten { shared, rows: rows(trace.take_ready()) };
    if left.rows.is_empty() {
        return 0;
    }
    let table = match table(shared, &mut writing).await {
        Ok(table) => table,
        Err(error) => {
            tracing::debug!(target: "percolator::trace", event = "trace_not_written", %error);
            return 0;
        }
    };
    let mut transactions = 0;
    while let Some((bucket, row)) = left.rows.last() {
        writing.number += 1;
        let written = write_row(shared, &*table, (*bucket, writing.number), row).await;
        let of_row = row.transactions;
        left.rows.pop();
        if let Err(error) = written {
            // The table is opened anew next time.
            writing.table = None;
            shared.counters().trace_dropped.add(of_row);
            tracing::debug!(target: "percolator::trace", event = "trace_not_written", %error);
        } else {
            transactions += of_row;
        }
    }
    transactions
}

/// The table, which stays open.
async fn table(shared: &Shared, writing: &mut Writing) -> Result<Arc<dyn Table>> {
    if let Some(table) = &writing.table {
        return Ok(table.clone());
    }
    let table = open_system(&*shared.services().store, TABLE).await?;
    Ok(writing.table.insert(table).clone())
}

/// Rows that are not written yet. Their transactions are counted if the write is given up.
struct Unwritten<'s> {
    shared: &'s Shared,
    rows: Vec<(u64, Gathered)>,
}

impl Drop for Unwritten<'_> {
    fn drop(&mut self) {
        let transactions = self.rows.iter().map(|(_, row)| row.transactions).sum();
        self.shared.counters().trace_dropped.add(transactions);
    }
}

/// A row that is being gathered.
#[derive(Debug, Default)]
struct Gathered {
    bytes: BytesMut,
    transactions: u64,
}

/// Gathers entries into rows, in the order in which they came.
fn rows(entries: Vec<Queued>) -> Vec<(u64, Gathered)> {
    let (mut full, mut open) = (Vec::new(), BTreeMap::<u64, Gathered>::new());
    for Queued { bucket, bytes, counts } in entries {
        let row = open.entry(bucket).or_default();
        if !row.bytes.is_empty() && row.bytes.len() + bytes.len() > ROW_BYTES_MAX {
            full.push((bucket, std::mem::take(row)));
        }
        row.bytes.put_slice(&bytes);
        row.transactions += u64::from(counts);
    }
    full.extend(open);
    full.reverse();
    full
}

async fn write_row(
    shared: &Shared,
    table: &dyn Table,
    (bucket, number): (u64, u64),
    gathered: &Gathered,
) -> bigtable::Result<()> {
    let time = time_of(shared.runtime().wall_ms(), gathered.transactions);
    let entries = Bytes::copy_from_slice(&gathered.bytes);
    let set = |qualifier, value| Mutation::set(SYSTEM, qualifier, Timestamp::ZERO, value);
    let row = RowMutation::new(row_of(bucket, shared.incarnation(), number));
    let row = row.mutation(set(ENTRIES, entries)).mutation(set(TIME, time));
    table.mutate_row(row.sync(Syncing::MayBeLost)).await
}

/// Decides on the transactions that are held back, by their causes in the table.
async fn decide_held(shared: &Shared, trace: &Trace, writing: &mut Writing) {
    let (causes, mut traced) = (trace.open_causes(), BTreeSet::new());
    let mut found = Ok(());
    if !causes.is_empty() {
        found = match table(shared, writing).await {
            Ok(table) => add_traced(shared, &*table, causes, &mut traced).await,
            Err(error) => Err(error),
        };
    }
    if let Err(error) = &found {
        writing.table = None;
        tracing::debug!(target: "percolator::trace", event = "causes_not_found", %error);
    }
    let unknown = trace.settle(&traced, found.is_ok(), shared.runtime().now());
    shared.counters().trace_dropped.add(unknown);
}
