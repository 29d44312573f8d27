//! Finishes commits whose caller drops the future, or does not poll it.
//!
//! A future may be dropped at every point: a timeout fires, or a client of the service hangs
//! up. Between the two phases of a commit this would leave locks whose owner lives. Every
//! other client would wait for them as long as a lock lasts (H72). A caller that keeps the future
//! and does not poll it does the same harm (H77). So every commit that has to wait runs through
//! [`Background::finish`]. Its caller polls it for the first one or two seconds, if the caller
//! exists that long. After that a task of its own polls it.
//!
//! Invariants:
//! * Work that its caller has dropped is polled without a pause until it ends. It may hold a
//!   lock that other commits wait for. If it were not polled in its turn, it would block the
//!   tasks behind it forever.
//! * At most [`FINISHED_MAX`] tasks without a caller run at a time. A further commit is left as a
//!   crash would leave it.
//! * A process that dies takes its tasks with it: nothing of a dead process is finished (H16).
//!
//! ADR-7 says what this design costs, and what would change it.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bigtable::sync::locked;
use futures::future::BoxFuture;

use crate::Runtime;
use crate::bell::Bell;
use crate::mutants::{self, off};
use crate::txn::unfinished::{Adopt, Unfinished};

/// With this many tasks in the background, a commit awaits its secondaries itself.
const TASKS_MAX: usize = 256;
/// Most tasks in the background, including those that finish commits.
const FINISHED_MAX: usize = 16 * 1024;

/// How often the list of waiting work is looked through. Work that was listed before the last look
/// gets a task of its own.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The work of a client that goes on in the background.
#[derive(Debug, Default)]
pub(crate) struct Background {
    tasks: AtomicUsize,
    /// How much work is unfinished: work that callers poll, and tasks that run. A closing
    /// client waits for both.
    unfinished: AtomicUsize,
    /// Rung when no work is left.
    finished: Bell,
    waiting: Mutex<Waiting>,
}

/// The work that waits, and that callers poll.
#[derive(Default)]
struct Waiting {
    next: u64,
    /// How often the list was looked through.
    looks: u64,
    /// The work by number, with the looks before it came.
    all: BTreeMap<u64, (u64, Arc<dyn Adopt>)>,
    /// Whether a task looks through the list.
    is_watched: bool,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").field("all", &self.all.len()).finish()
    }
}

/// Counts one piece of unfinished work as long as it lives.
pub(super) struct Counted(Arc<Background>);

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0.unfinished.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.finished.ring();
        }
    }
}

impl Background {
    pub(super) fn count(self: &Arc<Self>) -> Counted {
        self.unfinished.fetch_add(1, Ordering::SeqCst);
        Counted(self.clone())
    }

    pub(crate) fn unfinished(&self) -> usize {
        self.unfinished.load(Ordering::SeqCst)
    }

    /// Waits until no work is unfinished.
    pub(crate) async fn finished(&self) {
        loop {
            let rung = self.finished.rung();
            if self.unfinished() == 0 {
                return;
            }
            self.finished.after(rung).await;
        }
    }

    /// Runs work to its end. If the caller drops the returned future, or does not poll it, the
    /// work goes on in the background.
    pub(crate) fn finish<T: Send + 'static>(
        self: &Arc<Self>,
        runtime: &Arc<dyn Runtime>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Unfinished<T> {
        Unfinished::new(Box::pin(work), runtime.clone(), self.clone())
    }

    /// Lists work that has to wait, and returns its number.
    pub(super) fn waits(self: &Arc<Self>, runtime: &Arc<dyn Runtime>, work: Arc<dyn Adopt>) -> u64 {
        let (number, is_watched) = {
            let mut waiting = locked(&self.waiting);
            let (number, looks) = (waiting.next, waiting.looks);
            waiting.next += 1;
            waiting.all.insert(number, (looks, work));
            (number, std::mem::replace(&mut waiting.is_watched, true))
        };
        if !is_watched && !off(mutants::UNPOLLED_STAYS) {
            runtime.spawn(Box::pin(watch(Arc::downgrade(self), runtime.clone())));
        }
        number
    }

    pub(super) fn no_longer_waits(&self, number: u64) {
        // Drop the work outside of the lock.
        let _work = locked(&self.waiting).all.remove(&number);
    }

