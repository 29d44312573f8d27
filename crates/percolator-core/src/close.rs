//! Closes a client: ends its workers and its commits in the background, writes the rest of its
//! trace, and ends its collectors, in this order.
//!
//! The client's liveness token is given up last. Until then, other clients take the owner for
//! dead only if a lock stays unchanged for longer than its lifetime.

use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};

use crate::shared::Shared;
use crate::trace::write::flush;

/// Work that was still going on when a client was closed.
///
/// See [`Client::close_within`](crate::Client::close_within).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CloseReport {
    /// How many workers were still handling a cell or a batch. See
    /// [`Workers::stop_within`](crate::Workers::stop_within).
    pub runs_abandoned: usize,
    /// How many commits were not finished. Clients that find their locks finish them.
    pub commits_left: usize,
}

/// Ends everything that this client does in the background, and waits for it.
///
/// Workers finish the cell they are at, however long that takes. Secondary rows, and commits
/// whose caller dropped the future, are committed, and
/// the client's trace is written. Collectors stop where they are. Then the
/// client gives up its liveness token. After `longest`, this function stops waiting and
/// reports the work that is still going on.
pub(crate) async fn close(shared: &Shared, longest: Option<Duration>) -> CloseReport {
    let runtime = shared.runtime();
    let since = runtime.now();
    let left = || longest.map(|longest| (since + longest).saturating_sub(runtime.now()));
    let crews = shared.closing().begin();
    // Stop all of them first, and wait for them one after the other.
    crews.iter().for_each(|crew| crew.stop());
    let mut report = CloseReport::default();
    for crew in crews {
        report.runs_abandoned += crew.stop_within(&**runtime, left()).await;
    }
    shared.closing().set_closed();
    let finished = shared.background().finished();
    match left() {
        None => finished.await,
        Some(left) => {
            if let Either::Right(_) = select(pin!(finished), runtime.sleep(left)).await {
                report.commits_left = shared.background().unfinished();
            }
        }
    }
    flush(shared).await;
    shared.closing().end_collectors();
    shared.locks().unregister(shared.incarnation());
    report
}
