//! Delaying conditional mutations, so that those of several callers go in one request (paper section 2.5:
//! lock operations are delayed, "to collect them into batches").
//!
//! The first request that comes waits for the delay of the options, and takes all with it that came
//! meanwhile; as many as the server takes in one request are sent at once. What is sent is
//! sent to its end, whatever becomes of its callers, because it is nobody's alone.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bigtable::{ConditionalMutation, Error, Result};
use tokio::sync::oneshot;

use super::batch;
use super::table::GrpcTable;

/// A request, and who waits for its outcome.
type Waiting = (ConditionalMutation, oneshot::Sender<Result<bool>>);

/// The conditional mutations of a table that wait.
#[derive(Debug)]
pub(super) struct Gather {
    delay: Duration,
    /// Most that wait.
    entries_max: usize,
    waiting: Mutex<Vec<Waiting>>,
}

impl Gather {
    pub(super) fn new(delay: Duration, entries_max: usize) -> Arc<Self> {
        Arc::new(Gather { delay, entries_max, waiting: Mutex::default() })
    }

    fn take(&self) -> Vec<Waiting> {
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sends these requests together with those of others, and waits for their outcomes.
    pub(super) async fn send(
        self: &Arc<Self>,
        table: &GrpcTable,
        requests: Vec<ConditionalMutation>,
    ) -> Vec<Result<bool>> {
        let outcomes: Vec<_> = requests.into_iter().map(|r| self.push(table, r)).collect();
        let mut results = Vec::with_capacity(outcomes.len());
        for outcome in outcomes {
            let lost = |_| Error::Unknown { why: "the request was given up".to_owned() };
            results.push(outcome.await.map_err(lost).flatten());
        }
        results
    }

    fn push(
        self: &Arc<Self>,
        table: &GrpcTable,
        request: ConditionalMutation,
    ) -> oneshot::Receiver<Result<bool>> {
        let (tell, outcome) = oneshot::channel();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push((request, tell));
        let count = waiting.len();
        let full = (count >= self.entries_max).then(|| std::mem::take(&mut *waiting));
        drop(waiting);
        if let Some(full) = full {
            tokio::spawn(deliver(table.clone(), self.entries_max, full));
        } else if count == 1 {
            let (gather, table) = (self.clone(), table.clone());
            tokio::spawn(async move {
                tokio::time::sleep(gather.delay).await;
                deliver(table, gather.entries_max, gather.take()).await;
            });
        }
        outcome
    }
}

/// Sends what has gathered and tells the outcomes.
async fn deliver(table: GrpcTable, entries_max: usize, gathered: Vec<Waiting>) {
    let (requests, told): (Vec<_>, Vec<_>) = gathered.into_iter().unzip();
    let results = match requests.len() {
        0 => return,
        1 => table.send_each(requests).await,
        _ => batch::send(&table, entries_max, requests).await,
    };
    for (tell, result) in told.into_iter().zip(results) {
        // Whoever has given up does not want to know.
        let _ = tell.send(result);
    }
}
