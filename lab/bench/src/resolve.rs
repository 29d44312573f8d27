//! Locks that dead clients left, measured (paper section 2.2).
//!
//! ```text
//!   commit             begin, set, commit on one cell
//!   commit_two_phases  the same with prewrite and commit
//!   get                snapshot, get of a cell without a lock
//!   first_lock         the same of a cell that a dead client's transaction has locked: it is
//!                      rolled back
//!   further_lock       the same of a cell of a dead transaction that is known to be rolled back
//!   resume             the same where the client lives and has forgotten its transaction: the lock
//!                      has to outlive its lifetime first
//!   live               a commit that stops for a while between its phases, among readers of its
//!                      cell
//! ```
//!
//! A client dies here as a process does: its locks stay, its liveness token is gone.

mod bed;
mod live;
mod report;

use std::time::Duration;

use crate::Turns;
use crate::findings::Findings;
use crate::system::Load;
use crate::turns::Measured;

use bed::Bed;
use live::Live;
use percolator_cli::context::Context;

/// The lifetime of the locks of `resume` and of `live`.
const LIFETIME: Duration = Duration::from_millis(500);
/// The longest pause of a reader between two looks at a lock.
const BACKOFF_MAX: Duration = Duration::from_millis(100);
/// Cells of the transactions of `further_lock`.
const LOCKS: usize = 1000;

/// What is done over and over in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Commit,
    TwoPhases,
    Get,
    First,
    Further,
    Resume,
    Live,
}

/// All arms, in the order they are reported in, with what one operation does.
const ARMS: [(&str, Work, &str); 7] = [
    ("commit", Work::Commit, "begin, set, commit"),
    ("commit_two_phases", Work::TwoPhases, "the same in two phases"),
    ("get", Work::Get, "snapshot, get"),
    ("first_lock", Work::First, "the same; rolls a dead transaction back"),
    ("further_lock", Work::Further, "the same; removes a further lock of one"),
    ("resume", Work::Resume, "the same; waits until a forgotten lock is too old"),
    ("live", Work::Live, "prewrite, a pause, commit; among readers"),
];

/// Measures; `None` after Ctrl-C.
pub(crate) async fn run(context: &Context, turns: Turns) -> anyhow::Result<Option<Findings>> {
    let before = Load::now();
    let progress = turns.progress(context, ARMS.len());
    progress.say(0, "loading");
    let dir = tempfile::Builder::new().prefix("percolator-bench-").tempdir()?;
    let mut bed = Bed::create(&dir.path().join("dead"), turns.seed).await?;
    let mut live = Live::create(&dir.path().join("live")).await?;
    let mut arms = ARMS.map(|(name, _, operation)| Measured::new(name, operation));
    let turn = async |at: usize| {
        let length = turns.block();
        match ARMS[at].1 {
            Work::Commit => bed.commit(length, false).await,
            Work::TwoPhases => bed.commit(length, true).await,
            Work::Get => bed.get(length).await,
            Work::First => bed.first(length).await,
            Work::Further => bed.further(length).await,
            Work::Resume => bed.resume().await,
            Work::Live => live.block(length).await,
        }
    };
    if !turns.take(context, &progress, &mut arms, turn).await? {
        return Ok(None);
    }
    let load = [before, Load::now()];
    let mut conditions = bed.conditions().await?;
    conditions.extend(live.conditions().await?);
    Ok(Some(report::findings(turns, load, arms.into(), conditions)))
}
