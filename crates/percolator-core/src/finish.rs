//! A commit is finished, although its caller lets go of it (hazard H72).
//!
//! A future may be dropped at every point: a timeout fires, or a client of somebody's service hangs up.
//! Between the two phases of a commit that would leave locks whose owner lives, and everybody else
//! would wait for them as long as a lock lasts. So a commit that has to wait for anything goes through
//! [`Client::finish`]. Its caller polls it, for as long as the caller is there; a task of its own polls
//! it from then on.
//!
//! Invariants: at most [`TASKS_MAX`] such tasks run at a time, and further ones wait their turn. A
//! process that dies takes its tasks with it (H16): nothing of a dead process is finished.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures::future::BoxFuture;

use crate::mutants::{self, off};
use crate::{Client, Runtime};

/// Most tasks of a client that finish commits in the background.
const TASKS_MAX: usize = 256;

/// The work of a client that goes on in the background.
#[derive(Default)]
pub(crate) struct Background(Mutex<State>);

#[derive(Default)]
struct State {
    running: usize,
    waiting: VecDeque<BoxFuture<'static, ()>>,
}

impl std::fmt::Debug for Background {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Background").field("running", &self.state().running).finish_non_exhaustive()
    }
}

impl Background {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is room for another task, without waiting; `work` is not begun if not.
    pub(crate) fn try_start(
        self: &Arc<Self>,
        runtime: &dyn Runtime,
        work: BoxFuture<'static, ()>,
    ) -> Result<(), BoxFuture<'static, ()>> {
        {
            let mut state = self.state();
            if state.running >= TASKS_MAX {
                return Err(work);
            }
            state.running += 1;
        }
        let task = Task { background: self.clone(), counted: true };
        runtime.spawn(Box::pin(task.run(work)));
        Ok(())
    }

    /// Has work go on, as soon as there is room for it.
    fn start(self: &Arc<Self>, runtime: &dyn Runtime, work: BoxFuture<'static, ()>) {
        if let Err(work) = self.try_start(runtime, work) {
            let mut state = self.state();
            if state.running > 0 {
                return state.waiting.push_back(work);
            }
            drop(state);
            // Those before it have ended meanwhile.
            self.start(runtime, work);
        }
    }
}

/// One of the tasks.
struct Task {
    background: Arc<Background>,
    counted: bool,
}

impl Task {
    async fn run(mut self, first: BoxFuture<'static, ()>) {
        let mut next = Some(first);
        while let Some(work) = next {
            work.await;
            next = self.next();
        }
    }

    /// The work that waits next; without any, this task ends.
    fn next(&mut self) -> Option<BoxFuture<'static, ()>> {
        let mut state = self.background.state();
        let next = state.waiting.pop_front();
        if next.is_none() {
            state.running -= 1;
            self.counted = false;
        }
        next
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if !self.counted {
            return;
        }
        let mut state = self.background.state();
        state.running -= 1;
        // The runtime has ended. Nobody would come to those that wait, and they hold the store.
        let orphans = match state.running {
            0 => std::mem::take(&mut state.waiting),
            _ => VecDeque::new(),
        };
        drop(state);
        drop(orphans);
    }
}

impl Client {
    /// Does work to its end: if the caller lets go, in the background.
    pub(crate) async fn finish<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let (runtime, background) = (self.runtime().clone(), self.background().clone());
        Unfinished { work: Some(Box::pin(work)), runtime, background }.await
    }
}

/// Work that its caller polls.
struct Unfinished<T: Send + 'static> {
    work: Option<BoxFuture<'static, T>>,
    runtime: Arc<dyn Runtime>,
    background: Arc<Background>,
}

impl<T: Send + 'static> Future for Unfinished<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let work = self.work.as_mut().expect("it is not polled after its end");
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.work = None;
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
            self.background.start(&*self.runtime, Box::pin(work));
        }
    }
}
