//! Limits how fast a round goes: at full speed, or with a share of one core.

use crate::shared::Shared;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

/// The smallest share that is used.
const SHARE_MIN: f64 = 0.001;
/// The longest rest after a piece of work.
const REST_MAX: Duration = Duration::from_secs(1);

/// Divides a round's time into work and rest.
#[derive(Debug)]
pub(super) struct Pace {
    /// The length of a rest, relative to the work before it. `None` means no rest.
    rest: Option<f64>,
    /// When the current piece of work began.
    since: Duration,
}

impl Pace {
    /// At full speed, but lets other tasks run after each piece.
    pub(super) fn full() -> Self {
        Pace { rest: None, since: Duration::ZERO }
    }

    /// With this share of one core, between 0 and 1.
    pub(super) fn share(share: f64, now: Duration) -> Self {
        // NaN counts as the smallest share.
        let share = if share.is_nan() { SHARE_MIN } else { share.clamp(SHARE_MIN, 1.0) };
        Pace { rest: Some((1.0 - share) / share), since: now }
    }

    /// Rests as the share demands. Await this after each piece of work.
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

/// Lets other tasks run first, once.
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
