//! Admission: those who bring in new work wait for those who handle it.
//!
//! A loader commits several times faster than observers run. Without a bound, a change that
//! somebody makes meanwhile waits behind the whole load.
//!
//! * Of this client's changes, those count for which a hint waits, and whose workers are at work. A
//!   change that waits for anything else, such as an observer that nobody here runs, is no reason
//!   to wait.
//! * On a store that other processes use, the notifications in the store count
//!   ([`Options::backlog_of_store`]). One caller looks at a time, for all callers of the client, at
//!   most every [`LOOK_EVERY`], and at no more cells than the bound.
//! * An observer never waits (hazard H74): the backlog could not drain if all workers did.
//!
//! [`Options::backlog_of_store`]: crate::Options::backlog_of_store

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

/// How often somebody who waits looks again.
const PAUSE: Duration = Duration::from_millis(2);
/// How often the store is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// So full may the store's bounded locality groups be: locks and notifications.
const PRESSURE_MAX: f64 = 0.8;

thread_local! {
    /// Whether an observer is being polled by this thread.
    static IN_OBSERVER: Cell<bool> = const { Cell::new(false) };
}

/// Sets the mark, and at its end what was there before.
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

/// Awaits an observer, so that everything it awaits itself knows where it is.
pub(crate) async fn in_observer<T>(run: impl Future<Output = T>) -> T {
    let mut run = pin!(run);
    poll_fn(|context| {
        let _mark = Mark::set();
        run.as_mut().poll(context)
    })
    .await
}

/// Waits while too much waits for observers, or while the store is short of room for new locks
/// and notifications. Those who bring in new work call it before each piece.
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

/// Why no new work is admitted now, if so.
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
                "the store's room for locks and notifications is taken to {:.0} %; see whether \
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

/// Whether more than `max` notifications are in the store, as far as anybody has looked lately.
async fn store_is_full(shared: &Shared, max: usize) -> Option<String> {
    {
        let now = shared.runtime().now();
        let mut looked = shared.admission().looked();
        if now < looked.next {
            return looked.full.clone();
        }
        // Callers that come meanwhile go by the look before this one.
        looked.next = now + LOOK_EVERY;
    }
    let full = match look_at_store(shared, max).await {
        Ok(full) => full,
        Err(error) => {
            // The loader's own requests will say so.
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
    // Nobody clears what waits for a paused observer.
    let is_paused = |a: &Observed| schema.of(&a.table, &a.column).any(|of| schema.is_paused(of));
    observed.retain(|entry| !is_paused(entry));
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
                     the observer {observer}; see whether a worker that runs it is alive, retire it \
                     if none is to run it any more, or raise `backlog_max`"
                )));
            }
            left = page.resume;
        }
    }
    Ok(None)
}
