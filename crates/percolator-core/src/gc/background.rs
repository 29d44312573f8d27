//! Rounds in the background, with a small share of the machine.
//!
//! The task holds the client, and with it the store. So that nobody who closes a database has to
//! wait for it, it lives where its handle can reach it: dropping the handle drops the task where it
//! rests, at once, and takes with it whatever the task held.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bigtable::Timestamp;
use bigtable::sync::locked;
use futures::future::{BoxFuture, join};

use crate::gc::pace::Pace;
use crate::gc::readers::LIFETIME;
use crate::{Client, Holder, Result};

/// How often a registration is renewed, and the collector looks at least.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(LIFETIME.as_secs() / 3);
const LOOK_EVERY_MIN: Duration = Duration::from_millis(20);
/// In how many steps the safe point follows the present, within one retention.
const STEPS: u32 = 32;
/// The name of the advisory lock on collecting: two collectors at once only waste work.
const LOCK: &[u8] = b"gc";
const LOCK_LIFETIME: Duration = Duration::from_secs(600);

/// How garbage is collected in the background.
///
/// ```
/// use percolator_core::GcOptions;
/// let retention = std::time::Duration::from_secs(60);
/// let options = GcOptions { retention, ..GcOptions::default() };
/// assert!(options.share < 0.5);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct GcOptions {
    /// How long old versions stay readable. What is read for longer holds them back by itself, if
    /// its client runs a [`Collector`]. On a store without a floor, at least
    /// [`retention_min`](Client::retention_min): else nothing is collected, and each look logs why.
    pub retention: Duration,
    /// The shortest time from one round to the next.
    pub interval: Duration,
    /// The share of one core that a round takes, between 0 and 1, as long as its pieces are short:
    /// no rest is longer than a second. What the store then does to give the space back is not in
    /// it.
    pub share: f64,
}

impl Default for GcOptions {
    fn default() -> Self {
        GcOptions {
            retention: Duration::from_secs(600),
            interval: Duration::from_secs(60),
            share: 0.1,
        }
    }
}

/// A running garbage collection. Dropping it ends it at once, in the middle of a round if need be;
/// the next round does again what is left.
///
/// See [`Client::collect_in_background`].
#[must_use = "dropping it ends the collection"]
pub struct Collector {
    task: Arc<Slot>,
}

pub(crate) type Slot = Mutex<Work>;

#[derive(Default)]
pub(crate) struct Work {
    future: Option<BoxFuture<'static, ()>>,
    /// Of the task, so that it ends when the work is taken away.
    waker: Option<Waker>,
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Collector")
    }
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").field("runs", &self.future.is_some()).finish()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        end(&self.task);
    }
}

/// Ends a collection where it is.
pub(crate) fn end(task: &Slot) {
    // Not under the lock: what it held may take others with it.
    let mut work = locked(task);
    let (future, waker) = (work.future.take(), work.waker.take());
    drop(work);
    drop(future);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The task, as the runtime sees it.
struct Task(Arc<Slot>);

impl Future for Task {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut work = locked(&self.0);
        work.waker = Some(cx.waker().clone());
        let Some(future) = &mut work.future else { return Poll::Ready(()) };
        let polled = future.as_mut().poll(cx);
        if polled.is_ready() {
            work.future.take();
        }
        polled
    }
}

impl Client {
    /// Collects garbage in the background from now on, and keeps this client registered as a reader
    /// of what it has open. A database that nobody writes to costs nothing and gets no timestamps.
    ///
    /// ```
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator_core::{Column, GcOptions};
    /// use std::time::Duration;
    /// let second = Duration::from_secs(1);
    /// let options = GcOptions { retention: second, interval: second, ..GcOptions::default() };
    /// let collector = client.collect_in_background(options);
    /// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
    /// for balance in ["$10", "$3"] {
    ///     client.transact(async |mut tx| tx.set(&accounts, "Bob", &bal, balance)).await?;
    /// }
    /// client.runtime().sleep(Duration::from_secs(5)).await;
    /// assert_eq!(client.cell_history(&accounts, "Bob", &bal).await?.len(), 2);
    /// drop(collector);
    /// # Ok(()) });
    /// ```
    pub fn collect_in_background(&self, options: GcOptions) -> Collector {
        let client = self.clone();
        let future: BoxFuture<'static, ()> = Box::pin(collect(client, options));
        let task = Arc::new(Mutex::new(Work { future: Some(future), waker: None }));
        self.closing().add_collector(&task);
        self.runtime().spawn(Box::pin(Task(task.clone())));
        Collector { task }
    }
}

/// Gives the advisory lock back, also when the task is dropped in the middle of a round.
struct Alone<'a>(&'a Client, Holder);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.locks().unlock(LOCK, self.1);
    }
}

/// What the task remembers from one look to the next.
#[derive(Debug, Default)]
struct Memory {
    /// Up to where everything is collected, as far as this task knows.
    collected: Timestamp,
    not_before: Duration,
}

/// Registers and collects, side by side: a round may take longer than a registration lives.
async fn collect(client: Client, options: GcOptions) {
    match client.unfenced() {
        None => drop(join(client.keep_registered(), client.keep_collecting(&options)).await),
        // Every client of such a store registers, whether it collects or not.
        Some(_) => client.keep_collecting(&options).await,
    }
}

impl Client {
    /// Renews this client's registration as a reader.
    async fn keep_registered(&self) {
        let mut before = Timestamp::ZERO;
        let mut registered = false;
        // A registration of an earlier collector of this client must not look like this one's.
        let mut renewals = self.runtime().random() >> 1;
        loop {
            let renewed = async {
                let latest = self.oracle().peek().await?;
                registered = self.renew_registration(before, renewals, registered).await?;
                before = latest;
                Ok::<(), crate::Error>(())
            };
            if let Err(error) = renewed.await {
                tracing::warn!(target: "percolator::gc", event = "registration_error", %error);
            }
            renewals += 1;
            self.runtime().sleep(LOOK_EVERY_MAX).await;
        }
    }

    async fn keep_collecting(&self, options: &GcOptions) {
        let look_every = (options.retention / STEPS).clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX);
        let mut memory = Memory::default();
        loop {
            if let Err(error) = self.look(options, &mut memory).await {
                // It is tried again at the next look.
                tracing::warn!(target: "percolator::gc", event = "gc_error", %error);
            }
            self.runtime().sleep(look_every).await;
        }
    }

    async fn look(&self, options: &GcOptions, memory: &mut Memory) -> Result<()> {
        let latest = self.sample().await?;
        let wanted = self.beyond_retention(options.retention, latest);
        if wanted <= memory.collected || self.runtime().now() < memory.not_before {
            return Ok(());
        }
        let holder = self.next_holder();
        if !self.locks().try_lock(LOCK, holder, LOCK_LIFETIME).await? {
            return Ok(());
        }
        let alone = Alone(self, holder);
        let pace = Pace::share(options.share, self.runtime().now());
        let round = self.round(options.retention, pace).await;
        drop(alone);
        memory.not_before = self.runtime().now() + options.interval;
        let round = round?;
        if round.blocked_by.is_none() {
            memory.collected = round.safe_point;
        }
        Ok(())
    }
}
