//! Writes and reads status rows. Each process of a cluster describes itself in one, so that
//! one place can show all processes, whatever the store is.
//!
//! ```text
//! table percolator.status   row: the client   cell: system:status at timestamp zero
//! ```
//!
//! A status also counts the cells that the client's observers fail on, and the locks that the
//! client waits for. It names a few of each.
//!
//! A status is a raw row in a table of Percolator's own. It belongs to no transaction and
//! takes no timestamp, so waiting for idleness, observers and collection never see it. Nothing
//! depends on it: a write may be lost, fail or come late, and is not synced. Whether a client
//! lives is not in its row; its liveness token decides that. Living clients remove the rows of
//! dead ones.

use std::sync::Arc;
use std::time::Duration;

use bigtable::{
    Mutation, PageLimit, RowKey, RowMutation, RowRange, Selection, Syncing, Table, TimeRange,
    Timestamp,
};
use bytes::{BufMut, Bytes, BytesMut};

use crate::records::codec::{Reader, put_bytes16, start_of};
use crate::records::column::put_cell;
use crate::records::layout::{SYSTEM, find_system, open_system};
use crate::shared::Shared;
use crate::{CellName, Failing, Incarnation, LockWaiter, ProcessInfo, Result};

/// The table of the status rows.
const TABLE: &str = "percolator.status";
const QUALIFIER: &str = "status";
/// The format that this program writes. Rows in another format are ignored.
const FORMAT: u8 = 1;
/// How often a client writes its status.
const EVERY: Duration = Duration::from_secs(10);
/// When a client writes its status for the first time. A command that ends earlier leaves no
/// row.
const FIRST_AFTER: Duration = Duration::from_secs(1);
/// Every this many writes, a client also removes the rows of dead clients.
const SWEEP_EVERY: u64 = 30;
/// Largest size of a status in bytes.
const BYTES_MAX: usize = 1024;
/// How many bytes of each name are kept.
const NAME_BYTES_MAX: usize = 64;
/// How many bytes of each error are kept.
const ERROR_BYTES_MAX: usize = 80;
/// How many bytes of a status name failing cells.
const FAILING_BYTES_MAX: usize = 320;
/// How many bytes of a status name locks that the client waits for.
const WAITS_BYTES_MAX: usize = 160;
/// The counters that get their room first: lists of processes show them.
const COUNTERS_FIRST: [&str; 2] = ["committed", "observer_runs"];

/// How many failing cells and waits are copied, because each copy takes place under a mutex that
/// every run of an observer takes. Fewer than these fit.
const LISTED_MAX: usize = 16;

/// The status of a client.
///
/// See [`Client::statuses`](crate::Client::statuses).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The client.
    pub client: Incarnation,
    /// Whether the client's liveness token exists.
    pub alive: bool,
    /// Its process.
    pub process: ProcessInfo,
    /// When the client began, in milliseconds since 1970 by its own clock.
    pub since_ms: u64,
    /// When the client wrote the status, by the same clock.
    pub written_ms: u64,
    /// The observers that the client runs, as many as fit into the row.
    pub observers: Vec<String>,
    /// The client's counters since it began: names and values of [`Stats`](crate::Stats) that
    /// are not zero, as many as fit into the row.
    pub counters: Vec<(String, u64)>,
    /// How many cells its observers fail on and try again.
    pub failing_cells: u64,
    /// Some of them, with the beginning of each error.
    pub failing: Vec<Failing>,
    /// How many locks it waits for.
    pub lock_waits: u64,
    /// Some of them.
    pub waits: Vec<LockWaiter>,
}

/// Writes this client's status from now on, until it is closed or dropped. If it does so already,
/// only the account of its process is replaced.
pub(crate) fn publish(shared: &Arc<Shared>, process: ProcessInfo) {
    if shared.account().replace(process).is_some() {
        return;
    }
    let (client, runtime) = (shared.incarnation(), shared.runtime().clone());
    let since_ms = runtime.wall_ms();
    let shared = Arc::downgrade(shared);
    runtime.clone().spawn(Box::pin(async move {
        let mut pause = FIRST_AFTER;
        for round in 0u64.. {
            runtime.sleep(pause).await;
            pause = EVERY;
            // This task must not keep the client open.
            let Some(shared) = shared.upgrade().filter(|shared| shared.check_open().is_ok()) else {
                return;
            };
            let process = shared.account().read();
            let value = encode(&shared, &process, since_ms);
            if let Err(error) = beat(&shared, client, value, round % SWEEP_EVERY == 0).await {
                // No retry: the next write follows in ten seconds.
                tracing::debug!(target: "percolator::status", event = "status_error", %error);
            }
        }
    }));
}

/// The statuses of all clients that write one, in no particular order.
pub(crate) async fn statuses(shared: &Shared) -> Result<Vec<Status>> {
    let store = &*shared.services().store;
    let Some(table) = find_system(store, TABLE).await? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for (client, value) in rows(&*table).await? {
        let alive = shared.locks().is_alive(client).await?;
        found.extend(decode(client, alive, &value));
    }
    Ok(found)
}

