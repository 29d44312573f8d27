//! The tasks of one `observe`, and how they end.
//!
//! A task that is asked to stop finishes the cell it is at. If that takes too long, the task
//! is abandoned: it is dropped at its next await. Its transaction is dropped with it and has
//! no effect, unless it was already committing, and its row lock is released. The change stays
//! notified, for the next worker.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bigtable::sync::locked;
use futures::future::{AbortHandle, Either, abortable, select};

use crate::Runtime;
use crate::bell::Bell;

/// How long abandoned tasks may take to end. A task that blocks its thread goes on until it
/// awaits something.
const LEAVING_MAX: Duration = Duration::from_secs(1);

/// The tasks.
#[derive(Debug, Default)]
pub(crate) struct Crew {
    stopping: AtomicBool,
    stop: Bell,
    living: AtomicUsize,
    /// Rung when a task has ended.
    gone: Bell,
    tasks: Mutex<Vec<AbortHandle>>,
}

/// A task that has not ended: counted in `living` until it is dropped.
struct Member(Arc<Crew>);

impl Drop for Member {
    fn drop(&mut self) {
        self.0.living.fetch_sub(1, Ordering::SeqCst);
        self.0.gone.ring();
    }
}

impl Crew {
    fn tasks(&self) -> MutexGuard<'_, Vec<AbortHandle>> {
        locked(&self.tasks)
    }

    /// Starts a task.
    pub(crate) fn start(
        self: &Arc<Self>,
        runtime: &dyn Runtime,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let (task, handle) = abortable(task);
        self.living.fetch_add(1, Ordering::SeqCst);
        self.tasks().push(handle);
        let member = Member(self.clone());
        runtime.spawn(Box::pin(async move {
            let _member = member;
            // The result says only whether the task ended or was abandoned.
            let _ = task.await;
        }));
    }

    /// Asks the tasks to stop, each after the cell it is at.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.stop.ring();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Completes when `stop` has been called.
    pub(crate) async fn stopping(&self) {
        self.stop.after(0).await;
    }

    /// Whether a task is alive and has not been asked to stop.
    pub(crate) fn is_at_work(&self) -> bool {
        !self.is_stopping() && self.living.load(Ordering::SeqCst) > 0
    }

    async fn ended(&self) {
        loop {
            let rung = self.gone.rung();
            if self.living.load(Ordering::SeqCst) == 0 {
                return;
            }
            self.gone.after(rung).await;
        }
    }

    /// Stops the tasks and waits until they have ended. After `longest`, abandons those that
    /// are left, and returns how many there were.
    pub(crate) async fn stop_within(
        &self,
        runtime: &dyn Runtime,
        longest: Option<Duration>,
    ) -> usize {
        self.stop();
        let Some(longest) = longest else {
            self.ended().await;
            return 0;
        };
        if let Either::Left(_) = select(pin!(self.ended()), runtime.sleep(longest)).await {
            return 0;
        }
        let abandoned = self.living.load(Ordering::SeqCst);
        self.tasks().drain(..).for_each(|task| task.abort());
        select(pin!(self.ended()), runtime.sleep(LEAVING_MAX)).await;
        abandoned
    }
}
