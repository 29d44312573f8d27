//! Maps the fields of files of other programs to rows and columns.

use percolator::{Bytes, Column, RowKey};

use crate::cmd::import::row::{Row, check_table};
use crate::exit::Failure;
use crate::keys::{self, brief};

/// The table and the columns that `--table`, `--key` and `--map` name.
#[derive(Debug, Clone)]
pub(super) struct Mapping {
    pub(super) table: String,
    pub(super) key: Field,
    pub(super) cells: Vec<(Field, Column)>,
}

/// A field: the name of a column of CSV, or the path to a value in an object of JSON.
#[derive(Debug, Clone)]
pub(super) struct Field {
    pub(super) text: String,
    /// The names on the way to the value.
    pub(super) path: Vec<String>,
}

impl Mapping {
    /// Reads the options.
    pub(super) fn new(table: &str, key: &str, map: &[String]) -> anyhow::Result<Mapping> {
        if let Err(why) = check_table(table) {
            return Err(Failure::usage(why, "give --table the form [-_.a-zA-Z0-9]+"));
        }
        let mut cells: Vec<(Field, Column)> = Vec::new();
        for pair in map {
            let Some((field, column)) = pair.split_once('=') else {
                let what = format!("--map {} has no `=`", brief(pair));
                return Err(Failure::usage(what, "write FIELD=COLUMN, such as title=doc:title"));
            };
            let column = keys::column(column)?;
            if cells.iter().any(|(_, known)| *known == column) {
                let what = format!("--map names column {column} twice");
                return Err(Failure::usage(what, "map one field to each column"));
            }
            cells.push((Field::new(field), column));
        }
        Ok(Mapping { table: table.to_owned(), key: Field::new(key), cells })
    }

    /// Makes a row of the values of its fields. `None` stands for a missing field or null.
    pub(super) fn row(
        &self,
        key: Option<Bytes>,
        values: impl Iterator<Item = Option<Bytes>>,
    ) -> Result<Row, String> {
        let key = key.ok_or_else(|| format!("it has no field {:?} for the key", self.key.text))?;
        let columns = self.cells.iter().map(|(_, column)| column.clone());
        let cells = columns.zip(values).filter_map(|(column, value)| Some((column, value?)));
        let row = Row { table: self.table.clone(), row: RowKey::from(key), cells: cells.collect() };
        if row.cells.is_empty() {
            return Err("it has none of the mapped fields".to_owned());
        }
        row.check()?;
        Ok(row)
    }
}

impl Field {
    /// Splits the text at its dots. `\.` is a dot of a name, and `\\` a backslash.
    fn new(text: &str) -> Field {
        let mut path = vec![String::new()];
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            let escaped = (c == '\\').then(|| chars.next_if(|c| matches!(c, '.' | '\\')));
            match (c, escaped.flatten()) {
                ('.', _) => path.push(String::new()),
                (c, escaped) => {
                    let name = path.last_mut().expect("the path begins with one name");
                    name.push(escaped.unwrap_or(c));
                }
            }
        }
        Field { text: text.to_owned(), path }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_split_at_dots() {
        for (text, path) in [
            ("title", &["title"][..]),
            ("author.name", &["author", "name"]),
            (r"a\.b.c", &["a.b", "c"]),
            (r"a\\.b", &["a\\", "b"]),
            (r"a\n\", &[r"a\n\"]),
            ("a.", &["a", ""]),
        ] {
            assert_eq!(Field::new(text).path, path, "{text}");
        }
    }

    #[test]
    fn mistakes_of_the_options_are_named() {
        let why = |table: &str, map: &[&str]| {
            let map: Vec<String> = map.iter().map(|pair| (*pair).to_owned()).collect();
            Mapping::new(table, "id", &map).unwrap_err().to_string()
        };
        assert!(why("a b", &["a=c:a"]).contains("not a table name"));
        assert!(why("docs", &["a"]).contains("no `=`"));
        assert!(why("docs", &["a="]).contains("not a column's name"));
        assert!(why("docs", &["a=c:a", "b=c:a"]).contains("twice"));
        let map = ["a=c:x=y".to_owned()];
        let mapping = Mapping::new("docs", "id", &map).unwrap();
        assert_eq!(mapping.cells[0].1, Column::literal("c:x=y"));
    }
}
