//! Repeats requests that may be repeated, with growing pauses.
//!
//! ADR-18 says what this design costs, and what would change it.

use std::time::Duration;

use prost::Message;
use rand::Rng;
use tokio::time::timeout;
use tonic::Status;

use super::status::is_transient;
use crate::proto::rpc;

/// Most attempts for a request.
const ATTEMPTS_MAX: u32 = 6;
/// The pause before the first repetition. It doubles before each further one.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Longest pause that a server may ask for. If it asks for more, the caller gets the error at
/// once.
const ASKED_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Number of attempts of a request so far.
#[derive(Debug, Default)]
pub(crate) struct Attempts(u32);

impl Attempts {
    /// Waits before the next attempt; `false` if there must be none.
    pub(crate) async fn again(&mut self, status: &Status) -> bool {
        self.0 += 1;
        let asked = asked_pause(status);
        let may = is_transient(status) || asked.is_some();
        if self.0 >= ATTEMPTS_MAX || !may || asked.is_some_and(|asked| asked > ASKED_PAUSE_MAX) {
            return false;
        }
        let longest = PAUSE_MIN.saturating_mul(1 << (self.0 - 1)).min(PAUSE_MAX);
        // A random part keeps clients that were cut off together from returning together.
        let own = longest.mul_f64(rand::rng().random_range(0.5..1.0));
        let pause = asked.map_or(own, |asked| asked + own);
        tokio::time::sleep(pause).await;
        true
    }
}

/// `google.rpc.RetryInfo`
#[derive(Message)]
pub(crate) struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    pub(crate) retry_delay: Option<prost_types::Duration>,
}

/// The pause that the server asks for before the next attempt.
fn asked_pause(status: &Status) -> Option<Duration> {
    let details = rpc::Status::decode(status.details()).ok()?.details;
    let info = details.iter().find(|any| any.type_url.ends_with("/google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(&*info.value).ok()?.retry_delay?;
    Duration::try_from(delay).ok()
}

/// Sends a request once, and waits for its answer until the deadline.
pub(crate) async fn once<T>(
    deadline: Duration,
    answer: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    let late = |_| Status::deadline_exceeded(format!("no answer within {deadline:?}"));
    timeout(deadline, answer).await.map_err(late)?
}

/// Sends a request until an answer arrives, the error is final, or the attempts are used up.
/// Each attempt has the full deadline.
pub(crate) async fn repeat<T, F>(deadline: Duration, send: impl Fn() -> F) -> Result<T, Status>
where
    F: Future<Output = Result<T, Status>>,
{
    let mut attempts = Attempts::default();
    loop {
        match once(deadline, send()).await {
            Ok(answer) => return Ok(answer),
            Err(status) => {
                if !attempts.again(&status).await {
                    return Err(status);
                }
            }
        }
    }
}