    /// The work that was listed before the last look. `None` if no work waits: then the task that
    /// looks ends.
    fn look(&self) -> Option<Vec<(u64, Arc<dyn Adopt>)>> {
        let mut waiting = locked(&self.waiting);
        waiting.is_watched = !waiting.all.is_empty();
        let looks = waiting.looks;
        waiting.looks += 1;
        let old = waiting.all.iter().take_while(|(_, (before, _))| *before < looks);
        let old = old.map(|(number, (_, work))| (*number, work.clone())).collect();
        waiting.is_watched.then_some(old)
    }

    /// Finishes work in a task. If too many tasks run, the work is dropped. Clients that find its
    /// locks resolve them.
    pub(super) fn finish_in_task(
        self: &Arc<Self>,
        runtime: &dyn Runtime,
        work: BoxFuture<'static, ()>,
    ) {
        if let Some(task) = self.finish_count() {
            run(runtime, task, work);
        }
    }

    /// Counts a task that finishes work which its caller has dropped, unless too many run.
    pub(super) fn finish_count(self: &Arc<Self>) -> Option<TaskCount> {
        self.task(FINISHED_MAX)
    }

    /// Starts work in a task of its own if few tasks run. Otherwise returns the work, which
    /// has not begun.
    pub(crate) fn try_start(
        self: &Arc<Self>,
        runtime: &dyn Runtime,
        work: BoxFuture<'static, ()>,
    ) -> Result<(), BoxFuture<'static, ()>> {
        let Some(task) = self.task(TASKS_MAX) else { return Err(work) };
        run(runtime, task, work);
        Ok(())
    }

    /// Counts a task, if fewer than `tasks_max` run.
    fn task(self: &Arc<Self>, tasks_max: usize) -> Option<TaskCount> {
        let one_more = |tasks| (tasks < tasks_max).then_some(tasks + 1);
        self.tasks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(TaskCount { _counted: self.count(), background: self.clone() })
    }
}

/// Counts one task until it ends, also by a panic.
pub(super) struct TaskCount {
    background: Arc<Background>,
    _counted: Counted,
}

impl Drop for TaskCount {
    fn drop(&mut self) {
        self.background.tasks.fetch_sub(1, Ordering::Relaxed);
    }
}

fn run(runtime: &dyn Runtime, task: TaskCount, work: BoxFuture<'static, ()>) {
    runtime.spawn(Box::pin(async move {
        let _task = task;
        work.await;
    }));
}

/// Gives work that waits for long a task of its own, until no work waits.
async fn watch(background: Weak<Background>, runtime: Arc<dyn Runtime>) {
    loop {
        runtime.sleep(LOOK_EVERY).await;
        let Some(background) = background.upgrade() else { return };
        let Some(old) = background.look() else { return };
        for (number, work) in old {
            if let Some(task) = work.adopt() {
                background.no_longer_waits(number);
                // No bound: its caller holds the work in memory in any case, until it drops it.
                runtime.spawn(task);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::panic::AssertUnwindSafe;

    use futures::FutureExt;

    use super::*;
    use crate::testing::VirtualRuntime;

    #[test]
    fn so_many_commits_are_finished_and_no_more() {
        let runtime: Arc<dyn Runtime> = Arc::new(VirtualRuntime::new(1));
        let (background, alive) = (Arc::<Background>::default(), Arc::new(()));
        for _ in 0..FINISHED_MAX + 10 {
            let alive = alive.clone();
            let work: BoxFuture<'static, ()> = Box::pin(async move {
                pending::<()>().await;
                drop(alive);
            });
            drop(background.finish(&runtime, work));
        }
        assert_eq!(Arc::strong_count(&alive) - 1, FINISHED_MAX);
        assert!(background.try_start(&*runtime, Box::pin(async {})).is_err());
        // The runtime ends.
        drop(runtime);
        assert_eq!(background.tasks.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_commit_that_panics_is_not_begun_again() {
        let runtime: Arc<dyn Runtime> = Arc::new(VirtualRuntime::new(1));
        let background = Arc::<Background>::default();
        let work: BoxFuture<'static, ()> = Box::pin(async { panic!("by test") });
        let unfinished = background.finish(&runtime, work);
        let polled = AssertUnwindSafe(|| unfinished.now_or_never());
        assert!(std::panic::catch_unwind(polled).is_err());
        assert_eq!(background.tasks.load(Ordering::Relaxed), 0, "its rest goes on");
    }
}
