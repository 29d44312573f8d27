//! What became of a commit whose reply was lost, or that the store has refused.
//!
//! The owner asks its primary's row, and only it. Where the row holds no evidence, garbage
//! collection may have taken the evidence (H06), or the request may still be in flight (H02): then
//! the owner puts a tomb there, or does not know.

use bigtable::ConditionalMutation;

use crate::mutants::{self, off};
use crate::records::branch::{Branch, change};
use crate::resolve::verdicts::Verdict;
use crate::resolve::{OwnStatus, own_status};
use crate::shared::Shared;
use crate::txn::abort::{Abort, abort};
use crate::txn::held::may_be_collected;
use crate::txn::plan::Plan;
use crate::txn::rows;
use crate::{AbortReason, Result, Timestamp};

/// What became of a commit.
#[derive(Debug)]
pub(crate) enum Settled {
    Committed(Timestamp),
    /// It never will commit, for this reason.
    Aborted(AbortReason),
    /// Nobody can find out any more, for this reason.
    Unknown(String),
    /// It may still commit: ask for the commit again, with the same `c`. Says why.
    Open(&'static str),
}

impl Settled {
    fn collected() -> Self {
        Settled::Unknown("its records were garbage collected".to_owned())
    }

    fn still_locked() -> Self {
        Settled::Open("its primary lock is there, but was not a moment ago")
    }
}

/// Settles a commit whose primary no longer holds its lock: an earlier request whose reply was
/// lost has committed it, or somebody has rolled it back.
///
/// If the commit was `asked` for before and the floor lies above, a tomb is no evidence: it may
/// have been put there after the record of the commit was collected.
pub(crate) async fn settle_without_lock(
    shared: &Shared,
    plan: &Plan,
    asked: bool,
) -> Result<Settled> {
    let (primary, start_ts) = (&plan.primary, plan.start_ts);
    let status = own_status(shared, primary, start_ts).await?;
    // After the look: what was collected since is in it.
    let outlived = || may_be_collected(shared, start_ts) && !off(mutants::COLLECTED_MEANS_ABORTED);
    let rolled_back = match status {
        OwnStatus::Decided(Verdict::Committed(commit_ts)) => {
            return Ok(Settled::Committed(commit_ts));
        }
        OwnStatus::Decided(Verdict::RolledBack) if !(asked && outlived()) => true,
        OwnStatus::Locked => false,
        // The evidence may have been collected (H06).
        OwnStatus::Decided(Verdict::RolledBack) | OwnStatus::Nothing if outlived() => {
            return Ok(Settled::collected());
        }
        OwnStatus::Decided(Verdict::RolledBack) | OwnStatus::Nothing => {
            let (row, column) = (&primary.row, &primary.column);
            // A request that was asked for may have come, gone through and been collected since
            // the look; then the floor is above (H06).
            let request = ConditionalMutation {
                above: (asked && !off(mutants::COLLECTED_MEANS_ABORTED)).then_some(start_ts),
                ..rows::roll_back_missing_primary(row, column, start_ts)
            };
            match change(primary.table.store(), request).await {
                Err(bigtable::Error::TooOld { .. }) => return Ok(Settled::collected()),
                // A store without a floor refuses no request, so its answer proves nothing.
                Ok(_) if asked && shared.unfenced().is_some() && outlived() => {
                    return Ok(Settled::collected());
                }
                // A tomb is there now.
                placed => placed? == Branch::Otherwise,
            }
        }
    };
    if !rolled_back {
        return Ok(Settled::still_locked());
    }
    abort(shared, plan).await;
    Ok(Settled::Aborted(AbortReason::RolledBack))
}

/// Ends a transaction whose commit was refused for good: because its start timestamp fell below
/// the store's floor, or because the store does not take such a request (H70). If the commit
/// was `asked` for before, that request may have committed, and garbage collection may have
/// taken the evidence (H06): then only what the primary's row still holds is believed.
pub(crate) async fn settle_refused(
    shared: &Shared,
    plan: &Plan,
    asked: bool,
    reason: AbortReason,
) -> Result<Settled> {
    if asked && own_status(shared, &plan.primary, plan.start_ts).await? != OwnStatus::Locked {
        return settle_without_lock(shared, plan, asked).await;
    }
    let aborted = abort(shared, plan).await;
    // Where no floor refuses an earlier request, it may have come and gone since the look.
    let unsure = asked && shared.unfenced().is_some() && may_be_collected(shared, plan.start_ts);
    match aborted {
        Abort::Done if unsure => settle_without_lock(shared, plan, asked).await,
        Abort::Done => Ok(Settled::Aborted(reason)),
        Abort::AlreadyCommitted => settle_without_lock(shared, plan, asked).await,
        // It was never asked for, and will not be: whoever meets the locks rolls them back.
        Abort::Unreachable if !asked && !matches!(reason, AbortReason::TooOld) => {
            Ok(Settled::Aborted(reason))
        }
        Abort::Unreachable => Ok(Settled::Open("its primary cannot be reached")),
    }
}
