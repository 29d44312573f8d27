//! Executes the simulation: one thread, virtual time, and every choice from one seed.
//!
//! Tasks belong to processes. The executor chooses the next one among the ready tasks
//! (`schedule`). When none is ready, time jumps to the next event. A paused process keeps its
//! due work until it is resumed. A killed process loses its tasks where they stand. The
//! executor never polls, wakes or drops a task while its state is locked, because each of
//! these may call the executor again.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bigtable::sync::locked;
use futures::future::BoxFuture;
use futures::task::ArcWake;

use crate::random::Rng;
use crate::schedule::{Policy, Schedule};
use crate::trace::Trace;

/// A process: the unit of pauses and kills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ProcessId(pub(crate) u32);

/// The process of the simulation itself; no fault hits it.
pub(crate) const WORLD: ProcessId = ProcessId(0);

/// The executor; clones share one state.
#[derive(Clone)]
pub(crate) struct Executor {
    state: Arc<Mutex<State>>,
}

shown_by_name!(Executor);

struct State {
    now: Duration,
    rng: Rng,
    trace: Trace,
    steps: u64,
    schedule: Schedule,
    ready: Vec<usize>,
    tasks: Vec<Task>,
    free: Vec<usize>,
    events: BTreeMap<(Duration, u64), Event>,
    next_event: u64,
    processes: Vec<Process>,
}

struct Task {
    /// Distinguishes the task from earlier ones in the same slot.
    generation: u64,
    process: ProcessId,
    queued: bool,
    live: bool,
    /// `None` while the task is polled.
    future: Option<BoxFuture<'static, ()>>,
    waker: Option<Waker>,
}

#[derive(Default)]
struct Process {
    paused: bool,
    dead: bool,
    tasks: u64,
    parked: Vec<usize>,
    held: Vec<Action>,
}

type Action = Box<dyn FnOnce() + Send>;

enum Event {
    Wake(Waker),
    Run(ProcessId, Action),
}

impl Executor {
    pub(crate) fn new(seed: u64, trace: bool) -> Self {
        let state = State {
            now: Duration::ZERO,
            rng: Rng::new(seed),
            trace: Trace::new(trace),
            steps: 0,
            schedule: Schedule::default(),
            ready: Vec::new(),
            tasks: Vec::new(),
            free: Vec::new(),
            events: BTreeMap::new(),
            next_event: 0,
            processes: vec![Process::default()],
        };
        Executor { state: Arc::new(Mutex::new(state)) }
    }

    /// Returns the virtual time.
    pub(crate) fn now(&self) -> Duration {
        locked(&self.state).now
    }

    /// Schedules tasks by this policy from now on.
    pub(crate) fn schedule_by(&self, policy: Policy) {
        let mut state = locked(&self.state);
        state.schedule = Schedule::new(policy, &mut state.rng);
    }

