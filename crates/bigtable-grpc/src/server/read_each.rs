//! Implements ReadEach of the extension: reads of single rows and of pages of ranges, each by its
//! own filter.
//!
//! Each entry is checked, read and filtered by itself, like a ReadRows. The server reads the
//! entries one after another, and sends the answers as soon as they fill a message. So a request
//! holds at most a message and a page in memory.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bigtable::{Bytes, PageLimit, Row, RowKey, RowRange, Selection, Table};
use futures::stream::{Stream, try_unfold};
use prost::Message;
use tokio::time::Instant;
use tonic::Status;

use super::chunks::{MESSAGE_BYTES_MAX, Packer};
use super::extension::check_names;
use super::mutate::rpc_status;
use super::read_rows::{PAGE_BYTES_MAX, PAGE_ROWS_MAX, pack};
use super::schema::Schema;
use super::status::of_engine;
use super::tables::{Served, Tables};
use super::{layout, limits, row_set};
use crate::filter;
use crate::proto::data::ReadRowsResponse;
use crate::proto::extension::ReadEachRequest;
use crate::proto::extension::ReadEachResponse;
use crate::proto::extension::read_each_request::Entry;
use crate::proto::extension::read_each_response::Part;

/// Answers that do not fill a message are sent once this time has passed since the last message.
const SOON: Duration = Duration::from_millis(5);
/// Most pages of the engine that one entry reads while no row passes its filter.
const PAGES_MAX: usize = 16;
/// Most entries of one request.
pub(crate) const ENTRIES_MAX: usize = 1000;

/// A table with its schema, or why it cannot be read.
type Opened = Result<(Arc<Served>, Arc<Schema>), Status>;

/// The state of a request that is being answered.
struct Reader {
    tables: Vec<Opened>,
    entries: std::iter::Zip<std::ops::RangeFrom<u32>, std::vec::IntoIter<Entry>>,
    /// Answers that are not sent yet, and their bytes.
    parts: VecDeque<Part>,
    bytes: usize,
}

/// Answers ReadEach.
pub(crate) async fn stream(
    tables: &Tables,
    request: ReadEachRequest,
) -> Result<impl Stream<Item = Result<ReadEachResponse, Status>> + Send + use<>, Status> {
    if !(1..=ENTRIES_MAX).contains(&request.entries.len()) {
        return Err(Status::invalid_argument(format!(
            "the request has {} entries, and may have 1 to {ENTRIES_MAX}: send several requests",
            request.entries.len()
        )));
    }
    let wanted = request.entries.iter().map(|entry| entry.table);
    check_names(&request.table_names, wanted)?;
    let mut opened = Vec::with_capacity(request.table_names.len());
    for name in &request.table_names {
        opened.push(match tables.table(name).await {
            Ok(table) => {
                let schema = table.schema().await;
                Ok((table, schema))
            }
            Err(status) => Err(status),
        });
    }
    let entries = (0_u32..).zip(request.entries);
    let reader = Reader { tables: opened, entries, parts: VecDeque::new(), bytes: 0 };
    Ok(try_unfold(reader, |mut reader| async move {
        let message = reader.next().await;
        Ok(message.map(|message| (message, reader)))
    }))
}

impl Reader {
    /// The next message; `None` after the last.
    async fn next(&mut self) -> Option<ReadEachResponse> {
        let begun = Instant::now();
        while self.bytes == 0 || (self.bytes < MESSAGE_BYTES_MAX && begun.elapsed() < SOON) {
            let Some((number, entry)) = self.entries.next() else { break };
            // A read from memory never waits, so the task yields to let others run.
            tokio::task::yield_now().await;
            let found = match &self.tables[entry.table as usize] {
                Ok((table, schema)) => read(table, schema, entry).await,
                Err(status) => Err(status.clone()),
            };
            for part in parts(number, found) {
                self.bytes += part.encoded_len();
                self.parts.push_back(part);
            }
        }
        let mut message = ReadEachResponse::default();
        let mut left = MESSAGE_BYTES_MAX;
        while let Some(part) = self.parts.front() {
            let bytes = part.encoded_len();
            if bytes > left && !message.parts.is_empty() {
                break;
            }
            left = left.saturating_sub(bytes);
            self.bytes -= bytes;
            message.parts.extend(self.parts.pop_front());
        }
        (!message.parts.is_empty()).then_some(message)
    }
}

