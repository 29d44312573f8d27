//! Maps errors to exit codes, and to reports that say what happened, why, and what to do next.

use std::fmt;
use std::io;

use percolator::{AbortReason, Error};

/// The exit code of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// The answer is no: not found, timed out, a script's commit was aborted.
    No = 1,
    /// Wrong usage, bad input, or a data directory that cannot be used as it is.
    Usage = 2,
    /// Something that must always hold does not.
    Violated = 3,
    /// The store or the oracle cannot be reached, or did not say what became of a request.
    Unreachable = 4,
    /// All retries were used up.
    Exhausted = 5,
    /// A goal of the project's speed is missed, or was not measured.
    Missed = 6,
    /// The disk failed, and the store could not be opened anew in place: start the process again.
    Halted = 7,
    /// Ctrl-C.
    Interrupted = 130,
}

impl Exit {
    const ALL: [Exit; 9] = [
        Exit::Done,
        Exit::No,
        Exit::Usage,
        Exit::Violated,
        Exit::Unreachable,
        Exit::Exhausted,
        Exit::Missed,
        Exit::Halted,
        Exit::Interrupted,
    ];

    /// Returns the variant with this code.
    pub(crate) fn of_code(code: u8) -> Option<Exit> {
        Exit::ALL.into_iter().find(|exit| *exit as u8 == code)
    }
}

/// The next step after a refusal for a certificate or a permission.
const REFUSED: &str = "the same command fails until that certificate or permission is changed; \
                       docs/security.md says how";

/// An error of the command itself, with its exit code and the next step.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    what: String,
    help: String,
}

impl Failure {
    /// Makes an error of wrong usage or bad input.
    pub fn usage(what: impl Into<String>, help: impl Into<String>) -> anyhow::Error {
        Failure::error(Exit::Usage, what, help)
    }

    /// Makes an error that stands for the answer "no".
    pub fn no(what: impl Into<String>, help: impl Into<String>) -> anyhow::Error {
        Failure::error(Exit::No, what, help)
    }

