//! Arranges the final writes of a transaction by row, and chooses its primary.
//!
//! Invariant: the primary is chosen from the final writes, so that it is really written (H13).
//! It stays the same as long as `s` is used, because locks in the store name it (H11).

use std::sync::Arc;

use crate::mutants::{self, off};
use crate::observe::skip_all::acknowledge_all;
use crate::options::CommitPath;
use crate::records::column::{Cell, CellName, Table};
use crate::records::lock::{Kind, Lock};
use crate::records::schema::{Schema, Strength};
use crate::shared::Shared;
use crate::txn::open_readers::Open;
use crate::txn::row_plan::RowPlan;
use crate::txn::rows::NewLock;
use crate::txn::watched::Watched;
use crate::{Error, InvalidKind, Result, Timestamp, Transaction};

/// The rows that a transaction writes, and the cell that decides.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) start_ts: Timestamp,
    pub(crate) primary: Cell,
    pub(crate) rows: Arc<Vec<RowPlan>>,
    /// Which of `rows` holds the primary.
    pub(crate) primary_row: usize,
    /// The version of the observer schema that the notify bits follow.
    pub(crate) schema_version: u64,
    /// The data for the watcher, if there is one.
    pub(crate) watched: Option<Box<Watched>>,
    /// The span of the transaction, until its last row is committed.
    pub(crate) span: tracing::Span,
    /// Keeps the safe point below `start_ts` until the commit has ended.
    _open: Option<Open>,
}

impl Plan {
    /// Arranges a transaction's writes; `None` if it has none.
    ///
    /// # Errors
    /// Errors of reading the observer schema; [`Error::Invalid`] if a written column is
    /// notify-only, or if there are too many cells.
    pub(crate) async fn of(tx: &mut Transaction) -> Result<Option<Plan>> {
        let shared = tx.shared.clone();
        let schema = shared.schema(tx.stamp.schema_version).await?;
        let mut writes = std::mem::take(&mut tx.buffer.writes);
        if tx.skips_observers {
            writes = acknowledge_all(&schema, writes)?;
        }
        let Some(first) = writes.first() else { return Ok(None) };
        let primary = match tx.primary.take() {
            Some(primary) => {
                let written = writes.get(&primary.table, &primary.row, &primary.column);
                assert!(
                    written.is_some(),
                    "the transaction does not write its primary {primary:?}"
                );
                primary
            }
            None => first.clone(),
        };
        let name = (writes.len() > 1).then(|| Arc::new(name_in_locks(&primary)));
        // All locks get the same wall time. Another client may watch several locks of a
        // transaction whose primary never came. Different wall times would look like signs of
        // life (H03).
        let wall_ms = shared.runtime().wall_ms();
        let start_ts = tx.start_ts();
        let acknowledged_below = match tx.acknowledged_below {
            Some(c) if !off(mutants::ACK_SOUGHT_FROM_S) => c,
            _ => start_ts,
        };
        let mut rows: Vec<RowPlan> = Vec::new();
        let mut primary_row = 0;
        for (cell, value) in writes {
            let observed = observed(&schema, &cell)? && !tx.skips_observers;
            // If notifications lie in a table of their own, no row operation leaves them.
            let notify = observed && !cell.table.notifies_apart();
            let is_primary = cell == primary;
            let Cell { table, row, column } = cell;
            if rows.last().is_none_or(|last| last.row != row || last.table != table) {
                rows.push(RowPlan { table, row, cells: Vec::new(), handled: Vec::new() });
            }
            let index = rows.len() - 1;
            let kind = if value.is_some() { Kind::Put } else { Kind::Delete };
            let short =
                |value: &bytes::Bytes| value.len() <= shared.options().short_value_bytes_max;
            let (short_value, long_value) = match value {
                Some(value) if !short(&value) => (None, Some(value)),
                value => (value, None),
            };
            if is_primary {
                primary_row = index;
            }
            let lock = Lock {
                primary: name.clone().filter(|_| !is_primary),
                kind,
                notify,
                owner: shared.incarnation(),
                wall_ms,
                lifetime_ms: lifetime_ms(&shared),
                short_value,
            };
            let unwritten_since = if is_primary { acknowledged_below } else { start_ts };
            rows[index].cells.push(NewLock { column, lock, long_value, unwritten_since, observed });
        }
        rows[primary_row].handled = std::mem::take(&mut tx.handled);
        let schema_version = schema.version;
        let span = std::mem::replace(&mut tx.span, tracing::Span::none());
        let (_open, watched, rows) = (tx.open.take(), tx.watched.take(), Arc::new(rows));
        Ok(Some(Plan {
            start_ts,
            primary,
            rows,
            primary_row,
            schema_version,
            watched,
            span,
            _open,
        }))
    }

