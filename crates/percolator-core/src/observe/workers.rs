//! Starts and stops the tasks of this process that run observers.
//!
//! Each task takes hints. As many tasks as observers may run also scan for dirty cells when there
//! are no hints, or when a scan is due. Nothing depends on a task's memory: a change that a stopped
//! or crashed worker leaves stays notified in the store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::observe::batch::batch_loop;
use crate::observe::context::{Alarm, Context};
use crate::observe::crew::Crew;
use crate::observe::elsewhere::warn_of_missing;
use crate::observe::find::{Places, pass};
use crate::observe::handle::{Known, Visit, visit};
use crate::observe::hints::{Hint, Run};
use crate::observe::moved::peek_loop;
use crate::observe::observer::{Registration, Runner};
use crate::observe::options::WorkerOptions;
use crate::observe::register::{check, register};
use crate::observe::window::WINDOW_MAX;
use crate::records::schema::Observed;
use crate::shared::Shared;
use crate::{Error, InvalidKind, Result};

/// How long until a hint is tried again after another worker was found at its row.
const MET_DELAY: Duration = Duration::from_millis(1);
/// The same delay where runs take longer. Where notifications are in a table of their own, each
/// visit is also a request to another row of the store. Where commits share their syncs, each run
/// waits for the disk.
const MET_DELAY_LONG: Duration = Duration::from_millis(10);
/// How many cells may wait for a delayed visit. Cells beyond the bound are left to the scan.
const DELAYED_MAX: usize = 10_000;

/// The running workers of a client. Dropping them stops them, without waiting for their end.
///
/// See [`Observer`](crate::Observer) for an example.
#[must_use = "dropping the workers stops them"]
#[derive(Debug)]
pub struct Workers {
    context: Arc<Context>,
}

/// Registers observers in the store's schema and starts workers that run them. Observers that
/// are new to the schema also run for what was written before.
pub(crate) async fn observe(
    shared: &Arc<Shared>,
    registrations: Vec<Registration>,
    options: WorkerOptions,
) -> Result<Workers> {
    let wanted: Vec<Observed> = registrations.iter().map(|r| r.observed.clone()).collect();
    for (i, entry) in wanted.iter().enumerate() {
        check(entry)?;
        if wanted[..i].contains(entry) {
            return Err(Error::invalid(
                InvalidKind::Observer,
                format!(
                    "observer {} is registered twice for {}/{}: give each its own name",
                    entry.observer, entry.table, entry.column
                ),
            ));
        }
    }
    let crew = Arc::new(Crew::default());
    shared.closing().add_crew(&crew)?;
    // Checked before the schema is stored, so that a mistake leaves no trace in it.
    let context = Context::new(shared, registrations, options, crew.clone()).await?;
    let context = Arc::new(context);
    register(shared, &wanted).await?;
    context.check_batched_columns()?;
    warn_of_missing(&context);
    let runtime = &**shared.runtime();
    for _ in 0..context.options.threads.max(1) {
        crew.start(runtime, work_loop(context.clone()));
        if context.shares_syncs() {
            for _ in 1..WINDOW_MAX {
                crew.start(runtime, hint_loop(context.clone()));
            }
        }
    }
    if let Some(every) = context.options.peek_every {
        crew.start(runtime, peek_loop(context.clone(), every));
    }
    for registration in context.observers.values().flat_map(BTreeMap::values).flat_map(|of| &**of) {
        if let Runner::Batch(..) = registration.runner {
            crew.start(runtime, batch_loop(context.clone(), registration.clone()));
        }
    }
    Ok(Workers { context })
}

impl Workers {
    /// Stops the workers and waits until each has finished the cell it is at, however long its
    /// observers take. Cells that are still dirty stay notified in the store, for the next
    /// worker.
    pub async fn stop(self) {
        self.context.crew.stop_within(&**self.context.runtime(), None).await;
    }