    /// Makes an error with the given exit code.
    pub fn error(exit: Exit, what: impl Into<String>, help: impl Into<String>) -> anyhow::Error {
        Failure { exit, what: what.into(), help: help.into() }.into()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Failure {}

/// An error as it is shown to people.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) exit: Exit,
    pub(crate) what: String,
    /// The next step. Empty if `what` contains it already.
    pub(crate) help: String,
}

/// Returns the report of an error. Returns `None` if the reader of stdout has closed the pipe:
/// then nobody needs a report. `also` judges causes that only the program knows.
pub(crate) fn report(
    error: &anyhow::Error,
    also: impl Fn(&(dyn std::error::Error + 'static)) -> Option<(Exit, &'static str)>,
) -> Option<Report> {
    let gone = |e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe;
    if error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(gone)) {
        return None;
    }
    let (exit, help) = judge(error, also);
    let what = format!("{error:#}");
    // Errors of files contain their remedy already.
    let help = if what.contains("\n  help: ") { String::new() } else { help };
    Some(Report { exit, what, help })
}

/// Returns the exit code of an error, and the next step.
fn judge(
    error: &anyhow::Error,
    also: impl Fn(&(dyn std::error::Error + 'static)) -> Option<(Exit, &'static str)>,
) -> (Exit, String) {
    for cause in error.chain() {
        if let Some((exit, help)) = also(cause) {
            return (exit, help.to_owned());
        }
        if let Some(failure) = cause.downcast_ref::<Failure>() {
            return (failure.exit, failure.help.clone());
        }
        if let Some(error) = cause.downcast_ref::<Error>() {
            let (exit, help) = of_percolator(error);
            return (exit, help.to_owned());
        }
        if let Some(error) = cause.downcast_ref::<webindex::Error>() {
            let (exit, help) = of_webindex(error);
            return (exit, help.to_owned());
        }
        if let Some(bigtable_grpc::ServeError::Halted(_)) = cause.downcast_ref() {
            return (Exit::Halted, String::new());
        }
        if let Some(error) = cause.downcast_ref::<percolator_rpc::Error>() {
            return (of_rpc(error), String::new());
        }
        if let Some(error) = cause.downcast_ref::<bigtable::Error>() {
            let (exit, help) = of_store(error);
            return (exit, help.to_owned());
        }
    }
    (Exit::Usage, "`percolator --help` lists the commands and their options".to_owned())
}

/// Returns the exit code of an error of the library `percolator`, and the next step.
pub fn of_percolator(error: &Error) -> (Exit, &'static str) {
    match error {
        Error::Aborted { reason: AbortReason::Store(error), .. } => of_store(error),
        Error::Aborted { reason: AbortReason::Oracle(_), .. } | Error::Oracle(_) => {
            (Exit::Unreachable, "run the command again; nothing was changed")
        }
        Error::Refused(_) => (Exit::Unreachable, REFUSED),
        Error::Aborted { .. } => {
            (Exit::Exhausted, "another client keeps writing the same cells: run the command again")
        }
        Error::Unknown { .. } => (
            Exit::Unreachable,
            "`percolator cell ROW COLUMN --history` shows whether the transaction committed",
        ),
        Error::Locked { .. } => {
            (Exit::Exhausted, "`percolator locks ls` shows the lock's owner; run the command again")
        }
        Error::TooOld { .. } => (Exit::Usage, "omit --at, or give it a newer timestamp"),
        Error::NotIssued { .. } => {
            (Exit::Usage, "`percolator cell ROW COLUMN --history` lists timestamps of a cell")
        }
        Error::Invalid { .. } => {
            (Exit::Usage, "`percolator COMMAND --help` shows the form of rows, columns and values")
        }
        Error::Corrupt { .. } => (
            Exit::Violated,
            "open the data with the version that wrote it, or restore it from a backup",
        ),
        Error::Store(error) => of_store(error),
        Error::Application(_) => {
            (Exit::No, "the message comes from the application, not from Percolator")
        }
        _ => (Exit::Unreachable, "run the command again"),
    }
}

/// The text of an error of the index contains its next step.
fn of_webindex(error: &webindex::Error) -> (Exit, &'static str) {
    match error {
        webindex::Error::Database(error) => of_percolator(error),
        _ => (Exit::Usage, ""),
    }
}

/// The text of an error of the services contains its next step.
fn of_rpc(error: &percolator_rpc::Error) -> Exit {
    match error {
        percolator_rpc::Error::Settings { .. } | percolator_rpc::Error::Listen { .. } => {
            Exit::Usage
        }
        _ => Exit::Unreachable,
    }
}

fn of_store(error: &bigtable::Error) -> (Exit, &'static str) {
    match error {
        bigtable::Error::TooOld { .. } => (Exit::Usage, "give a newer timestamp"),
        bigtable::Error::InvalidRequest(_) => {
            (Exit::Usage, "`percolator COMMAND --help` shows the form of rows, columns and values")
        }
        bigtable::Error::Files { .. } | bigtable::Error::InUse { .. } => {
            (Exit::Usage, "choose another directory")
        }
        bigtable::Error::Replaced => (Exit::Unreachable, "start the process again"),
        bigtable::Error::Halted { .. } => {
            (Exit::Halted, "check the disk, then start the process again")
        }
        bigtable::Error::Refused(_) => (Exit::Unreachable, REFUSED),
        bigtable::Error::Full { .. } => (Exit::Unreachable, "free some space on that disk"),
        bigtable::Error::Overloaded { .. } | bigtable::Error::Unavailable { .. } => {
            (Exit::Unreachable, "run the command again; nothing was changed")
        }
        _ => (
            Exit::Unreachable,
            "the outcome is unknown: read the cells that the command writes before you run it \
             again",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn errors_of_files_keep_their_own_remedy() {
        let files = bigtable::Error::Files {
            path: "/data".into(),
            problem: "the directory is not a store".into(),
            remedy: "choose another directory".into(),
        };
        let error = anyhow::Error::from(Error::Store(files));
        let report = report(&error, |_| None).expect("not a broken pipe");
        assert_eq!(report.exit, Exit::Usage);
        assert!(report.what.ends_with("\n  help: choose another directory"), "{}", report.what);
        assert_eq!(report.help, "");
    }

    #[test]
    fn the_cause_decides_and_the_context_is_printed() {
        let error = Failure::no("no row Bob", "`percolator scan` lists rows");
        let error = Err::<(), _>(error).context("line 3").unwrap_err();
        let report = report(&error, |_| None).expect("not a broken pipe");
        assert_eq!(report.exit, Exit::No);
        assert_eq!(report.what, "line 3: no row Bob");
    }

    #[test]
    fn a_reader_that_has_gone_is_no_error() {
        let gone = io::Error::from(io::ErrorKind::BrokenPipe);
        let error = anyhow::Error::from(gone).context("writing the rows");
        assert_eq!(report(&error, |_| None), None);
    }
}
