//! Runs each POST once, also if it arrives twice: remembers the last [`ANSWERS_MAX`] answers by
//! request id.
//!
//! A browser repeats a request if the connection breaks before the answer arrives.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use axum::http::StatusCode;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use percolator::store::sync::locked;

/// The most answers that are remembered.
const ANSWERS_MAX: usize = 1_000;
/// The longest request id.
pub(crate) const ID_BYTES_MAX: usize = 64;

/// An answer, as it was sent.
pub(crate) type Answer = (StatusCode, Bytes);

/// An answer that may not be ready yet.
type Coming = Shared<BoxFuture<'static, Answer>>;

/// The answers to the last requests.
#[derive(Debug, Default)]
pub(crate) struct Once {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    answers: BTreeMap<String, Coming>,
    order: VecDeque<String>,
}

impl Once {
    /// Returns the answer to the request with this id. The first request with an id runs `work`,
    /// and `work` ends even if every client has gone. A repeated request waits for the same
    /// answer.
    pub(crate) async fn answer(
        &self,
        id: &str,
        work: impl Future<Output = Answer> + Send + 'static,
    ) -> Answer {
        let coming = {
            let mut inner = locked(&self.inner);
            if let Some(coming) = inner.answers.get(id) {
                coming.clone()
            } else {
                if inner.order.len() >= ANSWERS_MAX
                    && let Some(oldest) = inner.order.pop_front()
                {
                    inner.answers.remove(&oldest);
                }
                let task = tokio::spawn(work);
                let failed = (StatusCode::INTERNAL_SERVER_ERROR, Bytes::new());
                let coming = async move { task.await.unwrap_or(failed) }.boxed().shared();
                inner.order.push_back(id.to_owned());
                inner.answers.insert(id.to_owned(), coming.clone());
                coming
            }
        };
        coming.await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn work_is_done_once_for_each_id() {
        let (once, done) = (Once::default(), Arc::new(AtomicUsize::new(0)));
        let work = || {
            let done = done.clone();
            async move {
                let n = done.fetch_add(1, Ordering::SeqCst);
                (StatusCode::OK, Bytes::from(n.to_string()))
            }
        };
        assert_eq!(once.answer("a", work()).await.1, "0");
        assert_eq!(once.answer("a", work()).await.1, "0");
        assert_eq!(once.answer("b", work()).await.1, "1");
        for n in 0..ANSWERS_MAX {
            once.answer(&format!("n{n}"), work()).await;
        }
        assert_eq!(locked(&once.inner).answers.len(), ANSWERS_MAX);
        assert_eq!(done.load(Ordering::SeqCst), ANSWERS_MAX + 2);
    }

    #[tokio::test]
    async fn work_goes_on_when_the_asker_hangs_up() {
        let (once, done) = (Once::default(), Arc::new(AtomicUsize::new(0)));
        let (go, gate) = tokio::sync::oneshot::channel::<()>();
        let counted = done.clone();
        let work = async move {
            let _ = gate.await;
            counted.fetch_add(1, Ordering::SeqCst);
            (StatusCode::OK, Bytes::from_static(b"first"))
        };
        // The first call is polled once, and dropped before its answer is ready.
        assert!(once.answer("a", work).now_or_never().is_none());
        go.send(()).unwrap();
        let again = async { (StatusCode::OK, Bytes::from_static(b"second")) };
        assert_eq!(once.answer("a", again).await.1, "first");
        assert_eq!(done.load(Ordering::SeqCst), 1);
    }
}
