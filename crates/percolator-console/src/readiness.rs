//! Finds out whether store and oracle answer, for `/readyz` and for other probes.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use percolator::Percolator;
use percolator::store::sync::locked;
use tokio::task::AbortHandle;

/// How long store and oracle may take to answer.
const READY_WITHIN: Duration = Duration::from_secs(5);

/// How long an answer of store and oracle is used again. Anybody may send probes, because they
/// need no token. However many there are, store and oracle get one request in this time.
const READY_FOR: Duration = Duration::from_secs(1);

type Answer = Result<(), &'static str>;

/// The last question to store and oracle. It is answered even if every prober has gone.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let db = percolator::Percolator::in_memory().await?;
/// let readiness = percolator_console::Readiness::default();
/// assert_eq!(readiness.of(&db).await, Ok(()));
/// # Ok::<(), percolator::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Default)]
pub struct Readiness(Mutex<Option<Asked>>);

#[derive(Debug)]
struct Asked {
    begun: Instant,
    task: AbortHandle,
    answer: Shared<BoxFuture<'static, Answer>>,
}

impl Asked {
    fn now(asking: impl Future<Output = Answer> + Send + 'static) -> Self {
        let task = tokio::spawn(asking);
        let (begun, handle) = (Instant::now(), task.abort_handle());
        let answer =
            async move { task.await.unwrap_or(Err("the request to the database failed\n")) };
        Asked { begun, task: handle, answer: answer.boxed().shared() }
    }

    /// Whether the answer is young, or still to come.
    fn is_good(&self) -> bool {
        !self.task.is_finished() || self.begun.elapsed() < READY_FOR
    }
}

/// The question holds the database, so it ends with the console.
impl Drop for Asked {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Readiness {
    /// Returns the last answer, or a fresh one if the last is older than a second. Callers that
    /// arrive meanwhile wait for the fresh answer.
    ///
    /// # Errors
    /// The reason why the database cannot be used, in words: store or oracle does not answer
    /// within five seconds.
    pub async fn of(&self, db: &Percolator) -> Result<(), &'static str> {
        let answer = {
            let mut last = locked(&self.0);
            let last = match last.take().filter(Asked::is_good) {
                Some(good) => last.insert(good),
                None => last.insert(Asked::now(ask(db.clone()))),
            };
            last.answer.clone()
        };
        answer.await
    }
}

async fn ask(db: Percolator) -> Answer {
    let asked = async {
        db.oracle().peek().await.map_err(|_| "the oracle does not answer\n")?;
        db.observers().await.map_err(|_| "the store does not answer\n")?;
        Ok(())
    };
    let answer = tokio::time::timeout(READY_WITHIN, asked).await;
    answer.unwrap_or(Err("no answer within 5 s\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(readiness: &Readiness) -> Option<Instant> {
        locked(&readiness.0).as_ref().map(|asked| asked.begun)
    }

    #[tokio::test]
    async fn an_answer_is_good_for_a_second() {
        let (db, readiness) = (Percolator::in_memory().await.unwrap(), Readiness::default());
        // A young answer is used again, even if it is wrong. An old one is replaced.
        let young = Asked::now(async { Err("no\n") });
        let begun_then = young.begun;
        *locked(&readiness.0) = Some(young);
        assert_eq!(readiness.of(&db).await, Err("no\n"));
        assert_eq!(readiness.of(&db).await, Err("no\n"));
        assert_eq!(begun(&readiness), Some(begun_then));
        let old = begun_then.checked_sub(READY_FOR).unwrap();
        locked(&readiness.0).as_mut().unwrap().begun = old;
        assert_eq!(readiness.of(&db).await, Ok(()));
    }

    #[tokio::test]
    async fn probers_that_hang_up_cause_no_further_requests() {
        let (db, readiness) = (Percolator::in_memory().await.unwrap(), Readiness::default());
        assert_eq!(readiness.of(&db).now_or_never(), None);
        let first = begun(&readiness);
        for _ in 0..10 {
            tokio::task::yield_now().await;
            readiness.of(&db).now_or_never();
            assert_eq!(begun(&readiness), first);
        }
        assert_eq!(readiness.of(&db).await, Ok(()));
        assert_eq!(begun(&readiness), first);
    }
}
