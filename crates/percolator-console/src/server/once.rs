//! A POST that arrives twice is done once: its request id is remembered with its answer.
//!
//! A browser repeats a request when a connection breaks before the answer has come.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use bytes::Bytes;
use percolator::store::sync::locked;
use tokio::sync::OnceCell;

/// How many answers are remembered.
const ANSWERS_MAX: usize = 1_000;
/// The longest request id.
pub(crate) const ID_BYTES_MAX: usize = 64;

/// An answer, as it was sent.
pub(crate) type Answer = (StatusCode, Bytes);

/// The answers to the last requests.
#[derive(Debug, Default)]
pub(crate) struct Once {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    answers: BTreeMap<String, Arc<OnceCell<Answer>>>,
    order: VecDeque<String>,
}

impl Once {
    /// The answer to the request of this id: that of `work`, which runs for the first of them.
    /// Another one that comes meanwhile waits for it.
    pub(crate) async fn answer(&self, id: &str, work: impl Future<Output = Answer>) -> Answer {
        let cell = {
            let mut inner = locked(&self.inner);
            if let Some(cell) = inner.answers.get(id) {
                cell.clone()
            } else {
                if inner.order.len() >= ANSWERS_MAX
                    && let Some(oldest) = inner.order.pop_front()
                {
                    inner.answers.remove(&oldest);
                }
                let cell = Arc::new(OnceCell::new());
                inner.order.push_back(id.to_owned());
                inner.answers.insert(id.to_owned(), cell.clone());
                cell
            }
        };
        cell.get_or_init(|| work).await.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn work_is_done_once_for_each_id() {
        let (once, done) = (Once::default(), AtomicUsize::new(0));
        let work = || async {
            let n = done.fetch_add(1, Ordering::SeqCst);
            (StatusCode::OK, Bytes::from(n.to_string()))
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
}
