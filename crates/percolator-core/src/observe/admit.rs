//! Admission: delays callers that bring in new work while observers are behind.
//!
//! A loader commits several times faster than observers run. Without a bound, a change that
//! another client makes meanwhile waits behind the whole load.
//!
//! * Changes of this client count if a hint waits for them and their workers have not been
//!   stopped. A hint is an entry in the queue of cells that this client has made dirty
//!   (`hints.rs`). A change that waits for anything else, such as an observer that no worker
//!   here runs, does not count.
//! * On a store that other processes use, the notifications in the store count too
//!   ([`Options::backlog_of_store`]). One caller looks for all callers of the client, at most
//!   every [`LOOK_EVERY`], and reads no more cells than the bound.
//!   Changes for an observer that gathers them for long do not count, if the client says so
//!   ([`Client::leave_out_of_backlog`]). The observer waits for the end of the load, so the load
//!   must not wait for the observer.
//! * Callers also wait while the fullest of the store's bounded in-memory groups, such as
//!   locks, is at least 80 % full.
//! * An observer never waits here: if all workers waited, the backlog could not drain (H74).
//!
//! [`Options::backlog_of_store`]: crate::Options::backlog_of_store
//! [`Client::leave_out_of_backlog`]: crate::Client::leave_out_of_backlog

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use bigtable::{PageLimit, RowRange, Selection, TimeRange};

use crate::mutants::{self, off};
use crate::records::layout::NOTIFY;
use crate::records::schema::Observed;
use crate::shared::Shared;
use crate::{Error, Result};

/// How often a waiting caller checks again.
const PAUSE: Duration = Duration::from_millis(2);
/// The shortest time between two looks at the store.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How full the store's bounded locality groups, locks and notifications, may be.
const PRESSURE_MAX: f64 = 0.8;

thread_local! {
    /// Whether this thread is polling an observer.
    static IN_OBSERVER: Cell<bool> = const { Cell::new(false) };
}

/// Sets `IN_OBSERVER`, and restores the value before it when dropped.
struct Mark(bool);

impl Mark {
    fn set() -> Self {
        Mark(IN_OBSERVER.replace(true))
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        IN_OBSERVER.set(self.0);
    }
}

/// Awaits an observer, and marks the thread as inside an observer at each poll.
pub(crate) async fn in_observer<T>(run: impl Future<Output = T>) -> T {
    let mut run = pin!(run);
    poll_fn(|context| {
        let _mark = Mark::set();
        run.as_mut().poll(context)
    })
    .await
}

/// Waits while too many changes wait for observers, or while the store is short of room for
/// new locks and notifications. A caller that brings in new work awaits this before each
/// piece.
pub(crate) async fn admit(shared: &Shared) -> Result<()> {
    if IN_OBSERVER.get() && !off(mutants::ADMIT_WAITS_INSIDE) {
        return Ok(());
    }
    let since = shared.runtime().now();
    loop {
        shared.check_open()?;
        let Some(why) = refuses(shared).await else { return Ok(()) };
        let waited = shared.runtime().now().saturating_sub(since);
        if waited >= shared.options().admit_wait_max {
            return Err(Error::Overloaded { waited, why: why() });
        }
        shared.runtime().sleep(PAUSE).await;
    }
}

/// Returns the reason why no new work is admitted now, if there is one.
async fn refuses(shared: &Shared) -> Option<Box<dyn FnOnce() -> String + Send>> {
    let max = shared.options().backlog_max;
    let waiting = shared.hints().len_at_work();
    if waiting > max {
        return Some(Box::new(move || {
            format!(
                "{waiting} changes wait for observers of this process, more than {max}, and they are \
                 not handled fast enough; look for slow or failing observers, give the workers more \
                 threads, or raise `backlog_max`"
            )
        }));
    }
    let pressure = shared.services().store.pressure();
    if pressure >= PRESSURE_MAX {
        return Some(Box::new(move || {
            format!(
                "the store's room for locks and notifications is {:.0} % full; check that \
                 observers run, and whether clients have died in the middle of large transactions",
                100.0 * pressure
            )
        }));
    }
    if !shared.options().backlog_of_store || max == usize::MAX {
        return None;
    }
    let full = store_is_full(shared, max).await?;
    Some(Box::new(move || full))
}

/// Returns a reason if the last look found more than `max` notifications in the store.
async fn store_is_full(shared: &Shared, max: usize) -> Option<String> {
    {
        let now = shared.runtime().now();
        let mut looked = shared.admission().looked();
        if now < looked.next {
            return looked.full.clone();
        }
        // Callers that arrive during this look use the result of the one before.
        looked.next = now + LOOK_EVERY;
    }
    let full = match look_at_store(shared, max).await {
        Ok(full) => full,
        Err(error) => {
            // Not an error here: if the store is down, the loader's own requests will fail.
            tracing::debug!(target: "percolator::worker", event = "backlog_unknown", %error);
            None
        }
    };
    shared.admission().looked().full.clone_from(&full);
    full
}

async fn look_at_store(shared: &Shared, max: usize) -> Result<Option<String>> {
    let schema = shared.known_schema();
    let mut observed: Vec<Observed> = schema.entries.keys().cloned().collect();
    // Cells that wait for a paused observer do not count: no worker clears them.
    let is_paused = |a: &Observed| schema.of(&a.table, &a.column).any(|of| schema.is_paused(of));
    observed.retain(|entry| !is_paused(entry));
    observed.retain(|entry| !shared.admission().left_out().contains(entry));
    observed.dedup_by(|a, b| (&a.table, &a.column) == (&b.table, &b.column));
    let mut waiting = 0;
    for Observed { table: name, column, observer, .. } in observed {
        let table = shared.table(&name).await?;
        let select = Selection::default().column(NOTIFY, column.to_bytes(), TimeRange::ALL, 1);
        let mut left = Some(RowRange::all());
        while let Some(range) = left {
            let limit = PageLimit { rows_max: max - waiting + 1, ..PageLimit::default() };
            let page = table.notify_store().scan(&range, &select, limit).await?;
            shared.take_turn(page.rows.len()).await;
            waiting += page.rows.len();
            if waiting > max {
                return Ok(Some(format!(
                    "more than {max} changes wait in the store, for example of {name}/{column} for \
                     the observer {observer}; check that a worker that runs the observer is alive, \
                     retire the observer if no worker will run it again, or raise `backlog_max`"
                )));
            }
            left = page.resume;
        }
    }
    Ok(None)
}
