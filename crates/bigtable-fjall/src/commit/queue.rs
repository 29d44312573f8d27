//! Queues work for the committer thread: requests that were not committed on their callers'
//! threads, and tasks that may take long.
//!
//! The queue is bounded in requests, in tasks and in bytes. A request above the bound is
//! refused.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use bigtable::{CommitRow, CommitRows, Error, Result, RowKey, Timestamp};
use foldhash::fast::RandomState;
use futures::channel::oneshot;
use smallvec::SmallVec;

use crate::commit::edit::Request;
use crate::failure::fault;
use crate::layout::key::Key;
use crate::layout::table_info::TableInfo;

/// The most requests that one caller passes to the committer in one call.
pub(crate) const GROUP_OPS_MAX: usize = 1024;
/// Bytes of keys and values in one group. The request that reaches this bound is the group's
/// last.
pub(crate) const GROUP_BYTES_MAX: usize = 8 << 20;
/// The most queued requests examined for one group, including those that must wait for the
/// next.
const GROUP_EXAMINED_MAX: usize = 4 * GROUP_OPS_MAX;
/// The most requests that wait. Further requests are refused as `Unavailable`.
const QUEUE_OPS_MAX: usize = 16 * 1024;
/// The most tasks that wait.
const TASKS_MAX: usize = 1024;
/// Bytes of keys and values that wait. A request that exceeds the bound is refused, unless the
/// queue is empty.
const QUEUE_BYTES_MAX: usize = 128 << 20;

/// The rows of a group: the table's id, and the key.
type Rows = HashSet<(u32, RowKey), RandomState>;

const NO_PANIC: &str = "nothing panics while it holds the lock of the queue";

/// A request of one caller.
#[derive(Debug)]
pub(crate) enum Work {
    Row(Arc<TableInfo>, Request),
    Rows(RowsWork),
}

/// A change of several rows in one step.
#[derive(Debug)]
pub(crate) struct RowsWork {
    /// The table of each row, and the prefix of the row's keys.
    pub(crate) places: SmallVec<[(Arc<TableInfo>, Key); 1]>,
    pub(crate) request: CommitRows,
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outcome {
    /// For one row: whether its predicate held.
    Matched(bool),
    /// For several rows: see [`bigtable::RowsOutcome`].
    Committed(Timestamp),
    Rejected(usize),
    NoTimestamp,
}

/// Requests and tasks that wait for the committer thread. Closing the store drops the tasks
/// that still wait.
pub(crate) struct Queue<Task> {
    /// The most rows in one group. The request that reaches this bound is the group's last.
    group_rows_max: usize,
    state: Mutex<QueueState<Task>>,
    /// Signalled when a request or a task arrives, or when the store closes.
    bell: Condvar,
    /// Equal to `state.waiting.len()`, so that it can be read without the lock.
    len: AtomicUsize,
}

struct QueueState<Task> {
    waiting: VecDeque<Waiting>,
    tasks: VecDeque<Task>,
    /// Whether the committer took a task last.
    after_task: bool,
    bytes: usize,
    closed: bool,
}

pub(crate) struct Waiting {
    pub(crate) work: Work,
    bytes: usize,
    pub(crate) done: oneshot::Sender<Result<Outcome>>,
}

/// The reason why the committer was woken.
pub(crate) enum Woken<Task> {
    Requests,
    Task(Task),
    /// The store is closing, and no request is left.
    Closing,
    Time,
}

impl<Task> Queue<Task> {
    pub(crate) fn new(group_rows_max: usize) -> Self {
        let state = QueueState {
            waiting: VecDeque::new(),
            tasks: VecDeque::new(),
            after_task: false,
            bytes: 0,
            closed: false,
        };
        Queue {
            group_rows_max: group_rows_max.max(1),
            state: Mutex::new(state),
            bell: Condvar::default(),
            len: AtomicUsize::new(0),
        }
    }

    pub(crate) fn group_rows_max(&self) -> usize {
        self.group_rows_max
    }

    fn state(&self) -> MutexGuard<'_, QueueState<Task>> {
        self.state.lock().expect(NO_PANIC)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn push(&self, work: Work) -> Result<Reply> {
        self.push_in(&mut self.state(), work)
    }

    /// Queues several requests of one caller, so that the committer finds them together.
    pub(crate) fn push_all(&self, works: impl Iterator<Item = Work>) -> Vec<Result<Reply>> {
        let mut state = self.state();
        works.map(|work| self.push_in(&mut state, work)).collect()
    }

    fn push_in(&self, state: &mut QueueState<Task>, work: Work) -> Result<Reply> {
        let bytes = work.bytes();
        let (done, reply) = oneshot::channel();
        let full = state.waiting.len() >= QUEUE_OPS_MAX
            || (state.bytes.saturating_add(bytes) > QUEUE_BYTES_MAX && !state.waiting.is_empty());
        if full {
            let why = "too many mutations wait for the committer".to_owned();
            return Err(Error::Unavailable { why });
        }
        if state.closed {
            return Err(fault::too_late());
        }
        state.bytes = state.bytes.saturating_add(bytes);
        state.waiting.push_back(Waiting { work, bytes, done });
        let waiting = state.waiting.len();
        self.len.store(waiting, Ordering::SeqCst);
        // The committer sleeps only while the queue is empty. Notifying it costs a system
        // call, so this happens only for the first request.
        if waiting == 1 {
            self.bell.notify_one();
        }
        Ok(Reply(reply))
    }

    /// Queues a task for the committer thread.
    pub(crate) fn push_task(&self, task: Task) -> Result<()> {
        let mut state = self.state();
        if state.closed {
            return Err(fault::too_late());
        }
        if state.tasks.len() >= TASKS_MAX {
            return Err(Error::Unavailable {
                why: "too many tasks wait for the committer".to_owned(),
            });
        }
        state.tasks.push_back(task);
        self.bell.notify_one();
        Ok(())
    }

