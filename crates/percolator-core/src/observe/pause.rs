//! Pausing observers: a mark in the schema, so that every worker of every process knows of it.
//!
//! The invariants that the mark touches, and why nothing is lost or done twice:
//!
//! * *When it is known.* Storing the mark makes a new version of the schema, and the oracle's
//!   version is raised before [`pause_observer`](crate::Client::pause_observer) returns, as for a
//!   registration (H59). A run asks for its timestamp first, and with the timestamp comes the
//!   version. So a run that begins later looks at the mark and does nothing. One that had its
//!   timestamp already may still commit.
//! * *Notifications.* A notification goes when every observer that the schema names has
//!   acknowledged (H53). A paused observer acknowledges nothing, so its cells stay notified,
//!   whoever runs the other observers of the column.
//! * *Afterwards.* Acknowledgements are not touched. After
//!   [`resume_observer`](crate::Client::resume_observer) a cell is dirty exactly if it changed
//!   since the observer's last run (H50 to H52): all changes made meanwhile are one run.
//! * *Weak observers* have no acknowledgements, and share the one notification of a cell. While one
//!   is paused, all weak observers of its column are, or the others would run for one notification
//!   again and again.
//! * *No loop.* Scans leave out columns whose observers are all paused, and a hint for them is
//!   dropped. A cell that other observers of this process have handled rests (`resting`) until the
//!   schema changes. A pass asks for the schema while anything is paused, so it learns of the end.

use bigtable::Timestamp;

use crate::observe::register::{acknowledged, change_schema};
use crate::records::column::Cell;
use crate::records::schema::{Observed, Schema};
use crate::shared::Shared;
use crate::txn::get::{Patience, read_acknowledged};
use crate::{Column, Result};

/// Marks all registrations of an observer as paused, or takes the mark away. Returns how many have
/// that name.
pub(crate) async fn set_paused(shared: &Shared, observer: &str, paused: bool) -> Result<usize> {
    let mut named = 0;
    change_schema(shared, |old| {
        let mut entries = old.entries.clone();
        let of_name = entries.iter_mut().filter(|(entry, _)| entry.observer == observer);
        named = of_name.map(|(_, state)| state.paused = paused).count();
        let changed = entries != old.entries;
        Ok(changed.then_some(Schema { version: old.version + 1, entries }))
    })
    .await?;
    Ok(named)
}

/// The registrations that are marked as paused.
pub(crate) async fn paused(shared: &Shared) -> Result<Vec<Observed>> {
    let entries = Schema::read(shared.system()).await?.entries.into_iter();
    Ok(entries.filter(|(_, state)| state.paused).map(|(entry, _)| entry).collect())
}

/// Whether strong observers have nothing to do for a cell at `s`.
///
/// For an observer that has nothing to do, a missing or old acknowledgement means no more than
/// that the cell has not changed since. It may be notified all the same: by a transaction that
/// aborted, or by the sweep for a new observer.
///
/// # Errors
/// [`Error::Locked`](crate::Error::Locked) when a writer or an observer is at work.
pub(super) async fn is_handled(
    shared: &Shared,
    cell: &Cell,
    observers: &[Observed],
    s: Timestamp,
) -> Result<bool> {
    let acks: Vec<_> = observers.iter().map(|of| cell.column.ack_of(&of.observer)).collect();
    let all: Vec<_> = acks.iter().chain([&cell.column]).cloned().collect();
    let Cell { table, row, .. } = cell;
    let versions = read_acknowledged(shared, table, row, &all, s, Patience::GiveUp).await?;
    let of = |column: &Column| versions.iter().find(|version| version.column == *column);
    let acked = |ack| of(ack).and_then(|version| acknowledged(version.value.as_deref()));
    Ok(of(&cell.column).is_none_or(|changed| {
        acks.iter().all(|ack| acked(ack).is_some_and(|acked| acked >= changed.commit_ts))
    }))
}