/// The rows that an entry has found, in chunks, and the last row that was read if more are left.
#[derive(Debug, Default)]
struct Found {
    pieces: Vec<ReadRowsResponse>,
    scanned: Bytes,
}

/// Reads the row or the page of an entry.
async fn read(table: &Served, schema: &Schema, entry: Entry) -> Result<Found, Status> {
    let range = entry.row_range.as_ref().map(row_set::range).transpose()?;
    if range.is_none() {
        limits::check_row_key(&entry.row_key)?;
    } else if !entry.row_key.is_empty() {
        return Err(Status::invalid_argument("an entry names a row and a range: name one of them"));
    }
    let filter = filter::compile(entry.filter.as_ref()).map_err(Status::invalid_argument)?;
    let select = layout::selection(schema, &filter::scopes(&filter));
    if select.columns.is_empty() {
        return Ok(Found::default());
    }
    let mut packer = Packer::default();
    let mut take = |row| pack(schema, &filter, row, &mut packer);
    let scanned = match range {
        None => {
            let row = table.engine.read_row(&RowKey::from(entry.row_key), &select).await;
            take(row.map_err(of_engine)?);
            Bytes::new()
        }
        Some(range) => {
            let limit = limit(entry.rows_max, entry.bytes_max);
            page(table, range, &select, limit, take).await?
        }
    };
    Ok(Found { pieces: std::iter::from_fn(|| packer.next(true)).collect(), scanned })
}

/// Reads a page, or several while no row passes, as `take` says. Returns the last row that was
/// read, if more are left.
async fn page(
    table: &Served,
    mut left: RowRange,
    select: &Selection,
    limit: PageLimit,
    mut take: impl FnMut(Row) -> bool,
) -> Result<Bytes, Status> {
    let mut scanned = Bytes::new();
    for _ in 0..PAGES_MAX {
        if left.is_empty() {
            return Ok(Bytes::new());
        }
        let page = table.engine.scan(&left, select, limit).await.map_err(of_engine)?;
        let has_some = page.rows.into_iter().fold(false, |some, row| take(row) | some);
        let Some(rest) = page.resume else { return Ok(Bytes::new()) };
        let Bound::Excluded(last) = &rest.start else {
            return Err(Status::internal("the engine did not say where its page ends"));
        };
        scanned = last.to_bytes();
        if has_some {
            break;
        }
        left = rest;
        tokio::task::yield_now().await;
    }
    Ok(scanned)
}

/// The bounds of a page. Zero stands for the server's own bound.
fn limit(rows_max: u32, bytes_max: u32) -> PageLimit {
    let least = |wanted: u32, own: usize| match usize::try_from(wanted) {
        Ok(0) | Err(_) => own,
        Ok(wanted) => wanted.min(own),
    };
    let (rows_max, bytes_max) = (least(rows_max, PAGE_ROWS_MAX), least(bytes_max, PAGE_BYTES_MAX));
    PageLimit { rows_max, bytes_max }
}

/// The parts that answer an entry.
fn parts(entry: u32, found: Result<Found, Status>) -> Vec<Part> {
    let Found { pieces, scanned } = match found {
        Err(status) => {
            let status = Some(rpc_status(Some(status)));
            return vec![Part { entry, status, ..Part::default() }];
        }
        Ok(found) => found,
    };
    let part = |chunks, more| Part { entry, chunks, more, ..Part::default() };
    let mut parts: Vec<Part> = pieces.into_iter().map(|piece| part(piece.chunks, true)).collect();
    let mut last = parts.pop().unwrap_or_else(|| part(Vec::new(), false));
    (last.more, last.scanned) = (false, scanned);
    parts.push(last);
    parts
}
