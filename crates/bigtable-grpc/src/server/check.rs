//! Implements CheckAndMutateRow: a filter decides which mutations apply.

use std::sync::{Arc, Mutex};

use bigtable::sync::locked;
use bigtable::{Bytes, Selection, Syncing};
use bigtable_fjall::RowEdit;
use tonic::Status;

use super::deadline::Deadline;
use super::mutate::Changes;
use super::schema::Schema;
use super::status::of_engine;
use super::tables::Tables;
use super::{layout, limits};
use crate::filter::{self, Filter};
use crate::proto::data::{CheckAndMutateRowRequest, Mutation, RowFilter};

/// Carries an edit's result to the caller that waits for the edit.
#[derive(Debug)]
pub(crate) struct Finding<T>(Arc<Mutex<Option<T>>>);

impl<T> Clone for Finding<T> {
    fn clone(&self) -> Self {
        Finding(self.0.clone())
    }
}

impl<T> Finding<T> {
    pub(crate) fn new() -> Self {
        Finding(Arc::default())
    }

    pub(crate) fn set(&self, found: T) {
        *locked(&self.0) = Some(found);
    }

    /// Returns the result of an applied edit.
    pub(crate) fn take(&self) -> Result<T, Status> {
        let found = locked(&self.0).take();
        found.ok_or_else(|| Status::internal("the edit was applied without a decision"))
    }
}

/// A conditional mutation of one row, in the form of the API.
#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) row_key: Bytes,
    pub(crate) predicate: Option<RowFilter>,
    pub(crate) then: Vec<Mutation>,
    pub(crate) otherwise: Vec<Mutation>,
}

impl Condition {
    /// Number of mutations in both branches.
    pub(crate) fn mutations(&self) -> usize {
        self.then.len() + self.otherwise.len()
    }

    /// Checks everything that does not need the row, and builds an edit. The edit reports
    /// whether the predicate matched, or the error of the mutations that would apply.
    pub(crate) fn edit(
        self,
        schema: &Arc<Schema>,
    ) -> Result<(RowEdit, Finding<Result<bool, Status>>), Status> {
        limits::check_row_key(&self.row_key)?;
        limits::check_mutations(self.mutations())?;
        let compiled = filter::compile(self.predicate.as_ref());
        let predicate = compiled.map_err(Status::invalid_argument)?;
        // Only the branch that applies must be valid.
        let then = Changes::new(schema, &self.then);
        let other = Changes::new(schema, &self.otherwise);
        let selects = |changes: &Result<Changes, Status>| {
            changes.as_ref().is_ok_and(|changes| !changes.select().columns.is_empty())
        };
        let select = if selects(&then) || selects(&other) {
            layout::everything()
        } else {
            predicate_selection(&predicate, schema)
        };
        let bytes = then.iter().chain(&other).map(Changes::bytes).sum();
        let finding = Finding::new();
        let (found, key, schema) = (finding.clone(), self.row_key.clone(), schema.clone());
        let edit = RowEdit::new(self.row_key, select, move |row| {
            let matched = matches(&predicate, &key, layout::cells(&schema, row.clone()));
            match if matched { &then } else { &other } {
                Ok(changes) => {
                    found.set(Ok(matched));
                    changes.on(&row)
                }
                Err(status) => {
                    found.set(Err(status.clone()));
                    Vec::new()
                }
            }
        });
        Ok((edit.holding(bytes), finding))
    }
}

/// Answers CheckAndMutateRow: true if the predicate matched.
pub(crate) async fn row(
    tables: &Tables,
    request: CheckAndMutateRowRequest,
    deadline: Deadline,
    sync: Syncing,
) -> Result<bool, Status> {
    let table = tables.table(&request.table_name).await?;
    let condition = Condition {
        row_key: request.row_key,
        predicate: request.predicate_filter,
        then: request.true_mutations,
        otherwise: request.false_mutations,
    };
    let held = table.hold_schema().await?;
    let (edit, finding) = condition.edit(&held)?;
    table.engine.edit_row(deadline.of_edit(edit).sync(sync)).await.map_err(of_engine)?;
    finding.take()?
}

fn predicate_selection(predicate: &Filter, schema: &Schema) -> Selection {
    layout::selection(schema, &filter::scopes(predicate))
}

fn matches(predicate: &Filter, key: &Bytes, cells: Vec<filter::Cell>) -> bool {
    !filter::apply(predicate, key, cells).is_empty()
}
