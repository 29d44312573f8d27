//! Lets the callers of one service of a server share an attempt to connect.
//!
//! An attempt to reach a dead host ends only when its time is over. If each caller made an attempt
//! of its own after the one before it, the last of many callers would wait for all of them. So a
//! caller that comes during an attempt gets its outcome. A caller that comes after a failed attempt
//! begins the next one.

use std::collections::HashMap;
use std::sync::Mutex;

use bigtable::sync::locked;
use tokio::sync::watch;

use crate::failure::Failure;

/// The address of a server, and the name of a service.
pub(crate) type Service = (String, &'static str);

/// The outcome of an attempt; `None` while the attempt is going on.
type Outcome<T> = watch::Receiver<Option<Result<T, Failure>>>;

/// The last attempt for each service.
#[derive(Debug)]
pub(crate) struct Attempts<T>(Mutex<HashMap<Service, Outcome<T>>>);

impl<T> Default for Attempts<T> {
    fn default() -> Self {
        Attempts(Mutex::default())
    }
}

impl<T: Clone + Send + Sync + 'static> Attempts<T> {
    /// Returns the outcome of the last attempt, if it is going on, or if it has opened something
    /// that `is_broken` does not call broken. Otherwise begins an attempt with `open`. The attempt
    /// goes on if its callers give up, so `open` must have a bound of its own.
    pub(crate) async fn join<F>(
        &self,
        service: Service,
        is_broken: impl Fn(&T) -> bool,
        open: impl FnOnce() -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let usable = |last: &Outcome<T>| match &*last.borrow() {
            Some(Ok(opened)) => !is_broken(opened),
            Some(Err(_)) => false,
            // Without a sender, the attempt was cut off with its runtime.
            None => last.has_changed().is_ok(),
        };
        let mut outcome = {
            let mut all = locked(&self.0);
            match all.get(&service).filter(|last| usable(last)) {
                Some(last) => last.clone(),
                None => {
                    // Servers that are gone for good leave no entries.
                    all.retain(|_, last| usable(last));
                    let begun = begin(open());
                    all.insert(service, begun.clone());
                    begun
                }
            }
        };
        match outcome.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(outcome)) => outcome.clone(),
            Ok(None) | Err(_) => Err(Failure::Moved("the attempt to connect was cut off".into())),
        }
    }
}

/// Begins an attempt in a task of its own.
fn begin<T: Send + Sync + 'static>(
    opening: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Outcome<T> {
    let (sender, outcome) = watch::channel(None);
    tokio::spawn(async move { sender.send_replace(Some(opening.await)) });
    outcome
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    fn service() -> Service {
        ("h:1".to_owned(), "ClientService")
    }

    #[tokio::test]
    async fn callers_that_come_during_an_attempt_get_its_outcome() {
        let attempts = Attempts::default();
        let (begun, down) = (AtomicU32::new(0), Arc::new(Semaphore::new(0)));
        let open = || {
            begun.fetch_add(1, Ordering::Relaxed);
            let down = down.clone();
            async move {
                down.acquire().await.expect("it stays open").forget();
                Err::<u32, _>(Failure::Moved("the host is down".to_owned()))
            }
        };
        let call = || Box::pin(attempts.join(service(), |_| false, open));
        let mut calls: Vec<_> = (0..8).map(|_| call()).collect();
        for call in &mut calls {
            assert!(futures::poll!(call).is_pending());
        }
        // The caller that began the attempt gives up.
        drop(calls.remove(0));
        down.add_permits(1);
        for call in calls {
            let outcome = call.await;
            assert!(matches!(outcome, Err(Failure::Moved(_))), "{outcome:?}");
        }
        assert_eq!(begun.load(Ordering::Relaxed), 1);
        down.add_permits(1);
        call().await.expect_err("the host is still down");
        assert_eq!(begun.load(Ordering::Relaxed), 2, "a later caller tries anew");
    }

    #[tokio::test]
    async fn a_connection_is_kept_until_it_is_broken() {
        let attempts = Attempts::default();
        let begun = Arc::new(AtomicU32::new(0));
        let call = async |is_broken: bool| {
            let begun = begun.clone();
            let open = || async move { Ok(begun.fetch_add(1, Ordering::Relaxed)) };
            attempts.join(service(), |_| is_broken, open).await.expect("a connection")
        };
        assert_eq!((call(false).await, call(false).await), (0, 0));
        assert_eq!((call(true).await, call(false).await), (1, 1));
        let other = ("h:2".to_owned(), "ClientService");
        let open = || async { Ok(7) };
        assert_eq!(attempts.join(other, |_| true, open).await.expect("a connection"), 7);
        assert_eq!(locked(&attempts.0).len(), 1, "the broken connection was dropped");
    }

    /// A test's runtime may end during an attempt, and a store may outlive it.
    #[test]
    fn an_attempt_that_was_cut_off_is_begun_anew() {
        let attempts = Attempts::default();
        let runtime = || tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime().block_on(async {
            let mut call = Box::pin(attempts.join(service(), |_| false, std::future::pending));
            assert!(futures::poll!(&mut call).is_pending());
        });
        let opened = attempts.join(service(), |_| false, || async { Ok(1) });
        assert_eq!(runtime().block_on(opened).expect("a connection"), 1);
    }
}
