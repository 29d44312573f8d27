//! How fast a round goes: as fast as it can, or with a share of one core.

use crate::shared::Shared;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

/// The smallest share there is.
const SHARE_MIN: f64 = 0.001;
/// The longest rest after one piece of work.
const REST_MAX: Duration = Duration::from_secs(1);

/// Divides a round's time into work and rest.
#[derive(Debug)]
pub(super) struct Pace {
    /// How much longer than the work before it a rest is; `None` rests never.
    rest: Option<f64>,
    /// When the piece of work at hand began.
    since: Duration,
}

impl Pace {
    /// As fast as possible, though others get their turn.
    pub(super) fn full() -> Self {
        Pace { rest: None, since: Duration::ZERO }
    }

    /// With this share of one core, between 0 and 1.
    pub(super) fn share(share: f64, now: Duration) -> Self {
        // No number is no share.
        let share = if share.is_nan() { SHARE_MIN } else { share.clamp(SHARE_MIN, 1.0) };
        Pace { rest: Some((1.0 - share) / share), since: now }
    }

    /// To be called after each piece of work.
    pub(super) async fn pause(&mut self, shared: &Shared) {
        let runtime = shared.runtime();
        match self.rest {
            None => yield_now().await,
            Some(rest) => {
                let worked = runtime.now().saturating_sub(self.since);
                runtime.sleep(worked.mul_f64(rest).min(REST_MAX)).await;
                self.since = runtime.now();
            }
        }
    }
}

/// Lets others go first, once.
async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
