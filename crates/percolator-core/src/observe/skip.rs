//! Skipping: an operator says that an observer need not handle a change that it keeps failing at.
//!
//! For a strong observer the change is acknowledged, in a transaction like that of a run: of a skip
//! and a run at the same time one commits, and whatever changes afterwards is dirty again. A change
//! that is newer than the failure was not tried yet, so it is not acknowledged. Then the
//! notification comes back, and the next worker that sees it clears it as any other; if further
//! observers failed at the change, it stays set aside for them.
//!
//! Weak observers have no acknowledgements: their notification is dropped.

use std::sync::Arc;
use std::time::Duration;

use bigtable::{Mutation, Selection, TimeRange};

use crate::observe::handle::acknowledge;
use crate::observe::set_aside::{SetAside, decode, encode, replace, replay_one};
use crate::records::column::Cell;
use crate::records::layout::FAILED;
use crate::records::schema::Strength;
use crate::runtime::Backoff;
use crate::shared::Shared;
use crate::txn::begin::begin;
use crate::{Error, Result, Table};

/// Has an observer never handle a change that was set aside; `false` if it is not set aside any
/// more.
pub(crate) async fn skip(shared: &Arc<Shared>, aside: &SetAside) -> Result<bool> {
    let table = shared.table(&aside.table).await?;
    let Some(others) = others_of(&table, aside).await? else { return Ok(false) };
    let schema = shared.learn_schema().await?;
    let mut of_column = schema.of(&aside.table, &aside.column);
    // One that is retired has no work left.
    let observed = of_column.find(|observed| observed.observer == aside.observer);
    let strong = observed.is_some_and(|observed| observed.strength == Strength::Strong);
    if strong {
        acknowledge_change(shared, &table, aside).await?;
    }
    let column = aside.column.to_bytes();
    if !others.is_empty() {
        let others = others.iter().map(|o| (o.attempts, &*o.observer, &*o.error));
        return replace(
            &table,
            aside,
            Mutation::set(FAILED, column, aside.notified, encode(others)),
        )
        .await;
    }
    if strong {
        return replay_one(shared, aside).await;
    }
    let gone = Mutation::delete(FAILED, column, TimeRange::at(aside.notified));
    replace(&table, aside, gone).await
}

/// The other observers that failed at the change; `None` if it is not set aside for this one.
async fn others_of(table: &Table, aside: &SetAside) -> Result<Option<Vec<SetAside>>> {
    let at = TimeRange::at(aside.notified);
    let select = Selection::default().column(FAILED, aside.column.to_bytes(), at, 1);
    let row = table.notify_store().read_row(&table.notify_key(&aside.row), &select).await?;
    let Some(cell) = row.cells.first() else { return Ok(None) };
    let all = decode(&aside.table, &aside.row, cell)?;
    let (own, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|entry| entry.observer == aside.observer);
    Ok((!own.is_empty()).then_some(others))
}

/// Acknowledges the change, unless a newer one was committed since.
async fn acknowledge_change(shared: &Arc<Shared>, table: &Table, aside: &SetAside) -> Result<()> {
    let cell = Cell::new(table, &aside.row, &aside.column);
    let mut backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(100));
    for last in (0..shared.options().attempts_max).rev().map(|more| more == 0) {
        let mut tx = begin(shared, None).await?;
        let done = match acknowledge(&mut tx, &cell, &aside.observer).await {
            Ok(Some(change)) if change.commit_ts <= aside.notified => tx.commit().await.map(drop),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        match done {
            // Somebody else writes or acknowledges at this moment.
            Err(error) if !last && (error.is_retryable() || is_locked(&error)) => {}
            done => return done,
        }
        shared.runtime().sleep(backoff.step(&**shared.runtime())).await;
    }
    Ok(())
}

fn is_locked(error: &Error) -> bool {
    matches!(error, Error::Locked { .. })
}
