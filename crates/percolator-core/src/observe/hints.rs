//! Hints: a queue of cells that this process has just made dirty, so that its own workers need
//! not find them by scanning.
//!
//! Hints may be lost without harm: the notification is in the store, and a scan finds it
//! (H61). So the queue is bounded, and hints beyond the bound are dropped and counted.
//!
//! Each observed column has its own queue, a lane, and workers take from the lanes in turn. So
//! a long backlog of one column does not delay the others. A lane may have a bound of runs at
//! a time. Workers skip a lane that has reached its bound, so that slow observers do not
//! occupy all workers.
//!
//! ADR-12 says what this design costs, and what would change it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Poll, Waker};

use bigtable::RowKey;
use bigtable::sync::locked;

use crate::bell::Bell;
use crate::observe::crew::Crew;
use crate::records::column::Cell;
use crate::records::schema::Observed;
use crate::{Column, Timestamp};

/// Most hints that wait at a time for the workers of one `observe`, divided equally among its
/// lanes.
const HINTS_MAX: usize = 200_000;

/// The hints of a client: one queue for each call of `observe`, with the columns that it has
/// observers for.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    /// How many queues there are. If zero, `push` returns at once.
    wanted: AtomicUsize,
    queues: Mutex<Vec<Weak<Queue>>>,
    /// Rung when a column of a batching observer changes, and when a caller begins to wait for
    /// idleness.
    pub(crate) collected: Bell,
}

/// The hints for the workers of one `observe`.
#[derive(Debug)]
pub(crate) struct Queue {
    /// The columns that get hints, each with the index of its lane.
    each: Columns<usize>,
    /// The columns of batching observers, which collect their changes themselves.
    batched: Columns<()>,
    /// The observers that these workers run.
    running: Vec<Observed>,
    crew: Arc<Crew>,
    state: Mutex<State>,
}

/// A hint.
#[derive(Debug, Clone)]
pub(crate) struct Hint {
    /// The dirty cell.
    pub(crate) cell: Cell,
    /// The timestamp of its notification, if this process has just written it.
    pub(crate) at: Option<Timestamp>,
}

/// A visit to a cell of a lane. It counts as a run of the lane until it is dropped.
#[derive(Debug)]
pub(crate) struct Run {
    queue: Arc<Queue>,
    lane: usize,
}

/// A value for each of some columns, by table.
#[derive(Debug)]
struct Columns<T>(BTreeMap<String, BTreeMap<Column, T>>);

impl<T> FromIterator<((String, Column), T)> for Columns<T> {
    fn from_iter<I: IntoIterator<Item = ((String, Column), T)>>(columns: I) -> Self {
        let mut all = Columns(BTreeMap::new());
        for ((table, column), of) in columns {
            all.0.entry(table).or_default().insert(column, of);
        }
        all
    }
}

impl<T> Columns<T> {
    fn of(&self, cell: &Cell) -> Option<&T> {
        self.0.get(cell.table.name())?.get(&cell.column)
    }
}

#[derive(Debug)]
struct State {
    lanes: Vec<Lane>,
    /// The lane whose turn is next.
    next: usize,
    sleepers: BTreeMap<u64, Waker>,
    next_sleeper: u64,
}

/// The hints at changes of one column.
#[derive(Debug)]
struct Lane {
    queue: VecDeque<Cell>,
    /// The rows of the cells in the queue, each with its newest known notification. Several
    /// changes of one cell need one visit only (the paper's message collapsing). A hash map is
    /// cheaper than a tree here. A tree compares rows at each push and pop, and in a long
    /// backlog these rows are no longer in the processor's caches.
    waiting: HashMap<RowKey, Option<Timestamp>>,
    hints_max: usize,
    /// How many workers are at cells of the column, and how many there may be.
    runs: usize,
    runs_max: usize,
}

impl Lane {
    fn is_ready(&self) -> bool {
        !self.queue.is_empty() && self.runs < self.runs_max
    }
}

impl State {
    /// Takes out the waker of a sleeping worker, if the lane has a hint that may run.
    fn wake(&mut self, lane: usize) -> Option<Waker> {
        let (_, waker) = self.lanes[lane].is_ready().then(|| self.sleepers.pop_first())??;
        Some(waker)
    }
}

impl Hints {
    fn queues(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Queue>>> {
        locked(&self.queues)
    }

    /// Creates the queue of one `observe`, which lives until it is dropped. Columns in `each`
    /// get a lane of hints, with their bound of runs at a time. A change of a column in
    /// `batched` rings `collected`.
    pub(crate) fn begin(
        &self,
        each: Vec<((String, Column), usize)>,
        batched: impl Iterator<Item = (String, Column)>,
        running: Vec<Observed>,
        crew: &Arc<Crew>,
    ) -> Arc<Queue> {
        let hints_max = HINTS_MAX / each.len().max(1);
        let lane = |(_, runs_max): &(_, usize)| Lane {
            queue: VecDeque::new(),
            waiting: HashMap::new(),
            hints_max,
            runs: 0,
            runs_max: (*runs_max).max(1),
        };
        let lanes = each.iter().map(lane).collect();
        let state = State { lanes, next: 0, sleepers: BTreeMap::new(), next_sleeper: 0 };
        let queue = Arc::new(Queue {
            each: each.into_iter().enumerate().map(|(n, (column, _))| (column, n)).collect(),
            batched: batched.map(|column| (column, ())).collect(),
            running,
            crew: crew.clone(),
            state: Mutex::new(state),
        });
        let mut queues = self.queues();
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(&queue));
        self.wanted.store(queues.len(), Ordering::Relaxed);
        queue
    }