    /// Records for the watcher and the trace that the commit point has passed.
    pub(crate) fn committed(
        &self,
        shared: &Shared,
        commit_ts: Timestamp,
        path: CommitPath,
        notified: impl Iterator<Item = Cell>,
    ) {
        self.span.record("commit_ts", commit_ts.as_u64());
        if let Some(watched) = &self.watched {
            let (at, notified) = ((self.start_ts, commit_ts), notified.collect::<Vec<_>>());
            watched.committed(shared, at, path, &self.rows, &notified);
        }
    }

    /// Records for the watcher and the trace that the commit has failed. Returns the error.
    pub(crate) fn ended(&self, shared: &Shared, why: Error) -> Error {
        let (start_ts, conflict) = (self.start_ts.as_u64(), why.is_conflict());
        tracing::debug!(
            // The error names a row and a column, which may be private.
            target: "percolator::transaction", event = "commit_failed", start_ts, conflict,
        );
        if let Some(watched) = &self.watched {
            watched.ended(shared, self.start_ts, &why);
        }
        why
    }

    /// The plan's primary lock, as prewrite places it.
    pub(crate) fn primary_lock(&self) -> &Lock {
        let row = &self.rows[self.primary_row];
        let mut cells = row.cells.iter();
        let cell = cells.find(|cell| cell.column == self.primary.column);
        &cell.expect("the primary is one of its row's cells").lock
    }

    /// The cells that a newer schema observes, but that this plan treats as not observed.
    pub(crate) fn unnotified(&self, schema: &Schema) -> Vec<Cell> {
        self.cells_that(|table, cell| {
            let strength = schema.strength(table.name(), &cell.column);
            !cell.observed && strength == Some(Strength::Strong)
        })
    }

    /// The observed cells whose notifications no row operation leaves, because these lie
    /// apart.
    pub(crate) fn notified_apart(&self) -> Vec<Cell> {
        self.cells_that(|_, cell| cell.observed && !cell.lock.notify)
    }

    fn cells_that(&self, wanted: impl Fn(&Table, &NewLock) -> bool) -> Vec<Cell> {
        let mut cells = Vec::new();
        for row in &*self.rows {
            let of = row.cells.iter().filter(|cell| wanted(&row.table, cell));
            cells.extend(of.map(|cell| Cell::new(&row.table, &row.row, &cell.column)));
        }
        cells
    }
}

/// The name of the primary that secondary locks hold.
fn name_in_locks(primary: &Cell) -> CellName {
    let mut name = primary.location();
    if off(mutants::GHOST_PRIMARY) {
        name.row = "ghost".into();
    }
    name
}

fn observed(schema: &Schema, cell: &Cell) -> Result<bool> {
    match schema.strength(cell.table.name(), &cell.column) {
        Some(Strength::Strong) => Ok(true),
        None => Ok(false),
        Some(Strength::Weak) => Err(Error::invalid(
            InvalidKind::Observer,
            format!(
                "{} only carries notifications: use `notify`, or write another column",
                cell.location()
            ),
        )),
    }
}

fn lifetime_ms(shared: &Shared) -> u32 {
    u32::try_from(shared.options().lock_lifetime().as_millis()).unwrap_or(u32::MAX)
}
