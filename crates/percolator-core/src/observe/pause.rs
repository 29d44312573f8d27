//! Pauses observers by a mark in the schema, so that every worker of every process knows of
//! it.
//!
//! A pause must neither lose a change nor handle one twice:
//!
//! * **When workers know.** Storing the mark makes a new version of the schema. The oracle's
//!   version is raised before [`pause_observer`](crate::Client::pause_observer) returns, as
//!   for a registration (H59). A run first asks for its timestamp, and the version comes with
//!   the timestamp. So a run that begins later sees the mark and does nothing. A run that
//!   already had its timestamp may still commit.
//! * **Notifications.** A notification is cleared when every observer that the schema names
//!   has acknowledged (H53). A paused observer acknowledges nothing, so its cells stay
//!   notified, whichever process runs the other observers of the column.
//! * **Afterwards.** Pausing does not touch acknowledgements. After
//!   [`resume_observer`](crate::Client::resume_observer) a cell is dirty exactly if it changed
//!   since the observer's last run (H50 to H52). One run handles all changes made meanwhile.
//! * **Weak observers** have no acknowledgements, and share the one notification of a cell.
//!   While one is paused, all weak observers of its column are. Otherwise the others would run
//!   for one notification again and again.
//! * **No busy loop.** Scans leave out columns whose observers are all paused, and a hint for
//!   them is dropped. A cell that the other observers of this process have handled rests
//!   (`resting`) until the schema changes. A pass reads the schema while any observer is
//!   paused, so it learns when the pause ends.

use bigtable::Timestamp;

use crate::observe::register::{acknowledged, change_schema};
use crate::records::column::Cell;
use crate::records::schema::{Observed, Schema};
use crate::shared::Shared;
use crate::txn::get::{Patience, read_acknowledged};
use crate::{Column, Result};

/// Marks all registrations of an observer as paused, or removes the mark. Returns how many
/// registrations have that name.
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
/// A missing or old acknowledgement does not always mean work: the cell may have no change at
/// all. It may be notified nevertheless, by a transaction that aborted or by the sweep for a
/// new observer.
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
    let acked = |ack| of(ack).and_then(acknowledged);
    Ok(of(&cell.column).is_none_or(|changed| {
        acks.iter().all(|ack| acked(ack).is_some_and(|acked| acked >= changed.commit_ts))
    }))
}
