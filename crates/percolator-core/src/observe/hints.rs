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
//! A run whose observer has ended waits for its commit. Where commits share their syncs, other
//! observers run meanwhile, as many as the lane's window allows (`window.rs`). There a scan leaves
//! hints at cells that it finds, as long as the lane is short. A worker that cannot handle such a
//! cell at once leaves it to the next scan.
//!
//! ADR-12 says what this design costs, and what would change it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Poll, Waker};

use bigtable::RowKey;
use bigtable::sync::locked;
use foldhash::fast::RandomState;

use crate::bell::Bell;
use crate::observe::crew::Crew;
use crate::observe::window::Window;
use crate::records::column::Cell;
use crate::records::schema::Observed;
use crate::{Column, Timestamp};

/// Most hints that wait at a time for the workers of one `observe`, divided equally among its
/// lanes.
const HINTS_MAX: usize = 200_000;
/// The hints of a lane beyond which a scan adds none. New changes of this process wait behind them.
const FOUND_MAX: usize = 256;

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
    /// How many observers may run at a time.
    running_max: usize,
    /// Whether further observers run while the commits of others wait.
    overlaps: bool,
    state: Mutex<State>,
}

/// A hint.
#[derive(Debug, Clone)]
pub(crate) struct Hint {
    /// The dirty cell.
    pub(crate) cell: Cell,
    /// The timestamp of its notification, if this process has just written it.
    pub(crate) at: Option<Timestamp>,
    /// Whether a scan has found the cell, and this process has not changed it since.
    pub(crate) found: bool,
}

impl Hint {
    /// The hint of a change that this process has made.
    pub(crate) fn new(cell: Cell, at: Option<Timestamp>) -> Self {
        Hint { cell, at, found: false }
    }
}

/// A visit to a cell of a lane. It counts as a run of the lane until it is dropped.
#[derive(Debug)]
pub(crate) struct Run {
    queue: Arc<Queue>,
    lane: usize,
    /// Whether a scan makes the visit, which does not wait for the lane's window.
    by_scan: bool,
    /// Whether its observer has ended, and it commits.
    commits: AtomicBool,
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
    /// How many runs have not begun to commit.
    running: usize,
    sleepers: BTreeMap<u64, Waker>,
    next_sleeper: u64,
}

/// The hints at changes of one column.
#[derive(Debug)]
struct Lane {
    queue: VecDeque<Cell>,
    /// The rows of the cells in the queue. Each has its newest known notification, and a flag that
    /// says whether only a scan has found it. Several changes of one cell need one visit only (the
    /// paper's message collapsing). A hash map is cheaper than a tree here. A tree compares rows at
    /// each push and pop, and in a long backlog these rows are no longer in the processor's caches.
    waiting: HashMap<RowKey, (Option<Timestamp>, bool), RandomState>,
    hints_max: usize,
    /// How many hints only a scan has found.
    found: usize,
    /// How many workers are at cells of the column, and how many there may be.
    runs: usize,
    runs_max: usize,
    window: Window,
}

impl Lane {
    fn is_ready(&self) -> bool {
        !self.queue.is_empty() && self.runs < self.runs_max.min(self.window.width())
    }
}

impl Queue {
    /// The first lane from the one whose turn is next that has a hint which may run.
    fn ready(&self, state: &State) -> Option<usize> {
        let lanes = state.lanes.len();
        let mut turns = (0..lanes).map(|n| (state.next + n) % lanes);
        let may_run = state.running < self.running_max;
        turns.find(|lane| may_run && state.lanes[*lane].is_ready())
    }

    /// Wakes a sleeping worker, if there is a hint that may run.
    fn wake(&self, mut state: MutexGuard<'_, State>) {
        let sleeper = self.ready(&state).and_then(|_| state.sleepers.pop_first());
        drop(state);
        if let Some((_, waker)) = sleeper {
            waker.wake();
        }
    }
}

