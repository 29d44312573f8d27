//! Defines the report of a check.

use std::fmt;

/// A place that breaks a rule, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, relative to the root of the repository.
    pub file: String,
    /// The line in the file, counted from one.
    pub line: usize,
    /// The name of the check.
    pub rule: &'static str,
    /// The violation, and the remedy.
    pub message: String,
}

impl Finding {
    pub(crate) fn new(file: &str, line: usize, rule: &'static str, message: String) -> Finding {
        Finding { file: file.to_owned(), line, rule, message }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.rule, self.message)
    }
}
