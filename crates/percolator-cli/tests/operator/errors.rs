//! Tests the form of errors: JSON for programs under `--json`, and a fitting next step for people.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::shell::{Ran, Shell, program, run};

/// The words by which each command fails once it runs. `NONE` is a path that does not exist, and
/// `FILE` a file where a directory should be. A command without words cannot fail when it runs.
const FAILING: [(&str, &str); 50] = [
    ("demo", "NONE --once"),
    ("webindex load", "NONE --base https://a.example/ --data NONE"),
    ("webindex remove", "https://a.example/ --data NONE"),
    ("webindex rank", "--data NONE"),
    ("webindex recrawl", "--data NONE"),
    ("webindex verify", "--data NONE"),
    ("webindex search", "cod --data NONE"),
    ("webindex page", "https://a.example/ --data NONE"),
    ("webindex cluster", "https://a.example/ --data NONE"),
    ("webindex stats", "--data NONE"),
    ("webindex generate", "FILE"),
    ("get", "Bob --data NONE"),
    ("set", "Bob bal 1 --data FILE"),
    ("delete", "Bob --data NONE"),
    ("scan", "--data NONE"),
    ("tables", "--data NONE"),
    ("tx", "NONE --data NONE"),
    ("cell", "Bob bal --data NONE"),
    ("why", "Bob bal --data NONE"),
    ("locks ls", "--data NONE"),
    ("locks resolve", "--data NONE"),
    ("backlog", "--data NONE"),
    ("wait", "--data NONE"),
    ("observers ls", "--data NONE"),
    ("observers failing", "--data NONE"),
    ("observers replay", "--data NONE"),
    ("observers skip", "parse --data NONE"),
    ("observers pause", "parse --data NONE"),
    ("observers resume", "parse --data NONE"),
    ("observers retire", "parse --data NONE"),
    ("check", "NONE"),
    ("backup", "--to NONE --data NONE"),
    ("export", "--data NONE"),
    ("import", "NONE --data NONE"),
    ("restore", "--from NONE --data NONE"),
    ("console", "--data NONE"),
    ("gc run", "--data NONE"),
    ("gc status", "--data NONE"),
    ("serve table", "--data FILE --listen 127.0.0.1:0"),
    ("serve oracle", "--listen 127.0.0.1:0"),
    ("worker", "--app webindex --config NONE"),
    ("cluster up", "--data FILE"),
    ("cluster status", "--data NONE"),
    ("cluster down", "--data NONE"),
    ("oracle status", "--config NONE"),
    ("doctor", "--config NONE"),
    ("config view", "--config NONE"),
    ("config reference", ""),
    ("completions", ""),
    ("man", "FILE"),
];

/// The paths of all commands that have no subcommands.
fn leaves(command: &clap::Command, path: &str, found: &mut Vec<String>) {
    let subcommands = command.get_subcommands().filter(|sub| sub.get_name() != "help");
    for sub in subcommands {
        let path = format!("{path} {}", sub.get_name());
        if sub.has_subcommands() {
            leaves(sub, &path, found);
        } else {
            found.push(path.trim().to_owned());
        }
    }
}

/// Asserts that the run printed an error in JSON and nothing else on stdout, and returns the error.
#[track_caller]
fn error(ran: &Ran, what: &str) -> Value {
    let shown = format!("{what}\nstdout: {}\nstderr: {}", ran.stdout, ran.stderr);
    assert_eq!(ran.stdout.lines().count(), 1, "{shown}");
    let found: Value = serde_json::from_str(&ran.stdout).expect(&shown);
    let error = &found["error"];
    assert_eq!(found.as_object().unwrap().len(), 1, "{shown}");
    assert_eq!(error["exit"], ran.status, "{shown}");
    assert!(error["kind"].is_string() && error["help"] != "", "{shown}");
    let message = error["message"].as_str().expect(&shown);
    assert!(!message.is_empty() && !message.contains("error: "), "{shown}");
    assert!(!ran.stderr.contains("error: "), "{shown}");
    error.clone()
}

/// Runs a command where no settings are found.
fn run_in(dir: &Path, words: &[&str]) -> Ran {
    let mut command = program();
    command.env("HOME", dir).env_remove("XDG_CONFIG_HOME");
    command.args(words).current_dir(dir).stdin(Stdio::null()).output().unwrap().into()
}

