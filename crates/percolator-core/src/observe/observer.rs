//! Observers: code that runs when a column changes (paper section 2.4).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;

use crate::observe::change::Change;
use crate::records::schema::{Observed, Strength};
use crate::{Column, Result, Transaction};

impl Change {
    /// The value of the cell that changed, as the observer's transaction sees it. `None` if
    /// the cell was deleted, and for a notify-only column.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn value(&self, tx: &Transaction) -> Result<Option<Bytes>> {
        tx.get(&self.table, &self.row, &self.column).await
    }
}

/// Code that runs, in a transaction of its own, after a change of the column it is registered for.
///
/// The run of a **strong** observer commits at most once for each change. The run of a
/// **weak** observer may commit more often. One run may handle several changes of a cell. An
/// observer that fails or panics is run again after a growing delay. After
/// [`failures_max`](crate::WorkerOptions::failures_max) failures its change is set aside; see
/// [`Client::set_aside`](crate::Client::set_aside). A change is set aside only if this process
/// runs all observers of the column that the schema names.
///
/// ```
/// # use percolator_core::face as percolator;
/// # percolator_core::doc_test(|client| async move {
/// use percolator::{Change, Column, Observer, Registration, Result, Transaction, WorkerOptions};
/// const TEXT: Column = Column::literal("doc:text");
/// const WORDS: Column = Column::literal("doc:words");
///
/// struct CountWords;
/// impl Observer for CountWords {
///     async fn observe(&self, tx: &mut Transaction, change: &Change) -> Result<()> {
///         let text = change.value(tx).await?;
///         let words = text.unwrap_or_default().split(|b| *b == b' ').count().to_string();
///         tx.set(&change.table, &change.row, &WORDS, words)
///     }
/// }
///
/// let count = Registration::strong("count-words", "docs", &TEXT, CountWords);
/// let workers = client.observe(vec![count], WorkerOptions::default()).await?;
/// let docs = client.table("docs").await?;
/// client.transact(async |mut tx| tx.set(&docs, "a", &TEXT, "to be or not")).await?;
/// client.wait_idle(None).await?;
/// let words = client.snapshot().await?.get(&docs, "a", &WORDS).await?;
/// assert_eq!(words.as_deref(), Some(&b"4"[..]));
/// workers.stop().await;
/// # Ok(()) });
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Handles a change. The worker commits `tx` afterwards.
    ///
    /// A run has no time limit. During the run its worker handles nothing else, and renews its
    /// advisory lock on the row for [`run_max`](crate::WorkerOptions::run_max). A run may be
    /// repeated, and two runs for one change may overlap. Of a strong observer's runs at most one
    /// commits. Of a weak one's runs several may, so its writes must be safe to repeat. A long
    /// run should check now and then whether the [workers are
    /// stopping](Transaction::is_stopping).
    ///
    /// # Errors
    /// Return any error: nothing of the transaction takes effect then. Return
    /// [`Error::Unavailable`](crate::Error::Unavailable) when an external system is down. That
    /// error does not count as a failure of the observer, and the run is repeated until it
    /// succeeds.
    fn observe(
        &self,
        tx: &mut Transaction,
        change: &Change,
    ) -> impl Future<Output = Result<()>> + Send;
}

/// An observer with its type erased, so that workers can keep all observers in one list.
pub(crate) trait AnyObserver: Send + Sync {
    fn run<'a>(&'a self, tx: &'a mut Transaction, change: &'a Change) -> BoxFuture<'a, Result<()>>;
}

impl<O: Observer> AnyObserver for O {
    fn run<'a>(&'a self, tx: &'a mut Transaction, change: &'a Change) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.observe(tx, change))
    }
}

/// A weak observer that takes many changes at once, for example to feed another system in
/// batches. The notifications stay until `observe` has returned and `tx` has committed, so a
/// crash delivers the changes again.
///
/// ```
/// # use percolator_core::face as percolator;
/// # percolator_core::doc_test(|client| async move {
/// use percolator::observe::{Batch, BatchObserver};
/// use percolator::{Change, Column, Registration, Result, Transaction, WorkerOptions};
/// use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
/// const CHANGED: Column = Column::literal("export:changed");
///
/// struct Export(std::sync::Arc<AtomicUsize>);
/// impl BatchObserver for Export {
///     async fn observe(&self, _tx: &mut Transaction, changes: &[Change]) -> Result<()> {
///         self.0.fetch_add(changes.len(), SeqCst);
///         Ok(())
///     }
/// }
///
/// let sent = std::sync::Arc::new(AtomicUsize::new(0));
/// let export = Registration::batched(
///     "export", "docs", &CHANGED, Batch::default(), Export(sent.clone()));
/// let workers = client.observe(vec![export], WorkerOptions::default()).await?;
/// let docs = client.table("docs").await?;
/// client.transact(async |mut tx| {
///     tx.notify(&docs, "a", &CHANGED)?;
///     tx.notify(&docs, "b", &CHANGED)
/// }).await?;
/// client.wait_idle(None).await?;
/// assert_eq!(sent.load(SeqCst), 2);
/// workers.stop().await;
/// # Ok(()) });
/// ```
pub trait BatchObserver: Send + Sync + 'static {
    /// Handles up to [`Batch::changes_max`] changes. The worker commits `tx` afterwards.
    ///
    /// # Errors
    /// Return [`Error::Unavailable`](crate::Error::Unavailable) if the target is out of reach: the
    /// batch is delivered again, and nothing counts as a failure. After a conflict the batch is
    /// delivered in halves. After any other error its changes are delivered one at a time, and a
    /// change that fails alone counts as a failure.
    fn observe(
        &self,
        tx: &mut Transaction,
        changes: &[Change],
    ) -> impl Future<Output = Result<()>> + Send;
}

