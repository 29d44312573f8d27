//! Limits the speed of a driver's clients by a bucket of tokens, which fills at a rate.
//!
//! The rate stands for the capacity of a machine. A lock or an unavailable server may hold
//! clients up. They then catch up with the work of the last [`BURST`] only, like a queue in
//! front of a machine.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// The part of the past that clients can catch up with.
const BURST: Duration = Duration::from_secs(1);

/// The pace of a driver's clients.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use tpce::{Exchange, Pace, Pacer, Scale};
/// let scale = Scale { trades_per_customer: 2, ..Scale::new(20, 1) };
/// let db = percolator::Percolator::in_memory().await?;
/// let exchange = Exchange::load(db, scale).await?;
/// let pacer = std::sync::Arc::new(Pacer::default());
/// pacer.set(Pace::PerSecond(1_000.0));
/// let (paced, _) = tokio::join!(exchange.paced(2, pacer.clone()), async {
///     tokio::time::sleep(std::time::Duration::from_millis(100)).await;
///     pacer.set(Pace::End);
/// });
/// assert!(paced?.total() > 0);
/// # Ok::<(), tpce::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// No request begins.
    Halt,
    /// Each request begins when the one before it is done.
    Free,
    /// This many requests of all clients together begin each second.
    PerSecond(f64),
    /// The clients end.
    End,
}

/// Sets the pace of a driver's clients, which is [`Pace::Halt`] at first.
///
/// See [`Pace`] for an example.
#[derive(Debug)]
pub struct Pacer {
    pace: watch::Sender<Pace>,
    next: Mutex<Instant>,
}

impl Default for Pacer {
    fn default() -> Self {
        Pacer { pace: watch::Sender::new(Pace::Halt), next: Mutex::new(Instant::now()) }
    }
}

impl Pacer {
    /// Sets the pace from now on.
    pub fn set(&self, pace: Pace) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.pace.send_replace(pace);
    }

    /// Waits until a request may begin; false if no more should begin.
    pub(crate) async fn turn(&self) -> bool {
        let mut pace = self.pace.subscribe();
        loop {
            let now = *pace.borrow_and_update();
            match now {
                Pace::End => return false,
                Pace::Free => {
                    // A store in memory never waits, so without this no other task would run.
                    tokio::task::yield_now().await;
                    return true;
                }
                // The sender is a field of this pacer, so it cannot be gone.
                Pace::Halt => drop(pace.changed().await),
                Pace::PerSecond(rate) => {
                    let at = tokio::time::Instant::from_std(self.token(rate));
                    tokio::select! {
                        () = tokio::time::sleep_until(at) => return true,
                        // The pace has changed, so a token of the old pace no longer counts.
                        _ = pace.changed() => {}
                    }
                }
            }
        }
    }

    fn token(&self, rate: f64) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = Instant::now().checked_sub(BURST).unwrap_or(*next);
        let at = (*next).max(earliest);
        *next = at + Duration::from_secs_f64(1.0 / rate.max(1e-3));
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_at_the_rate_and_a_second_of_them_can_be_caught_up() {
        let pacer = Pacer::default();
        let first = pacer.token(100.0);
        let later: Vec<Instant> = (0..10).map(|_| pacer.token(100.0)).collect();
        assert_eq!(later[9] - first, Duration::from_millis(100));
        // Nobody took a token for ten seconds.
        let now = Instant::now();
        let Some(past) = now.checked_sub(Duration::from_secs(10)) else { return };
        *pacer.next.lock().unwrap() = past;
        let at_once = (0..500).filter(|_| pacer.token(100.0) <= now).count();
        assert!((99..=102).contains(&at_once), "{at_once}");
    }

    #[tokio::test]
    async fn a_pace_that_changes_reaches_those_who_wait() {
        let pacer = std::sync::Arc::new(Pacer::default());
        let wait = || {
            let pacer = pacer.clone();
            tokio::spawn(async move { pacer.turn().await })
        };
        let waiting = wait();
        tokio::task::yield_now().await;
        pacer.set(Pace::PerSecond(1e-3));
        assert!(waiting.await.unwrap(), "the first token is there at once");
        let waiting = wait();
        tokio::task::yield_now().await;
        pacer.set(Pace::End);
        assert!(!waiting.await.unwrap());
    }
}
