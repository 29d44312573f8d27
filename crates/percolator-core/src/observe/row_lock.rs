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
//! Workers of this client that come to the row during such a visit leave it, whether the lock was
//! taken or not. An observer that blocks its thread keeps its worker from asking, and a worker of
//! another process may start the same run.
//!
//! ADR-11 says what this design costs, and what would change it.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use bigtable::RowKey;
use futures::future::{Either, select};
use futures::lock::Mutex;
use futures::poll;

use crate::Result;
use crate::locks::Holder;
use crate::mutants::{self, off};
use crate::observe::context::Context;
use crate::records::column::Table;

/// How many renewals there are within one lifetime of the lock.
const RENEWALS: u32 = 3;
/// How long a run goes on without a lock in the store before its worker asks for one.
const UNLOCKED_MAX: Duration = Duration::from_millis(50);

/// An advisory lock that a worker holds, or will ask for. Dropping it releases the lock, also when
/// the worker is abandoned in the middle of a run.
pub(super) struct RowLock<'a> {
    context: &'a Context,
    name: Vec<u8>,
    holder: Holder,
    /// Whether the lock service has given the lock. It may have run out since.
    is_taken: Mutex<bool>,
    /// Whether the name is among those of rows that this client began to visit without a lock. No
    /// other worker of the client begins a visit there.
    is_listed: AtomicBool,
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
    if context.shared.unlocked().contains(&name) {
        return Ok(None);
    }
    let holder = context.shared.next_holder();
    let lifetime = context.options.row_lock_lifetime;
    if !context.shared.locks().try_lock(&name, holder, lifetime).await? {
        return Ok(None);
    }
    let (is_taken, is_listed) = (Mutex::new(true), AtomicBool::new(false));
    Ok(Some(RowLock { context, name, holder, is_taken, is_listed }))
}

/// Begins a visit without a lock in the store. `None` while another worker of this client does so
/// at the same row.
pub(super) fn lock_later(context: &Context, name: Vec<u8>) -> Option<RowLock<'_>> {
    if !context.shared.unlocked().insert(name.clone()) {
        return None;
    }
    let holder = context.shared.next_holder();
    let (is_taken, is_listed) = (Mutex::new(false), AtomicBool::new(true));
    Some(RowLock { context, name, holder, is_taken, is_listed })
}

impl RowLock<'_> {
    /// Asks for the lock, unless the lock service has given it to this worker before. Returns
    /// `false` while another worker has it.
    pub(super) async fn take(&self) -> Result<bool> {
        let mut is_taken = self.is_taken.lock().await;
        if !*is_taken {
            let lifetime = self.context.options.row_lock_lifetime;
            let locks = self.context.shared.locks();
            *is_taken = locks.try_lock(&self.name, self.holder, lifetime).await?;
        }
        Ok(*is_taken)
    }

    /// Runs the work that the lock protects, and renews the lock meanwhile. If the worker has no
    /// lock, it asks for one once the work takes long. A run that outlives its lock keeps no other
    /// worker from the row.
    pub(super) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        // With a store in this process, most runs end at their first poll.
        if let Poll::Ready(value) = poll!(work.as_mut()) {
            return value;
        }
        let (options, runtime) = (&self.context.options, self.context.runtime());
        let (since, mut pause) = (runtime.now(), UNLOCKED_MAX);
        while !*self.is_taken.lock().await && runtime.now().saturating_sub(since) <= options.run_max
        {
            let sleep = runtime.sleep(pause);
            if let Either::Left((value, _)) = select(work.as_mut(), sleep).await {
                return value;
            }
            pause = options.row_lock_lifetime / RENEWALS;
            if off(mutants::LONG_RUN_UNLOCKED) {
                continue;
            }
            // A request for the lock is not given up: the store may have written the claim.
            let asked = match select(work.as_mut(), pin!(self.take())).await {
                Either::Left((value, asking)) => {
                    let _ = asking.await;
                    return value;
                }
                Either::Right((asked, _)) => asked,
            };
            // While another worker has the lock, two runs may go on, of which one commits.
            if let Err(error) = asked {
                self.context.report(&error);
            }
        }
        match select(work, pin!(self.renew(since))).await {
            Either::Left((value, _)) => value,
            Either::Right(((), work)) => {
                self.strike();
                work.await
            }
        }
    }

    /// Lets other workers of this client visit the row.
    fn strike(&self) {
        if self.is_listed.swap(false, Ordering::Relaxed) {
            self.context.shared.unlocked().remove(&self.name);
        }
    }

    /// Renews the lock until another worker has taken it over, or `run_max` has passed since
    /// `since`.
    async fn renew(&self, since: Duration) {
        let options = &self.context.options;
        let (shared, runtime) = (&self.context.shared, self.context.runtime());
        loop {
            runtime.sleep(options.row_lock_lifetime / RENEWALS).await;
            if runtime.now().saturating_sub(since) > options.run_max
                || off(mutants::ROW_LOCK_UNRENEWED)
            {
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
        self.strike();
        if *self.is_taken.get_mut() {
            self.context.shared.locks().unlock(&self.name, self.holder);
        }
    }
}
