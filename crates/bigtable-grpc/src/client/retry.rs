//! Repeating what may be repeated.

use std::time::Duration;

use rand::Rng;
use tonic::Status;

use super::status::is_transient;

/// Most times that a request is sent.
const ATTEMPTS_MAX: u32 = 6;
/// The pause before the first repetition; doubled before each further one.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How often a request was sent, and for how long to wait.
#[derive(Debug, Default)]
pub(crate) struct Attempts(u32);

impl Attempts {
    /// Waits before the request is sent again; `false` if it must not be.
    pub(crate) async fn again(&mut self, status: &Status) -> bool {
        self.0 += 1;
        if self.0 >= ATTEMPTS_MAX || !is_transient(status) {
            return false;
        }
        let longest = PAUSE_MIN.saturating_mul(1 << (self.0 - 1)).min(PAUSE_MAX);
        // Clients that were cut off together must not come back together.
        let part = rand::rng().random_range(0.5..1.0);
        tokio::time::sleep(longest.mul_f64(part)).await;
        true
    }
}

/// Sends a request that may be repeated until it is answered, or too often.
pub(crate) async fn repeat<T, F>(send: impl Fn() -> F) -> Result<T, Status>
where
    F: Future<Output = Result<T, Status>>,
{
    let mut attempts = Attempts::default();
    loop {
        match send().await {
            Ok(answer) => return Ok(answer),
            Err(status) => {
                if !attempts.again(&status).await {
                    return Err(status);
                }
            }
        }
    }
}
