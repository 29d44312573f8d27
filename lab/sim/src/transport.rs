//! Simulates the network: messages are bytes, and each copy of a message has its own fate.
//!
//! A request becomes none, one or more copies: it may be lost or duplicated, and a duplicate
//! may arrive long after the transaction's end. Each copy has a delay of its own, so copies
//! overtake one another. Replies are lost and delayed in the same way; the first one to arrive
//! counts. The death of a sender does not affect messages in flight.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bigtable::sync::locked;
use bytes::Bytes;

use crate::executor::{Executor, ProcessId, Sleep};
use crate::random::{Rng, mix_bytes};
use crate::swarm::Weather;
use crate::tally::{Fault, Tally};

/// The longest tail: a message may take 4^5 times as long as usual.
const TAIL_MAX: u32 = 5;

/// A process that answers requests.
pub(crate) trait Server: Send + Sync {
    /// Handles a request; the reply may be sent later, or never.
    fn receive(&self, request: Bytes, from: ProcessId, reply: ReplyTo);
}

/// The network; clones share one state.
#[derive(Clone)]
pub(crate) struct Transport {
    shared: Arc<Shared>,
}

struct Shared {
    executor: Executor,
    tally: Arc<Tally>,
    in_flight: Arc<AtomicU64>,
    state: Mutex<State>,
}

struct State {
    weather: Weather,
    /// Directed pairs of processes between which no message passes.
    cut: BTreeSet<(ProcessId, ProcessId)>,
    /// If given, messages pass only between these processes.
    only: Option<Vec<ProcessId>>,
}

shown_by_name!(Transport);

/// Counts a copy in flight, until it has arrived or was dropped.
struct Flight(Arc<AtomicU64>);

impl Flight {
    fn new(counter: &Arc<AtomicU64>) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Flight(counter.clone())
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The direction of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Request,
    Reply,
}

impl Transport {
    pub(crate) fn new(executor: &Executor, tally: &Arc<Tally>, weather: Weather) -> Self {
        let shared = Shared {
            executor: executor.clone(),
            tally: tally.clone(),
            in_flight: Arc::default(),
            state: Mutex::new(State { weather, cut: BTreeSet::new(), only: None }),
        };
        Transport { shared: Arc::new(shared) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.shared.state)
    }

    pub(crate) fn set_weather(&self, weather: Weather) {
        self.state().weather = weather;
    }

    /// Stops all messages from one process to another, until `mend` is called.
    pub(crate) fn cut(&self, from: ProcessId, to: ProcessId) {
        self.state().cut.insert((from, to));
    }

    pub(crate) fn mend(&self, from: ProcessId, to: ProcessId) {
        self.state().cut.remove(&(from, to));
    }

    pub(crate) fn mend_all(&self) {
        let mut state = self.state();
        state.cut.clear();
        state.only = None;
    }

    /// Lets messages pass only between these processes; `None` lifts the restriction.
    pub(crate) fn only(&self, these: Option<Vec<ProcessId>>) {
        self.state().only = these;
    }

    /// Returns how many copies of messages are in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.shared.in_flight.load(Ordering::Relaxed)
    }

    /// Draws whether a server that is up refuses this request nevertheless.
    pub(crate) fn is_busy(&self) -> bool {
        self.strikes(|weather| weather.busy, Fault::Busy)
    }

    /// Draws whether a store has no room for the locks of this request.
    pub(crate) fn is_overloaded(&self) -> bool {
        self.strikes(|weather| weather.overloaded, Fault::Overloaded)
    }

    /// Draws whether a change waits for the log of its store.
    pub(crate) fn waits_for_log(&self) -> bool {
        let rate = self.state().weather.log_waits;
        rate > 0 && self.shared.executor.draw(|rng| rng.chance(rate))
    }

    fn strikes(&self, rate: fn(&Weather) -> u64, fault: Fault) -> bool {
        let rate = rate(&self.state().weather);
        let strikes = rate > 0 && self.shared.executor.draw(|rng| rng.chance(rate));
        if strikes {
            self.shared.tally.fault(fault);
        }
        strikes
    }

    /// Sends a request and waits for the answer. Returns `None` if none arrives in time.
    pub(crate) async fn call(
        &self,
        from: ProcessId,
        (to, server): (ProcessId, &Arc<dyn Server>),
        request: Bytes,
        timeout: Duration,
    ) -> Option<Bytes> {
        let slot = Arc::new(Slot::default());
        self.request(from, to, server, request, Some(slot.clone()));
        Answer { slot, sleep: self.shared.executor.sleep(timeout) }.await
    }

    /// Sends a request without waiting for an answer.
    pub(crate) fn tell(
        &self,
        from: ProcessId,
        (to, server): (ProcessId, &Arc<dyn Server>),
        request: Bytes,
    ) {
        self.request(from, to, server, request, None);
    }

    fn request(
        &self,
        from: ProcessId,
        to: ProcessId,
        server: &Arc<dyn Server>,
        request: Bytes,
        slot: Option<Arc<Slot>>,
    ) {
        let sent = self.shared.executor.now();
        for delay in self.delays(from, to, Way::Request) {
            let flight = Flight::new(&self.shared.in_flight);
            let (server, request) = (server.clone(), request.clone());
            let (transport, slot) = (self.clone(), slot.clone());
            self.shared.executor.after(delay, to, move || {
                drop(flight);
                transport.note("request", from, to, &request);
                let reply = ReplyTo { transport, server: to, client: from, sent, slot };
                server.receive(request, from, reply);
            });
        }
    }

    fn note(&self, kind: &'static str, from: ProcessId, to: ProcessId, bytes: &Bytes) {
        self.shared.tally.message();
        let ends = u64::from(from.0) << 32 | u64::from(to.0);
        self.shared.executor.note(kind, (ends, mix_bytes(0, bytes)), || {
            format!("{} -> {}: {} bytes", from.0, to.0, bytes.len())
        });
    }

    /// Returns the delays of those copies of a message that will arrive.
    fn delays(&self, from: ProcessId, to: ProcessId, way: Way) -> Copies {
        let Shared { executor, tally, .. } = &*self.shared;
        let (weather, cut) = {
            let state = self.state();
            let one_of = |process| state.only.as_ref().is_none_or(|these| these.contains(process));
            let apart = !one_of(&from) || !one_of(&to);
            (state.weather, apart || state.cut.contains(&(from, to)))
        };
        if executor.is_dead(from) {
            return Copies::default();
        }
        if cut {
            tally.fault(Fault::Partitioned);
            return Copies::default();
        }
        executor.draw(|rng| copies(rng, &weather, way, tally))
    }
}

