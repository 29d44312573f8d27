//! Defines the names that `export` and `import` share.

use clap::ValueEnum;

/// The version of the lines of JSON.
pub(super) const VERSION: u64 = 1;

/// The table of the positions of imports that are not complete. No export has it.
pub(super) const POSITIONS: &str = "percolator-imports";

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Lines of JSON.
    Jsonl,
    /// CSV with a header.
    Csv,
}
