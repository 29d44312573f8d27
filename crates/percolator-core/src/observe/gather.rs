//! Decides when a batching observer looks for changes, and when it runs.
//!
//! A batch should be large under load, and soon when nothing else waits. So after the first change
//! the observer **gathers**. It runs once no change has come for a short time, and at the latest
//! after the batch's interval. Under load new changes come all the time, and each batch gathers for
//! the whole interval. A single change waits for the short time, which is [`QUIET`]. With an
//! interval of more than ten seconds it is longer. Such changes need not be fresh, and a steady
//! trickle of them should go together, too.
//!
//! Looking for newer changes is cheap. If the oracle has issued no timestamp since the last look,
//! there is none. Otherwise the store returns at most one row: a notification above the timestamp
//! of the last look. A commit with a lower timestamp may publish its notification later. Such a
//! change is part of this batch or of the next one, as any change that comes while a batch is read.

use std::pin::pin;
use std::time::Duration;

use bigtable::{TimeRange, Timestamp};
use futures::future::select;

use crate::Result;
use crate::observe::context::Context;
use crate::observe::idle::{has_notification, hints_waiting};
use crate::records::schema::Observed;

/// A batch is complete when no change has come for this time, or for this part of its interval, if
/// that is longer. It is also the shortest time between two looks.
const QUIET: Duration = Duration::from_millis(250);
const QUIET_PART: u32 = 40;
/// The fill level of the store's room for notifications above which a batch gathers no more. Each
/// version of a notification takes room there until the batch clears it. From twice this level on,
/// new work waits ([`Store::pressure`](bigtable::Store::pressure)).
const PRESSURE_MAX: f64 = 0.4;
/// The shortest pause between two rounds. While a caller waits for idleness, a batch checks
/// this often whether its turn has come.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The changes that were announced up to a look.
#[derive(Debug)]
struct Look {
    at: Duration,
    /// The highest timestamp issued at the look. `None` if the oracle could not be asked.
    latest: Option<Timestamp>,
}

/// How often a reason to look for changes was announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Announced {
    /// This client has made changes.
    changes: u64,
    /// The oracle has issued timestamps.
    timestamps: u64,
}

/// Call this before looking for changes. A later announcement then ends [`until_look`].
pub(super) fn announced(context: &Context) -> Announced {
    let changes = context.shared.hints().collected.rung();
    Announced { changes, timestamps: context.moved.rung() }
}

/// Waits until it is time to look for changes: after `pause`, or [`QUIET`] after the last look if
/// more than `seen` was announced. The wait also ends when a caller waits for idleness and only
/// batches are left to do.
pub(super) async fn until_look(
    context: &Context,
    interval: Duration,
    pause: Duration,
    mut seen: Announced,
) {
    let begun = context.runtime().now();
    let mut due = begun + pause;
    while !context.is_stopping() {
        let timestamps = pin!(context.moved.after(seen.timestamps));
        select(timestamps, pin!(rest_until(context, due, seen.changes))).await;
        let now_announced = announced(context);
        if now_announced != seen {
            seen = now_announced;
            due = due.min(begun + QUIET.min(interval));
        }
        if context.runtime().now() >= due || is_hurried(context, begun) {
            return;
        }
    }
}

/// Waits until no change of the column has come for a while, at most for `interval`. The wait ends
/// early when the store's room for notifications fills up. It also does when a caller waits for
/// idleness and only batches are left to do.
pub(super) async fn gather(context: &Context, observed: &Observed, interval: Duration) {
    let bell = &context.shared.hints().collected;
    let begun = context.runtime().now();
    let (due, quiet) = (begun + interval, QUIET.max(interval / QUIET_PART));
    let mut rung = bell.rung();
    let mut last = Look { at: begun, latest: latest(context).await };
    while !context.is_stopping() {
        rest_until(context, due.min(last.at + quiet), rung).await;
        rung = bell.rung();
        let now = context.runtime().now();
        if now >= due || is_hurried(context, begun) || is_pressed(context) {
            return;
        }
        if now < last.at + quiet {
            continue;
        }
        let look = Look { at: now, latest: latest(context).await };
        match is_quiet(context, observed, &last, &look).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => context.report(&error),
        }
        last = look;
    }
}

/// Waits for `interval`, or until a caller waits for idleness and only batches are left to do.
pub(super) async fn hold_off(context: &Context, interval: Duration) {
    let bell = &context.shared.hints().collected;
    let begun = context.runtime().now();
    while !context.is_stopping() {
        rest_until(context, begun + interval, bell.rung()).await;
        if context.runtime().now() >= begun + interval || is_hurried(context, begun) {
            return;
        }
    }
}

/// Waits until a time, until this client makes a change, or for a moment if a caller waits for
/// idleness.
async fn rest_until(context: &Context, due: Duration, rung: u64) {
    let mut left = due.saturating_sub(context.runtime().now());
    if context.shared.is_awaited() {
        left = left.min(LOOK_EVERY);
    }
    select(pin!(context.rest(left)), pin!(context.shared.hints().collected.after(rung))).await;
}

fn is_hurried(context: &Context, begun: Duration) -> bool {
    context.shared.is_awaited()
        && hints_waiting(&context.shared) == 0
        && context.runtime().now() >= begun + LOOK_EVERY
}

fn is_pressed(context: &Context) -> bool {
    context.shared.services().store.pressure() >= PRESSURE_MAX
}

/// The highest timestamp issued so far. Without an answer the next look counts as busy.
async fn latest(context: &Context) -> Option<Timestamp> {
    match context.shared.oracle().peek().await {
        Ok(latest) => Some(latest),
        Err(error) => {
            context.report(&error);
            None
        }
    }
}

/// Whether no change of the column has come between two looks.
async fn is_quiet(
    context: &Context,
    observed: &Observed,
    last: &Look,
    look: &Look,
) -> Result<bool> {
    let (Some(before), Some(latest)) = (last.latest, look.latest) else { return Ok(false) };
    let (Observed { table, column, .. }, newer) = (observed, TimeRange::above(before));
    Ok(before == latest || !has_notification(&context.shared, table, column, newer).await?)
}
