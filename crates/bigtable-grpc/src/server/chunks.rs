//! Packs rows for a stream: it cuts cells into chunks, and packs chunks into messages.
//!
//! A message ends between two rows if possible, otherwise between two cells. Each message begins
//! with the row's key, with two exceptions:
//!
//! * The message continues a cell that is larger than a message.
//! * The message begins with such a cell, and the cell is not the row's first. It does so if the
//!   open message has no room for the cell's first piece.
//!
//! The API does not demand the key, but Google's data client for Python does. Once it has seen a
//! row, it takes a message without a key for a part of another row. So that client cannot read a
//! cell larger than a message if another row comes first.

use std::collections::VecDeque;
use std::sync::Arc;

use bigtable::Bytes;

use crate::filter::Cell;
use crate::proto::data::ReadRowsResponse;
use crate::proto::data::read_rows_response::CellChunk;
use crate::proto::data::read_rows_response::cell_chunk::RowStatus;

/// Longer values are cut into pieces of this size.
const PIECE_BYTES_MAX: usize = 1 << 20;
/// Most bytes of a message. Clients accept 4 MiB by default.
pub(super) const MESSAGE_BYTES_MAX: usize = (4 << 20) - (256 << 10);
/// A message of this size is sent without waiting for more rows.
const MESSAGE_BYTES_ENOUGH: usize = 1 << 20;
/// Approximate bytes of a chunk without names and value.
const CHUNK_BYTES: usize = 32;

/// Messages that wait to be sent. They share values with the cells, without a copy.
#[derive(Debug, Default)]
pub(crate) struct Packer {
    full: VecDeque<ReadRowsResponse>,
    open: Vec<CellChunk>,
    open_bytes: usize,
}

impl Packer {
    /// Adds a row of at least one cell.
    pub(crate) fn row(&mut self, key: &Bytes, cells: Vec<Cell>) {
        self.make_room(key.len() + cells.iter().map(size).sum::<usize>());
        let mut column: Option<(Arc<str>, Bytes)> = None;
        let last = cells.len().saturating_sub(1);
        for (index, cell) in cells.into_iter().enumerate() {
            self.make_room(key.len() + size(&cell));
            let names_row = index == 0 || self.open.is_empty();
            let new_family = column.as_ref().is_none_or(|(family, _)| *family != cell.family);
            let new_column = new_family || column.as_ref().is_none_or(|c| c.1 != cell.qualifier);
            let first = CellChunk {
                row_key: if names_row { key.clone() } else { Bytes::new() },
                family_name: new_family.then(|| cell.family.to_string()),
                qualifier: new_column.then(|| cell.qualifier.to_vec()),
                timestamp_micros: cell.micros,
                labels: cell.labels.iter().map(ToString::to_string).collect(),
                ..CellChunk::default()
            };
            column = Some((cell.family, cell.qualifier));
            self.cell(first, cell.value, index == last);
        }
        if self.open_bytes >= MESSAGE_BYTES_ENOUGH {
            self.flush();
        }
    }

    /// Begins a new message if the bytes would fit into one, but not into the rest of this one.
    fn make_room(&mut self, bytes: usize) {
        if self.open_bytes + bytes > MESSAGE_BYTES_MAX && bytes <= MESSAGE_BYTES_MAX {
            self.flush();
        }
    }

    /// Reports the last scanned row, unless a message is being filled.
    pub(crate) fn scanned(&mut self, key: Bytes) {
        if self.open.is_empty() {
            let last_scanned_row_key = key;
            self.full.push_back(ReadRowsResponse { last_scanned_row_key, ..Default::default() });
        }
    }

    /// Returns the next full message; with `rest`, also a last one that is not full.
    pub(crate) fn next(&mut self, rest: bool) -> Option<ReadRowsResponse> {
        if self.full.is_empty() && rest {
            self.flush();
        }
        self.full.pop_front()
    }

    fn cell(&mut self, mut chunk: CellChunk, mut value: Bytes, ends_row: bool) {
        let total = value.len();
        loop {
            let piece = value.split_to(value.len().min(PIECE_BYTES_MAX));
            let ends_cell = value.is_empty();
            chunk.value = piece;
            // A cell has at most 100 MiB, so its length fits.
            chunk.value_size = if ends_cell { 0 } else { i32::try_from(total).unwrap_or(i32::MAX) };
            chunk.row_status = (ends_cell && ends_row).then_some(RowStatus::CommitRow(true));
            self.push(std::mem::take(&mut chunk));
            if ends_cell {
                return;
            }
        }
    }

