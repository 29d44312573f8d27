//! Holds every request until the explorer lets it through, and runs the tasks that send them.
//!
//! Between two choices of the explorer, all tasks run until each waits for a request or sleeps. So
//! the course of events depends on the choices alone. A sleeping task wakes as soon as an object
//! changes that its client has looked at since it last woke. Until then another look would give
//! the same result.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bigtable::sync::locked;
use bigtable::{ConditionalMutation, RowKey, Table};
use futures::future::BoxFuture;
use futures::task::ArcWake;

/// The number of the client that makes a request.
pub(super) type Actor = usize;

/// The object that a request reads or changes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Object {
    Oracle,
    Tokens,
    Advisory(Vec<u8>),
    Row(String, RowKey),
    /// All rows of a table.
    Table(String),
}

impl Object {
    /// Returns whether a change of one object may be seen in the other.
    pub(super) fn meets(&self, other: &Object) -> bool {
        match (self, other) {
            (Object::Table(a), Object::Row(b, _) | Object::Table(b)) => a == b,
            (Object::Row(a, _), Object::Table(b)) => a == b,
            (a, b) => a == b,
        }
    }
}

/// A request in flight.
#[derive(Clone)]
pub(super) struct Message {
    pub(super) object: Object,
    /// A hash of the request.
    pub(super) content: u64,
    /// Whether the request cannot change anything.
    pub(super) reads: bool,
    /// The mutation to apply if the request arrives when no sender waits for the reply.
    pub(super) mutation: Option<(Arc<dyn Table>, ConditionalMutation)>,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.mutation {
            Some((_, request)) => write!(f, "{request:?}"),
            None => write!(f, "{:?} {:?}", if self.reads { "read" } else { "ask" }, self.object),
        }
    }
}

struct Pending {
    actor: Actor,
    message: Message,
    waker: Waker,
}

struct Sleeper {
    actor: Actor,
    waker: Waker,
}

/// The exchange's knowledge of a client.
#[derive(Default)]
struct Client {
    /// The sum of the hashes of the client's requests with their replies: its place in its
    /// program.
    position: u64,
    /// The objects that the client has looked at since it last woke, with their contents then.
    watched: BTreeMap<Object, u64>,
    /// Whether the client has made a request that may change something since it last woke.
    acted: bool,
    gone: bool,
    /// The client's clock, which shows how long it has slept.
    now: Duration,
    /// Whether the client starts afresh whenever it rests, so that its earlier requests do not
    /// matter.
    forgets: bool,
}

