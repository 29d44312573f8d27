//! A commit is finished, although its caller lets go of it (hazard H72).
//!
//! A future may be dropped at every point: a timeout fires, or a client of somebody's service hangs
//! up. Between the two phases of a commit that would leave locks whose owner lives, and everybody
//! else would wait for them as long as a lock lasts. So a commit that has to wait for anything goes
//! through [`Background::finish`]. Its caller polls it, for as long as the caller is there; a task
//! of its own polls it from then on.
//!
//! Invariants: work that was begun is polled without a pause until it ends. It may hold a lock that
//! other commits wait for, or be the next to get one, as with the lock of the oracle's record. Work
//! that waited for its turn unpolled would hold up the tasks before it for ever. At most
//! [`FINISHED_MAX`] tasks run at a time; a commit beyond is left as a crash would leave it. A
//! process that dies takes its tasks with it (H16): nothing of a dead process is finished.
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

/// With so many tasks in the background, a commit awaits its secondaries itself.
const TASKS_MAX: usize = 256;
/// Most tasks in the background, those that finish commits included.
const FINISHED_MAX: usize = 16 * 1024;

/// The work of a client that goes on in the background.
#[derive(Debug, Default)]
pub(crate) struct Background {
    tasks: AtomicUsize,
    /// Work that callers poll, and tasks that run: a closing client waits for both.
    unfinished: AtomicUsize,
    /// Rung when none is left.
    finished: Bell,
}

/// Something unfinished.
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

    /// Waits until nothing is unfinished.
    pub(crate) async fn finished(&self) {
        loop {
            let rung = self.finished.rung();
            if self.unfinished() == 0 {
                return;
            }
            self.finished.after(rung).await;
        }
    }

    /// Does work to its end: if the caller lets go, in the background.
    pub(crate) fn finish<T: Send + 'static>(
        self: &Arc<Self>,
        runtime: &Arc<dyn Runtime>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Unfinished<T> {
        let (runtime, background) = (runtime.clone(), self.clone());
        let _counted = background.count();
        Unfinished { work: Some(Box::pin(work)), runtime, background, _counted }
    }

    /// Has work go on in a task of its own if there are few; `work` is not begun if not.
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

/// One of the tasks, until it ends in whatever way.
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
    /// Dropped after the work has gone on to the background.
    _counted: Counted,
}

impl<T: Send + 'static> Future for Unfinished<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // Taken out: work that panics here is not begun again.
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
                // Nobody is there to hear of it.
                drop(work.await);
            };
            // There are too many: whoever meets the locks resolves them.
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
