//! Sends heartbeats, which keep the primary lock of a slow commit fresh (paper section 2.2,
//! "wall time").
//!
//! Invariants: a heartbeat is conditional on an exact lock value that its owner wrote, so a
//! late or repeated one does nothing (H15). Heartbeats start with prewrite and stop at the
//! decision, or when the transaction reaches its longest life.

use std::future::Future;
use std::pin::{Pin, pin};
use std::time::Duration;

use futures::future::{Either, select};

use crate::mutants::{self, off};
use crate::records::branch::{Branch, change};
use crate::records::lock::Lock;
use crate::shared::Shared;
use crate::txn::plan::Plan;
use crate::txn::rows;

/// The state of a transaction's own primary lock, as far as the transaction knows it.
#[derive(Debug)]
pub(crate) struct Pulse {
    born: Duration,
    /// The values that the lock may have: the last confirmed one, and those of later
    /// heartbeats that got no reply.
    values: Vec<Lock>,
}

impl Pulse {
    /// The state of a transaction that begins to place its locks.
    pub(crate) fn new(shared: &Shared, plan: &Plan) -> Self {
        let values = vec![plan.lock_of(shared, plan.primary_cell())];
        Pulse { born: shared.runtime().now(), values }
    }
}

/// Runs a part of a commit, and keeps the primary lock fresh meanwhile.
pub(crate) async fn with_heartbeat<T>(
    shared: &Shared,
    plan: &Plan,
    pulse: &mut Pulse,
    work: Pin<&mut impl Future<Output = T>>,
) -> T {
    let beats = pin!(beat(shared, plan, pulse));
    match select(work, beats).await {
        Either::Left((value, _)) => value,
        Either::Right(((), work)) => work.await,
    }
}

/// Renews the primary lock every third of its lifetime, until its owner is too old.
async fn beat(shared: &Shared, plan: &Plan, pulse: &mut Pulse) {
    let (runtime, options) = (shared.runtime(), shared.options());
    let (row, column) = (&plan.primary.row, &plan.primary.column);
    while let Some(last) = pulse.values.last()
        && pulse.values.len() <= rows::HEARTBEAT_VALUES_MAX
    {
        // The wall time never goes back, whatever the wall clock does.
        let mut newer = Lock { wall_ms: last.wall_ms + 1, ..last.clone() };
        runtime.sleep(options.lock_lifetime() / 3).await;
        let too_old = runtime.now().saturating_sub(pulse.born) > options.transaction_life_max;
        if too_old || off(mutants::NO_HEARTBEAT) {
            return;
        }
        newer.wall_ms = newer.wall_ms.max(runtime.wall_ms());
        let request = rows::heartbeat(row, column, plan.start_ts, &pulse.values, &newer);
        // Record the value before it is sent, because this part of the commit may end before
        // the reply comes.
        pulse.values.push(newer);
        match change(plan.primary.table.store(), request).await {
            Ok(Branch::Then) => {
                shared.counters().heartbeats.bump();
                pulse.values.drain(..pulse.values.len() - 1);
            }
            // The lock is not there yet, or the transaction is decided. In the first case a
            // later heartbeat succeeds; in the second the commit stops the heartbeats.
            Ok(Branch::Otherwise) => drop(pulse.values.pop()),
            Err(error) if error.is_retryable() => drop(pulse.values.pop()),
            // The heartbeat may have arrived, or may still arrive.
            Err(_) => {}
        }
    }
}