/// The locks that are waited for, as far as this client and the living others say.
pub(crate) async fn lock_waiters(shared: &Shared) -> Result<Vec<LockWaiter>> {
    let mut waiters = shared.lock_waits().list(shared.runtime().now(), usize::MAX);
    waiters.extend(of_others(shared).await?.into_iter().flat_map(|status| status.waits));
    Ok(waiters)
}

/// The cells that observers fail on, as far as this client and the living others say.
pub(crate) async fn all_failing(shared: &Shared) -> Result<Vec<Failing>> {
    let mut failing = shared.failures().failing(shared.runtime().now(), usize::MAX);
    failing.extend(of_others(shared).await?.into_iter().flat_map(|status| status.failing));
    Ok(failing)
}

async fn of_others(shared: &Shared) -> Result<Vec<Status>> {
    let mut others = statuses(shared).await?;
    others.retain(|status| status.alive && status.client != shared.incarnation());
    Ok(others)
}

/// Writes the status. With `sweeps`, also removes the rows of clients whose tokens are gone.
async fn beat(shared: &Shared, client: Incarnation, value: Bytes, sweeps: bool) -> Result<()> {
    let table = open_system(&*shared.services().store, TABLE).await?;
    let set = Mutation::set(SYSTEM, QUALIFIER, Timestamp::ZERO, value);
    let row = |client: Incarnation| RowMutation::new(client.to_string()).sync(Syncing::MayBeLost);
    table.mutate_row(row(client).mutation(set)).await?;
    if !sweeps {
        return Ok(());
    }
    for (other, _) in rows(&*table).await? {
        // If the other client lives after all, it writes its row again.
        if other != client && !shared.locks().is_alive(other).await? {
            let delete = Mutation::delete(SYSTEM, QUALIFIER, TimeRange::ALL);
            table.mutate_row(row(other).mutation(delete)).await?;
        }
    }
    Ok(())
}

async fn rows(table: &dyn Table) -> Result<Vec<(Incarnation, Bytes)>> {
    let select = Selection::default().column(SYSTEM, QUALIFIER, TimeRange::ALL, 1);
    let (mut found, mut left) = (Vec::new(), Some(RowRange::all()));
    while let Some(range) = left {
        let page = table.scan(&range, &select, PageLimit::default()).await?;
        for row in page.rows {
            let value = row.cells.first().map(|cell| cell.value.clone());
            found.extend(client_of(&row.key).zip(value));
        }
        left = page.resume;
    }
    Ok(found)
}

fn client_of(row: &RowKey) -> Option<Incarnation> {
    let name = std::str::from_utf8(row.as_bytes()).ok()?;
    u128::from_str_radix(name, 16).ok().map(Incarnation)
}

fn encode(shared: &Shared, process: &ProcessInfo, since_ms: u64) -> Bytes {
    let mut out = BytesMut::with_capacity(BYTES_MAX);
    out.put_u8(FORMAT);
    out.put_u64(since_ms);
    out.put_u64(shared.runtime().wall_ms());
    out.put_u32(process.pid);
    for name in [&process.role, &process.host, &process.version] {
        put_bytes16(&mut out, start_of(name, NAME_BYTES_MAX).as_bytes());
    }
    let now = shared.runtime().now();
    let failing = shared.failures().failing(now, LISTED_MAX);
    let failing = part_of(shared.failures().len(), &failing, FAILING_BYTES_MAX, put_failing);
    let waits = shared.lock_waits().list(now, LISTED_MAX);
    let waits = part_of(shared.lock_waits().len(), &waits, WAITS_BYTES_MAX, put_wait);
    let mut tail = failing;
    tail.put_slice(&waits);
    let mut observers: Vec<_> = shared.hints().running().into_iter().map(|o| o.observer).collect();
    observers.dedup();
    finish(out, observers, shared.counters().read().entries(), &tail)
}

