//! Names the branch of a conditional mutation that a store has applied.
//!
//! A store returns whether the predicate found a cell. That means failure for a prewrite, and
//! success for a commit. So the steps of the protocol compare the applied branch with the
//! branch that holds their change, and read no boolean.

use bigtable::{ConditionalMutation, Mutation, Probe, Result, Table};
use bytes::Bytes;

/// The branch of a conditional mutation that was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Branch {
    /// The predicate found a cell.
    Then,
    /// The predicate found no cell.
    Otherwise,
}

impl Branch {
    fn of(found: bool) -> Self {
        if found { Branch::Then } else { Branch::Otherwise }
    }
}

/// Applies a conditional mutation to a row. Returns the applied branch.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn change(table: &dyn Table, request: ConditionalMutation) -> Result<Branch> {
    table.check_and_mutate_row(request).await.map(Branch::of)
}

/// Applies conditional mutations to several rows of a table. Returns the applied branch of
/// each.
pub(crate) async fn change_each(
    table: &dyn Table,
    requests: Vec<ConditionalMutation>,
) -> Vec<Result<Branch>> {
    let found = table.check_and_mutate_rows(requests).await;
    found.into_iter().map(|found| found.map(Branch::of)).collect()
}

/// Applies `write` to the request's row if the cell that `cell` probes has the value `old`.
/// With `None`, applies it if that cell does not exist. Returns whether it did.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn replace(
    table: &dyn Table,
    request: ConditionalMutation,
    cell: Probe,
    old: Option<Bytes>,
    write: Vec<Mutation>,
) -> Result<bool> {
    let (request, writes) = match old {
        Some(old) => {
            let predicate = vec![cell.with_value_prefix(old)];
            (ConditionalMutation { predicate, then: write, ..request }, Branch::Then)
        }
        None => {
            let predicate = vec![cell];
            (ConditionalMutation { predicate, otherwise: write, ..request }, Branch::Otherwise)
        }
    };
    Ok(change(table, request).await? == writes)
}
