//! Implements ReadRows: it streams rows, and reads them page by page as the client takes them.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use bigtable::{PageLimit, Row, RowKey, RowRange, Selection, Table};
use futures::Stream;
use tonic::Status;

use super::chunks::Packer;
use super::schema::Schema;
use super::status::of_engine;
use super::tables::{Served, Tables};
use super::{layout, row_set};
use crate::filter::{self, Filter};
use crate::proto::data::{ReadRowsRequest, ReadRowsResponse};

/// Most rows of one page.
pub(super) const PAGE_ROWS_MAX: usize = 1024;
/// Most bytes of one page; a single row may be larger.
pub(super) const PAGE_BYTES_MAX: usize = 2 << 20;
/// Most rows read backwards before other tasks run.
const BACKWARDS_ROWS_MAX: usize = 64;

/// The state of a read that is being answered.
struct Reader {
    table: Arc<Served>,
    schema: Arc<Schema>,
    filter: Filter,
    select: Selection,
    /// The ranges that are still to be read, in key order.
    ranges: VecDeque<RowRange>,
    /// Number of rows that may still be sent.
    rows_left: usize,
    reversed: bool,
    /// True if the client understands `last_scanned_row_key`.
    tells_scanned: bool,
    packer: Packer,
}

/// Answers ReadRows. `tells_scanned` says that the client understands `last_scanned_row_key`.
pub(crate) async fn stream(
    tables: &Tables,
    request: ReadRowsRequest,
    tells_scanned: bool,
) -> Result<impl Stream<Item = Result<ReadRowsResponse, Status>> + Send + use<>, Status> {
    let table = tables.table(&request.table_name).await?;
    let compiled = filter::compile(request.filter.as_ref());
    let filter = compiled.map_err(Status::invalid_argument)?;
    let rows_left = match request.rows_limit {
        0 => usize::MAX,
        n => usize::try_from(n)
            .map_err(|_| Status::invalid_argument(format!("rows_limit {n} is negative")))?,
    };
    let mut ranges = VecDeque::from(row_set::ranges(request.rows.as_ref())?);
    let schema = table.schema().await;
    let select = layout::selection(&schema, &filter::scopes(&filter));
    if select.columns.is_empty() {
        ranges.clear();
    }
    let (reversed, packer) = (request.reversed, Packer::default());
    let reader = Reader {
        table,
        schema,
        filter,
        select,
        ranges,
        rows_left,
        reversed,
        tells_scanned,
        packer,
    };
    Ok(futures::stream::try_unfold(reader, |mut reader| async move {
        let message = reader.next().await?;
        Ok(message.map(|message| (message, reader)))
    }))
}

impl Reader {
    async fn next(&mut self) -> Result<Option<ReadRowsResponse>, Status> {
        loop {
            let done = self.ranges.is_empty() || self.rows_left == 0;
            if let Some(message) = self.packer.next(done) {
                return Ok(Some(message));
            }
            if done {
                return Ok(None);
            }
            let sent = self.rows_left;
            let last = self.page().await?;
            let nothing = self.rows_left == sent;
            if let Some(last) = last.filter(|_| nothing && self.tells_scanned) {
                self.packer.scanned(last.to_bytes());
            }
            // A read from memory never waits, so the task yields to let others run.
            tokio::task::yield_now().await;
        }
    }

    /// Reads some more rows, and removes their range from the ranges left. Returns the last row
    /// that was scanned, if it is worth reporting to the client.
    async fn page(&mut self) -> Result<Option<RowKey>, Status> {
        if self.reversed {
            return self.page_backwards().await;
        }
        let Some(range) = self.ranges.pop_front() else { return Ok(None) };
        if let Some(key) = row_set::single(&range) {
            let row = self.table.engine.read_row(key, &self.select).await.map_err(of_engine)?;
            self.row(row);
            // Not worth a message for each row: the client named this row itself.
            return Ok(None);
        }
        let limit =
            PageLimit { rows_max: PAGE_ROWS_MAX.min(self.rows_left), bytes_max: PAGE_BYTES_MAX };
        let page = self.table.engine.scan(&range, &self.select, limit).await.map_err(of_engine)?;
        let mut last = None;
        if let Some(resume) = page.resume {
            if let Bound::Excluded(key) = &resume.start {
                last = Some(key.clone());
            }
            self.ranges.push_front(resume);
        }
        for row in page.rows {
            self.row(row);
        }
        Ok(last)
    }

    async fn page_backwards(&mut self) -> Result<Option<RowKey>, Status> {
        let mut last = None;
        for _ in 0..BACKWARDS_ROWS_MAX {
            let Some(range) = self.ranges.back_mut().filter(|_| self.rows_left > 0) else { break };
            match self.table.engine.last_row(range).map_err(of_engine)? {
                None => drop(self.ranges.pop_back()),
                Some(key) => {
                    range.end = Bound::Excluded(key.clone());
                    let row = self.table.engine.read_row(&key, &self.select).await;
                    self.row(row.map_err(of_engine)?);
                    last = Some(key);
                }
            }
        }
        Ok(last)
    }

    /// Filters a row, and packs the cells that pass.
    fn row(&mut self, row: Row) {
        if self.rows_left == 0 {
            return;
        }
        if pack(&self.schema, &self.filter, row, &mut self.packer) {
            self.rows_left -= 1;
        }
    }
}

/// Packs the cells of a row that pass the filter. Returns whether there are any.
pub(super) fn pack(schema: &Schema, filter: &Filter, row: Row, packer: &mut Packer) -> bool {
    let key = row.key.to_bytes();
    let cells = layout::cells(schema, row);
    let cells = if cells.is_empty() { cells } else { filter::apply(filter, &key, cells) };
    let passes = !cells.is_empty();
    if passes {
        packer.row(&key, cells);
    }
    passes
}
