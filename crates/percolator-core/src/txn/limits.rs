//! Compares a transaction with the store's limits on requests, before anything is locked.
//!
//! A locked row that can be neither committed nor rolled back stays locked forever, and every
//! scan of its table fails (H70). So prewrite first compares the largest request of every
//! later step with the limits that the store states. A one-step commit has no later steps and
//! needs none of this.
//!
//! ADR-4 says what this design costs, and what would change it.

use bigtable::{ConditionalMutation, Limits, Mutation, RequestSize, RowKey};

use crate::mutants::{self, off};
use crate::shared::Shared;
use crate::txn::plan::Plan;
use crate::txn::row_plan::RowPlan;
use crate::txn::rows::{PlannedCell, size};
use crate::{Error, InvalidKind, Result};

/// Checks that the store takes every request that the two phases may send for the rows of a
/// plan.
///
/// # Errors
/// [`Error::Invalid`] names the row, the request and the limit. Nothing was sent.
pub(crate) fn check_limits(shared: &Shared, plan: &Plan) -> Result<()> {
    let limits = shared.limits();
    if limits == Limits::default() || off(mutants::LIMITS_UNASKED) {
        return Ok(());
    }
    for (index, row) in plan.rows.iter().enumerate() {
        for (step, size) in largest(row, plan, index == plan.primary_row) {
            limits.check(size).map_err(|error| too_large(row, step, &error))?;
        }
    }
    Ok(())
}

/// The largest request of each step of a row. Some steps are those of the primary's row alone.
fn largest(row: &RowPlan, plan: &Plan, is_primary: bool) -> Vec<(&'static str, RequestSize)> {
    let RowPlan { row, cells, handled, .. } = row;
    let mut steps = vec![
        ("prewrite", size::prewrite(row, cells, plan.primary_name())),
        ("commit", size::commit(row, cells, handled)),
        ("roll-back", size::roll_back(row, cells)),
    ];
    if is_primary {
        let PlannedCell { column, intent, .. } = plan.primary_cell();
        steps.push(("roll-back of the primary", size::roll_back_primary(row, column, intent)));
        steps.push(("heartbeat", size::heartbeat(row, column, intent)));
    }
    steps
}

fn too_large(RowPlan { table, row, .. }: &RowPlan, step: &str, error: &bigtable::Error) -> Error {
    let why = match error {
        bigtable::Error::InvalidRequest(why) => why.clone(),
        other => other.to_string(),
    };
    Error::invalid(
        InvalidKind::Transaction,
        format!(
            "the {step} of row {row} of table {} would take {why}: write fewer cells of this row in one \
         transaction, or use shorter names and values; nothing was locked",
            table.name()
        ),
    )
}

/// Whether these mutations take at most half of a request, so that as many others fit beside
/// them.
pub(crate) fn leave_room(limits: &Limits, row: &RowKey, mutations: &[Mutation]) -> bool {
    if *limits == Limits::default() {
        return true;
    }
    let empty = RequestSize::of_row(row.as_bytes());
    let size = mutations.iter().fold(empty, RequestSize::and);
    let double = RequestSize {
        mutations: size.mutations.saturating_mul(2),
        bytes: size.bytes.saturating_mul(2),
        ..size
    };
    limits.check(double).is_ok()
}

/// Splits unconditional changes of one row into as many requests as the store needs. The
/// requests may be applied in any order.
pub(crate) fn in_requests(
    limits: &Limits,
    row: &RowKey,
    mutations: Vec<Mutation>,
) -> Vec<ConditionalMutation> {
    let mut requests: Vec<ConditionalMutation> = Vec::new();
    let mut size = RequestSize::default();
    for mutation in mutations {
        let grown = size.and(&mutation);
        match requests.last_mut().filter(|_| limits.check(grown).is_ok()) {
            Some(request) => {
                request.otherwise.push(mutation);
                size = grown;
            }
            None => {
                size = RequestSize::of_row(row.as_bytes()).and(&mutation);
                let otherwise = vec![mutation];
                requests.push(ConditionalMutation { otherwise, ..ConditionalMutation::new(row) });
            }
        }
    }
    requests
}