/// Writes as many observers and counters as there is room for before the tail: counters first.
fn finish(
    mut out: BytesMut,
    mut observers: Vec<String>,
    mut counters: Vec<(&'static str, u64)>,
    tail: &[u8],
) -> Bytes {
    let mut room = BYTES_MAX.saturating_sub(out.len() + tail.len() + 4);
    let mut fits = |size: usize| {
        let fits = size <= room;
        room -= if fits { size } else { 0 };
        fits
    };
    counters.sort_by_key(|(name, _)| !COUNTERS_FIRST.contains(name));
    counters.retain(|(name, value)| *value > 0 && fits(2 + name.len() + 8));
    observers.retain(|name| fits(2 + start_of(name, NAME_BYTES_MAX).len()));
    out.put_u16(observers.len() as u16);
    for name in &observers {
        put_bytes16(&mut out, start_of(name, NAME_BYTES_MAX).as_bytes());
    }
    out.put_u16(counters.len() as u16);
    for (name, value) in counters {
        put_bytes16(&mut out, name.as_bytes());
        out.put_u64(value);
    }
    out.put_slice(tail);
    debug_assert!(out.len() <= BYTES_MAX, "a status of {} bytes", out.len());
    out.freeze()
}

/// Encodes the number of all entries, the number of `listed` ones that fit into `bytes_max`, and
/// these.
fn part_of<T>(
    total: usize,
    listed: &[T],
    bytes_max: usize,
    put: fn(&mut BytesMut, &T),
) -> BytesMut {
    let (mut some, mut fit) = (BytesMut::new(), 0u16);
    for entry in listed {
        let before = some.len();
        put(&mut some, entry);
        if some.len() > bytes_max {
            some.truncate(before);
            continue;
        }
        fit += 1;
    }
    let mut out = BytesMut::with_capacity(some.len() + 10);
    // Some may have ended since they were listed.
    out.put_u64(total.max(listed.len()) as u64);
    out.put_u16(fit);
    out.put_slice(&some);
    out
}

fn put_failing(out: &mut BytesMut, failing: &Failing) {
    put_cell(out, &failing.table, &failing.row, &failing.column);
    put_bytes16(out, failing.observer.as_bytes());
    put_bytes16(out, start_of(&failing.error, ERROR_BYTES_MAX).as_bytes());
    out.put_u32(failing.attempts);
    out.put_u64(millis(failing.next_attempt));
}

fn failing(reader: &mut Reader) -> Option<Failing> {
    let CellName { table, row, column } = CellName::read(reader)?;
    let (observer, error) = (reader.string16()?, reader.string16()?);
    let (attempts, next_attempt) = (reader.u32()?, Duration::from_millis(reader.u64()?));
    Some(Failing { table, row, column, observer, attempts, error, next_attempt })
}

fn put_wait(out: &mut BytesMut, wait: &LockWaiter) {
    put_cell(out, &wait.cell.table, &wait.cell.row, &wait.cell.column);
    out.put_u64(wait.lock_ts.as_u64());
    out.put_u64(wait.at.as_u64());
    out.put_u64(millis(wait.waited));
}

fn wait(reader: &mut Reader) -> Option<LockWaiter> {
    let cell = CellName::read(reader)?;
    let (lock_ts, at) = (Timestamp::new(reader.u64()?)?, Timestamp::new(reader.u64()?)?);
    Some(LockWaiter { cell, lock_ts, at, waited: Duration::from_millis(reader.u64()?) })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Reads the number of all entries, and the entries that fit. An older program wrote neither.
fn entries<T>(reader: &mut Reader, entry: fn(&mut Reader) -> Option<T>) -> Option<(u64, Vec<T>)> {
    if reader.is_empty() {
        return Some((0, Vec::new()));
    }
    let (all, fit) = (reader.u64()?, reader.u16()?);
    Some((all, (0..fit).map(|_| entry(reader)).collect::<Option<_>>()?))
}

/// Decodes a status; `None` if the row has another format.
fn decode(client: Incarnation, alive: bool, value: &Bytes) -> Option<Status> {
    let mut reader = Reader::new(value);
    if reader.u8()? != FORMAT {
        return None;
    }
    let (since_ms, written_ms, pid) = (reader.u64()?, reader.u64()?, reader.u32()?);
    let (role, host, version) = (reader.string16()?, reader.string16()?, reader.string16()?);
    let process = ProcessInfo { role, host, pid, version };
    let observers = (0..reader.u16()?).map(|_| reader.string16()).collect::<Option<_>>()?;
    let counters = (0..reader.u16()?).map(|_| Some((reader.string16()?, reader.u64()?)));
    let counters = counters.collect::<Option<_>>()?;
    let (failing_cells, failing) = entries(&mut reader, failing)?;
    let (lock_waits, waits) = entries(&mut reader, wait)?;
    Some(Status {
        client,
        alive,
        process,
        since_ms,
        written_ms,
        observers,
        counters,
        failing_cells,
        failing,
        lock_waits,
        waits,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The head, the failing cells and the waits are as long as they can be, and no counter is
    /// zero.
    #[test]
    fn a_status_has_its_bound_whatever_it_says() {
        let mut head = BytesMut::new();
        head.put_u8(FORMAT);
        head.put_bytes(0, 8 + 8 + 4);
        for _ in 0..3 {
            put_bytes16(&mut head, &[b'x'; NAME_BYTES_MAX]);
        }
        let mut tail = BytesMut::new();
        for bytes in [FAILING_BYTES_MAX, WAITS_BYTES_MAX] {
            tail.put_bytes(0, 8 + 2 + bytes);
        }
        let counters: Vec<_> =
            crate::Stats::default().entries().into_iter().map(|(name, _)| (name, 7)).collect();
        let all: usize = counters.iter().map(|(name, _)| 2 + name.len() + 8).sum();
        assert!(head.len() + tail.len() + 4 + all > BYTES_MAX, "not all counters fit");
        let observers = vec!["o".repeat(NAME_BYTES_MAX); 50];
        let status = finish(head, observers, counters, &tail);
        assert!((BYTES_MAX - 100..=BYTES_MAX).contains(&status.len()), "{}", status.len());
        let has = |name: &str| status.windows(name.len()).any(|bytes| bytes == name.as_bytes());
        assert!(COUNTERS_FIRST.into_iter().all(has));
    }
}
