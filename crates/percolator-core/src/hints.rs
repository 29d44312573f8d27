//! Hints: cells that this process has just made dirty, so that its own workers need not find them by
//! scanning (H61).
//!
//! A hint is never needed: the notify cell is in the store, and the scan finds it. So the queue is
//! bounded, and what does not fit is dropped.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Poll, Waker};

use crate::bell::Bell;
use crate::column::Cell;
use crate::schema::Observed;
use crate::{Column, Timestamp};

/// Most hints that wait at a time for the workers of one `observe`.
const HINTS_MAX: usize = 200_000;

/// The hints of a client: a queue for each of its `observe`s, with the cells that it has observers for.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    /// How many queues there are; without workers no hint is kept.
    wanted: AtomicUsize,
    queues: Mutex<Vec<Weak<Queue>>>,
    /// Rung at a change whose observer collects its changes itself, and when somebody begins to wait for
    /// idleness.
    pub(crate) collected: Bell,
}

/// The hints for the workers of one `observe`.
#[derive(Debug)]
pub(crate) struct Queue {
    /// The columns whose changes are hinted at.
    each: Columns,
    /// The columns whose observers collect their changes themselves.
    batched: Columns,
    /// The observers that run.
    running: Vec<Observed>,
    state: Mutex<State>,
}

/// A hint.
#[derive(Debug, Clone)]
pub(crate) struct Hint {
    /// The cell that is dirty.
    pub(crate) cell: Cell,
    /// The timestamp of its notification, if this process has just left it.
    pub(crate) at: Option<Timestamp>,
}

/// Columns by table.
#[derive(Debug, Default)]
struct Columns(BTreeMap<String, BTreeSet<Column>>);

impl FromIterator<(String, Column)> for Columns {
    fn from_iter<I: IntoIterator<Item = (String, Column)>>(columns: I) -> Self {
        let mut all = Columns::default();
        for (table, column) in columns {
            all.0.entry(table).or_default().insert(column);
        }
        all
    }
}

impl Columns {
    fn has(&self, cell: &Cell) -> bool {
        self.0.get(cell.table.name()).is_some_and(|columns| columns.contains(&cell.column))
    }
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Cell>,
    /// The cells in the queue, each with its newest notification that is known. Several changes of one
    /// cell need one visit (message collapsing).
    waiting: BTreeMap<Cell, Option<Timestamp>>,
    sleepers: BTreeMap<u64, Waker>,
    next_sleeper: u64,
}

impl Hints {
    fn queues(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Queue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to keep hints at changes of the columns `each`, and to ring at changes of those `batched`, until
    /// the queue is dropped.
    pub(crate) fn begin(
        &self,
        each: impl Iterator<Item = (String, Column)>,
        batched: impl Iterator<Item = (String, Column)>,
        running: Vec<Observed>,
    ) -> Arc<Queue> {
        let (each, batched) = (each.collect(), batched.collect());
        let queue = Arc::new(Queue { each, batched, running, state: Mutex::default() });
        let mut queues = self.queues();
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(&queue));
        self.wanted.store(queues.len(), Ordering::Relaxed);
        queue
    }

    /// Tells every queue that wants the cell.
    pub(crate) fn push(&self, hint: &Hint) {
        if self.wanted.load(Ordering::Relaxed) == 0 {
            return;
        }
        let (mut ended, mut collected) = (false, false);
        let mut queues = self.queues();
        for queue in queues.iter() {
            match queue.upgrade() {
                Some(queue) if queue.batched.has(&hint.cell) => collected = true,
                Some(queue) => queue.push(hint),
                None => ended = true,
            }
        }
        if ended {
            queues.retain(|queue| queue.strong_count() > 0);
            self.wanted.store(queues.len(), Ordering::Relaxed);
        }
        drop(queues);
        if collected {
            self.collected.ring();
        }
    }

    /// The observers that workers of this client run.
    pub(crate) fn running(&self) -> BTreeSet<Observed> {
        let queues = self.queues();
        let live = queues.iter().filter_map(Weak::upgrade);
        live.flat_map(|queue| queue.running.clone()).collect()
    }

    /// How many hints wait, in all queues.
    pub(crate) fn len(&self) -> usize {
        self.queues().iter().filter_map(Weak::upgrade).map(|queue| queue.len()).sum()
    }
}

impl Queue {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, hint: &Hint) {
        let Hint { cell, at } = hint;
        if !self.each.has(cell) {
            return;
        }
        let mut state = self.state();
        if let Some(known) = state.waiting.get_mut(cell) {
            *known = (*known).max(*at);
            return;
        }
        if state.queue.len() >= HINTS_MAX {
            return;
        }
        state.waiting.insert(cell.clone(), *at);
        state.queue.push_back(cell.clone());
        let sleeper = state.sleepers.pop_first();
        drop(state);
        if let Some((_, waker)) = sleeper {
            waker.wake();
        }
    }

    pub(crate) fn pop(&self) -> Option<Hint> {
        let mut state = self.state();
        let cell = state.queue.pop_front()?;
        let at = state.waiting.remove(&cell).flatten();
        Some(Hint { cell, at })
    }

    /// Whether a hint for the cell waits, so that a scan can leave it to whoever takes it.
    pub(crate) fn is_waiting(&self, cell: &Cell) -> bool {
        self.state().waiting.contains_key(cell)
    }

    fn len(&self) -> usize {
        self.state().queue.len()
    }

    /// Whether no hint waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
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
    hints: &'a Queue,
    id: Option<u64>,
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.hints.state().sleepers.remove(&id);
        }
    }
}
