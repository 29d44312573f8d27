//! CheckAndMutateRow: a filter decides which mutations apply.

use std::sync::{Arc, Mutex, PoisonError};

use bigtable::{Bytes, Selection};
use bigtable_fjall::RowEdit;
use tonic::Status;

use super::mutate::Changes;
use super::status::of_engine;
use super::tables::Tables;
use super::{layout, limits};
use crate::filter::{self, Filter};
use crate::proto::data::CheckAndMutateRowRequest;

/// What an edit found out, for the caller who waits for it.
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
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    }

    /// What was found by an edit that was applied.
    pub(crate) fn take(&self) -> Result<T, Status> {
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        found.ok_or_else(|| Status::internal("the edit was applied without a decision"))
    }
}

/// Answers CheckAndMutateRow: whether the predicate matched.
pub(crate) async fn row(
    tables: &Tables,
    request: CheckAndMutateRowRequest,
) -> Result<bool, Status> {
    let table = tables.table(&request.table_name).await?;
    limits::check_row_key(&request.row_key)?;
    let count = request.true_mutations.len() + request.false_mutations.len();
    limits::check_mutations(count)?;
    let compiled = filter::compile(request.predicate_filter.as_ref());
    let predicate = compiled.map_err(Status::invalid_argument)?;
    let held = table.hold_schema().await?;
    let schema = held.clone();
    // Only the mutations that would apply need be right.
    let then = Changes::new(&schema, &request.true_mutations);
    let other = Changes::new(&schema, &request.false_mutations);
    let selects = |changes: &Result<Changes, Status>| {
        changes.as_ref().is_ok_and(|changes| !changes.select().columns.is_empty())
    };
    let select = match selects(&then) || selects(&other) {
        true => layout::everything(),
        false => predicate_selection(&predicate, &schema),
    };
    let bytes = then.iter().chain(&other).map(Changes::bytes).sum();
    let finding = Finding::new();
    let edit = {
        let (finding, key) = (finding.clone(), request.row_key.clone());
        RowEdit::new(request.row_key, select, move |row| {
            let matched = matches(&predicate, &key, layout::cells(&schema, row.clone()));
            match if matched { &then } else { &other } {
                Ok(changes) => {
                    finding.set(Ok(matched));
                    changes.on(&row)
                }
                Err(status) => {
                    finding.set(Err(status.clone()));
                    Vec::new()
                }
            }
        })
        .holding(bytes)
    };
    table.engine.edit_row(edit).await.map_err(of_engine)?;
    finding.take()?
}

fn predicate_selection(predicate: &Filter, schema: &super::schema::Schema) -> Selection {
    layout::selection(schema, &filter::scopes(predicate))
}

fn matches(predicate: &Filter, key: &Bytes, cells: Vec<filter::Cell>) -> bool {
    !filter::apply(predicate, key, cells).is_empty()
}
