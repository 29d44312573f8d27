//! The names of what a run works on: numbers in the history, byte strings in the store.
//!
//! Row keys hold 0x00 and 0xFF, so that the key encodings of the protocol meet them (H65).

use bigtable::{Family, RowKey, Timestamp};
use percolator_core::Column;

use crate::history::Cell;

pub(crate) const LOCK: Family = Family::from_static("lock");
pub(crate) const WRITE: Family = Family::from_static("write");
pub(crate) const ROLLBACK: Family = Family::from_static("rollback");
pub(crate) const NOTIFY: Family = Family::from_static("notify");

/// What the name of a table of notifications begins with, where they lie apart.
pub(crate) const NOTIFY_TABLE: &str = "percolator.notify.";

/// The tables of a run.
pub(crate) const TABLES: [&str; 10] = ["t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9"];

/// The columns of a table.
pub(crate) const COLUMNS: [Column; 12] = [
    Column::literal("f:a"),
    Column::literal("f:b"),
    Column::literal("f:c"),
    Column::literal("f:d"),
    Column::literal("f:e"),
    Column::literal("f:f"),
    Column::literal("f:g"),
    Column::literal("f:h"),
    Column::literal("f:i"),
    Column::literal("f:j"),
    Column::literal("f:k"),
    Column::literal("f:l"),
];

/// The observers, by number.
pub(crate) const OBSERVERS: [&str; 12] =
    ["o0", "o1", "o2", "o3", "o4", "o5", "o6", "o7", "o8", "o9", "oa", "ob"];

/// The number of the column in which observer 0 acknowledges; the others' follow.
pub(crate) const ACK: u8 = 128;

/// The key of a row.
pub(crate) fn row_key(row: u16) -> RowKey {
    let [high, low] = row.to_be_bytes();
    RowKey::from(&[b'r', high, low][..])
}

/// The number of the row with this key.
pub(crate) fn row_number(key: &RowKey) -> Option<u16> {
    match key.as_bytes() {
        [b'r', high, low] => Some(u16::from_be_bytes([*high, *low])),
        _ => None,
    }
}

/// The number of the table of this name; `None` for Percolator's own.
pub(crate) fn table_number(name: &[u8]) -> Option<u8> {
    match name {
        [b't', digit @ b'0'..=b'9'] => Some(digit - b'0'),
        _ => None,
    }
}

/// The number of the table whose notifications lie in the table of this name.
pub(crate) fn notify_table_number(name: &[u8]) -> Option<u8> {
    table_number(name.strip_prefix(NOTIFY_TABLE.as_bytes())?)
}

/// The number of the column of this name.
pub(crate) fn column_number(name: &[u8]) -> Option<u8> {
    match name {
        [b'f', b':', letter @ b'a'..=b'l'] => Some(letter - b'a'),
        [b'a', b'c', b'k', b':', b'o', digit, b'/', ..] => match digit {
            b'0'..=b'9' => Some(ACK + digit - b'0'),
            b'a'..=b'b' => Some(ACK + 10 + digit - b'a'),
            _ => None,
        },
        _ => None,
    }
}

/// The cell of these names, if it is one of the run's.
pub(crate) fn cell(table: &[u8], row: &RowKey, column: &[u8]) -> Option<Cell> {
    let (table, row) = (table_number(table)?, row_number(row)?);
    Some(Cell { table, row, column: column_number(column)? })
}

/// The cell that a notification under these names is about, wherever it lies.
pub(crate) fn notified_cell(table: &[u8], row: &RowKey, column: &[u8]) -> Option<Cell> {
    let Some(table) = table.strip_prefix(NOTIFY_TABLE.as_bytes()) else {
        return cell(table, row, column);
    };
    // Without its shard.
    cell(table, &row.as_bytes().get(1..)?.into(), column)
}

/// The value of a cell: its writer's start timestamp, and what the workload keeps there.
pub(crate) fn value(writer: Timestamp, body: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(8 + body.len());
    value.extend_from_slice(&writer.as_u64().to_be_bytes());
    value.extend_from_slice(body);
    value
}

/// The writer and the body of a value.
pub(crate) fn parse_value(value: &[u8]) -> Option<(Timestamp, &[u8])> {
    let (writer, body) = value.split_first_chunk::<8>()?;
    Some((Timestamp::new(u64::from_be_bytes(*writer))?, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_belong_together() {
        for row in [0, 1, 255, 256, u16::MAX] {
            assert_eq!(row_number(&row_key(row)), Some(row));
        }
        for (number, column) in COLUMNS.iter().enumerate() {
            assert_eq!(column_number(column.as_bytes()), Some(number as u8));
        }
        for (number, name) in TABLES.iter().enumerate() {
            assert_eq!(table_number(name.as_bytes()), Some(number as u8));
            let notify = [NOTIFY_TABLE, name].concat();
            assert_eq!(table_number(notify.as_bytes()), None);
            assert_eq!(notify_table_number(notify.as_bytes()), Some(number as u8));
        }
        for (number, name) in OBSERVERS.iter().enumerate() {
            let ack = format!("ack:{name}/f:a");
            assert_eq!(column_number(ack.as_bytes()), Some(ACK + number as u8));
        }
        assert!(row_key(2) < row_key(256));
    }
}
