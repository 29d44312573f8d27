//! Converts the families of a table between their list on the wire and a sorted map.
//!
//! On the wire, the families are entries of a map. An entry always carries its value here, even
//! an empty one: Google's client for Node reads a missing value as null, and fails. `prost`
//! leaves such values out, so the generator makes lists of entries from maps of messages.

use std::collections::BTreeMap;

use crate::proto::admin::ColumnFamily;
use crate::proto::admin::table::ColumnFamiliesEntry;

/// The entries of these families, sorted by name.
pub(crate) fn entries(
    families: impl IntoIterator<Item = (String, ColumnFamily)>,
) -> Vec<ColumnFamiliesEntry> {
    let families: BTreeMap<_, _> = families.into_iter().collect();
    let entry = |(key, value)| ColumnFamiliesEntry { key, value: Some(value) };
    families.into_iter().map(entry).collect()
}

/// The families of these entries. The last entry of a name counts, and a missing value is a
/// family without settings.
pub(crate) fn sorted(entries: Vec<ColumnFamiliesEntry>) -> BTreeMap<String, ColumnFamily> {
    entries.into_iter().map(|entry| (entry.key, entry.value.unwrap_or_default())).collect()
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::proto::admin::Table;

    #[test]
    fn families_are_sorted_and_carry_their_empty_values() {
        let families = ["g", "f"].map(|name| (name.to_owned(), ColumnFamily::default()));
        let table = Table { column_families: entries(families), ..Table::default() };
        // The bytes that Google's emulator sends for these families.
        let bytes = [0x1a, 5, 0x0a, 1, b'f', 0x12, 0, 0x1a, 5, 0x0a, 1, b'g', 0x12, 0];
        assert_eq!(table.encode_to_vec(), bytes);
    }

    #[test]
    fn families_without_values_and_repeated_ones_are_read() {
        let without = [0x1a, 3, 0x0a, 1, b'f'];
        let table = Table::decode(&without[..]).unwrap();
        let expected = BTreeMap::from([("f".to_owned(), ColumnFamily::default())]);
        assert_eq!(sorted(table.column_families), expected);

        // A rule of two versions, then the same family without a rule.
        let twice =
            [0x1a, 9, 0x0a, 1, b'f', 0x12, 4, 0x0a, 2, 8, 2, 0x1a, 5, 0x0a, 1, b'f', 0x12, 0];
        let table = Table::decode(&twice[..]).unwrap();
        assert!(table.column_families[0].value.as_ref().is_some_and(|f| f.gc_rule.is_some()));
        assert_eq!(sorted(table.column_families), expected);
    }
}