/// Like [`AnyObserver`], for many changes at once.
pub(crate) trait AnyBatchObserver: Send + Sync {
    fn run<'a>(
        &'a self,
        tx: &'a mut Transaction,
        changes: &'a [Change],
    ) -> BoxFuture<'a, Result<()>>;
}

impl<O: BatchObserver> AnyBatchObserver for O {
    fn run<'a>(
        &'a self,
        tx: &'a mut Transaction,
        changes: &'a [Change],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.observe(tx, changes))
    }
}

/// When a [`BatchObserver`] runs.
///
/// See [`BatchObserver`] for an example.
#[derive(Debug, Clone, Copy)]
pub struct Batch {
    /// Most changes in one call. Default: 1,000 changes.
    pub changes_max: usize,
    /// The longest time that changes are gathered before the observer runs. It runs earlier if no
    /// change has come for a quarter of a second, or for a fortieth of the interval if that is
    /// longer. It also runs earlier if a caller waits for idleness and only batches are left to do.
    ///
    /// While the column has no changes, the worker looks less and less often for those of other
    /// clients. It looks at least every [`idle_max`](crate::WorkerOptions::idle_max), or every
    /// interval (10 s at most) if that is longer. See also
    /// [`peek_every`](crate::WorkerOptions::peek_every). Default: 1 s.
    pub interval: Duration,
}

impl Default for Batch {
    fn default() -> Self {
        Batch { changes_max: 1000, interval: Duration::from_secs(1) }
    }
}

/// An observer with its name and its column.
///
/// See [`Observer`] for an example.
pub struct Registration {
    pub(crate) observed: Observed,
    /// The observer's name again, shared by the transactions of its runs.
    pub(crate) name: Arc<str>,
    /// The column of the observer's acknowledgements. Only strong observers make any.
    pub(crate) ack: Column,
    pub(crate) runner: Runner,
    pub(crate) runs_max: Option<usize>,
}

#[derive(Clone)]
pub(crate) enum Runner {
    Each(Arc<dyn AnyObserver>),
    Batch(Batch, Arc<dyn AnyBatchObserver>),
}

impl Registration {
    /// An observer that runs after writes and deletions of a column.
    ///
    /// The name identifies the observer's acknowledgements in the store. It must be unique
    /// among the column's observers, and stay the same from one version of the program to the
    /// next.
    pub fn strong(
        name: impl Into<String>,
        table: impl Into<String>,
        column: &Column,
        observer: impl Observer,
    ) -> Self {
        let runner = Runner::Each(Arc::new(observer));
        Registration::new(name.into(), table.into(), column.clone(), Strength::Strong, runner)
    }

    /// An observer that runs after notifications on a notify-only column.
    pub fn weak(
        name: impl Into<String>,
        table: impl Into<String>,
        column: &Column,
        observer: impl Observer,
    ) -> Self {
        let runner = Runner::Each(Arc::new(observer));
        Registration::new(name.into(), table.into(), column.clone(), Strength::Weak, runner)
    }

    /// An observer that handles the notifications on a notify-only column in batches.
    pub fn batched(
        name: impl Into<String>,
        table: impl Into<String>,
        column: &Column,
        batch: Batch,
        observer: impl BatchObserver,
    ) -> Self {
        let runner = Runner::Batch(batch, Arc::new(observer));
        Registration::new(name.into(), table.into(), column.clone(), Strength::Weak, runner)
    }

    /// Bounds how many runs of this observer there are at a time, in place of
    /// [`WorkerOptions::runs_max`](crate::WorkerOptions::runs_max); at least one. With a
    /// bound, a slow observer, such as one that calls another service, leaves threads to other
    /// observers.
    ///
    /// All observers of one column run one after the other, so the smallest of their bounds
    /// applies to each. A batching observer has one run at a time anyway.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # use percolator::*;
    /// # struct CallsAnother;
    /// # impl Observer for CallsAnother {
    /// #     async fn observe(&self, _: &mut Transaction, _: &Change) -> Result<()> { Ok(()) }
    /// # }
    /// const TEXT: Column = Column::literal("doc:text");
    /// let call = Registration::strong("call", "docs", &TEXT, CallsAnother).runs_max(2);
    /// assert_eq!(call.observed().observer, "call");
    /// ```
    #[must_use]
    pub fn runs_max(self, runs: usize) -> Self {
        Registration { runs_max: Some(runs), ..self }
    }

    /// The entry that the schema holds for this observer.
    pub fn observed(&self) -> &Observed {
        &self.observed
    }

    fn new(
        observer: String,
        table: String,
        column: Column,
        strength: Strength,
        runner: Runner,
    ) -> Self {
        let (name, ack) = (observer.as_str().into(), column.ack_of(&observer));
        let observed = Observed { table, column, observer, strength };
        Registration { observed, name, ack, runner, runs_max: None }
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registration").field(&self.observed).finish()
    }
}
