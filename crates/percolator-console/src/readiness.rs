//! Finds out whether store and oracle answer, for `/readyz`.

use std::time::{Duration, Instant};

use percolator::Percolator;
use tokio::sync::Mutex;

/// How long store and oracle may take to answer.
const READY_WITHIN: Duration = Duration::from_secs(5);

/// How long an answer of store and oracle is used again. Anybody may send probes, because they
/// need no token. However many there are, store and oracle get one request in this time.
const READY_FOR: Duration = Duration::from_secs(1);

/// Whether store and oracle have answered, and when they were asked.
#[derive(Debug, Default)]
pub(crate) struct Readiness(Mutex<Option<(Instant, Result<(), &'static str>)>>);

impl Readiness {
    /// Returns the last answer, or a fresh one if the last is too old. Callers that arrive
    /// meanwhile wait for the fresh answer.
    pub(crate) async fn of(&self, db: &Percolator) -> Result<(), &'static str> {
        let mut last = self.0.lock().await;
        if let Some((asked, outcome)) = *last
            && asked.elapsed() < READY_FOR
        {
            return outcome;
        }
        let asked = async {
            db.oracle().peek().await.map_err(|_| "the oracle does not answer\n")?;
            db.observers().await.map_err(|_| "the store does not answer\n")?;
            Ok(())
        };
        let outcome = tokio::time::timeout(READY_WITHIN, asked).await;
        let outcome = outcome.unwrap_or(Err("no answer within 5 s\n"));
        *last = Some((Instant::now(), outcome));
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_is_good_for_a_second() {
        let (db, readiness) = (Percolator::in_memory().await.unwrap(), Readiness::default());
        let asked = async || readiness.0.lock().await.as_ref().map(|(asked, _)| *asked);
        assert_eq!(readiness.of(&db).await, Ok(()));
        // A young answer is used again, even if it is wrong. An old one is replaced.
        let young = Instant::now();
        *readiness.0.lock().await = Some((young, Err("no\n")));
        assert_eq!(readiness.of(&db).await, Err("no\n"));
        assert_eq!(asked().await, Some(young));
        let old = young.checked_sub(READY_FOR).unwrap();
        *readiness.0.lock().await = Some((old, Err("no\n")));
        assert_eq!(readiness.of(&db).await, Ok(()));
    }
}
