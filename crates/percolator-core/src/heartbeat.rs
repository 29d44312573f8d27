//! Heartbeats: keeping a slow commit's primary lock fresh (paper section 2.2, "wall time").
//!
//! Invariants: a heartbeat is conditional on the exact lock value its owner last wrote, so a late or
//! repeated one does nothing (H15); it starts with the commit, stops at its decision, and ends with
//! the transaction's longest life.

use std::future::Future;

use futures::future::{Either, select};

use crate::lock::Lock;
use crate::plan::Plan;
use crate::{Client, rows};

impl Client {
    /// Runs a part of a commit while the primary lock is kept fresh.
    pub(crate) async fn with_heartbeat<T>(
        &self,
        plan: &Plan,
        work: impl Future<Output = T>,
    ) -> T {
        let work = std::pin::pin!(work);
        let beats = std::pin::pin!(self.beat(plan));
        match select(work, beats).await {
            Either::Left((value, _)) => value,
            Either::Right(((), work)) => work.await,
        }
    }

    /// Renews the primary lock every third of its lifetime, until it is gone or too old.
    async fn beat(&self, plan: &Plan) {
        let (runtime, options) = (self.runtime(), self.options());
        let born = runtime.now();
        let (row, column) = (&plan.primary.row, &plan.primary.column);
        let mut lock = plan.primary_lock().clone();
        loop {
            runtime.sleep(options.lock_lifetime / 3).await;
            if runtime.now().saturating_sub(born) > options.transaction_life_max {
                return;
            }
            // Never lower than before, whatever the wall clock does.
            let wall_ms = runtime.wall_ms().max(lock.wall_ms + 1);
            let newer = Lock { wall_ms, ..lock.clone() };
            let request = rows::heartbeat(row, column, plan.start_ts, &lock, &newer);
            match plan.primary.table.store().check_and_mutate_row(request).await {
                Ok(true) => {
                    self.counters().heartbeats.bump();
                    lock = newer;
                }
                // Not there yet, or decided: the next beat will tell, and the commit stops it.
                Ok(false) => {}
                // Whether it arrived is not known, and without that there is no exact value to name:
                // the lock lives on until its lifetime ends.
                Err(_) => return,
            }
        }
    }
}
