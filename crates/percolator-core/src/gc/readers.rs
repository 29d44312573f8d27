//! Finds the oldest timestamp of the past that is still read: open timestamps of this client,
//! and registrations of other clients.
//!
//! Within a client, every transaction and snapshot holds an `Open` (`txn/open_readers.rs`).
//! The `Open` is created before the oracle gets the request for the timestamp. It lasts until
//! the transaction or snapshot is dropped, or until the commit has ended.
//!
//! Between clients of one store, a row of the system table names a client's oldest open
//! timestamp. On a store with a floor, only a client that collects in the background
//! registers. A client writes a registration only if a timestamp has been open for a while, or
//! if a snapshot is held (`hold.rs`). So short transactions, which are younger than the
//! retention, cost nothing.
//!
//! A registration that is not renewed is judged like a lock (H18). It has lapsed when its
//! client's liveness token is gone. It has also lapsed when it stayed unchanged for longer
//! than its lifetime on the judge's own monotonic clock.
//!
//! Invariant: registrations only keep readers from failing. The store's floor turns a read
//! below the safe point into an error instead of a wrong answer (H35). On a store without a
//! floor the reader checks this itself (`unfenced.rs`), and a lost token does not end a
//! registration.

use std::collections::BTreeSet;
use std::sync::Arc;

use bigtable::{
    ConditionalMutation, Mutation, PageLimit, Probe, RowKey, RowRange, Selection, TimeRange,
    Timestamp,
};
use bytes::Bytes;

use crate::gc::registration::{Beat, LIFETIME, PREFIX, QUALIFIER, client_of, row_of};
use crate::records::layout::SYSTEM;
use crate::shared::Shared;
use crate::{Incarnation, OldestReader, Result};

/// Writes, renews or removes this client's registration. Registers only timestamps that were
/// already open at `before`, an earlier answer of the oracle, unless a snapshot is held.
pub(super) async fn renew_registration(
    shared: &Arc<Shared>,
    before: Timestamp,
    count: u64,
) -> Result<()> {
    let of = shared.clone();
    shared.collection().in_turn(async move { renew(&of, before, count).await }).await
}

async fn renew(shared: &Shared, before: Timestamp, count: u64) -> Result<()> {
    let oldest = shared.readers().oldest(shared.oracle().peek().await?);
    let wanted = oldest.filter(|oldest| *oldest <= before || shared.readers().is_held());
    let row = row_of(shared.incarnation());
    let lifetime_ms = u32::try_from(LIFETIME.as_millis()).unwrap_or(u32::MAX);
    let new = wanted.map(|oldest| Beat { oldest, lifetime_ms, count }.encode());
    let mutation = match &new {
        None if shared.collection().registered().is_none() => return Ok(()),
        Some(beat) => Mutation::set(SYSTEM, QUALIFIER, Timestamp::ZERO, beat.clone()),
        None => Mutation::delete(SYSTEM, QUALIFIER, TimeRange::ALL),
    };
    let request =
        ConditionalMutation { otherwise: vec![mutation], ..ConditionalMutation::new(row) };
    shared.system().check_and_mutate_row(request).await?;
    *shared.collection().registered() = new;
    Ok(())
}

/// The fate of registrations that have lapsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lapsed {
    /// They are removed: a round is about to collect.
    AreRemoved,
    /// They stay: the caller only reads.
    Stay,
}

/// Returns the clients that read the past: this one from its memory, the others from their
/// registrations.
pub(super) async fn oldest_readers(
    shared: &Shared,
    latest: Timestamp,
    lapsed: Lapsed,
) -> Result<Vec<OldestReader>> {
    let removes = lapsed == Lapsed::AreRemoved;
    let own = shared.incarnation();
    let mut readers = Vec::new();
    let registrations = registrations(shared).await?;
    let known: BTreeSet<Incarnation> = registrations.iter().map(|(_, c, _)| *c).collect();
    shared.collection().watched().0.retain(|client, _| known.contains(client));
    for (row, client, value) in registrations {
        if client == own {
            continue;
        }
        let beat = Beat::decode(&value)?;
        let now = shared.runtime().now();
        let lapsed = shared.collection().watched().lapsed(client, &value, &beat, now);
        // Without a floor, a token lost by mistake would give a living reader a wrong answer.
        let unfenced = shared.unfenced().is_some();
        if !lapsed && (unfenced || shared.locks().is_alive(client).await?) {
            readers.push(OldestReader { client, oldest: beat.oldest });
            continue;
        }
        if !removes {
            continue;
        }
        shared.collection().watched().0.remove(&client);
        // Conditional on this exact value, because the client may have renewed it meanwhile.
        let seen = Probe::new(SYSTEM, QUALIFIER, TimeRange::ALL).with_value_prefix(value);
        let request = ConditionalMutation {
            predicate: vec![seen],
            then: vec![Mutation::delete(SYSTEM, QUALIFIER, TimeRange::ALL)],
            ..ConditionalMutation::new(row)
        };
        shared.system().check_and_mutate_row(request).await?;
    }
    // Last, because any timestamp that this client opens later is above `latest`.
    let open = shared.readers().oldest(latest);
    readers.extend(open.map(|oldest| OldestReader { client: own, oldest }));
    Ok(readers)
}

async fn registrations(shared: &Shared) -> Result<Vec<(RowKey, Incarnation, Bytes)>> {
    let select = Selection::default().column(SYSTEM, QUALIFIER, TimeRange::ALL, 1);
    let mut found = Vec::new();
    let mut left = Some(RowRange::prefix(PREFIX));
    while let Some(range) = left {
        let page = shared.system().scan(&range, &select, PageLimit::default()).await?;
        for row in page.rows {
            if let (Some(client), Some(cell)) = (client_of(&row.key), row.cells.first()) {
                found.push((row.key.clone(), client, cell.value.clone()));
            }
        }
        left = page.resume;
    }
    Ok(found)
}