    /// Waits for work, at most for `longest`. Tasks and groups of requests take turns.
    pub(crate) fn wait(&self, longest: Duration) -> Woken<Task> {
        let idle = |state: &mut QueueState<Task>| {
            state.waiting.is_empty() && state.tasks.is_empty() && !state.closed
        };
        let waited = self.bell.wait_timeout_while(self.state(), longest, idle);
        let (mut state, _) = waited.expect(NO_PANIC);
        let turn = !std::mem::take(&mut state.after_task) || state.waiting.is_empty();
        if turn && let Some(task) = state.tasks.pop_front() {
            state.after_task = true;
            return Woken::Task(task);
        }
        match (state.waiting.is_empty(), state.closed) {
            (false, _) => Woken::Requests,
            (true, true) => Woken::Closing,
            (true, false) => Woken::Time,
        }
    }

    /// Takes the next group: different rows, in the order of arrival.
    pub(crate) fn take_group(&self) -> Vec<Waiting> {
        let mut state = self.state();
        let rows_min = state.waiting.len().min(self.group_rows_max).min(GROUP_EXAMINED_MAX);
        let mut rows = Rows::with_capacity_and_hasher(rows_min, RandomState::default());
        let (mut group, mut later) = (Vec::new(), VecDeque::new());
        let mut bytes = 0;
        for _ in 0..GROUP_EXAMINED_MAX {
            if rows.len() >= self.group_rows_max || bytes >= GROUP_BYTES_MAX {
                break;
            }
            let Some(waiting) = state.waiting.pop_front() else { break };
            if waiting.work.add_rows_to(&mut rows) {
                bytes = waiting.bytes.saturating_add(bytes);
                group.push(waiting);
            } else {
                later.push_back(waiting);
            }
        }
        later.append(&mut state.waiting);
        state.waiting = later;
        state.bytes = state.bytes.saturating_sub(bytes);
        self.len.store(state.waiting.len(), Ordering::SeqCst);
        group
    }

    /// Lets the committer thread end once the queue is empty.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.bell.notify_all();
    }

    /// Reports to all waiting callers that their outcome is unknown.
    pub(crate) fn abandon(&self) {
        let mut state = self.state();
        let left = (std::mem::take(&mut state.waiting), std::mem::take(&mut state.tasks));
        drop(state);
        // Drop these without the lock: they may hold the last handle of the store.
        drop(left);
    }
}

impl RowsWork {
    /// The rows with their tables, and the prefixes of their keys.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&TableInfo, &Key, &CommitRow)> + Clone {
        let rows = self.places.iter().zip(&self.request.rows);
        rows.map(|((table, key), row)| (&**table, key, row))
    }

    /// The prefixes of the rows' keys, each with a timestamp that the row's commit timestamp will
    /// be above.
    pub(super) fn pending(&self) -> impl Iterator<Item = (Key, Timestamp)> {
        self.places.iter().map(|(_, key)| (key.clone(), self.request.above))
    }
}

impl Work {
    /// Adds the request's rows to those of the group, unless the group has one of them
    /// already.
    fn add_rows_to(&self, group: &mut Rows) -> bool {
        match self {
            Work::Row(table, request) => group.insert((table.id, request.row().clone())),
            Work::Rows(work) => {
                let places = work.rows().map(|(table, _, row)| (table.id, row.row.clone()));
                let free = places.clone().all(|place| !group.contains(&place));
                if free {
                    group.extend(places);
                }
                free
            }
        }
    }

    /// The bytes of keys and values in the request.
    fn bytes(&self) -> usize {
        match self {
            Work::Row(_, request) => request.bytes(),
            Work::Rows(work) => work.request.bytes,
        }
    }
}

/// The outcome of a request that waits in the queue.
pub(crate) struct Reply(oneshot::Receiver<Result<Outcome>>);

impl Reply {
    pub(crate) async fn outcome(self) -> Result<Outcome> {
        match self.0.await {
            Ok(outcome) => outcome,
            Err(oneshot::Canceled) => Err(fault::abandoned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::channel;

    use bigtable::{Family, Layout, LocalityGroup, Mutation, RowMutation, Table, TableSchema};
    use futures::executor::block_on;

    use super::*;
    use crate::engine::Task;
    use crate::{FjallStore, Options};

    const LONGEST: Duration = Duration::from_secs(60);

    /// A task that queues another task, until `enough` is set.
    fn one_more(enough: Arc<AtomicBool>) -> Task {
        Box::new(move |engine| {
            if !enough.load(Ordering::SeqCst) {
                engine.queue.push_task(one_more(enough)).unwrap();
            }
        })
    }

    #[test]
    fn tasks_without_end_keep_no_request_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let store = FjallStore::open(dir.path(), Options::default()).unwrap();
        let schema = TableSchema { groups: vec![LocalityGroup::on_disk("g", Layout::Versions)] };
        let table = block_on(store.open_fjall_table("t", &schema)).unwrap();
        let (engine, info) = table.opened();
        let family: Family = info.families[0].family.clone();
        let enough = Arc::new(AtomicBool::new(false));
        engine.queue.push_task(one_more(enough.clone())).unwrap();
        let (done, is_done) = channel();
        let writer = std::thread::spawn(move || {
            let cell = Mutation::set(family, "q", Timestamp::new(1).unwrap(), "v");
            done.send(block_on(table.mutate_row(RowMutation::new("r").mutation(cell)))).unwrap();
        });
        let written = is_done.recv_timeout(LONGEST);
        enough.store(true, Ordering::SeqCst);
        writer.join().unwrap();
        written.expect("the request waits for the tasks to end").unwrap();
    }
}