    /// Stops the workers, and waits at most `longest` until each has finished the cell it is
    /// at. Then abandons the runs that have not ended, and returns how many workers were still
    /// at a cell or at a batch. Observers can [ask](crate::Transaction::is_stopping) whether
    /// they should end early.
    ///
    /// An abandoned run is dropped at its next await. Nothing of its transaction takes effect,
    /// unless it was committing: a commit that has begun is finished in the background. The
    /// advisory row lock is released at once, and the change stays notified for the next
    /// worker. A run that blocks its thread cannot be dropped. It goes on until it awaits
    /// something, and this call waits for it for one more second.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator::*;
    /// use std::time::Duration;
    /// struct Hangs;
    /// impl Observer for Hangs {
    ///     async fn observe(&self, _: &mut Transaction, _: &Change) -> Result<()> {
    ///         std::future::pending().await
    ///     }
    /// }
    ///
    /// const TEXT: Column = Column::literal("doc:text");
    /// let hangs = Registration::strong("hangs", "docs", &TEXT, Hangs);
    /// let workers = client.observe(vec![hangs], WorkerOptions::default()).await?;
    /// let docs = client.table("docs").await?;
    /// client.transact(async |mut tx| tx.set(&docs, "a", &TEXT, "to be or not")).await?;
    /// client.runtime().sleep(Duration::from_secs(1)).await;
    /// assert_eq!(workers.stop_within(Duration::from_secs(10)).await, 1);
    /// assert_eq!(client.backlog().await?[0].cells, 1);
    /// # Ok(()) });
    /// ```
    pub async fn stop_within(self, longest: Duration) -> usize {
        self.context.crew.stop_within(&**self.context.runtime(), Some(longest)).await
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.context.crew.stop();
    }
}

/// Takes hints, and scans when there are none or when a scan is due.
async fn work_loop(context: Arc<Context>) {
    let mut places = Places::default();
    let mut alarm = Alarm::default();
    while !context.is_stopping() {
        let stirred = context.stirred.rung();
        if context.takes_scan() {
            let found = match pass(&context, &mut places).await {
                Ok(found) => {
                    context.well();
                    found
                }
                Err(error) => {
                    context.report(&error);
                    false
                }
            };
            context.scanned(found);
        }
        if !follow_next(&context).await {
            context.pause(&mut alarm, stirred).await;
        }
    }
}

/// Takes hints that others have no time for, because their commits wait.
async fn hint_loop(context: Arc<Context>) {
    while !context.is_stopping() {
        if !follow_next(&context).await {
            context.hints_arrive().await;
        }
    }
}

/// Takes the next hint, and follows it. Returns `false` if no hint may be taken.
async fn follow_next(context: &Arc<Context>) -> bool {
    let Some((hint, run)) = context.hints.pop() else { return false };
    context.stir();
    follow(context, hint, &run).await;
    true
}

/// Visits the cell of a hint, and delays the hint if the cell cannot be handled now.
async fn follow(context: &Arc<Context>, hint: Hint, run: &Run) {
    let known = hint.at.map_or(Known::Nothing, Known::Hinted);
    let visited = visit(context, &hint.cell, known, run).await;
    context.visited(visited.is_ok());
    match visited {
        Ok(Visit::Done) => {}
        // The other worker may have begun before this change, and not see it. Mostly it handles
        // another column of the row, and the next visit is the first one of this change. So the
        // hint stays as it is where it saves requests.
        Ok(Visit::Met) if hint.cell.table.notifies_apart() => {
            again(context, hint, MET_DELAY_LONG);
        }
        Ok(Visit::Met) if context.shares_syncs() => again(context, unsure(hint), MET_DELAY_LONG),
        Ok(Visit::Met) => again(context, unsure(hint), MET_DELAY),
        Ok(Visit::Later(delay)) => again(context, unsure(hint), delay),
        Err(error) => {
            context.report(&error);
            again(context, unsure(hint), context.options.scan_period);
        }
    }
}

/// The hint of a cell that another worker may have handled or set aside meanwhile. So the next
/// visit reads the notification.
fn unsure(hint: Hint) -> Hint {
    Hint { at: None, ..hint }
}

/// Pushes a hint again after `delay`. If a scan has found the cell, the next scan finds it again.
fn again(context: &Arc<Context>, hint: Hint, delay: Duration) {
    if hint.found {
        return;
    }
    if context.delayed.fetch_add(1, Ordering::Relaxed) >= DELAYED_MAX {
        context.delayed.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let (context, runtime) = (context.clone(), context.runtime());
    runtime.spawn(Box::pin(async move {
        // The delay ends when the workers stop, because this task holds the client, and so the
        // store.
        context.rest(delay).await;
        context.delayed.fetch_sub(1, Ordering::Relaxed);
        if !context.hints.push(&hint) {
            context.shared.counters().hints_dropped.bump();
        }
    }));
}
