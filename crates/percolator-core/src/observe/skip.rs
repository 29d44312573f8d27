//! Skips a change: an operator decides that an observer need not handle a change on which it
//! keeps failing.
//!
//! For a strong observer, skipping acknowledges the change in a transaction like that of a
//! run. If a skip and a run overlap, only one of them commits. A later change makes the cell
//! dirty again. A change that is newer than the failure has not been tried yet, so it is not
//! acknowledged.
//!
//! After the acknowledgement the notification comes back, and the next worker that sees it
//! clears it as usual. If other observers failed on the change too, it stays set aside for
//! them.
//!
//! Weak observers have no acknowledgements, so their notification is deleted.

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

/// Makes an observer skip a change that was set aside. Returns `false` if the change is no
/// longer set aside for this observer.
pub(crate) async fn skip(shared: &Arc<Shared>, aside: &SetAside) -> Result<bool> {
    let table = shared.table(&aside.table).await?;
    let Some(others) = others_of(&table, aside).await? else { return Ok(false) };
    let schema = shared.learn_schema().await?;
    let mut of_column = schema.of(&aside.table, &aside.column);
    // A retired observer is not in the schema, and there is nothing to acknowledge.
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

/// The other observers that failed on the change. `None` if it is not set aside for this one.
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

/// Acknowledges the change, unless a newer one has been committed since.
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
            // Another transaction is writing or acknowledging the cell: try again.
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
