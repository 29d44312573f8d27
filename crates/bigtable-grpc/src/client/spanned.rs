//! Names the tables of a request, and divides entries for servers that take one table in each.

use std::collections::BTreeMap;

/// The tables of a request, each once.
#[derive(Debug, Default)]
pub(super) struct Spanned(Vec<String>);

impl Spanned {
    /// The number of a table in the request.
    pub(super) fn number(&mut self, path: &str) -> u32 {
        // A request has few tables.
        let place = self.0.iter().position(|known| known == path).unwrap_or_else(|| {
            self.0.push(path.to_owned());
            self.0.len() - 1
        });
        u32::try_from(place).unwrap_or(u32::MAX)
    }

    /// The fields `table_name` and `table_names` of the request.
    pub(super) fn names(mut self) -> (String, Vec<String>) {
        match &mut self.0[..] {
            [only] => (std::mem::take(only), Vec::new()),
            _ => (String::new(), self.0),
        }
    }
}

/// Divides entries by the paths of their tables.
pub(super) fn by_table<T>(entries: Vec<T>, path: impl Fn(&T) -> &str) -> Vec<Vec<T>> {
    let mut groups: BTreeMap<String, Vec<T>> = BTreeMap::new();
    for entry in entries {
        groups.entry(path(&entry).to_owned()).or_default().push(entry);
    }
    groups.into_values().collect()
}
