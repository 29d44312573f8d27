//! The advisory lock on what a worker is at (paper section 2.4).
//!
//! The lock lasts for [`row_lock_lifetime`](crate::WorkerOptions::row_lock_lifetime), so that a
//! worker that hangs or dies holds nobody up for longer. While its observers run, a worker renews
//! the lock, three times within that time: an observer that takes longer than the lock lasts does
//! not run beside itself.
//!
//! Invariants (hazard H73): a renewal is conditional on the very claim that was written last, so a
//! lock that another worker has taken over stays that worker's. It ends before the lock is given
//! up, and after the longest run. No safety depends on the lock: of two runs for one change at most
//! one commits.
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

/// How often a lock is renewed within its lifetime.
const RENEWALS: u32 = 3;

/// An advisory lock that a worker holds. Dropping it gives the lock up, also when the worker is
/// stopped in the middle of a run.
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

/// Takes the advisory lock of a name; `None` while another worker has it.
pub(super) async fn lock(context: &Context, name: Vec<u8>) -> Result<Option<RowLock<'_>>> {
    let (holder, since) = (context.shared.next_holder(), context.runtime().now());
    let lifetime = context.options.row_lock_lifetime;
    let taken = context.shared.locks().try_lock(&name, holder, lifetime).await?;
    Ok(taken.then(|| RowLock { context, name, holder, since }))
}

impl RowLock<'_> {
    /// Does what the lock is for, and renews the lock meanwhile.
    pub(super) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        match select(pin!(work), pin!(self.renew())).await {
            Either::Left((value, _)) => value,
            Either::Right(((), work)) => work.await,
        }
    }

    /// For how long the lock has been held.
    pub(super) fn age(&self) -> Duration {
        self.context.runtime().now().saturating_sub(self.since)
    }

    /// Renews the lock until another worker has it, or the longest run is over.
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
                // The next renewal may get a reply, and is conditional all the same.
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
