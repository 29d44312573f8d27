//! Maps errors to exit codes, and to reports that say what happened, why, and what to do next.

use std::fmt;
use std::io;

use clap::error::ErrorKind;
use percolator::{AbortReason, Error, InvalidKind};
use serde_json::{Value, json};

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

    /// Returns its name in JSON.
    fn kind(self) -> &'static str {
        match self {
            Exit::Done => "done",
            Exit::No => "no",
            Exit::Usage => "usage",
            Exit::Violated => "violated",
            Exit::Unreachable => "unreachable",
            Exit::Exhausted => "exhausted",
            Exit::Missed => "missed",
            Exit::Halted => "halted",
            Exit::Interrupted => "interrupted",
        }
    }
}

/// The kind of an error in JSON after which the outcome of a request is unknown. Its exit code is
/// that of [`Exit::Unreachable`].
const UNKNOWN: &str = "unknown";

/// The next step after a refusal for a certificate or a permission.
const REFUSED: &str = "the same command fails until that certificate or permission is changed; \
                       docs/security.md says how";

/// An error of the command itself, with its exit code and the next step.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    what: String,
    help: String,
    /// Whether the outcome of a request is unknown.
    unknown: bool,
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
        Failure { exit, what: what.into(), help: help.into(), unknown: false }.into()
    }

    /// Makes an error after which the outcome of a request is unknown.
    pub(crate) fn unknown(what: impl Into<String>, help: impl Into<String>) -> anyhow::Error {
        let (what, help) = (what.into(), help.into());
        Failure { exit: Exit::Unreachable, what, help, unknown: true }.into()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Failure {}

/// A failed write to standard output, as the inner error of an [`io::Error`].
#[derive(Debug)]
pub(crate) struct Unprinted(io::Error);

impl Unprinted {
    /// Marks an error as one of standard output. The kind of the error stays.
    pub(crate) fn of(error: io::Error) -> io::Error {
        io::Error::new(error.kind(), Unprinted(error))
    }
}

impl fmt::Display for Unprinted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "standard output cannot be written: {}", self.0)
    }
}

impl std::error::Error for Unprinted {}

/// The context of an error that knows how far a command has come, and a better next step than the
/// error itself does. The error's exit code stays.
#[derive(Debug)]
pub(crate) struct Advice {
    what: String,
    help: String,
}

impl Advice {
    pub(crate) fn new(what: impl Into<String>, help: impl Into<String>) -> Advice {
        Advice { what: what.into(), help: help.into() }
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// An error as it is shown to people and programs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) exit: Exit,
    /// The name of the exit code, or `unknown`, for programs.
    kind: &'static str,
    pub(crate) what: String,
    /// The next step. Empty if `what` contains it already, or if none is known.
    pub(crate) help: String,
}

impl Report {
    /// The report of a command line that cannot be parsed.
    pub(crate) fn of_usage(error: &clap::Error) -> Report {
        let text = error.render().to_string();
        let text = text.trim_end();
        let (what, help) = match error.kind() {
            // The text is the help of the command.
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                ("the command line is not complete", text)
            }
            _ => {
                let text = text.strip_prefix("error: ").unwrap_or(text);
                text.split_once("\n\n").unwrap_or((text, ""))
            }
        };
        let (what, help) = (what.to_owned(), help.to_owned());
        Report { exit: Exit::Usage, kind: Exit::Usage.kind(), what, help }
    }

    /// The report of help that could not be printed.
    pub(crate) fn of_unprinted_help(error: io::Error) -> Option<Report> {
        report(&anyhow::Error::from(Unprinted::of(error)), |_| None)
    }

    /// Returns the report in JSON.
    pub(crate) fn as_json(&self) -> Value {
        let (message, help) = match self.what.split_once("\n  help: ") {
            Some((message, help)) if self.help.is_empty() => (message, help.to_owned()),
            Some((message, help)) => (message, format!("{help}; then {}", self.help)),
            None => (self.what.as_str(), self.help.clone()),
        };
        json!({ "error": {
            "kind": self.kind,
            "message": message,
            "help": (!help.is_empty()).then_some(help),
            "exit": self.exit as u8,
        } })
    }
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
    let kind = if is_unknown(error) { UNKNOWN } else { exit.kind() };
    let what = format!("{error:#}");
    // Errors of files contain their remedy already.
    let help = match error.downcast_ref::<Advice>() {
        Some(advice) => advice.help.clone(),
        None if what.contains("\n  help: ") => String::new(),
        None => help,
    };
    Some(Report { exit, kind, what, help })
}

/// Whether the error leaves open what became of a request.
fn is_unknown(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let of_store = |error: &bigtable::Error| matches!(error, bigtable::Error::Unknown { .. });
        let of_index = || match cause.downcast_ref()? {
            webindex::Error::Database(error) => Some(&**error),
            _ => None,
        };
        match cause.downcast_ref().or_else(of_index) {
            Some(Error::Unknown { .. }) => true,
            Some(Error::Store(error)) => of_store(error),
            Some(_) => false,
            None => {
                cause.downcast_ref::<Failure>().is_some_and(|failure| failure.unknown)
                    || cause.downcast_ref().is_some_and(of_store)
            }
        }
    })
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
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            return (Exit::Usage, of_io(error).to_owned());
        }
    }
    (Exit::Usage, String::new())
}

