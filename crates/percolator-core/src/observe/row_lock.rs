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
//! With a store behind a network, a lock costs two requests. The process that has made a change has
//! the hint, and mostly is the only one that knows of the change. So for the first visit after a
//! hint, the worker asks for the lock only if the run takes long, or if its commit conflicts.
//!
//! ADR-11 says what this design costs, and what would change it.

use std::pin::pin;
use std::time::Duration;

use bigtable::RowKey;
use futures::future::{Either, select};
use futures::lock::Mutex;

use crate::Result;
use crate::locks::Holder;
use crate::mutants::{self, off};
use crate::observe::context::Context;
use crate::records::column::Table;

/// How many renewals there are within one lifetime of the lock.
const RENEWALS: u32 = 3;
/// How long a run after a hint goes on without a lock in the store.
const UNLOCKED_MAX: Duration = Duration::from_millis(50);

/// An advisory lock that a worker holds. Dropping it releases the lock, also when the worker
/// is abandoned in the middle of a run.
pub(super) struct RowLock<'a> {
    context: &'a Context,
    name: Vec<u8>,
    holder: Holder,
    since: Duration,
    /// Whether the lock service has given the lock.
    taken: Mutex<bool>,
    /// Whether the name is among those that this process visits without a lock.
    is_here: bool,
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
    let lock = RowLock::new(context, name, false);
    Ok(lock.take().await?.then_some(lock))
}

/// Begins a visit without a lock in the store. If another worker of this process does that at the
/// same row already, takes the lock.
pub(super) async fn lock_later(context: &Context, name: Vec<u8>) -> Result<Option<RowLock<'_>>> {
    if context.unlocked().insert(name.clone()) {
        return Ok(Some(RowLock::new(context, name, true)));
    }
    lock(context, name).await
}

impl<'a> RowLock<'a> {
    fn new(context: &'a Context, name: Vec<u8>, is_here: bool) -> Self {
        let (holder, since) = (context.shared.next_holder(), context.runtime().now());
        RowLock { context, name, holder, since, taken: Mutex::new(false), is_here }
    }

    /// Takes the lock, unless this worker has it. Returns `false` while another worker has it.
    pub(super) async fn take(&self) -> Result<bool> {
        let mut taken = self.taken.lock().await;
        if !*taken {
            let (shared, lifetime) = (&self.context.shared, self.context.options.row_lock_lifetime);
            *taken = shared.locks().try_lock(&self.name, self.holder, lifetime).await?;
        }
        Ok(*taken)
    }

    /// Runs the work that the lock protects, and renews the lock meanwhile. If the work takes long
    /// without a lock, takes the lock first.
    pub(super) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        if !*self.taken.lock().await && !off(mutants::LONG_RUN_UNLOCKED) {
            let pause = self.context.runtime().sleep(UNLOCKED_MAX);
            if let Either::Left((value, _)) = select(work.as_mut(), pause).await {
                return value;
            }
            // A request for the lock is not given up: the store may have written the claim.
            let taken = match select(work.as_mut(), pin!(self.take())).await {
                Either::Left((value, taking)) => {
                    let _ = taking.await;
                    return value;
                }
                Either::Right((taken, _)) => taken,
            };
            match taken {
                Ok(true) => {}
                // Another worker runs the same observers, and of both runs one will commit.
                Ok(false) => return work.await,
                Err(error) => {
                    self.context.report(&error);
                    return work.await;
                }
            }
        }
        match select(work, pin!(self.renew())).await {
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
        if self.is_here {
            self.context.unlocked().remove(&self.name);
        }
        if *self.taken.get_mut() {
            self.context.shared.locks().unlock(&self.name, self.holder);
        }
    }
}
