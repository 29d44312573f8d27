//! Settles a commit: finds out what became of it after its reply was lost, or after the store
//! refused it.
//!
//! The owner asks its primary's row and nothing else. If the row holds no evidence, garbage
//! collection may have taken it (H06), or the request may still be in flight (H02). If records
//! of the transaction may be collected by now, the owner reports an unknown outcome. Otherwise
//! it puts a tomb there, which refuses the request.

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

/// The outcome of a commit, as far as its owner could find it out.
#[derive(Debug)]
pub(crate) enum Settled {
    Committed(Timestamp),
    /// The transaction will never commit, for this reason.
    Aborted(AbortReason),
    /// The outcome can no longer be found out, for this reason.
    Unknown(String),
    /// The transaction may still commit, for this reason. The owner must send the commit
    /// again, with the same `c`.
    Open(&'static str),
}

impl Settled {
    fn collected() -> Self {
        Settled::Unknown("its records were garbage collected".to_owned())
    }

    fn still_locked() -> Self {
        Settled::Open("its primary lock was missing at first, and was found again a moment later")
    }
}

/// Settles a commit whose primary no longer holds its lock. Either an earlier request whose
/// reply was lost has committed it, or another client has rolled it back.
///
/// If a commit was `asked` for before and the floor is above `s`, a tomb proves nothing. It
/// may have been put there after the commit's record was collected.
pub(crate) async fn settle_without_lock(
    shared: &Shared,
    plan: &Plan,
    asked: bool,
) -> Result<Settled> {
    let (primary, start_ts) = (&plan.primary, plan.start_ts);
    let status = own_status(shared, primary, start_ts).await?;
    // Check this after the read, so that it covers all collections before the read.
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
            // An earlier request may have arrived, committed and been collected since the
            // read. Then the floor is above `s` and refuses this request (H06).
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
                // The row has a tomb now.
                placed => placed? == Branch::Otherwise,
            }
        }
    };
    if !rolled_back {
        return Ok(Settled::still_locked());
    }
    abort(plan).await;
    Ok(Settled::Aborted(AbortReason::RolledBack))
}

/// Ends a transaction whose commit the store has refused for good. Either its start timestamp
/// fell below the floor, or the store does not take such a request (H70). If a commit was
/// `asked` for before, that request may have committed, and collection may have taken the
/// evidence (H06). So only the records that are still in the primary's row are believed.
pub(crate) async fn settle_refused(
    shared: &Shared,
    plan: &Plan,
    asked: bool,
    reason: AbortReason,
) -> Result<Settled> {
    if asked && own_status(shared, &plan.primary, plan.start_ts).await? != OwnStatus::Locked {
        return settle_without_lock(shared, plan, asked).await;
    }
    let aborted = abort(plan).await;
    // Without a floor that refuses it, an earlier request may have been applied and collected
    // since the read.
    let unsure = asked && shared.unfenced().is_some() && may_be_collected(shared, plan.start_ts);
    match aborted {
        Abort::Done if unsure => settle_without_lock(shared, plan, asked).await,
        Abort::Done => Ok(Settled::Aborted(reason)),
        Abort::AlreadyCommitted => settle_without_lock(shared, plan, asked).await,
        // The commit was never sent, and never will be. Clients that find the locks roll them
        // back.
        Abort::Unreachable if !asked && !matches!(reason, AbortReason::TooOld) => {
            Ok(Settled::Aborted(reason))
        }
        Abort::Unreachable => Ok(Settled::Open("its primary cannot be reached")),
    }
}
