//! Runs a closure in a transaction, and again in a new one after each error that may pass. The runs
//! end with a commit, with the last attempt, or with any other error. Errors that may pass are:
//!
//! * an abort by another transaction or client,
//! * a lock that stayed too long,
//! * a snapshot below the safe point,
//! * a failure of the store that is only temporary.
//!
//! After a failure of the oracle or an unknown outcome the closure does not run again.

use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigtable::Timestamp;
use bigtable::sync::locked;
use tracing::{Instrument, Span};

use crate::runtime::Backoff;
use crate::shared::Shared;
use crate::txn::begin::{begin_in, span};
use crate::{Error, InvalidKind, Result, Transaction};

/// One attempt of [`Client::transact`](crate::Client::transact): the transaction with which
/// its closure works.
///
/// It dereferences to a [`Transaction`]. When the closure ends, the transaction goes back to
/// `transact`, which commits it. If the closure keeps the attempt, `transact` fails.
///
/// See [`Client::transact`](crate::Client::transact) for an example.
#[derive(Debug)]
pub struct Attempt {
    /// `None` only while the attempt is dropped.
    tx: Option<Transaction>,
    home: Arc<Mutex<Option<Transaction>>>,
}

/// A committed transaction, and the value that its closure returned.
///
/// See [`Client::transact_receipt`](crate::Client::transact_receipt) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt<T> {
    /// The value that the closure returned.
    pub value: T,
    /// The timestamp at which the transaction's writes are visible, or its start timestamp if
    /// it wrote nothing.
    pub commit_ts: Timestamp,
}

impl Deref for Attempt {
    type Target = Transaction;

    fn deref(&self) -> &Transaction {
        self.tx.as_ref().expect("the transaction is there until the attempt is dropped")
    }
}

impl DerefMut for Attempt {
    fn deref_mut(&mut self) -> &mut Transaction {
        self.tx.as_mut().expect("the transaction is there until the attempt is dropped")
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        *locked(&self.home) = self.tx.take();
    }
}

/// The longest pause between two attempts. With it all attempts together outlast the lifetime
/// of a lock. So a transaction that only writes gets past a lock whose owner seems to live but
/// is dead (H25).
const BACKOFF_MAX: Duration = Duration::from_millis(500);

/// Runs `work` in a transaction and commits it. After an abort the closure runs again, from
/// scratch and with a new start timestamp, so that it reads what the winner wrote (H22). It
/// never runs again after an unknown outcome.
pub(crate) async fn transact<T, F, W>(
    shared: &Arc<Shared>,
    name: Option<&Arc<str>>,
    work: F,
) -> Result<Receipt<T>>
where
    F: Fn(Attempt) -> W,
    W: Future<Output = Result<T>>,
{
    let mut backoff = Backoff::new(Duration::from_micros(500), BACKOFF_MAX);
    let mut attempt = 1;
    loop {
        let span = span(name, attempt);
        let error = match try_once(shared, name, &work, span.clone()).await {
            Ok(receipt) => return Ok(receipt),
            Err(error) => error,
        };
        if !error.is_retryable() || attempt >= shared.options().attempts_max {
            return Err(error);
        }
        let pause = backoff.step(&**shared.runtime());
        tracing::debug!(
            target: "percolator::transaction", parent: &span, event = "retry", attempt, ?pause,
        );
        drop(span);
        attempt += 1;
        shared.runtime().sleep(pause).await;
    }
}

async fn try_once<T, F, W>(
    shared: &Arc<Shared>,
    name: Option<&Arc<str>>,
    work: &F,
    span: Span,
) -> Result<Receipt<T>>
where
    F: Fn(Attempt) -> W,
    W: Future<Output = Result<T>>,
{
    let home = Arc::new(Mutex::new(None));
    let tx = Some(begin_in(shared, name, span.clone()).await?);
    let value = {
        // Pinned where it is made: every move would copy the transaction in it.
        let work = pin!(work(Attempt { tx, home: home.clone() }));
        work.instrument(span).await?
    };
    let tx = locked(&home).take();
    let kept = || {
        Error::invalid(
            InvalidKind::Transaction,
            "the closure kept its transaction: drop the transaction before the closure returns",
        )
    };
    let commit_ts = tx.ok_or_else(kept)?.commit().await?;
    Ok(Receipt { value, commit_ts })
}