    fn push(&mut self, chunk: CellChunk) {
        let names = chunk.row_key.len() + chunk.qualifier.as_ref().map_or(0, Vec::len);
        let family = chunk.family_name.as_ref().map_or(0, String::len);
        let labels: usize = chunk.labels.iter().map(|label| label.len() + 2).sum();
        let bytes = CHUNK_BYTES + names + family + labels + chunk.value.len();
        if self.open_bytes + bytes > MESSAGE_BYTES_MAX {
            self.flush();
        }
        self.open_bytes += bytes;
        self.open.push(chunk);
    }

    fn flush(&mut self) {
        if !self.open.is_empty() {
            let chunks = std::mem::take(&mut self.open);
            self.full.push_back(ReadRowsResponse { chunks, ..Default::default() });
            self.open_bytes = 0;
        }
    }
}

/// Upper bound on a cell's bytes in a message.
fn size(cell: &Cell) -> usize {
    let pieces = cell.value.len() / PIECE_BYTES_MAX + 1;
    let labels: usize = cell.labels.iter().map(|label| label.len() + 2).sum();
    cell.family.len() + cell.qualifier.len() + labels + cell.value.len() + pieces * CHUNK_BYTES
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    fn cell(family: &str, qualifier: &str, value: Vec<u8>) -> Cell {
        let (family, qualifier) = (family.into(), Bytes::from(qualifier.to_owned()));
        Cell { family, qualifier, micros: 1000, value: value.into(), labels: Vec::new() }
    }

    fn messages(rows: Vec<(&'static str, Vec<Cell>)>) -> Vec<ReadRowsResponse> {
        let mut packer = Packer::default();
        rows.into_iter().for_each(|(key, cells)| packer.row(&Bytes::from(key), cells));
        let messages: Vec<_> = std::iter::from_fn(|| packer.next(true)).collect();
        assert!(messages.iter().all(|message| message.encoded_len() < 4 << 20));
        messages
    }

    #[test]
    fn long_values_are_cut_into_pieces() {
        let long = vec![7; 5 * PIECE_BYTES_MAX / 2];
        let cells = vec![
            cell("f", "a", vec![1]),
            cell("f", "a", Vec::new()),
            cell("f", "b", long.clone()),
            cell("g", "b", vec![2]),
        ];
        let messages = messages(vec![("r", cells.clone()), ("s", cells)]);
        assert_eq!(messages.len(), 2, "a message for each row");
        let chunks: Vec<_> = messages.into_iter().flat_map(|message| message.chunks).collect();
        assert_eq!(chunks.len(), 12);
        let sizes: Vec<_> = chunks[..6].iter().map(|c| (c.value.len(), c.value_size)).collect();
        let total = i32::try_from(long.len()).unwrap();
        let (piece, rest) = (PIECE_BYTES_MAX, PIECE_BYTES_MAX / 2);
        assert_eq!(sizes, [(1, 0), (0, 0), (piece, total), (piece, total), (rest, 0), (1, 0)]);
        let named = |c: &CellChunk| {
            [!c.row_key.is_empty(), c.family_name.is_some(), c.qualifier.is_some()]
                .map(|named| if named { 'y' } else { '-' })
                .iter()
                .collect::<String>()
        };
        let named: Vec<_> = chunks[..6].iter().map(named).collect();
        assert_eq!(named, ["yyy", "---", "--y", "---", "---", "-yy"]);
        let commits = chunks.iter().filter(|c| c.row_status == Some(RowStatus::CommitRow(true)));
        assert_eq!(commits.count(), 2);
        assert!(chunks[5].row_status.is_some() && chunks[11].row_status.is_some());
    }

    #[test]
    fn messages_begin_with_the_rows_key_unless_they_go_on_with_a_cell() {
        let half = || vec![7; MESSAGE_BYTES_MAX / 2];
        let cells = vec![cell("f", "a", half()), cell("f", "b", half()), cell("f", "c", half())];
        let huge = vec![cell("f", "a", vec![7; MESSAGE_BYTES_MAX * 2])];
        let messages =
            messages(vec![("q", vec![cell("f", "a", vec![])]), ("r", cells), ("s", huge)]);
        let begin: Vec<_> = messages.iter().map(|m| m.chunks[0].row_key.clone()).collect();
        let (q, r, s) = (Bytes::from("q"), Bytes::from("r"), Bytes::from("s"));
        let none = Bytes::new();
        assert_eq!(begin, [q, r.clone(), r, s, none.clone(), none]);
    }
}