    /// Adds the hint to every queue that has an observer for its cell. Returns how many queues were
    /// full, and have not taken the hint.
    pub(crate) fn push(&self, hint: &Hint) -> u64 {
        if self.wanted.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let (mut ended, mut collected, mut dropped) = (false, false, 0);
        let mut queues = self.queues();
        for queue in queues.iter() {
            match queue.upgrade() {
                Some(queue) if queue.batched.of(&hint.cell).is_some() => collected = true,
                Some(queue) => dropped += u64::from(!queue.push(hint)),
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
        dropped
    }

    fn live(&self) -> Vec<Arc<Queue>> {
        self.queues().iter().filter_map(Weak::upgrade).collect()
    }

    /// The observers that this client's workers run.
    pub(crate) fn running(&self) -> BTreeSet<Observed> {
        self.live().iter().flat_map(|queue| queue.running.clone()).collect()
    }

    /// How many hints wait, in all queues.
    pub(crate) fn len(&self) -> usize {
        self.live().iter().map(|queue| queue.len()).sum()
    }

    /// How many hints wait for workers that have not been stopped.
    pub(crate) fn len_at_work(&self) -> usize {
        self.live().iter().filter(|queue| queue.crew.is_at_work()).map(|queue| queue.len()).sum()
    }
}

impl Queue {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Adds a hint if its column has a lane. Returns `false` if the lane is full.
    pub(crate) fn push(&self, hint: &Hint) -> bool {
        let Hint { cell, at } = hint;
        let Some(lane) = self.each.of(cell).copied() else { return true };
        let mut state = self.state();
        let of = &mut state.lanes[lane];
        if let Some(known) = of.waiting.get_mut(&cell.row) {
            *known = (*known).max(*at);
            return true;
        }
        if of.queue.len() >= of.hints_max {
            return false;
        }
        of.waiting.insert(cell.row.clone(), *at);
        of.queue.push_back(cell.clone());
        let sleeper = state.wake(lane);
        drop(state);
        if let Some(waker) = sleeper {
            waker.wake();
        }
        true
    }

    /// Takes a hint from the next lane that has one and may have another run.
    pub(crate) fn pop(self: &Arc<Self>) -> Option<(Hint, Run)> {
        let mut state = self.state();
        let lanes = state.lanes.len();
        let turns = (0..lanes).map(|n| (state.next + n) % lanes);
        let lane = turns.into_iter().find(|lane| state.lanes[*lane].is_ready())?;
        state.next = lane + 1;
        let of = &mut state.lanes[lane];
        let cell = of.queue.pop_front()?;
        let at = of.waiting.remove(&cell.row).flatten();
        of.runs += 1;
        Some((Hint { cell, at }, Run { queue: self.clone(), lane }))
    }

    /// Begins a visit to a cell that has no hint, if its column may have another run.
    pub(crate) fn enter(self: &Arc<Self>, cell: &Cell) -> Option<Run> {
        let lane = self.each.of(cell).copied()?;
        let mut state = self.state();
        let of = &mut state.lanes[lane];
        (of.runs < of.runs_max).then(|| {
            of.runs += 1;
            Run { queue: self.clone(), lane }
        })
    }

    /// Whether a hint for the cell waits. Then a scan can skip the cell.
    pub(crate) fn is_waiting(&self, cell: &Cell) -> bool {
        let lane = self.each.of(cell).copied();
        lane.is_some_and(|lane| self.state().lanes[lane].waiting.contains_key(&cell.row))
    }

    fn len(&self) -> usize {
        self.state().lanes.iter().map(|lane| lane.queue.len()).sum()
    }

    /// Whether no hint waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Completes when there may be a hint to take.
    pub(crate) async fn arrival(&self) {
        let mut sleeper = Sleeper { hints: self, id: None };
        poll_fn(|cx| {
            let mut state = self.state();
            match sleeper.id {
                None if state.lanes.iter().any(Lane::is_ready) => return Poll::Ready(()),
                None => {
                    sleeper.id = Some(state.next_sleeper);
                    state.next_sleeper += 1;
                }
                // A hint has woken this worker: it is no longer among the sleepers.
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

impl Drop for Run {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        state.lanes[self.lane].runs -= 1;
        let sleeper = state.wake(self.lane);
        drop(state);
        if let Some(waker) = sleeper {
            waker.wake();
        }
    }
}

/// Removes its worker from the sleepers when the wait is cancelled.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_lane_drops_hints_and_says_so() {
        crate::testing::doc_test(|client| async move {
            let table = client.table("t").await?;
            let [observed, other] = [Column::literal("f:a"), Column::literal("f:b")];
            let (hints, crew) = (Hints::default(), Arc::new(Crew::default()));
            let hint = |row: usize, column: &Column| {
                let cell = Cell::new(&table, &row.to_string().into(), column);
                Hint { cell, at: None }
            };
            assert_eq!(hints.push(&hint(0, &observed)), 0, "nobody wants it");
            let lanes = vec![(("t".to_owned(), observed.clone()), 1)];
            let queue = hints.begin(lanes, std::iter::empty(), Vec::new(), &crew);
            for row in 0..HINTS_MAX {
                assert_eq!(hints.push(&hint(row, &observed)), 0);
            }
            assert_eq!(hints.push(&hint(HINTS_MAX, &observed)), 1);
            assert_eq!(hints.push(&hint(HINTS_MAX - 1, &observed)), 0, "it waits already");
            assert_eq!(hints.push(&hint(HINTS_MAX, &other)), 0, "it has no lane");
            assert_eq!(hints.len(), HINTS_MAX);
            drop(queue.pop());
            assert_eq!(hints.push(&hint(HINTS_MAX, &observed)), 0);
            Ok(())
        });
    }
}
