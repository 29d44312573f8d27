//! Checks the files of `contrib/` that start processes, against the commands of this program.

#![allow(clippy::unwrap_used, reason = "tests and their helpers")]

mod container;
mod kubernetes;
mod systemd;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use clap::ArgMatches;
use clap::parser::ValueSource;
use percolator::cluster::Address;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn contrib(name: &str) -> PathBuf {
    root().join("contrib").join(name)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The output of a program; `None` if it is not installed. A program beside the Python of the
/// tests comes before others of its name.
fn run(program: &str, args: &[&str]) -> Option<Output> {
    let beside = std::env::var_os("PERCOLATOR_PYTHON")
        .map(|python| Path::new(&python).with_file_name(program))
        .filter(|path| path.exists());
    match Command::new(beside.unwrap_or_else(|| program.into())).args(args).output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("{program}: {error}"),
    }
}

fn skipped(what: &str) {
    // The test harness captures the output of print macros, so this line goes to stderr directly.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}

/// A command line that this program takes.
struct Line {
    /// The commands, such as `serve table`.
    command: String,
    matches: ArgMatches,
}

impl Line {
    /// Parses the arguments as the program does.
    #[track_caller]
    fn parse(args: &[String]) -> Line {
        let line = ["percolator".to_owned()].into_iter().chain(args.iter().cloned());
        let parsed = percolator_cli::command().try_get_matches_from(line);
        let mut matches = parsed.unwrap_or_else(|error| panic!("{args:?}: {error}"));
        let mut words = Vec::new();
        while let Some((name, sub)) = matches.remove_subcommand() {
            words.push(name);
            matches = sub;
        }
        Line { command: words.join(" "), matches }
    }

    /// The value of an option that the line names. Some commands lack some options.
    fn get<T: Clone + Send + Sync + 'static>(&self, option: &str) -> Option<T> {
        if self.matches.try_contains_id(option).is_err() {
            return None;
        }
        let given = self.matches.value_source(option) == Some(ValueSource::CommandLine);
        given.then(|| self.matches.get_one::<T>(option).cloned()).flatten()
    }

    fn listen(&self) -> Option<SocketAddr> {
        self.get("listen")
    }

    fn advertise(&self) -> Option<Address> {
        self.get("advertise")
    }

    #[track_caller]
    fn metrics(&self) -> SocketAddr {
        self.get("metrics").expect("every process has --metrics")
    }

    fn file(&self, option: &str) -> Option<PathBuf> {
        self.get(option)
    }
}

/// Replaces `(open)NAME(close)` by the value of the variable. Every variable must be there.
#[track_caller]
fn expand(text: &str, open: &str, close: &str, variables: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(open) {
        let (name, after) = after.split_once(close).unwrap();
        out.push_str(before);
        out.push_str(variables.get(name).unwrap_or_else(|| panic!("{text}: no variable {name}")));
        rest = after;
    }
    out + rest
}