    /// Draws from the seed.
    pub(crate) fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut locked(&self.state).rng)
    }

    /// Records an event in the trace.
    pub(crate) fn note(
        &self,
        kind: &'static str,
        numbers: (u64, u64),
        words: impl FnOnce() -> String,
    ) {
        let mut state = locked(&self.state);
        let now = state.now;
        state.trace.note(now, kind, numbers, words);
    }

    pub(crate) fn take_trace(&self) -> Trace {
        std::mem::take(&mut locked(&self.state).trace)
    }

    /// Returns how many tasks and events were run.
    pub(crate) fn steps(&self) -> u64 {
        locked(&self.state).steps
    }

    pub(crate) fn new_process(&self) -> ProcessId {
        let mut state = locked(&self.state);
        state.processes.push(Process::default());
        ProcessId(state.processes.len() as u32 - 1)
    }

    pub(crate) fn is_dead(&self, process: ProcessId) -> bool {
        locked(&self.state).process(process).dead
    }

    /// Starts a task of a process; does nothing if the process is dead.
    pub(crate) fn spawn(&self, process: ProcessId, future: BoxFuture<'static, ()>) {
        let mut state = locked(&self.state);
        if state.process(process).dead {
            drop(state);
            drop(future);
            return;
        }
        state.process(process).tasks += 1;
        let index = state.free.pop().unwrap_or(state.tasks.len());
        let generation = state.tasks.get(index).map_or(0, |task| task.generation + 1);
        let wake = Arc::new(Wake { executor: self.clone(), index, generation });
        let waker = Some(futures::task::waker(wake));
        let future = Some(future);
        let task = Task { generation, process, queued: false, live: true, future, waker };
        match state.tasks.get_mut(index) {
            Some(place) => *place = task,
            None => state.tasks.push(task),
        }
        let state = &mut *state;
        state.schedule.spawned(index, &mut state.rng);
        state.wake(index, generation);
    }

    /// Runs an action in the name of a process after a delay. The action waits while the
    /// process is paused, and is dropped if the process is dead.
    pub(crate) fn after(
        &self,
        delay: Duration,
        process: ProcessId,
        action: impl FnOnce() + Send + 'static,
    ) {
        let mut state = locked(&self.state);
        let at = state.now + delay;
        state.insert(at, Event::Run(process, Box::new(action)));
    }

    /// Completes after a time.
    pub(crate) fn sleep(&self, duration: Duration) -> Sleep {
        let until = self.now() + duration.max(Duration::from_nanos(1));
        Sleep { executor: self.clone(), until, id: None }
    }

    /// Stops a process where it stands, until it is resumed.
    pub(crate) fn pause(&self, process: ProcessId) {
        let mut guard = locked(&self.state);
        let state = &mut *guard;
        state.processes[process.0 as usize].paused = true;
        let parked = &mut state.processes[process.0 as usize].parked;
        state.ready.retain(|index| {
            let stays = state.tasks[*index].process != process;
            if !stays {
                parked.push(*index);
            }
            stays
        });
    }

    /// Lets a paused process go on, together with everything that has become due meanwhile.
    pub(crate) fn resume(&self, process: ProcessId) {
        let mut state = locked(&self.state);
        let of = state.process(process);
        of.paused = false;
        let (parked, held) = (std::mem::take(&mut of.parked), std::mem::take(&mut of.held));
        state.ready.extend(parked);
        let now = state.now;
        for action in held {
            state.insert(now, Event::Run(process, action));
        }
    }

    /// Ends every task of a process where it stands.
    pub(crate) fn kill(&self, process: ProcessId) {
        let mut guard = locked(&self.state);
        let state = &mut *guard;
        let of = state.process(process);
        of.dead = true;
        let (parked, held) = (std::mem::take(&mut of.parked), std::mem::take(&mut of.held));
        state.ready.retain(|index| state.tasks[*index].process != process);
        let mut ended = Vec::new();
        for (index, task) in state.tasks.iter_mut().enumerate() {
            if task.live && task.process == process {
                task.live = false;
                ended.push((task.future.take(), task.waker.take()));
                state.free.push(index);
            }
        }
        drop(guard);
        drop((parked, held, ended));
    }

    /// Runs a future of the world to its end, and all other tasks beside it. Returns `None`
    /// when no task can go on, or after `steps_max` steps.
    pub(crate) fn block_on<T: Send + 'static>(
        &self,
        steps_max: u64,
        main: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let result = Arc::new(Mutex::new(None));
        let place = result.clone();
        self.spawn(
            WORLD,
            Box::pin(async move {
                let value = main.await;
                *locked(&place) = Some(value);
            }),
        );
        let take = || locked(&result).take();
        while self.steps() < steps_max {
            if let Some(value) = take() {
                return Some(value);
            }
            if !self.step() {
                break;
            }
        }
        take()
    }

    /// Ends every task and drops every event. Tasks hold clones of the executor, which would
    /// otherwise never be freed.
    pub(crate) fn shut_down(&self) {
        let processes = locked(&self.state).processes.len() as u32;
        for process in (0..processes).rev() {
            self.kill(ProcessId(process));
        }
        let events = std::mem::take(&mut locked(&self.state).events);
        drop(events);
    }

    /// Runs one ready task, or advances to the next event. Returns `false` if there is neither.
    fn step(&self) -> bool {
        let mut guard = locked(&self.state);
        let state = &mut *guard;
        state.steps += 1;
        if state.ready.is_empty() {
            let Some(((at, _), event)) = state.events.pop_first() else { return false };
            state.now = state.now.max(at);
            match event {
                Event::Wake(waker) => {
                    drop(guard);
                    waker.wake();
                }
                Event::Run(process, action) => {
                    let of = state.process(process);
                    if of.dead {
                        drop(guard);
                        drop(action);
                    } else if of.paused {
                        of.held.push(action);
                    } else {
                        drop(guard);
                        action();
                    }
                }
            }
            return true;
        }
        let chosen = state.schedule.choose(&state.ready, &mut state.rng);
        let index = state.ready.swap_remove(chosen);
        let task = &mut state.tasks[index];
        task.queued = false;
        let (generation, process) = (task.generation, task.process);
        let (future, waker) = (task.future.take(), task.waker.clone());
        let now = state.now;
        state.trace.note(now, "run", (index as u64, generation), || {
            format!("task {index}.{generation} of process {}", process.0)
        });
        drop(guard);
        if let (Some(future), Some(waker)) = (future, waker) {
            self.poll(index, generation, future, &waker);
        }
        true
    }

    fn poll(
        &self,
        index: usize,
        generation: u64,
        mut future: BoxFuture<'static, ()>,
        waker: &Waker,
    ) {
        let pending = future.as_mut().poll(&mut Context::from_waker(waker)).is_pending();
        let mut state = locked(&self.state);
        let task = &mut state.tasks[index];
        let current = task.live && task.generation == generation;
        if current && pending {
            task.future = Some(future);
            return;
        }
        if current {
            task.live = false;
            task.waker = None;
            let process = task.process;
            state.process(process).tasks -= 1;
            state.free.push(index);
        }
        drop(state);
        drop(future);
    }
}