#[test]
fn every_command_reports_its_failure_in_json() {
    let mut all = Vec::new();
    leaves(&percolator_cli::command(), "", &mut all);
    let dir = tempfile::tempdir().unwrap();
    let (none, file) = (dir.path().join("none"), dir.path().join("file"));
    std::fs::write(&file, "x").unwrap();
    let (none, file) = (none.to_str().unwrap(), file.to_str().unwrap());
    for path in &all {
        let (_, words) = FAILING.iter().find(|(of, _)| of == path).unwrap_or_else(|| {
            panic!("{path}: say in `FAILING` how the command fails");
        });
        let path: Vec<&str> = path.split(' ').collect();
        let run = |words: &[&str]| run_in(dir.path(), &[&path[..], words, &["--json"]].concat());
        let ran = run(&["--no-such-option"]).with(2);
        let usage = error(&ran, &format!("{path:?} --no-such-option"));
        assert_eq!(usage["kind"], "usage");
        // To a search the word is a query, and a store is missing.
        let named = usage["message"].as_str().unwrap().contains("--no-such-option");
        assert!(named || path == ["webindex", "search"], "{usage}");
        if words.is_empty() {
            continue;
        }
        let words: Vec<&str> = words
            .split(' ')
            .map(|word| match word {
                "NONE" => none,
                "FILE" => file,
                word => word,
            })
            .collect();
        let ran = run(&words);
        assert_ne!(ran.status, 0, "{path:?} {words:?}: {}", ran.stdout);
        error(&ran, &format!("{path:?} {words:?}"));
    }
}

#[test]
fn a_script_can_parse_what_was_not_found_and_what_was_refused() {
    let shell = Shell::new();
    shell.run(&["set", "Bob", "bal", "1"]).with(0);
    let missing = error(&shell.run(&["get", "Ann", "--json"]).with(1), "a missing row");
    assert_eq!(missing["kind"], "no");
    assert!(missing["message"].as_str().unwrap().starts_with("no row Ann at timestamp"));
    assert!(missing["help"].as_str().unwrap().contains("percolator scan"));
    let early = error(&shell.run(&["get", "Bob", "--at", "99999999999", "--json"]).with(2), "--at");
    assert!(early["message"].as_str().unwrap().contains("was not issued yet"));
    // A group of commands, and the program itself, without a command.
    for words in [&["locks", "--json"][..], &["--json"]] {
        let incomplete = error(&run(words).with(2), "no command");
        assert!(incomplete["help"].as_str().unwrap().contains("Usage: percolator"), "{incomplete}");
    }
    // Without the option, and for a value that looks like it, the error is text.
    shell.run(&["get", "Ann"]).refused(1, "no row Ann", "percolator scan");
    let ran = run(&["get", "--no-such-option", "--", "--json"]).with(2);
    assert_eq!(ran.stdout, "");
    assert!(ran.stderr.starts_with("error: unexpected argument"), "{}", ran.stderr);
}

#[test]
fn an_answer_in_json_stays_the_only_document() {
    let shell = Shell::new();
    crate::shell::observed(&shell, false);
    let waited = shell.run(&["wait", "--timeout", "0s", "--json"]).with(1);
    assert_eq!(waited.json()["idle"], false);
    assert!(waited.stderr.contains("error: ") && waited.stderr.contains("help: "));
}

/// Runs a command whose standard output is always full.
#[cfg(target_os = "linux")]
fn on_a_full_device(mut command: std::process::Command) -> Ran {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    command.stdin(Stdio::null()).stdout(full).output().unwrap().into()
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_reported_as_that() {
    let shell = Shell::new();
    shell.run(&["set", "Bob", "bal", "1"]).with(0);
    for words in [&["get", "Bob"][..], &["scan", "--json"], &["set", "Bob", "bal", "2", "--json"]] {
        let ran = on_a_full_device(shell.command(words));
        ran.refused(2, "standard output cannot be written: No space left", "output is incomplete");
    }
    for words in [&["--version"][..], &["--help"], &["get", "--help"]] {
        let mut command = program();
        command.args(words);
        on_a_full_device(command).refused(
            2,
            "standard output cannot be written",
            "output is incomplete",
        );
    }
}
