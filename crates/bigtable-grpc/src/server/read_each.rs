//! Implements ReadEachRow of the extension: reads of single rows, each by its own filter.
//!
//! Each entry is checked, read and filtered by itself, like a ReadRows of one row. The server
//! reads the entries one after another, and sends the answers as soon as they fill a message.
//! So a request holds at most a message and a row in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use bigtable::{Bytes, RowKey, Table};
use futures::stream::{Stream, try_unfold};
use prost::Message;
use tonic::Status;

use super::chunks::{MESSAGE_BYTES_MAX, Packer};
use super::mutate::rpc_status;
use super::read_rows::filtered;
use super::schema::Schema;
use super::status::of_engine;
use super::tables::{Served, Tables};
use super::{layout, limits};
use crate::filter;
use crate::proto::data::ReadRowsResponse;
use crate::proto::extension::ReadEachRowRequest;
use crate::proto::extension::ReadEachRowResponse;
use crate::proto::extension::read_each_row_request::Entry;
use crate::proto::extension::read_each_row_response::Part;

/// Most entries of one request.
pub(crate) const ENTRIES_MAX: usize = 1000;

/// The state of a request that is being answered.
struct Reader {
    table: Arc<Served>,
    schema: Arc<Schema>,
    entries: std::iter::Zip<std::ops::RangeFrom<u32>, std::vec::IntoIter<Entry>>,
    /// Answers that are not sent yet, and their bytes.
    parts: VecDeque<Part>,
    bytes: usize,
}

/// Answers ReadEachRow.
pub(crate) async fn stream(
    tables: &Tables,
    request: ReadEachRowRequest,
) -> Result<impl Stream<Item = Result<ReadEachRowResponse, Status>> + Send + use<>, Status> {
    let table = tables.table(&request.table_name).await?;
    if !(1..=ENTRIES_MAX).contains(&request.entries.len()) {
        return Err(Status::invalid_argument(format!(
            "the request has {} entries, and may have 1 to {ENTRIES_MAX}: send several requests",
            request.entries.len()
        )));
    }
    let schema = table.schema().await;
    let entries = (0_u32..).zip(request.entries);
    let reader = Reader { table, schema, entries, parts: VecDeque::new(), bytes: 0 };
    Ok(try_unfold(reader, |mut reader| async move {
        let message = reader.next().await;
        Ok(message.map(|message| (message, reader)))
    }))
}

impl Reader {
    /// The next message; `None` after the last.
    async fn next(&mut self) -> Option<ReadEachRowResponse> {
        while self.bytes < MESSAGE_BYTES_MAX {
            let Some((number, entry)) = self.entries.next() else { break };
            // A read from memory never waits, so the task yields to let others run.
            tokio::task::yield_now().await;
            let found = read(&self.table, &self.schema, entry).await;
            for part in parts(number, found) {
                self.bytes += part.encoded_len();
                self.parts.push_back(part);
            }
        }
        let mut message = ReadEachRowResponse::default();
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

/// Reads the row of an entry, in chunks; none if no cell passes.
async fn read(
    table: &Served,
    schema: &Schema,
    entry: Entry,
) -> Result<Vec<ReadRowsResponse>, Status> {
    limits::check_row_key(&entry.row_key)?;
    let filter = filter::compile(entry.filter.as_ref()).map_err(Status::invalid_argument)?;
    let select = layout::selection(schema, &filter::scopes(&filter));
    if select.columns.is_empty() {
        return Ok(Vec::new());
    }
    let key: Bytes = entry.row_key;
    let row = table.engine.read_row(&RowKey::from(key.clone()), &select).await;
    let cells = filtered(schema, &filter, row.map_err(of_engine)?);
    let mut packer = Packer::default();
    if !cells.is_empty() {
        packer.row(&key, cells);
    }
    Ok(std::iter::from_fn(|| packer.next(true)).collect())
}

/// The parts that answer an entry.
fn parts(entry: u32, found: Result<Vec<ReadRowsResponse>, Status>) -> Vec<Part> {
    let mut parts: Vec<Part> = match found {
        Err(status) => {
            let status = Some(rpc_status(Some(status)));
            return vec![Part { entry, status, ..Part::default() }];
        }
        Ok(pieces) => {
            let part = |piece: ReadRowsResponse| Part {
                entry,
                chunks: piece.chunks,
                more: true,
                status: None,
            };
            pieces.into_iter().map(part).collect()
        }
    };
    match parts.last_mut() {
        Some(last) => last.more = false,
        None => parts.push(Part { entry, ..Part::default() }),
    }
    parts
}