type Task = (Actor, BoxFuture<'static, ()>);

#[derive(Default)]
struct State {
    /// Whether requests are held at all.
    parks: bool,
    next_id: u64,
    tasks: Vec<Option<Task>>,
    pending: BTreeMap<u64, Pending>,
    granted: Option<u64>,
    /// Copies, and mutations whose senders gave up. They may arrive at any time, or never.
    flying: Vec<Message>,
    sleepers: BTreeMap<u64, Sleeper>,
    clients: Vec<Client>,
    /// A hash of the contents of each object; an absent object is as at the start.
    objects: BTreeMap<Object, u64>,
}

/// The exchange of a model; the module's documentation describes it.
#[derive(Default)]
pub(super) struct Exchange {
    state: Mutex<State>,
    /// Tasks that can go on. They have a lock of their own, so that a waker can be called
    /// while the state is locked.
    ready: Mutex<VecDeque<usize>>,
}

shown_by_name!(Exchange);

/// Returns a hash that is the same in every run.
pub(super) fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Only workers sleep this long, between two passes.
const REST: Duration = Duration::from_millis(250);
/// Only heartbeats sleep this long; a model ends before they are due.
const NEVER: Duration = Duration::from_secs(100);

impl Exchange {
    pub(super) fn new(actors: usize) -> Arc<Self> {
        let exchange = Exchange::default();
        locked(&exchange.state).clients.resize_with(actors, Client::default);
        Arc::new(exchange)
    }

    /// Starts or stops holding requests.
    pub(super) fn park(&self, parks: bool) {
        locked(&self.state).parks = parks;
    }

    pub(super) fn spawn(&self, actor: Actor, task: BoxFuture<'static, ()>) {
        let mut state = locked(&self.state);
        let id = state.tasks.len();
        state.tasks.push(Some((actor, task)));
        locked(&self.ready).push_back(id);
    }

    /// Marks a client that starts afresh whenever it rests, as a worker does between two passes.
    pub(super) fn forgets(&self, actor: Actor) {
        locked(&self.state).clients[actor].forgets = true;
    }

    /// Runs all tasks until each waits.
    pub(super) fn run(self: &Arc<Self>) {
        loop {
            let Some(id) = locked(&self.ready).pop_front() else { return };
            let Some((actor, mut task)) = locked(&self.state).tasks[id].take() else { continue };
            let waker = futures::task::waker(Arc::new(Wake { exchange: self.clone(), id }));
            let polled = task.as_mut().poll(&mut Context::from_waker(&waker));
            let mut state = locked(&self.state);
            if polled.is_pending() && !state.clients[actor].gone {
                state.tasks[id] = Some((actor, task));
            }
        }
    }

    /// Waits until the explorer lets the request through. The caller then performs the request
    /// immediately.
    pub(super) fn arrive(&self, actor: Actor, message: Message) -> Arrival<'_> {
        Arrival { exchange: self, actor, message: Some(message), id: None }
    }

    /// Records what a client has learned.
    pub(super) fn learned(&self, actor: Actor, object: &Object, reads: bool, what: u64) {
        let mut state = locked(&self.state);
        if !state.parks {
            return;
        }
        let holds = state.holds(object);
        let client = &mut state.clients[actor];
        client.position = client.position.wrapping_add(what);
        client.watched.insert(object.clone(), holds);
        client.acted |= !reads;
    }

    /// Records the new contents of an object, and wakes clients that have looked at it.
    pub(super) fn holds(&self, object: &Object, what: u64) {
        let mut state = locked(&self.state);
        if state.parks && state.holds(object) != what {
            state.objects.insert(object.clone(), what);
            state.wake_watchers();
        }
    }

    /// Returns the held requests, each with its number and its sender.
    pub(super) fn pending(&self) -> Vec<(u64, Actor, Message)> {
        let state = locked(&self.state);
        state.pending.iter().map(|(id, p)| (*id, p.actor, p.message.clone())).collect()
    }

    pub(super) fn is_quiet(&self) -> bool {
        locked(&self.state).pending.is_empty()
    }

    /// Returns the messages whose senders do not wait, each kind once.
    pub(super) fn flying(&self) -> Vec<Message> {
        let mut messages = locked(&self.state).flying.clone();
        messages.sort_by_key(|message| message.content);
        messages.dedup_by_key(|message| message.content);
        messages
    }

    /// Lets a request through; with `copied`, a copy of it stays in flight.
    pub(super) fn grant(&self, id: u64, copied: bool) {
        let mut state = locked(&self.state);
        let Some(pending) = state.pending.remove(&id) else { return };
        if copied {
            state.flying.push(pending.message);
        }
        state.granted = Some(id);
        drop(state);
        pending.waker.wake();
    }

    /// Removes a message from those in flight whose senders do not wait, and returns it.
    pub(super) fn land(&self, content: u64) -> Option<Message> {
        let mut state = locked(&self.state);
        let index = state.flying.iter().position(|message| message.content == content)?;
        Some(state.flying.swap_remove(index))
    }

    /// Ends a client where it stands. The messages that it has sent stay in flight.
    pub(super) fn crash(&self, actor: Actor) {
        let mut gone = Vec::new();
        let mut state = locked(&self.state);
        state.clients[actor].gone = true;
        for task in &mut state.tasks {
            if task.as_ref().is_some_and(|(of, _)| *of == actor) {
                gone.extend(task.take());
            }
        }
        state.sleepers.retain(|_, sleeper| sleeper.actor != actor);
        drop(state);
        drop(gone);
    }

    /// Wakes the sleeping clients that have done more than look since they last woke. The
    /// caller uses it when nothing else can happen. Returns whether there are any.
    pub(super) fn wake_the_busy(&self) -> bool {
        let mut state = locked(&self.state);
        let actors: Vec<_> = (0..state.clients.len()).filter(|a| state.clients[*a].acted).collect();
        let mut woken = false;
        for actor in actors {
            woken |= state.wake(actor);
        }
        woken
    }

    /// Returns a hash of everything that decides the further course, except the explorer's own
    /// budget.
    pub(super) fn fingerprint(&self) -> u64 {
        let state = locked(&self.state);
        let mut hasher = DefaultHasher::new();
        state.objects.hash(&mut hasher);
        for (actor, client) in state.clients.iter().enumerate() {
            let asleep = state.sleepers.values().filter(|s| s.actor == actor).count();
            (client.position, &client.watched, client.acted, client.gone, asleep).hash(&mut hasher);
        }
        let mut pending: Vec<_> =
            state.pending.values().map(|p| (p.actor, p.message.content)).collect();
        pending.sort_unstable();
        pending.hash(&mut hasher);
        let mut flying: Vec<_> = state.flying.iter().map(|message| message.content).collect();
        flying.sort_unstable();
        flying.hash(&mut hasher);
        hasher.finish()
    }

    /// Returns a hash of the store's contents.
    pub(super) fn contents(&self) -> u64 {
        let state = locked(&self.state);
        let rows = state.objects.iter().filter(|(object, _)| matches!(object, Object::Row(..)));
        hash_of(rows.collect::<Vec<_>>())
    }

    /// Returns a client's clock.
    pub(super) fn now(&self, actor: Actor) -> Duration {
        locked(&self.state).clients[actor].now
    }

    /// Completes when the client is to look again.
    pub(super) fn sleep(
        self: &Arc<Self>,
        actor: Actor,
        duration: Duration,
    ) -> BoxFuture<'static, ()> {
        if duration >= NEVER {
            return Box::pin(std::future::pending());
        }
        let until = self.now(actor) + duration;
        Box::pin(Sleep { exchange: self.clone(), actor, until, id: None })
    }
}