/// Returns the next step after an error of a file or of standard output.
fn of_io(error: &io::Error) -> &'static str {
    if error.get_ref().is_some_and(|inner| inner.is::<Unprinted>()) {
        return "the output is incomplete: give the command an output that can be written";
    }
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space on that file system, then run the command again"
        }
        io::ErrorKind::PermissionDenied => "give this user the right to use that file or directory",
        io::ErrorKind::ReadOnlyFilesystem => "name a place on a file system that can be written",
        _ => "",
    }
}

/// Returns the exit code of an error of the library `percolator`, and the next step.
pub fn of_percolator(error: &Error) -> (Exit, &'static str) {
    match error {
        Error::Aborted { reason: AbortReason::Store(error), .. } => of_store(error),
        Error::Aborted { reason: AbortReason::Oracle(_), .. } | Error::Oracle(_) => (
            Exit::Unreachable,
            "`percolator oracle status` shows whether an oracle answers; run the command again",
        ),
        Error::Refused(_) => (Exit::Unreachable, REFUSED),
        Error::Aborted { reason: AbortReason::Conflict(_), .. } => {
            (Exit::Exhausted, "another client keeps writing the same cells: run the command again")
        }
        Error::Aborted { .. } => (Exit::Exhausted, "run the command again"),
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
        Error::Invalid { kind, .. } => (Exit::Usage, of_invalid(*kind)),
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

/// Only the form of names and values needs a hint. The text of any other error contains its remedy.
fn of_invalid(kind: InvalidKind) -> &'static str {
    match kind {
        InvalidKind::RowKey | InvalidKind::Column | InvalidKind::Table | InvalidKind::Value => FORM,
        _ => "",
    }
}

/// The text of a request that a server has refused begins with the code of the refusal.
fn of_invalid_request(why: &str) -> &'static str {
    match why.split_once(": ").map(|(code, _)| code) {
        Some(
            "InvalidArgument" | "NotFound" | "AlreadyExists" | "OutOfRange" | "FailedPrecondition"
            | "PermissionDenied" | "Unauthenticated" | "Unimplemented",
        ) => "",
        _ => FORM,
    }
}

const FORM: &str = "`percolator --help` shows the form of tables, rows, columns and values";

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
        bigtable::Error::InvalidRequest(why) => (Exit::Usage, of_invalid_request(why)),
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
            (Exit::Unreachable, "run the command again")
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
    fn advice_replaces_the_next_step_and_nothing_else() {
        let error = bigtable::Error::Unavailable { why: "the server is gone".into() };
        let error = anyhow::Error::from(webindex::Error::from(Error::Store(error)));
        let error = error.context(Advice::new("3 of 7 pages are loaded", "load again"));
        let report = report(&error, |_| None).expect("not a broken pipe");
        assert_eq!((report.exit, report.kind), (Exit::Unreachable, "unreachable"));
        assert!(report.what.starts_with("3 of 7 pages are loaded: the store is unavailable"));
        assert_eq!(report.help, "load again");
    }

    #[test]
    fn json_has_the_remedy_apart_and_tells_an_unknown_outcome() {
        let of = |error: Error| report(&error.into(), |_| None).expect("not a broken pipe");
        let files = bigtable::Error::Files {
            path: "/data".into(),
            problem: "the directory is not a store".into(),
            remedy: "choose another directory".into(),
        };
        let expected = json!({ "error": {
            "kind": "usage", "message": "/data: the directory is not a store",
            "help": "choose another directory", "exit": 2,
        } });
        assert_eq!(of(Error::Store(files)).as_json(), expected);
        let unknown = bigtable::Error::Unknown { why: "the connection broke".into() };
        let unknown = of(Error::Store(unknown)).as_json();
        assert_eq!(
            (&unknown["error"]["kind"], &unknown["error"]["exit"]),
            (&"unknown".into(), &4.into())
        );
    }

    #[test]
    fn a_hint_of_the_form_is_for_names_and_values_alone() {
        let help = |error: Error| report(&error.into(), |_| None).expect("not a broken pipe").help;
        assert_eq!(help(Error::invalid(InvalidKind::Column, "an empty column")), FORM);
        assert_eq!(help(Error::invalid(InvalidKind::Options, "a retention is too short")), "");
        let refused = |why: &str| help(Error::Store(bigtable::Error::invalid(why)));
        assert_eq!(refused("PermissionDenied: the certificate does not name x"), "");
        assert_eq!(refused("FailedPrecondition: the table has a rule"), "");
        assert_eq!(refused("the row key is empty"), FORM);
    }

    #[test]
    fn a_reader_that_has_gone_is_no_error() {
        let gone = io::Error::from(io::ErrorKind::BrokenPipe);
        let error = anyhow::Error::from(gone).context("writing the rows");
        assert_eq!(report(&error, |_| None), None);
    }
}