impl State {
    fn process(&mut self, process: ProcessId) -> &mut Process {
        &mut self.processes[process.0 as usize]
    }

    fn insert(&mut self, at: Duration, event: Event) -> (Duration, u64) {
        self.next_event += 1;
        let id = (at, self.next_event);
        self.events.insert(id, event);
        id
    }

    fn wake(&mut self, index: usize, generation: u64) {
        let task = &mut self.tasks[index];
        if task.live && task.generation == generation && !task.queued {
            task.queued = true;
            let process = &mut self.processes[task.process.0 as usize];
            if process.paused { process.parked.push(index) } else { self.ready.push(index) }
        }
    }
}

struct Wake {
    executor: Executor,
    index: usize,
    generation: u64,
}

impl ArcWake for Wake {
    fn wake_by_ref(this: &Arc<Self>) {
        locked(&this.executor.state).wake(this.index, this.generation);
    }
}

/// A future that completes at a virtual time.
#[derive(Debug)]
pub(crate) struct Sleep {
    executor: Executor,
    until: Duration,
    id: Option<(Duration, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let executor = self.executor.clone();
        let mut state = locked(&executor.state);
        if state.now >= self.until {
            return Poll::Ready(());
        }
        let event = Event::Wake(cx.waker().clone());
        let replaced = match self.id {
            Some(id) => state.events.insert(id, event),
            None => {
                self.id = Some(state.insert(self.until, event));
                None
            }
        };
        drop(state);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let event = locked(&self.executor.state).events.remove(&id);
            drop(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn a_paused_process_goes_on_where_it_stood_and_a_killed_one_does_not() {
        let executor = Executor::new(1, false);
        let ticks: Vec<_> = (0..2).map(|_| Arc::new(AtomicU64::new(0))).collect();
        let processes: Vec<_> = (0..2).map(|_| executor.new_process()).collect();
        for (ticks, process) in ticks.iter().zip(&processes) {
            let (ticks, clock) = (ticks.clone(), executor.clone());
            let ticking = async move {
                loop {
                    clock.sleep(ms(10)).await;
                    ticks.fetch_add(1, Ordering::Relaxed);
                }
            };
            executor.spawn(*process, Box::pin(ticking));
        }
        let wait = |n| {
            let sleep = executor.sleep(ms(n));
            executor.block_on(10_000, sleep).unwrap();
        };
        let seen = || ticks.iter().map(|t| t.load(Ordering::Relaxed)).collect::<Vec<_>>();
        wait(35);
        assert_eq!(seen(), [3, 3]);
        executor.pause(processes[0]);
        executor.kill(processes[1]);
        let acted = ticks[1].clone();
        executor.after(ms(1), processes[1], move || {
            acted.fetch_add(100, Ordering::Relaxed);
        });
        wait(100);
        assert_eq!(seen(), [3, 3]);
        executor.resume(processes[0]);
        wait(35);
        assert_eq!(seen(), [7, 3]);
        executor.shut_down();
        assert_eq!(Arc::strong_count(&ticks[0]), 1);
    }

    #[test]
    fn a_run_without_anything_to_wait_for_ends() {
        let executor = Executor::new(1, false);
        assert_eq!(executor.block_on(100, std::future::pending::<()>()), None);
        executor.shut_down();
    }
}
