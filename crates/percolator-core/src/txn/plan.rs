//! Arranges the final writes of a transaction by row, and chooses its primary.
//!
//! Invariant: the primary is chosen from the final writes, so that it is really written (H13).
//! It stays the same as long as `s` is used, because locks in the store name it (H11).

use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use crate::mutants::{self, off};
use crate::observe::skip_all::acknowledge_all;
use crate::options::CommitPath;
use crate::records::column::{Cell, CellName, Table};
use crate::records::lock::{Intent, Kind, Lock};
use crate::records::schema::{Schema, Strength};
use crate::shared::Shared;
use crate::txn::open_readers::Open;
use crate::txn::row_plan::{RowPlan, Rows};
use crate::txn::rows::PlannedCell;
use crate::txn::watched::Watched;
use crate::{Error, InvalidKind, Result, Timestamp, Transaction};

/// The rows that a transaction writes, and the cell that decides.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) start_ts: Timestamp,
    pub(crate) primary: Cell,
    pub(crate) rows: Arc<Rows>,
    /// Which of `rows` holds the primary.
    pub(crate) primary_row: usize,
    /// The primary's name, as secondary locks hold it. The plan makes it when somebody asks for it,
    /// because a commit in one step places no locks.
    primary_name: OnceLock<Arc<CellName>>,
    /// The wall time of all locks, from when the first one is made. Another client may watch
    /// several locks of a transaction whose primary never came. Different wall times would look
    /// like signs of life (H03).
    wall_ms: OnceLock<u64>,
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
        let primary = tx.observing.as_mut().and_then(|observing| observing.ack.take());
        let primary = primary.unwrap_or_else(|| first.clone());
        let start_ts = tx.start_ts();
        let observing = tx.observing.as_ref();
        let acknowledged_below = match observing.and_then(|observing| observing.acknowledged_below)
        {
            Some(c) if !off(mutants::ACK_SOUGHT_FROM_S) => c,
            _ => start_ts,
        };
        let mut planned: Arc<Rows> = Arc::default();
        let rows = Arc::get_mut(&mut planned).expect("nobody else has these rows yet");
        let mut primary_row = None;
        for (cell, value) in writes {
            let observed = observed(&schema, &cell)? && !tx.skips_observers;
            // If notifications lie in a table of their own, no row operation leaves them.
            let notify = observed && !cell.table.notifies_apart();
            let is_primary = cell == primary;
            let Cell { table, row, column } = cell;
            if rows.last().is_none_or(|last| last.row != row || last.table != table) {
                rows.push(RowPlan { table, row, cells: SmallVec::new(), handled: Vec::new() });
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
                primary_row = Some(index);
            }
            rows[index].cells.push(PlannedCell {
                column,
                intent: Intent { kind, notify, short_value },
                long_value,
                is_primary,
                unwritten_since: if is_primary { acknowledged_below } else { start_ts },
                observed,
            });
        }
        let primary_row = primary_row.expect("the transaction writes its primary");
        if let Some(observing) = &mut tx.observing {
            rows[primary_row].handled = std::mem::take(&mut observing.handled);
        }
        let schema_version = schema.version;
        let span = std::mem::replace(&mut tx.span, tracing::Span::none());
        let (_open, watched) = (tx.open.take(), tx.watched.take());
        Ok(Some(Plan {
            start_ts,
            primary,
            rows: planned,
            primary_row,
            primary_name: OnceLock::new(),
            wall_ms: OnceLock::new(),
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

    /// The primary's name, as secondary locks hold it.
    pub(crate) fn primary_name(&self) -> &Arc<CellName> {
        self.primary_name.get_or_init(|| Arc::new(name_in_locks(&self.primary)))
    }

    /// The lock on a cell of the plan, as prewrite places it.
    pub(crate) fn lock_of(&self, shared: &Shared, cell: &PlannedCell) -> Lock {
        let now = || shared.runtime().wall_ms();
        let each_anew = off(mutants::LOCKS_OF_SEVERAL_TIMES);
        Lock {
            primary: (!cell.is_primary).then(|| self.primary_name().clone()),
            owner: shared.incarnation(),
            wall_ms: if each_anew { now() } else { *self.wall_ms.get_or_init(now) },
            lifetime_ms: lifetime_ms(shared),
            intent: cell.intent.clone(),
        }
    }

    /// The primary, among the cells of its row.
    pub(crate) fn primary_cell(&self) -> &PlannedCell {
        let mut cells = self.rows[self.primary_row].cells.iter();
        cells.find(|cell| cell.is_primary).expect("the primary is one of its row's cells")
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
        self.cells_that(|_, cell| cell.is_notified_apart())
    }

    /// Whether there are such cells.
    pub(crate) fn notifies_apart(&self) -> bool {
        self.rows.iter().flat_map(|row| &row.cells).any(PlannedCell::is_notified_apart)
    }

    fn cells_that(&self, wanted: impl Fn(&Table, &PlannedCell) -> bool) -> Vec<Cell> {
        let mut cells = Vec::new();
        for row in &*self.rows {
            let of = row.cells.iter().filter(|cell| wanted(&row.table, cell));
            cells.extend(of.map(|cell| Cell::new(&row.table, &row.row, &cell.column)));
        }
        cells
    }
}

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
