//! The advisory lock on the row that a worker handles (paper section 2.4).
//!
//! The lock lasts for [`row_lock_lifetime`](crate::WorkerOptions::row_lock_lifetime), so a
//! worker that hangs or dies blocks the row for no longer. While its observers run, a worker
//! renews the lock three times in each lifetime. So an observer that runs for longer than one
//! lifetime does not start a second time beside itself.
//!
//! A renewal is conditional on the exact claim that was written last, so it never takes back a
//! lock that another worker has taken over. Renewals end before the lock is released, and
//! after [`run_max`](crate::WorkerOptions::run_max) at the latest (H73). No safety depends on
//! the lock: of two runs for one change at most one commits.
//!
//! ADR-11 says what this design costs, and what would change it.

use std::pin::pin;
use std::time::Duration;

use bigtable::RowKey;
use futures::future::{Either, select};

use crate::Result;
use crate::locks::Holder;
use crate::mutants::{self, off};
use crate::observe::context::Context;
use crate::records::column::Table;

/// How many renewals there are within one lifetime of the lock.
const RENEWALS: u32 = 3;

/// An advisory lock that a worker holds. Dropping it releases the lock, also when the worker
/// is abandoned in the middle of a run.
pub(super) struct RowLock<'a> {
    context: &'a Context,
    name: Vec<u8>,
    holder: Holder,
    since: Duration,
}

/// The name of the lock on a row.
pub(super) fn of_row(table: &Table, row: &RowKey) -> Vec<u8> {
    let mut name = Vec::with_capacity(table.name().len() + 1 + row.as_bytes().len());
    name.extend_from_slice(table.name().as_bytes());
    name.push(0);
    name.extend_from_slice(row.as_bytes());
    name
}

/// Takes the advisory lock with a name. `None` while another worker has it.
pub(super) async fn lock(context: &Context, name: Vec<u8>) -> Result<Option<RowLock<'_>>> {
    let (holder, since) = (context.shared.next_holder(), context.runtime().now());
    let lifetime = context.options.row_lock_lifetime;
    let taken = context.shared.locks().try_lock(&name, holder, lifetime).await?;
    Ok(taken.then(|| RowLock { context, name, holder, since }))
}

impl RowLock<'_> {
    /// Runs the work that the lock protects, and renews the lock meanwhile.
    pub(super) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        match select(pin!(work), pin!(self.renew())).await {
            Either::Left((value, _)) => value,
            Either::Right(((), work)) => work.await,
        }
    }

    /// How long the lock has been held.
    pub(super) fn age(&self) -> Duration {
        self.context.runtime().now().saturating_sub(self.since)
    }

    /// Renews the lock until another worker has taken it over, or `run_max` has passed.
    async fn renew(&self) {
        let options = &self.context.options;
        let (shared, runtime) = (&self.context.shared, self.context.runtime());
        loop {
            runtime.sleep(options.row_lock_lifetime / RENEWALS).await;
            if self.age() > options.run_max || off(mutants::ROW_LOCK_UNRENEWED) {
                return;
            }
            let renewed = shared.locks().renew(&self.name, self.holder, options.row_lock_lifetime);
            match renewed.await {
                Ok(true) => shared.counters().row_locks_renewed.bump(),
                Ok(false) => return,
                // Try again at the next interval: a renewal is conditional, so it is safe
                // after a lost reply.
                Err(error) => self.context.report(&error),
            }
        }
    }
}

impl Drop for RowLock<'_> {
    fn drop(&mut self) {
        self.context.shared.locks().unlock(&self.name, self.holder);
    }
}
