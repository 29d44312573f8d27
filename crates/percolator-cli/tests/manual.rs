//! Tests the manual pages, and the completions of shells.

#![allow(clippy::unwrap_used, reason = "tests and their helpers")]

#[allow(dead_code, reason = "some of it is for other tests")]
mod shell;

use std::collections::BTreeSet;
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn percolator(words: &[&str]) -> String {
    shell::run(words).with(0).stdout
}

/// Runs a program with this text as its input; `None` if it is not installed.
fn run(program: &str, args: &[&str], input: &str) -> Option<Output> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => panic!("{program}: {error}"),
    };
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    Some(child.wait_with_output().unwrap())
}

fn skipped(what: &str) {
    // The test harness captures the output of print macros, so this line goes to stderr directly.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}

/// Returns the names of a command's page and of those of its subcommands.
fn pages(command: &clap::Command, name: &str, pages: &mut BTreeSet<String>) {
    pages.insert(format!("{name}.1"));
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        self::pages(sub, &format!("{name}-{}", sub.get_name()), pages);
    }
}

fn files(dir: &Path) -> BTreeSet<String> {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

#[test]
fn each_command_has_a_manual_page_that_groff_takes() {
    let dir = tempfile::tempdir().unwrap();
    let man = dir.path().join("new/man1");
    percolator(&["man", man.to_str().unwrap()]);
    let mut expected = BTreeSet::new();
    pages(&percolator_cli::command(), "percolator", &mut expected);
    assert!(expected.contains("percolator-webindex-load.1") && expected.len() > 40);
    assert_eq!(files(&man), expected);

    let read = |name: &str| std::fs::read_to_string(man.join(name)).unwrap();
    for name in &expected {
        let page = read(name);
        for section in [".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", "Example"] {
            assert!(page.contains(section), "{name} has no {section}");
        }
    }
    assert_eq!(percolator(&["man"]).trim_end(), read("percolator.1").trim_end());
    for name in &expected {
        let page = read(name);
        let Some(output) = run("groff", &["-Kutf8", "-man", "-Tutf8", "-ww", "-z"], &page) else {
            return skipped("groff is not installed (Debian: apt-get install groff-base)");
        };
        assert!(output.status.success() && output.stderr.is_empty(), "{name}: {output:?}");
    }
    let broken =
        run("groff", &["-Kutf8", "-man", "-Tutf8", "-ww", "-z"], ".TH a 1\n.nonsense\n").unwrap();
    assert!(!broken.stderr.is_empty(), "groff warns of what it does not know");
}

/// A script that completes `percolator` and these words, and prints what there is to choose.
fn bash_script(completions: &str, words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let last = words.len();
    format!(
        "{completions}\ncomplete -p percolator >/dev/null || exit 1\n\
         COMP_WORDS=(percolator {})\nCOMP_CWORD={last}\n\
         _percolator percolator \"${{COMP_WORDS[{last}]}}\" \"${{COMP_WORDS[{last}-1]}}\"\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        quoted.join(" ")
    )
}

#[test]
fn bash_completes_commands_options_and_values() {
    let completions = percolator(&["completions", "bash"]);
    let Some(checked) = run("bash", &["-n"], &completions) else {
        return skipped("bash is not installed");
    };
    assert!(checked.status.success() && checked.stderr.is_empty(), "{checked:?}");
    let complete = |words: &[&str]| -> Vec<String> {
        let script = bash_script(&completions, words);
        let output = run("bash", &["--norc", "--noprofile", "-s"], &script).unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    };
    assert_eq!(complete(&["webi"]), ["webindex"]);
    assert_eq!(complete(&["serve", "o"]), ["oracle"]);
    assert_eq!(complete(&["serve", "oracle", "--adv"]), ["--advertise"]);
    assert_eq!(complete(&["worker", "--app", ""]), ["webindex"]);
    assert_eq!(complete(&["completions", "z"]), ["zsh"]);
    assert_eq!(complete(&["nonsense-at-the-end"]), [""]);
}

#[test]
fn zsh_and_fish_take_their_completions() {
    for (shell, check) in [("zsh", "-n"), ("fish", "--no-execute")] {
        let completions = percolator(&["completions", shell]);
        assert!(completions.contains("webindex") && completions.contains("advertise"), "{shell}");
        match run(shell, &[check], &completions) {
            Some(output) => {
                assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
            }
            None => skipped(&format!("{shell} is not installed (Debian: apt-get install {shell})")),
        }
    }
}
