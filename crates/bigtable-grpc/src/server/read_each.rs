//! ReadEachRow of the extension: single rows, each by a filter of its own.
//!
//! Each entry is a ReadRows of one row: it waits for what is pending in that row, and is checked and filtered
//! by itself. Several are read at a time, so that one that waits does not keep the others' answers.

use std::sync::Arc;

use bigtable::{Bytes, RowKey, Table};
use futures::stream::{Stream, StreamExt, iter};
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
/// Entries of one request that are read at a time.
const READS_MAX: usize = 64;

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
    let reads = (0_u32..).zip(request.entries).map(move |(number, entry)| {
        let (table, schema) = (table.clone(), schema.clone());
        async move { parts(number, read(table, schema, entry).await) }
    });
    // What is ready together goes in one message, as far as it fits.
    let ready = iter(reads).buffer_unordered(READS_MAX).ready_chunks(READS_MAX);
    Ok(ready.flat_map(|answers| iter(messages(answers.into_iter().flatten()).into_iter().map(Ok))))
}

/// The row of an entry, in chunks; none if nothing is found.
async fn read(
    table: Arc<Served>,
    schema: Arc<Schema>,
    entry: Entry,
) -> Result<Vec<ReadRowsResponse>, Status> {
    // What the engine does not wait for must not keep others from their turn.
    tokio::task::yield_now().await;
    limits::check_row_key(&entry.row_key)?;
    let filter = filter::compile(entry.filter.as_ref()).map_err(Status::invalid_argument)?;
    let select = layout::selection(&schema, &filter::scopes(&filter));
    if select.columns.is_empty() {
        return Ok(Vec::new());
    }
    let key: Bytes = entry.row_key;
    let row = table.engine.read_row(&RowKey::from(key.clone()), &select).await;
    let cells = filtered(&schema, &filter, row.map_err(of_engine)?);
    let mut packer = Packer::default();
    if !cells.is_empty() {
        packer.row(&key, cells);
    }
    Ok(std::iter::from_fn(|| packer.next(true)).collect())
}

/// The answer to an entry.
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

/// Parts in as few messages as they fit into.
fn messages(parts: impl Iterator<Item = Part>) -> Vec<ReadEachRowResponse> {
    let mut messages: Vec<ReadEachRowResponse> = Vec::new();
    let mut left = 0;
    for part in parts {
        let bytes = part.encoded_len();
        match messages.last_mut().filter(|_| bytes <= left) {
            Some(message) => message.parts.push(part),
            None => {
                messages.push(ReadEachRowResponse { parts: vec![part] });
                left = MESSAGE_BYTES_MAX;
            }
        }
        left = left.saturating_sub(bytes);
    }
    messages
}
