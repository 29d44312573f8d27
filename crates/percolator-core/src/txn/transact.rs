//! Running a closure in a transaction until it commits.

use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigtable::sync::locked;

use crate::runtime::Backoff;
use crate::{Client, Error, Result, Transaction};

/// One attempt of [`Client::transact`]: the transaction that its closure works with.
///
/// It dereferences to a [`Transaction`]. When the closure has ended it goes back to `transact`,
/// which commits it; a closure that keeps it makes `transact` fail.
///
/// See [`Client::transact`] for an example.
#[derive(Debug)]
pub struct Attempt {
    /// `None` only while it is dropped.
    tx: Option<Transaction>,
    home: Arc<Mutex<Option<Transaction>>>,
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

/// The longest pause between two attempts. With it the attempts together outlast the lifetime of a
/// lock, so that a transaction that only writes gets past one whose owner seems to live but does
/// not (H25).
const BACKOFF_MAX: Duration = Duration::from_millis(500);

impl Client {
    /// Runs `work` in a transaction and commits it. After an abort the closure runs again, from
    /// scratch and with a new start timestamp, so that it reads what the winner wrote (H22); never
    /// after an unknown outcome.
    ///
    /// ```
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator_core::{Column, Error};
    /// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
    /// let balance = client.transact(async |mut tx| {
    ///     let old = tx.get(&accounts, "Bob", &bal).await?.map_or(0, |value| value[0]);
    ///     tx.set(&accounts, "Bob", &bal, vec![old + 1])?;
    ///     Ok(old + 1)
    /// }).await?;
    /// assert_eq!(balance, 1);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// Whatever the closure returns; [`Error::Aborted`] of the last attempt when the client's
    /// `attempts_max` are used up; [`Error::Unknown`].
    ///
    /// # Cancellation
    /// If the future is dropped while the closure runs or between two attempts, nothing was
    /// written. If it is dropped while an attempt commits, [the commit is
    /// finished](Transaction::commit) in the background.
    pub async fn transact<T, F, W>(&self, work: F) -> Result<T>
    where
        F: Fn(Attempt) -> W,
        W: Future<Output = Result<T>>,
    {
        let mut backoff = Backoff::new(Duration::from_micros(500), BACKOFF_MAX);
        let mut attempt = 1;
        loop {
            let error = match self.attempt(&work).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            if !error.is_retryable() || attempt >= self.options().attempts_max {
                return Err(error);
            }
            attempt += 1;
            let pause = backoff.step(&**self.runtime());
            self.runtime().sleep(pause).await;
        }
    }

    async fn attempt<T, F, W>(&self, work: &F) -> Result<T>
    where
        F: Fn(Attempt) -> W,
        W: Future<Output = Result<T>>,
    {
        let home = Arc::new(Mutex::new(None));
        let tx = Some(self.begin().await?);
        let value = work(Attempt { tx, home: home.clone() }).await?;
        let tx = locked(&home).take();
        let kept = || Error::Invalid("the closure kept its transaction: let go of it".to_owned());
        tx.ok_or_else(kept)?.commit().await?;
        Ok(value)
    }
}
