//! Builds rows from the chunks of a stream.
//!
//! The server may be wrong, so every breach of the stream's rules is an error. A row that is
//! incomplete then is never returned.

use bigtable::{Bytes, Cell, Family, Row, RowKey};

use crate::proto::data::read_rows_response::CellChunk;
use crate::proto::data::read_rows_response::cell_chunk::RowStatus;
use crate::time;

/// Largest value that is assembled from chunks.
const VALUE_BYTES_MAX: usize = 256 << 20;

/// Builds rows from chunks, in the order of the stream.
#[derive(Debug)]
pub(crate) struct Merger {
    reversed: bool,
    row: Option<Open>,
    /// The key of the last complete row.
    last: Option<RowKey>,
}

/// A row whose end has not arrived yet.
#[derive(Debug)]
struct Open {
    key: RowKey,
    family: Family,
    qualifier: Bytes,
    cells: Vec<Cell>,
    /// The time and the first bytes of a value that arrives in several chunks.
    value: Option<(i64, Vec<u8>)>,
}

impl Merger {
    pub(crate) fn new(reversed: bool) -> Self {
        Merger { reversed, row: None, last: None }
    }

    /// Takes a chunk, and returns the row that it completes. The error says which rule it
    /// breaks.
    pub(crate) fn push(&mut self, chunk: CellChunk) -> Result<Option<Row>, String> {
        if matches!(chunk.row_status, Some(RowStatus::ResetRow(true))) {
            return self.reset(&chunk).map(|()| None);
        }
        let commits = matches!(chunk.row_status, Some(RowStatus::CommitRow(true)));
        if self.row.is_none() {
            self.row = Some(self.begin(&chunk)?);
        }
        let Some(open) = &mut self.row else { return Ok(None) };
        open.take(chunk)?;
        if !commits {
            return Ok(None);
        }
        if open.value.is_some() {
            return Err("a row ends within a cell".to_owned());
        }
        let Some(open) = self.row.take() else { return Ok(None) };
        self.last = Some(open.key.clone());
        Ok(Some(Row::new(open.key, open.cells)))
    }

    /// Checks that the stream has not ended within a row. Call this at its end.
    pub(crate) fn finish(&self) -> Result<(), String> {
        match self.row {
            None => Ok(()),
            Some(_) => Err("the stream ends within a row".to_owned()),
        }
    }

    fn reset(&mut self, chunk: &CellChunk) -> Result<(), String> {
        let bare = CellChunk { row_status: chunk.row_status, ..CellChunk::default() };
        if self.row.take().is_none() {
            return Err("a reset comes without a row".to_owned());
        }
        if *chunk == bare { Ok(()) } else { Err("a reset has data".to_owned()) }
    }

    fn begin(&self, chunk: &CellChunk) -> Result<Open, String> {
        if chunk.row_key.is_empty() {
            return Err("a row begins without a key".to_owned());
        }
        let key = RowKey::from(chunk.row_key.clone());
        let in_order = |last: &RowKey| if self.reversed { key < *last } else { key > *last };
        if !self.last.as_ref().is_none_or(in_order) {
            return Err(format!("row {key} is out of order"));
        }
        let (Some(family), Some(qualifier)) = (&chunk.family_name, &chunk.qualifier) else {
            return Err("a row begins without a column".to_owned());
        };
        let family = Family::from(family.clone());
        let qualifier = Bytes::copy_from_slice(qualifier);
        Ok(Open { key, family, qualifier, cells: Vec::new(), value: None })
    }
}

impl Open {
    fn take(&mut self, chunk: CellChunk) -> Result<(), String> {
        if !chunk.row_key.is_empty() && chunk.row_key != self.key.to_bytes() {
            return Err("a row begins before the last was committed".to_owned());
        }
        let more = match self.value.take() {
            Some((micros, value)) => {
                if chunk.family_name.is_some() || chunk.qualifier.is_some() {
                    return Err("a column begins within a cell".to_owned());
                }
                Some((micros, value))
            }
            None => {
                self.column(&chunk)?;
                None
            }
        };
        let continues = chunk.value_size > 0;
        let value = match more {
            None if !continues => (chunk.timestamp_micros, chunk.value),
            more => {
                let (micros, mut value) = more.unwrap_or((chunk.timestamp_micros, Vec::new()));
                if value.len() + chunk.value.len() > VALUE_BYTES_MAX {
                    return Err("a value has too many bytes".to_owned());
                }
                value.extend_from_slice(&chunk.value);
                if continues {
                    if chunk.row_status.is_some() {
                        return Err("a row ends within a cell".to_owned());
                    }
                    self.value = Some((micros, value));
                    return Ok(());
                }
                (micros, value.into())
            }
        };
        let timestamp = time::timestamp(value.0);
        self.cells.push(Cell {
            family: self.family.clone(),
            qualifier: self.qualifier.clone(),
            timestamp: timestamp.ok_or_else(|| format!("a cell of time {}", value.0))?,
            value: value.1,
        });
        Ok(())
    }

    fn column(&mut self, chunk: &CellChunk) -> Result<(), String> {
        match (&chunk.family_name, &chunk.qualifier) {
            (None, None) => {}
            (None, Some(qualifier)) => self.qualifier = Bytes::copy_from_slice(qualifier),
            (Some(_), None) => return Err("a family begins without a qualifier".to_owned()),
            (Some(family), Some(qualifier)) => {
                self.family = Family::from(family.clone());
                self.qualifier = Bytes::copy_from_slice(qualifier);
            }
        }
        Ok(())
    }
}
