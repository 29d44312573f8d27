//! Finishes commits whose caller drops the future.
//!
//! A future may be dropped at every point: a timeout fires, or a client of the service hangs
//! up. Between the two phases of a commit this would leave locks whose owner lives. Every
//! other client would wait for them as long as a lock lasts (H72). So every commit that has to
//! wait runs through [`Background::finish`]. Its caller polls it as long as the caller exists.
//! After that a task of its own polls it.
//!
//! Invariants:
//! * Work that has begun is polled without a pause until it ends. It may hold a lock that
//!   other commits wait for, such as the lock of the oracle's record, or be the next to get
//!   it. If it were not polled in its turn, it would block the tasks behind it forever.
//! * At most [`FINISHED_MAX`] tasks run at a time. A further commit is left as a crash would
//!   leave it.
//! * A process that dies takes its tasks with it: nothing of a dead process is finished (H16).
//!
//! ADR-7 says what this design costs, and what would change it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures::future::BoxFuture;

use crate::Runtime;
use crate::bell::Bell;
use crate::mutants::{self, off};

/// With this many tasks in the background, a commit awaits its secondaries itself.
const TASKS_MAX: usize = 256;
/// Most tasks in the background, including those that finish commits.
const FINISHED_MAX: usize = 16 * 1024;

/// The work of a client that goes on in the background.
#[derive(Debug, Default)]
pub(crate) struct Background {
    tasks: AtomicUsize,
    /// How much work is unfinished: work that callers poll, and tasks that run. A closing
    /// client waits for both.
    unfinished: AtomicUsize,
    /// Rung when no work is left.
    finished: Bell,
}

/// Counts one piece of unfinished work as long as it lives.
struct Counted(Arc<Background>);

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0.unfinished.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.finished.ring();
        }
    }
}

impl Background {
    fn count(self: &Arc<Self>) -> Counted {
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

    /// Runs work to its end. If the caller drops the returned future, the work goes on in the
    /// background.
    pub(crate) fn finish<T: Send + 'static>(
        self: &Arc<Self>,
        runtime: &Arc<dyn Runtime>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Unfinished<T> {
        let (runtime, background) = (runtime.clone(), self.clone());
        let _counted = background.count();
        Unfinished { work: Some(Box::pin(work)), runtime, background, _counted }
    }

    /// Starts work in a task of its own if few tasks run. Otherwise returns the work, which
    /// has not begun.
    pub(crate) fn try_start(
        self: &Arc<Self>,
        runtime: &dyn Runtime,
        work: BoxFuture<'static, ()>,
    ) -> Result<(), BoxFuture<'static, ()>> {
        self.start_below(TASKS_MAX, runtime, work)
    }

    fn start_below(
        self: &Arc<Self>,
        tasks_max: usize,
        runtime: &dyn Runtime,
        work: BoxFuture<'static, ()>,
    ) -> Result<(), BoxFuture<'static, ()>> {
        let one_more = |tasks| (tasks < tasks_max).then_some(tasks + 1);
        if self.tasks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_err() {
            return Err(work);
        }
        let task = (Task(self.clone()), self.count());
        runtime.spawn(Box::pin(async move {
            let _task = task;
            work.await;
        }));
        Ok(())
    }
}

/// Counts one task until it ends, also by a panic.
struct Task(Arc<Background>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.tasks.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Work that its caller polls.
pub(crate) struct Unfinished<T: Send + 'static> {
    work: Option<BoxFuture<'static, T>>,
    runtime: Arc<dyn Runtime>,
    background: Arc<Background>,
    /// Dropped only after the work has gone on in the background, so that the count never
    /// falls to zero between.
    _counted: Counted,
}

impl<T: Send + 'static> Future for Unfinished<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // Take the work out, so that work that panics here is not polled again.
        let mut work = self.work.take().expect("it is not polled after its end");
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Unfinished<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take().filter(|_| !off(mutants::DROPPED_MEANS_DEAD)) {
            let work = async move {
                // No caller is left to receive the result.
                drop(work.await);
            };
            // If too many tasks run, the work is dropped. Clients that find its locks resolve
            // them.
            let begun = self.background.start_below(FINISHED_MAX, &*self.runtime, Box::pin(work));
            drop(begun);
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
            let (runtime, background) = (runtime.clone(), background.clone());
            let _counted = background.count();
            drop(Unfinished { work: Some(work), runtime, background, _counted });
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
        let (counted, background_too) = (background.count(), background.clone());
        let unfinished =
            Unfinished { work: Some(work), runtime, background: background_too, _counted: counted };
        let polled = AssertUnwindSafe(|| unfinished.now_or_never());
        assert!(std::panic::catch_unwind(polled).is_err());
        assert_eq!(background.tasks.load(Ordering::Relaxed), 0, "its rest goes on");
    }
}
