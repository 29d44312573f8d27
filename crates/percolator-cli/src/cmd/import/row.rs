//! Defines a line of a file that is imported, and the checks of a row.

use bigtable::{VALUE_BYTES_MAX, check_table_name};
use percolator::observe::Observed;
use percolator::transaction::{ROW_KEY_BYTES_MAX, TRANSACTION_BYTES_MAX, TRANSACTION_CELLS_MAX};
use percolator::{Bytes, Column, RowKey};

/// No position has more bytes, with its key and its column.
const POSITION_BYTES_MAX: usize = 128;
/// The most cells and bytes of a row that a transaction writes together with the position.
pub(super) const ROW_CELLS_MAX: usize = TRANSACTION_CELLS_MAX - 1;
pub(super) const ROW_BYTES_MAX: usize = TRANSACTION_BYTES_MAX - POSITION_BYTES_MAX;

/// A line of the file. A record of CSV may have several lines; its number is that of the first.
pub(super) struct Item {
    pub(super) number: u64,
    pub(super) line: Result<Line, Bad>,
}

/// The kinds of lines.
pub(super) enum Line {
    /// The first line of an export, with its observers.
    Begin(Vec<Observed>),
    /// The first line of an export of another version, whose lines this release does not know.
    Unknown(String),
    Row(Row),
    /// The last line of an export, with its number of rows.
    End(u64),
    /// A line without characters.
    Blank,
}

/// A line that cannot be imported.
pub(super) struct Bad {
    pub(super) why: String,
    pub(super) text: String,
}

pub(super) struct Row {
    pub(super) table: String,
    pub(super) row: RowKey,
    pub(super) cells: Vec<(Column, Bytes)>,
}

impl Row {
    /// Returns how many bytes of a transaction the row takes at most. Each cell has the key.
    pub(super) fn bytes(&self) -> usize {
        let key = self.row.as_bytes().len();
        let cell = |(column, value): &(Column, Bytes)| key + column.as_bytes().len() + value.len();
        self.cells.iter().map(cell).sum::<usize>() + key
    }

    /// Checks that one transaction can write the row and the position.
    pub(super) fn check(&self) -> Result<(), String> {
        check_table(&self.table)?;
        if !(1..=ROW_KEY_BYTES_MAX).contains(&self.row.as_bytes().len()) {
            return Err("its row key is empty or too long".to_owned());
        }
        if self.cells.iter().any(|(_, value)| value.len() > VALUE_BYTES_MAX) {
            return Err(format!("it has a value of more than {VALUE_BYTES_MAX} bytes"));
        }
        if self.cells.len() > ROW_CELLS_MAX || self.bytes() > ROW_BYTES_MAX {
            return Err(too_wide());
        }
        Ok(())
    }
}

pub(super) fn too_wide() -> String {
    format!("it has more than {ROW_CELLS_MAX} cells or {ROW_BYTES_MAX} bytes")
}

/// Checks that applications may have a table of this name.
pub(super) fn check_table(name: &str) -> Result<(), String> {
    if check_table_name(name).is_err() || name.starts_with("percolator.") {
        return Err(format!("{name:?} is not a table name"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_no_transaction_writes_is_refused() {
        let why = |row: usize, cells: usize, value: usize| {
            let cell = (Column::literal("c:q"), Bytes::from(vec![0; value]));
            let (row, cells) = (RowKey::from(vec![b'r'; row]), vec![cell; cells]);
            Row { table: "t".to_owned(), row, cells }.check().err().unwrap_or_default()
        };
        assert_eq!(why(ROW_KEY_BYTES_MAX, 3, VALUE_BYTES_MAX), "");
        assert_eq!(why(1, TRANSACTION_CELLS_MAX - 1, 0), "");
        assert!(why(ROW_KEY_BYTES_MAX + 1, 1, 1).contains("too long"));
        assert!(why(1, 1, VALUE_BYTES_MAX + 1).contains("a value of"));
        assert!(why(1, TRANSACTION_CELLS_MAX, 0).contains("cells"));
        assert!(why(1, TRANSACTION_BYTES_MAX / VALUE_BYTES_MAX, VALUE_BYTES_MAX).contains("bytes"));
    }
}
