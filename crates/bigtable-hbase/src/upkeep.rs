//! Keeps the state of a table between two rounds of upkeep (`reclaim.rs`).

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

/// Shortest time between two rounds for a table.
const ROUND_PAUSE: Duration = Duration::from_secs(300);

/// The state of a table between two rounds.
#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    pub(crate) last: Option<Instant>,
    /// The first row that the next round looks at.
    pub(crate) next: Bytes,
    /// Rows that the last round found empty, with their guards.
    pub(crate) empty: Vec<(Bytes, Bytes)>,
}

/// The pause between two rounds, for requests that live at most so long.
pub(crate) fn pause(request_life_max: Duration) -> Duration {
    ROUND_PAUSE.max(request_life_max)
}
