//! Hints: cells that this process has just made dirty, so that its own workers need not find them by
//! scanning (H61).
//!
//! A hint is never needed: the notify cell is in the store, and the scan finds it. So the queue is
//! bounded, and what does not fit is dropped.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};

use crate::Column;
use crate::column::Cell;

/// Most hints that wait at a time.
const HINTS_MAX: usize = 200_000;

#[derive(Debug, Default)]
pub(crate) struct Hints {
    /// How many take hints; without workers none are kept.
    wanted: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Cell>,
    /// Columns whose observers collect their changes themselves, and need no hints.
    batched: BTreeSet<(String, Column)>,
    /// What is in the queue: several changes of one cell need one visit (message collapsing).
    waiting: BTreeSet<Cell>,
    sleepers: BTreeMap<u64, Waker>,
    next_sleeper: u64,
}

impl Hints {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Workers begin to take hints, but not of `batched` columns.
    pub(crate) fn begin(&self, batched: impl Iterator<Item = (String, Column)>) {
        self.state().batched.extend(batched);
        self.wanted.fetch_add(1, Ordering::Relaxed);
    }

    /// Workers cease to take hints.
    pub(crate) fn end(&self) {
        if self.wanted.fetch_sub(1, Ordering::Relaxed) == 1 {
            let mut state = self.state();
            state.queue.clear();
            state.waiting.clear();
            state.batched.clear();
        }
    }

    pub(crate) fn push(&self, cell: Cell) {
        if self.wanted.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut state = self.state();
        let collected = |(table, column): &(String, Column)| {
            *column == cell.column && table == cell.table.name()
        };
        if state.batched.iter().any(collected)
            || state.queue.len() >= HINTS_MAX
            || !state.waiting.insert(cell.clone())
        {
            return;
        }
        state.queue.push_back(cell);
        let sleeper = state.sleepers.pop_first();
        drop(state);
        if let Some((_, waker)) = sleeper {
            waker.wake();
        }
    }

    pub(crate) fn pop(&self) -> Option<Cell> {
        let mut state = self.state();
        let cell = state.queue.pop_front()?;
        state.waiting.remove(&cell);
        Some(cell)
    }

    /// Whether a hint for the cell waits, so that a scan can leave it to whoever takes it.
    pub(crate) fn is_waiting(&self, cell: &Cell) -> bool {
        self.state().waiting.contains(cell)
    }

    pub(crate) fn len(&self) -> usize {
        self.state().queue.len()
    }

    /// Completes when there may be a hint.
    pub(crate) async fn arrival(&self) {
        let mut sleeper = Sleeper { hints: self, id: None };
        poll_fn(|cx| {
            let mut state = self.state();
            match sleeper.id {
                None if !state.queue.is_empty() => return Poll::Ready(()),
                None => {
                    sleeper.id = Some(state.next_sleeper);
                    state.next_sleeper += 1;
                }
                // Taken out of the sleepers: woken by a hint.
                Some(id) if !state.sleepers.contains_key(&id) => return Poll::Ready(()),
                Some(_) => {}
            }
            if let Some(id) = sleeper.id {
                state.sleepers.insert(id, cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

/// Leaves the sleepers when the wait is given up.
struct Sleeper<'a> {
    hints: &'a Hints,
    id: Option<u64>,
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.hints.state().sleepers.remove(&id);
        }
    }
}
