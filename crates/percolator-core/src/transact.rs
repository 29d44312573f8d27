//! Running a closure in a transaction until it commits.

use std::time::Duration;

use crate::runtime::Backoff;
use crate::{Client, Result, Transaction};

impl Client {
    /// Runs `work` in a transaction and commits it. After an abort the closure runs again, from
    /// scratch and with a new start timestamp, so that it reads what the winner wrote (H22); never
    /// after an unknown outcome.
    ///
    /// ```
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator_core::{Column, Error};
    /// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
    /// let balance = client.transact(async |tx| {
    ///     let old = tx.get(&accounts, "Bob", &bal).await?.map_or(0, |value| value[0]);
    ///     tx.set(&accounts, "Bob", &bal, vec![old + 1])?;
    ///     Ok(old + 1)
    /// }).await?;
    /// assert_eq!(balance, 1);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// Whatever the closure returns; [`Error::Aborted`](crate::Error::Aborted) of the last attempt
    /// when the client's `attempts_max` are used up; [`Error::Unknown`](crate::Error::Unknown).
    pub async fn transact<T>(
        &self,
        work: impl AsyncFn(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        let mut backoff = Backoff::new(Duration::from_micros(500), Duration::from_millis(200));
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
            let runtime = self.runtime();
            runtime.sleep(backoff.step(&**runtime)).await;
        }
    }

    async fn attempt<T>(&self, work: &impl AsyncFn(&mut Transaction) -> Result<T>) -> Result<T> {
        let mut tx = self.begin().await?;
        let value = work(&mut tx).await?;
        tx.commit().await?;
        Ok(value)
    }
}
