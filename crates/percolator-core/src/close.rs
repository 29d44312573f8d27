//! Closing a client: its workers, its commits in the background, its collectors.

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
    /// How many workers were still at a cell or at a batch. See
    /// [`Workers::stop_within`](crate::Workers::stop_within).
    pub runs_abandoned: usize,
    /// How many commits were not finished. Whoever meets their locks finishes them.
    pub commits_left: usize,
}

/// Ends everything that this client does in the background, and waits for it: workers finish
/// the cell they are at, however long that takes; commits whose caller let go, and secondary
/// rows, are committed; its trace is written; collectors end where they are. Then its token is
/// given up. After the longest time, leaves what is still going on, and returns it.
pub(crate) async fn close(shared: &Shared, longest: Option<Duration>) -> CloseReport {
    let runtime = shared.runtime();
    let since = runtime.now();
    let left = || longest.map(|longest| (since + longest).saturating_sub(runtime.now()));
    let crews = shared.closing().begin();
    // All at once, and then one after the other.
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
