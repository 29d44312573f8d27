//! Keeps the state of a table between two rounds of upkeep (`reclaim.rs`).

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

/// Shortest time between two rounds for a table.
const ROUND_PAUSE: Duration = Duration::from_secs(300);

/// The state of a table between two rounds.
#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    /// The begin of a round that is going on, or the end of the last one.
    pub(crate) last: Option<Instant>,
    /// The first row that the next round looks at.
    pub(crate) next: Bytes,
    /// Rows whose guards are still to be dropped.
    pub(crate) empty: Option<Empty>,
}

/// Rows that a round found empty.
#[derive(Debug)]
pub(crate) struct Empty {
    /// The rows, with their guards.
    pub(crate) rows: Vec<(Bytes, Bytes)>,
    /// A moment after the last of them was found empty.
    pub(crate) found_at: Instant,
}

/// The pause between two rounds, for requests that live at most so long.
pub(crate) fn pause(request_life_max: Duration) -> Duration {
    ROUND_PAUSE.max(request_life_max)
}
