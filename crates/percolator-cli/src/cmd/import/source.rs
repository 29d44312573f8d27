//! Reads the lines of a file in its format.

use anyhow::Context as _;

use crate::cmd::import::csv::CsvRecords;
use crate::cmd::import::json::JsonLines;
use crate::cmd::import::row::Item;
use crate::cmd::transfer::VERSION;
use crate::exit::Failure;

/// The file, in its format.
pub(super) enum Source {
    Json(JsonLines),
    Csv(Box<CsvRecords>),
}

impl Source {
    /// Reads the next line.
    pub(super) fn next(&mut self) -> anyhow::Result<Option<Item>> {
        let item = match self {
            Source::Json(lines) => lines.next(),
            Source::Csv(records) => records.next(),
        };
        item.context("reading the file's lines")
    }
}

/// The error of an export of another version.
pub(super) fn unknown(line: u64, version: &str) -> anyhow::Error {
    Failure::usage(
        format!(
            "line {line}: the export has version {version}, and this release reads version \
             {VERSION}"
        ),
        "import it with the release that wrote it",
    )
}
