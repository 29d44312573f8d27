//! Begins transactions and snapshots: takes their timestamp and registers it as open, so that
//! collection keeps its versions.

use std::sync::Arc;

use bigtable::Timestamp;
use tracing::field::Empty;

use crate::gc::unfenced::hold_past;
use crate::mutants::{self, off};
use crate::shared::Shared;
use crate::txn::watched::Watched;
use crate::{Error, Result, Snapshot, Transaction};

/// The span of a transaction, from before its timestamp is requested until its commit has
/// ended.
pub(crate) fn span(name: Option<&Arc<str>>, attempt: u32) -> tracing::Span {
    tracing::debug_span!(
        target: "percolator::transaction", "percolator.transaction", name = name.map(|name| &**name),
        attempt, start_ts = Empty, commit_ts = Empty,
    )
}

/// Begins a transaction with a name, which a watcher and a trace show.
pub(crate) async fn begin(shared: &Arc<Shared>, name: Option<&Arc<str>>) -> Result<Transaction> {
    begin_in(shared, name, span(name, 1)).await
}

/// Works like [`begin`], in a span of the caller.
pub(crate) async fn begin_in(
    shared: &Arc<Shared>,
    name: Option<&Arc<str>>,
    span: tracing::Span,
) -> Result<Transaction> {
    shared.take_turn(0).await;
    shared.check_open()?;
    let watched = Watched::begin(shared, name);
    let starting = shared.readers().starting();
    let stamp = shared.oracle().timestamp().await?;
    let open = starting.moved_to(stamp.timestamp);
    // This costs nothing unless observers were registered meanwhile. `notify` must know of
    // them.
    shared.schema(stamp.schema_version).await?;
    shared.counters().begun.bump();
    span.record("start_ts", stamp.timestamp.as_u64());
    let mut tx = Transaction::new(shared.clone(), stamp, open);
    (tx.watched, tx.span) = (watched, span);
    Ok(tx)
}

/// A read-only view of the data as it was at `ts`.
pub(crate) async fn snapshot_at(shared: &Arc<Shared>, ts: Timestamp) -> Result<Snapshot> {
    shared.check_open()?;
    let latest = shared.oracle().peek().await?;
    if ts > latest && !off(mutants::FUTURE_IS_READ) {
        return Err(Error::NotIssued { asked: ts, latest });
    }
    // Open the timestamp before the floor is read, so that every later collection round sees
    // it.
    let open = shared.readers().at(ts);
    if shared.unfenced().is_some() {
        hold_past(shared, ts).await?;
        return Ok(Snapshot::new(shared.clone(), ts, open));
    }
    let floor = shared.services().store.floor();
    if ts < floor {
        return Err(Error::TooOld { asked: ts, floor });
    }
    Ok(Snapshot::new(shared.clone(), ts, open))
}

/// A read-only view of the data as of the latest timestamp issued. Issues no timestamp itself.
pub(crate) async fn snapshot(shared: &Arc<Shared>) -> Result<Snapshot> {
    shared.check_open()?;
    let starting = shared.readers().starting();
    let latest = shared.oracle().peek().await?;
    Ok(Snapshot::new(shared.clone(), latest, starting.moved_to(latest)))
}