/// Up to three delays.
#[derive(Default)]
struct Copies([Option<Duration>; 3]);

impl IntoIterator for Copies {
    type Item = Duration;
    type IntoIter = std::iter::Flatten<std::array::IntoIter<Option<Duration>, 3>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().flatten()
    }
}

fn copies(rng: &mut Rng, weather: &Weather, way: Way, tally: &Tally) -> Copies {
    let (lose, fault) = match way {
        Way::Request => (weather.lose_request, Fault::RequestLost),
        Way::Reply => (weather.lose_reply, Fault::ReplyLost),
    };
    let mut copies = Copies::default();
    if rng.chance(lose) {
        tally.fault(fault);
    } else {
        copies.0[0] = Some(delay(rng, weather, tally));
    }
    if way == Way::Request {
        if rng.chance(weather.duplicate) {
            tally.fault(Fault::Duplicate);
            copies.0[1] = Some(delay(rng, weather, tally));
        }
        if rng.chance(weather.late_duplicate) {
            tally.fault(Fault::LateDuplicate);
            let nanos = rng.below(weather.late_max.as_nanos() as u64);
            copies.0[2] = Some(Duration::from_nanos(nanos));
        }
    }
    copies
}

fn delay(rng: &mut Rng, weather: &Weather, tally: &Tally) -> Duration {
    let range = weather.delay_max.saturating_sub(weather.delay_min).as_nanos() as u64;
    let mut delay = weather.delay_min + Duration::from_nanos(rng.below(range + 1));
    if weather.tail > 0 {
        let mut times = 0;
        while times < TAIL_MAX && rng.below(weather.tail) == 0 {
            times += 1;
        }
        if times > 0 {
            tally.fault(Fault::Slow);
            delay *= 4_u32.pow(times);
        }
    }
    delay
}

/// The destination of the answer to a request.
pub(crate) struct ReplyTo {
    transport: Transport,
    server: ProcessId,
    client: ProcessId,
    /// When the request was sent.
    pub(crate) sent: Duration,
    slot: Option<Arc<Slot>>,
}

impl ReplyTo {
    pub(crate) fn send(self, reply: Bytes) {
        let ReplyTo { transport, server, client, slot, .. } = self;
        let Some(slot) = slot else { return };
        for delay in transport.delays(server, client, Way::Reply) {
            let flight = Flight::new(&transport.shared.in_flight);
            let (slot, reply) = (slot.clone(), reply.clone());
            let network = transport.clone();
            transport.shared.executor.after(delay, client, move || {
                drop(flight);
                network.note("reply", server, client, &reply);
                slot.fill(reply);
            });
        }
    }
}

/// The place where a caller waits for its reply.
#[derive(Default)]
struct Slot(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    reply: Option<Bytes>,
    waker: Option<Waker>,
}

impl Slot {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        locked(&self.0)
    }

    /// Stores the first reply; later ones are ignored.
    fn fill(&self, reply: Bytes) {
        let mut waiting = self.waiting();
        waiting.reply.get_or_insert(reply);
        let waker = waiting.waker.take();
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

struct Answer {
    slot: Arc<Slot>,
    sleep: Sleep,
}

impl Future for Answer {
    type Output = Option<Bytes>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut waiting = self.slot.waiting();
        if let Some(reply) = waiting.reply.take() {
            return Poll::Ready(Some(reply));
        }
        waiting.waker = Some(cx.waker().clone());
        drop(waiting);
        Pin::new(&mut self.sleep).poll(cx).map(|()| None)
    }
}
