//! Provides a runtime in virtual time, for examples and tests. It has one thread and runs
//! tasks in the order in which they became ready. Time jumps to the next timer when no task is
//! ready. The same seed gives the same run.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bigtable::sync::locked;
use bigtable::{MemoryStore, Store};
use futures::future::BoxFuture;
use futures::task::ArcWake;

use crate::{Client, Options, ProcessLocks, Result, Runtime, Services, WindowOracle};
use crate::{oracle::Oracle, runtime::fresh_incarnation};

/// A runtime in virtual time; see the module.
#[derive(Debug, Clone)]
pub struct VirtualRuntime {
    state: Arc<Mutex<State>>,
}

struct State {
    now: Duration,
    random: u64,
    next_id: u64,
    ready: VecDeque<u64>,
    tasks: BTreeMap<u64, BoxFuture<'static, ()>>,
    timers: BTreeMap<(Duration, u64), Waker>,
    /// How many of the timers have fired.
    woken: u64,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("now", &self.now).finish_non_exhaustive()
    }
}

/// The task of `block_on` itself.
const MAIN: u64 = 0;

impl VirtualRuntime {
    /// A runtime whose random numbers follow from `seed`.
    pub fn new(seed: u64) -> Self {
        let state = State {
            now: Duration::ZERO,
            random: seed,
            next_id: 1,
            ready: VecDeque::new(),
            tasks: BTreeMap::new(),
            timers: BTreeMap::new(),
            woken: 0,
        };
        VirtualRuntime { state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// How often a sleep has ended and woken its task.
    pub fn woken(&self) -> u64 {
        self.state().woken
    }

    /// Runs a future to its end, together with the tasks that it spawns.
    ///
    /// # Panics
    /// Panics if no task is ready, no timer is set, and the future has not ended.
    pub fn block_on<T>(&self, main: impl Future<Output = T>) -> T {
        let mut main = std::pin::pin!(main);
        self.state().ready.push_back(MAIN);
        loop {
            let next = self.state().ready.pop_front();
            let Some(id) = next else {
                self.advance();
                continue;
            };
            let waker = futures::task::waker(Arc::new(Wake { runtime: self.clone(), id }));
            let mut cx = Context::from_waker(&waker);
            if id == MAIN {
                if let Poll::Ready(value) = main.as_mut().poll(&mut cx) {
                    return value;
                }
                continue;
            }
            let task = self.state().tasks.remove(&id);
            if let Some(mut task) = task
                && task.as_mut().poll(&mut cx).is_pending()
            {
                self.state().tasks.insert(id, task);
            }
        }
    }

    fn advance(&self) {
        let mut state = self.state();
        let Some(((at, _), waker)) = state.timers.pop_first() else {
            panic!("deadlock: no task is ready and no timer is set");
        };
        state.now = state.now.max(at);
        state.woken += 1;
        drop(state);
        waker.wake();
    }
}

struct Wake {
    runtime: VirtualRuntime,
    id: u64,
}

impl ArcWake for Wake {
    fn wake_by_ref(this: &Arc<Self>) {
        let mut state = this.runtime.state();
        if !state.ready.contains(&this.id) {
            state.ready.push_back(this.id);
        }
    }
}

struct Sleep {
    runtime: VirtualRuntime,
    until: Duration,
    id: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let runtime = self.runtime.clone();
        let mut state = runtime.state();
        if state.now >= self.until {
            return Poll::Ready(());
        }
        let id = *self.id.get_or_insert_with(|| {
            state.next_id += 1;
            state.next_id
        });
        state.timers.insert((self.until, id), cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.runtime.state().timers.remove(&(self.until, id));
        }
    }
}

impl Runtime for VirtualRuntime {
    fn now(&self) -> Duration {
        self.state().now
    }

    fn wall_ms(&self) -> u64 {
        1_300_000_000_000 + self.now().as_millis() as u64
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let until = self.now() + duration.max(Duration::from_nanos(1));
        Box::pin(Sleep { runtime: self.clone(), until, id: None })
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let mut state = self.state();
        state.next_id += 1;
        let id = state.next_id;
        state.tasks.insert(id, task);
        state.ready.push_back(id);
    }

    fn random(&self) -> u64 {
        let mut state = self.state();
        state.random = state.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// A client over an empty store in memory, in virtual time.
pub async fn client(runtime: &VirtualRuntime, options: Options) -> Result<Client> {
    client_on(runtime, Arc::new(MemoryStore::new()), options).await
}

/// A client over a store, in virtual time.
pub async fn client_on(
    runtime: &VirtualRuntime,
    store: Arc<dyn Store>,
    options: Options,
) -> Result<Client> {
    let runtime: Arc<dyn Runtime> = Arc::new(runtime.clone());
    let holder = fresh_incarnation(&*runtime);
    let oracle: Arc<dyn Oracle> = Arc::new(WindowOracle::open(&*store, holder).await?);
    let locks = Arc::new(ProcessLocks::new(runtime.clone()));
    Client::open(Services { store, oracle, locks, runtime }, options).await
}

/// Runs an example with a client.
///
/// # Panics
/// Panics if the example fails.
pub fn doc_test<F: Future<Output = Result<()>>>(example: impl FnOnce(Client) -> F) {
    let runtime = VirtualRuntime::new(1);
    let result = runtime.block_on(async {
        let client = client(&runtime, Options::default()).await?;
        example(client).await
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// For the fuzzers: checks that bytes that decode as a lock record are that record's encoding.
///
/// # Panics
/// Panics if they are not.
pub fn check_lock_record(bytes: &[u8]) {
    let bytes = bytes::Bytes::copy_from_slice(bytes);
    if let Ok(lock) = crate::records::lock::Lock::decode(&bytes) {
        assert_eq!(lock.encode(), bytes, "{lock:?} has two encodings");
    }
}

/// For the fuzzers: checks that bytes that decode as a write record are that record's
/// encoding.
///
/// # Panics
/// Panics if they are not.
pub fn check_write_record(bytes: &[u8]) {
    use crate::records::write::Write;

    let bytes = bytes::Bytes::copy_from_slice(bytes);
    if let Ok(write) = Write::decode(&bytes) {
        let Write { start_ts, kind, short_value } = &write;
        let encoded = Write::encode(*start_ts, *kind, short_value.as_deref());
        assert_eq!(encoded, bytes, "{write:?} has two encodings");
    }
}