impl State {
    fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn holds(&self, object: &Object) -> u64 {
        match object {
            Object::Table(_) => {
                hash_of(self.objects.iter().filter(|(of, _)| of.meets(object)).collect::<Vec<_>>())
            }
            object => self.objects.get(object).copied().unwrap_or_default(),
        }
    }

    /// Returns whether the client has no task but the running one, no other sleeper, and no
    /// held request.
    fn is_all_that_is_left(&self, actor: Actor) -> bool {
        let tasks = self.tasks.iter().flatten().filter(|(of, _)| *of == actor).count();
        let sleeps = self.sleepers.values().any(|sleeper| sleeper.actor == actor);
        tasks == 0 && !sleeps && self.pending.values().all(|pending| pending.actor != actor)
    }

    fn saw_old(&self, actor: Actor) -> bool {
        self.clients[actor].watched.iter().any(|(object, was)| self.holds(object) != *was)
    }

    fn wake_watchers(&mut self) {
        for actor in 0..self.clients.len() {
            if self.saw_old(actor) {
                self.wake(actor);
            }
        }
    }

    /// Wakes a client if it sleeps.
    fn wake(&mut self, actor: Actor) -> bool {
        let of: Vec<_> =
            self.sleepers.iter().filter(|(_, s)| s.actor == actor).map(|(id, _)| *id).collect();
        for id in &of {
            if let Some(sleeper) = self.sleepers.remove(id) {
                sleeper.waker.wake();
            }
        }
        if !of.is_empty() {
            let client = &mut self.clients[actor];
            client.watched.clear();
            client.acted = false;
        }
        !of.is_empty()
    }
}

struct Wake {
    exchange: Arc<Exchange>,
    id: usize,
}

impl ArcWake for Wake {
    fn wake_by_ref(this: &Arc<Self>) {
        let mut ready = locked(&this.exchange.ready);
        if !ready.contains(&this.id) {
            ready.push_back(this.id);
        }
    }
}

/// A request that the exchange holds.
pub(super) struct Arrival<'a> {
    exchange: &'a Exchange,
    actor: Actor,
    message: Option<Message>,
    id: Option<u64>,
}

impl Future for Arrival<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = locked(&self.exchange.state);
        if let Some(message) = self.message.take() {
            if !state.parks {
                return Poll::Ready(());
            }
            let id = state.fresh_id();
            let pending = Pending { actor: self.actor, message, waker: cx.waker().clone() };
            state.pending.insert(id, pending);
            self.id = Some(id);
            return Poll::Pending;
        }
        if self.id.is_none() || state.granted == self.id {
            state.granted = None;
            self.id = None;
            return Poll::Ready(());
        }
        if let Some(pending) = self.id.and_then(|id| state.pending.get_mut(&id)) {
            pending.waker = cx.waker().clone();
        }
        Poll::Pending
    }
}

impl Drop for Arrival<'_> {
    /// The sender gave up; a request that could change something stays in flight nevertheless.
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let mut state = locked(&self.exchange.state);
        if let Some(pending) = state.pending.remove(&id)
            && pending.message.mutation.is_some()
        {
            state.flying.push(pending.message);
        }
    }
}

struct Sleep {
    exchange: Arc<Exchange>,
    actor: Actor,
    until: Duration,
    id: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let exchange = self.exchange.clone();
        let mut state = locked(&exchange.state);
        let (actor, until) = (self.actor, self.until);
        let Some(id) = self.id else {
            if !state.parks || state.saw_old(actor) {
                let client = &mut state.clients[actor];
                client.watched.clear();
                client.acted = false;
                client.now = client.now.max(until);
                return Poll::Ready(());
            }
            let rests = until.saturating_sub(state.clients[actor].now) >= REST;
            if rests && state.clients[actor].forgets && state.is_all_that_is_left(actor) {
                state.clients[actor].position = 0;
            }
            let id = state.fresh_id();
            state.sleepers.insert(id, Sleeper { actor, waker: cx.waker().clone() });
            self.id = Some(id);
            return Poll::Pending;
        };
        match state.sleepers.get_mut(&id) {
            Some(sleeper) => {
                sleeper.waker = cx.waker().clone();
                Poll::Pending
            }
            None => {
                let client = &mut state.clients[actor];
                client.now = client.now.max(until);
                Poll::Ready(())
            }
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            locked(&self.exchange.state).sleepers.remove(&id);
        }
    }
}
