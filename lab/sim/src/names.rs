//! Names what a run works on: numbers in the history, byte strings in the store.
//!
//! Row keys contain 0x00 and 0xFF, which test the protocol's key encodings (H65).

use bigtable::{Family, Mutation, RowKey, Timestamp};
use percolator_core::Column;

use crate::history::Cell;

pub(crate) use crate::check::raw::{DATA, LOCK, NOTIFY, ROLLBACK, WRITE};

/// The prefix of a table of notifications, where notifications are in tables of their own.
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

/// The number of the column in which observer 0 acknowledges; those of the others follow.
pub(crate) const ACK: u8 = 128;

/// Returns whether a mutation writes to the family.
pub(crate) fn is_set(mutation: &Mutation, of: &Family) -> bool {
    matches!(mutation, Mutation::Set { family, .. } if family == of)
}

/// Returns whether one of the mutations writes to the family.
pub(crate) fn sets(mutations: &[Mutation], of: &Family) -> bool {
    mutations.iter().any(|mutation| is_set(mutation, of))
}

/// Returns the key of a row.
pub(crate) fn row_key(row: u16) -> RowKey {
    let [high, low] = row.to_be_bytes();
    RowKey::from(&[b'r', high, low][..])
}

/// Returns the number of the row with this key.
pub(crate) fn row_number(key: &RowKey) -> Option<u16> {
    match key.as_bytes() {
        [b'r', high, low] => Some(u16::from_be_bytes([*high, *low])),
        _ => None,
    }
}

/// Returns whether this row of Percolator's own tables holds the observer schema.
pub(crate) fn is_schema(table: &[u8], row: &RowKey) -> bool {
    table == b"percolator.system" && row.as_bytes() == b"observers"
}

/// Returns the observers that a stored schema names. A schema consists of its version, the
/// count of observers, and for each observer its flags, table, column and name. Each string
/// has its length before it.
pub(crate) fn observers(schema: &[u8]) -> Vec<u8> {
    let mut left = schema.get(12..).unwrap_or_default();
    let mut all = Vec::new();
    while let Some((_, mut strings)) = left.split_first() {
        let mut name = None;
        for _ in 0..3 {
            let behind = strings.split_first_chunk::<2>().and_then(|(length, rest)| {
                rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
            });
            let Some((string, rest)) = behind else { return all };
            (name, strings) = (Some(string), rest);
        }
        let number = |name: &[u8]| OBSERVERS.iter().position(|known| known.as_bytes() == name);
        all.extend(name.and_then(number).and_then(|number| u8::try_from(number).ok()));
        left = strings;
    }
    all
}

/// Returns the number of the table with this name; `None` for Percolator's own tables.
pub(crate) fn table_number(name: &[u8]) -> Option<u8> {
    match name {
        [b't', digit @ b'0'..=b'9'] => Some(digit - b'0'),
        _ => None,
    }
}

/// Returns the number of the table whose notifications are in the table with this name.
pub(crate) fn notify_table_number(name: &[u8]) -> Option<u8> {
    table_number(name.strip_prefix(NOTIFY_TABLE.as_bytes())?)
}

/// Returns the number of the column with this name.
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

/// Returns the cell with these names, if it is one of the run's.
pub(crate) fn cell(table: &[u8], row: &RowKey, column: &[u8]) -> Option<Cell> {
    let (table, row) = (table_number(table)?, row_number(row)?);
    Some(Cell { table, row, column: column_number(column)? })
}

/// Returns the cell that a notification is about, whether it is in the cell's row or in a
/// table of notifications.
pub(crate) fn notified_cell(table: &[u8], row: &RowKey, column: &[u8]) -> Option<Cell> {
    let Some(table) = table.strip_prefix(NOTIFY_TABLE.as_bytes()) else {
        return cell(table, row, column);
    };
    // The first byte of the row is the shard.
    cell(table, &row.as_bytes().get(1..)?.into(), column)
}

/// Returns the value of a cell: its writer's start timestamp, then the workload's part.
pub(crate) fn value(writer: Timestamp, body: &[u8]) -> Vec<u8> {
    [&writer.as_u64().to_be_bytes(), body].concat()
}

/// Returns the writer and the workload's part of a value.
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

    #[test]
    fn a_schema_names_its_observers() {
        let mut schema = vec![0; 12];
        for name in ["o1", "unknown", "o8"] {
            schema.push(2);
            for string in ["t7", "f:a", name] {
                schema.extend([0, string.len() as u8]);
                schema.extend(string.as_bytes());
            }
        }
        assert_eq!(observers(&schema), [1, 8]);
        assert_eq!(observers(&schema[..schema.len() - 1]), [1]);
        assert_eq!(observers(b""), [0; 0]);
    }
}