impl Hints {
    fn queues(&self) -> MutexGuard<'_, Vec<Weak<Queue>>> {
        locked(&self.queues)
    }

    /// Creates the queue of one `observe`, which lives until it is dropped. Columns in `each`
    /// get a lane of hints, with their bound of runs at a time. A change of a column in
    /// `batched` rings `collected`. `at_once` says how many observers may run at a time, and how
    /// many runs there may be of a lane, those that commit included.
    pub(crate) fn begin(
        &self,
        each: Vec<((String, Column), usize)>,
        batched: impl Iterator<Item = (String, Column)>,
        running: Vec<Observed>,
        crew: &Arc<Crew>,
        at_once: (usize, usize),
    ) -> Arc<Queue> {
        let (running_max, window_max) = at_once;
        let overlaps = window_max > running_max;
        let hints_max = HINTS_MAX / each.len().max(1);
        let lane = |(_, runs_max): &(_, usize)| Lane {
            queue: VecDeque::new(),
            waiting: HashMap::default(),
            hints_max,
            found: 0,
            runs: 0,
            runs_max: (*runs_max).max(1),
            window: Window::new(running_max, window_max),
        };
        let lanes = each.iter().map(lane).collect();
        let sleepers = BTreeMap::new();
        let state = State { lanes, next: 0, running: 0, sleepers, next_sleeper: 0 };
        let queue = Arc::new(Queue {
            each: each.into_iter().enumerate().map(|(n, (column, _))| (column, n)).collect(),
            batched: batched.map(|column| (column, ())).collect(),
            running,
            crew: crew.clone(),
            running_max,
            overlaps,
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

    /// How many changes of this client wait for workers that have not been stopped.
    pub(crate) fn len_at_work(&self) -> usize {
        let live = self.live();
        live.iter().filter(|queue| queue.crew.is_at_work()).map(|queue| queue.len_of_own()).sum()
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Adds a hint if its column has a lane. Returns `false` if the lane is full.
    pub(crate) fn push(&self, hint: &Hint) -> bool {
        let Hint { cell, at, found } = hint;
        let Some(lane) = self.each.of(cell).copied() else { return true };
        let mut state = self.state();
        let of = &mut state.lanes[lane];
        if let Some((known, only_found)) = of.waiting.get_mut(&cell.row) {
            *known = (*known).max(*at);
            of.found -= usize::from(*only_found && !found);
            *only_found &= found;
            return true;
        }
        if of.queue.len() >= if *found { FOUND_MAX.min(of.hints_max) } else { of.hints_max } {
            return false;
        }
        of.found += usize::from(*found);
        of.waiting.insert(cell.row.clone(), (*at, *found));
        of.queue.push_back(cell.clone());
        self.wake(state);
        true
    }

    /// Takes a hint from the next lane that has one and may have another run.
    pub(crate) fn pop(self: &Arc<Self>) -> Option<(Hint, Run)> {
        let mut state = self.state();
        let lane = self.ready(&state)?;
        state.next = lane + 1;
        let of = &mut state.lanes[lane];
        let cell = of.queue.pop_front()?;
        let (at, found) = of.waiting.remove(&cell.row).unwrap_or_default();
        of.found -= usize::from(found);
        let run = self.run(&mut state, lane, false);
        // A run that has ended wakes one worker, and may have made room for several.
        if !state.sleepers.is_empty() {
            self.wake(state);
        }
        Some((Hint { cell, at, found }, run))
    }

    fn run(self: &Arc<Self>, state: &mut State, lane: usize, by_scan: bool) -> Run {
        state.running += 1;
        state.lanes[lane].runs += 1;
        Run { queue: self.clone(), lane, by_scan, commits: AtomicBool::new(false) }
    }

    /// Begins a visit to a cell that has no hint, if its column may have another run. It may begin
    /// while hints keep all workers busy. Otherwise a cell whose hint was lost would wait for them.
    pub(crate) fn enter(self: &Arc<Self>, cell: &Cell) -> Option<Run> {
        let lane = self.each.of(cell).copied()?;
        let mut state = self.state();
        let of = &state.lanes[lane];
        (of.runs < of.runs_max).then(|| self.run(&mut state, lane, true))
    }

    /// Whether a hint for the cell waits. Then a scan can skip the cell.
    pub(crate) fn is_waiting(&self, cell: &Cell) -> bool {
        let lane = self.each.of(cell).copied();
        lane.is_some_and(|lane| self.state().lanes[lane].waiting.contains_key(&cell.row))
    }

    fn len(&self) -> usize {
        self.state().lanes.iter().map(|lane| lane.queue.len()).sum()
    }

    fn len_of_own(&self) -> usize {
        self.state().lanes.iter().map(|lane| lane.queue.len() - lane.found).sum()
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
                None if self.ready(&state).is_some() => return Poll::Ready(()),
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

impl Run {
    /// Notes that the last observer has ended. While the run commits, another observer may run.
    pub(crate) fn begins_to_commit(&self) {
        if self.queue.overlaps && !self.commits.swap(true, Ordering::Relaxed) {
            let mut state = self.queue.state();
            state.running -= 1;
            self.queue.wake(state);
        }
    }

    /// Notes that the observer runs again. It does not wait for observers that have begun
    /// meanwhile.
    pub(crate) fn runs_again(&self) {
        if self.commits.swap(false, Ordering::Relaxed) {
            self.queue.state().running += 1;
        }
    }

    /// Notes that the commit has met a conflict. Returns whether the lane now has more runs than
    /// its window. Then this run should leave its cell to a later visit.
    pub(crate) fn met_conflict(&self) -> bool {
        if !self.queue.overlaps {
            return false;
        }
        let mut state = self.queue.state();
        state.running += usize::from(self.commits.swap(false, Ordering::Relaxed));
        let lane = &mut state.lanes[self.lane];
        lane.window.met_conflict();
        !self.by_scan && lane.runs > lane.window.width()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let queue = &self.queue;
        let mut state = queue.state();
        let commits = *self.commits.get_mut();
        state.running -= usize::from(!commits);
        let lane = &mut state.lanes[self.lane];
        lane.runs -= 1;
        if commits {
            lane.window.committed();
        }
        queue.wake(state);
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

    /// A queue with a lane for one column of the table `t`.
    fn queue_of(observed: &Column, at_once: (usize, usize)) -> Arc<Queue> {
        let lanes = vec![(("t".to_owned(), observed.clone()), usize::MAX)];
        let crew = Arc::new(Crew::default());
        Hints::default().begin(lanes, std::iter::empty(), Vec::new(), &crew, at_once)
    }

    #[test]
    fn runs_that_commit_leave_room_for_others_until_they_conflict() {
        crate::testing::doc_test(|client| async move {
            let table = client.table("t").await?;
            let observed = Column::literal("f:a");
            let queue = queue_of(&observed, (2, 8));
            let refill = || {
                for row in 0..100 {
                    let cell = Cell::new(&table, &row.to_string().into(), &observed);
                    assert!(queue.push(&Hint::new(cell, None)));
                }
            };
            let take = || queue.pop().map(|(_, run)| run);
            // Takes hints, whose runs commit at once, until none may run.
            let commit_all = || {
                let run = std::iter::from_fn(take).inspect(Run::begins_to_commit);
                run.collect::<Vec<_>>()
            };
            refill();
            let mut runs: Vec<Run> = std::iter::from_fn(take).collect();
            assert_eq!(runs.len(), 2, "two observers run at a time");
            runs[0].begins_to_commit();
            runs.extend(take());
            assert_eq!(runs.len(), 3, "a third one runs while the first run commits");
            runs[0].runs_again();
            runs[1].begins_to_commit();
            assert!(take().is_none(), "the first observer runs again");
            drop(runs);
            let runs = commit_all();
            assert_eq!(runs.len(), 8);
            assert!(!runs[0].met_conflict(), "one conflict is not enough");
            assert!(runs[1].met_conflict(), "eight runs, and a window of four");
            drop(runs);
            // Six runs without a conflict have widened the window again.
            assert_eq!(commit_all().len(), 6);
            Ok(())
        });
    }

    #[test]
    fn hints_of_scans_are_few_and_are_not_counted_as_this_clients_changes() {
        crate::testing::doc_test(|client| async move {
            let table = client.table("t").await?;
            let observed = Column::literal("f:a");
            let queue = queue_of(&observed, (2, 8));
            let cell = |row: usize| Cell::new(&table, &row.to_string().into(), &observed);
            let find = |row| queue.push(&Hint { cell: cell(row), at: None, found: true });
            for row in 0..FOUND_MAX {
                assert!(find(row));
                assert!(find(row), "it waits already");
            }
            assert!(!find(FOUND_MAX), "the scan visits it");
            assert_eq!((queue.len(), queue.len_of_own()), (FOUND_MAX, 0));
            // This client changes a cell that a scan has found, and another one.
            let at = Timestamp::new(7);
            assert!(queue.push(&Hint::new(cell(0), at)));
            assert!(queue.push(&Hint::new(cell(FOUND_MAX), at)));
            assert!(find(0));
            assert_eq!((queue.len(), queue.len_of_own()), (FOUND_MAX + 1, 2));
            let (hint, run) = queue.pop().expect("a hint waits");
            assert_eq!((hint.cell.row, hint.at, hint.found), (cell(0).row, at, false));
            assert_eq!((queue.len(), queue.len_of_own()), (FOUND_MAX, 1));
            drop(run);
            let (hint, _run) = queue.pop().expect("a hint waits");
            assert!(hint.found);
            assert_eq!((queue.len(), queue.len_of_own()), (FOUND_MAX - 1, 1));
            Ok(())
        });
    }

    #[test]
    fn a_full_lane_drops_hints_and_says_so() {
        crate::testing::doc_test(|client| async move {
            let table = client.table("t").await?;
            let [observed, other] = [Column::literal("f:a"), Column::literal("f:b")];
            let (hints, crew) = (Hints::default(), Arc::new(Crew::default()));
            let hint = |row: usize, column: &Column| {
                let cell = Cell::new(&table, &row.to_string().into(), column);
                Hint::new(cell, None)
            };
            assert_eq!(hints.push(&hint(0, &observed)), 0, "nobody wants it");
            let lanes = vec![(("t".to_owned(), observed.clone()), 1)];
            let queue = hints.begin(lanes, std::iter::empty(), Vec::new(), &crew, (4, 4));
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
