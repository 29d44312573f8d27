//! The tasks of one `observe`, and how they end.
//!
//! A task that is to stop finishes the cell it is at. What takes too long for that is abandoned:
//! the task is dropped where it awaits something. Its transaction is dropped with it and leaves no
//! trace, unless it was committing, and its row lock is given up. The change stays notified, for
//! the next worker.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bigtable::sync::locked;
use futures::future::{AbortHandle, Either, abortable, select};

use crate::Runtime;
use crate::bell::Bell;

/// How long tasks that are abandoned may take to end. One that blocks its thread goes on until it
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

/// A task that has not ended.
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
            // Whether it came to its end or was abandoned.
            let _ = task.await;
        }));
    }

    /// Has the tasks stop, each when it has finished what it is at.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.stop.ring();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Completes when the tasks are to stop.
    pub(crate) async fn stopping(&self) {
        self.stop.after(0).await;
    }

    /// Whether a task is there that goes on.
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

    /// Stops the tasks and waits until they have ended. After the longest time, abandons what they
    /// are at, and returns how many tasks that were.
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
