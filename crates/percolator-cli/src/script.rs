//! Parses the language of `percolator tx`: one command on each line.
//!
//! ```text
//!   # Figure 4: Bob gives Joe $7
//!   t1: begin
//!   t1: get Bob bal
//!   t1: set Bob bal $3        the value is the rest of the line
//!   t1: delete Ann bal
//!   t1: scan [PREFIX]
//!   t1: commit                or abort, or in the paper's steps:
//!   t1: prewrite
//!   t1: commit-primary
//!   t1: commit-secondaries
//!   crash                     ends the process on the spot
//! ```
//!
//! The name before the colon tells concurrent transactions apart. A line without a name belongs
//! to the one transaction that has none.

use percolator::{Bytes, Column, RowKey};

use crate::exit::Failure;
use crate::keys;

/// One line of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// The line's number, from 1.
    pub(crate) number: usize,
    /// The name of the transaction; empty if it has none.
    pub(crate) name: String,
    /// The command as it was written.
    pub(crate) text: String,
    /// The parsed command.
    pub(crate) step: Step,
}

/// A command of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Begins the transaction.
    Begin,
    /// Reads a cell.
    Get(RowKey, Column),
    /// Writes a cell.
    Set(RowKey, Column, Bytes),
    /// Deletes a cell.
    Delete(RowKey, Column),
    /// Reads the rows with this prefix.
    Scan(RowKey),
    /// Commits, with all phases.
    Commit,
    /// Ends the transaction without a commit.
    Abort,
    /// Runs phase one of commit.
    Prewrite,
    /// Commits the primary: the commit point.
    CommitPrimary,
    /// Commits the secondaries.
    CommitSecondaries,
    /// Ends the process without any cleanup.
    Crash,
}

/// Parses a whole script. A malformed script is refused before any line of it runs.
pub(crate) fn parse(script: &str) -> anyhow::Result<Vec<Line>> {
    let mut lines = Vec::new();
    for (i, text) in script.lines().enumerate() {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let number = i + 1;
        let (name, command) = split_name(text);
        let step = step(command).map_err(|error| error.context(format!("line {number}")))?;
        lines.push(Line { number, name: name.to_owned(), text: command.to_owned(), step });
    }
    Ok(lines)
}

/// Splits off the name: `t1: begin` is the command `begin` of the transaction `t1`.
fn split_name(text: &str) -> (&str, &str) {
    let first = text.split_whitespace().next().unwrap_or_default();
    match first.strip_suffix(':') {
        Some(name) => (name, text[first.len()..].trim_start()),
        None => ("", text),
    }
}

fn step(command: &str) -> anyhow::Result<Step> {
    let (verb, rest) = word(command);
    let step = match verb {
        "begin" => Step::Begin,
        "commit" => Step::Commit,
        "abort" => Step::Abort,
        "prewrite" => Step::Prewrite,
        "commit-primary" => Step::CommitPrimary,
        "commit-secondaries" => Step::CommitSecondaries,
        "crash" => Step::Crash,
        "get" | "delete" => {
            let (row, rest) = word(rest);
            let (column, rest) = word(rest);
            if column.is_empty() || !rest.is_empty() {
                return Err(malformed(command, &format!("write {verb} ROW COLUMN")));
            }
            let (row, column) = (keys::row(row)?, keys::column(column)?);
            return Ok(if verb == "get" {
                Step::Get(row, column)
            } else {
                Step::Delete(row, column)
            });
        }
        "set" => {
            let (row, rest) = word(rest);
            let (column, value) = word(rest);
            if column.is_empty() {
                return Err(malformed(command, "write set ROW COLUMN VALUE"));
            }
            return Ok(Step::Set(keys::row(row)?, keys::column(column)?, keys::bytes(value)?));
        }
        "scan" => {
            let (prefix, rest) = word(rest);
            if !rest.is_empty() {
                return Err(malformed(command, "write scan, or scan PREFIX"));
            }
            return Ok(Step::Scan(keys::bytes(prefix)?.into()));
        }
        _ => return Err(malformed(command, COMMANDS)),
    };
    match rest {
        "" => Ok(step),
        _ => Err(malformed(command, &format!("write {verb} alone"))),
    }
}

const COMMANDS: &str = "the commands are begin, get, set, delete, scan, commit, abort, prewrite, \
                        commit-primary, commit-secondaries and crash; name: may stand before each";

fn malformed(command: &str, help: &str) -> anyhow::Error {
    Failure::usage(format!("cannot read {}", keys::brief(command)), help)
}

/// Returns the first word, and the text after it.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    match text.split_once(char::is_whitespace) {
        Some((word, rest)) => (word, rest.trim_start()),
        None => (text, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_read_line_by_line() {
        let script = "# Figure 4\n\nbegin\n  t1: set Bob bal  3 dollars \nt1: get Bob bal\nscan\n";
        let lines = parse(script).unwrap();
        let bal = || Column::literal("bal");
        let expected = [
            (3, "", Step::Begin),
            (4, "t1", Step::Set("Bob".into(), bal(), "3 dollars".into())),
            (5, "t1", Step::Get("Bob".into(), bal())),
            (6, "", Step::Scan(RowKey::default())),
        ];
        for (line, (number, name, step)) in lines.iter().zip(&expected) {
            assert_eq!((line.number, line.name.as_str(), &line.step), (*number, *name, step));
        }
        assert_eq!(lines.len(), expected.len());
        assert_eq!(lines[1].text, "set Bob bal  3 dollars");
    }

    #[test]
    fn values_may_be_empty_or_bytes() {
        let bal = Column::literal("bal");
        let empty = Step::Set("Bob".into(), bal.clone(), Bytes::new());
        assert_eq!(step("set Bob bal").unwrap(), empty);
        let bytes = Step::Set("Bob".into(), bal, Bytes::from_static(b"\0 \xff"));
        assert_eq!(step(r"set Bob bal \x00\x20\xff").unwrap(), bytes);
    }

    #[test]
    fn malformed_lines_are_refused_by_number() {
        for wrong in ["go", "get Bob", "get Bob bal x", "set Bob", "commit now", "scan a b", "t1:"]
        {
            let error = format!("{:#}", parse(&format!("begin\n{wrong}")).expect_err(wrong));
            assert!(error.starts_with("line 2: cannot read"), "{error}");
        }
        assert!(parse("get Bob :x").is_err());
    }
}
