//! Writes the document about all experiments from the benchmarks' results, and from nothing
//! else.
//!
//! Each benchmark leaves NAME.json, and NAME.svg if it has a plot. `percolator-bench all`
//! leaves NAME.run, with the benchmark's arguments and its end. No figure is written by hand,
//! so none can be out of date.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

use crate::check::{Checked, HEADINGS};
use crate::report::{left_out, number};
use crate::tables::{self, FIGURES, figure_row, plain};

/// The results in a directory.
#[derive(Debug)]
pub(crate) struct Found {
    benchmarks: Vec<Benchmark>,
}

#[derive(Debug)]
struct Benchmark {
    name: String,
    told: Value,
    /// The record of the run, if `percolator-bench all` started it.
    run: Option<Value>,
    plots: Vec<PathBuf>,
}

impl Found {
    pub(crate) fn read(dir: &Path) -> anyhow::Result<Self> {
        let mut files = files(dir)?;
        files.sort_unstable();
        let is = |path: &Path, kind: &str| path.extension().is_some_and(|found| found == kind);
        let mut benchmarks = Vec::new();
        for path in files.iter().filter(|path| is(path, "json")) {
            let (name, told) = (stem(path), read(path)?);
            // Other files, such as check.json, belong to no benchmark.
            if !told["figures"].is_array() {
                continue;
            }
            let run = path.with_extension("run");
            let run = run.exists().then(|| read(&run)).transpose()?;
            let own = |path: &&PathBuf| is_of(&name, path) && is(path, "svg");
            let plots = files.iter().filter(own).cloned().collect();
            benchmarks.push(Benchmark { name, told, run, plots });
        }
        // The paper's figures come first, in the paper's order.
        benchmarks.sort_by_key(|benchmark| {
            let figure = benchmark.name.strip_prefix("fig").and_then(|n| n.parse::<u32>().ok());
            (figure.unwrap_or(u32::MAX), benchmark.name.clone())
        });
        Ok(Found { benchmarks })
    }

    pub(crate) fn plots(&self) -> impl Iterator<Item = &Path> {
        self.benchmarks.iter().flat_map(|benchmark| &benchmark.plots).map(PathBuf::as_path)
    }
}

impl Benchmark {
    fn figures(&self) -> &[Value] {
        self.told["figures"].as_array().map_or(&[][..], Vec::as_slice)
    }
}

fn files(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    std::fs::read_dir(dir)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .with_context(|| dir.display().to_string())
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// True if a file belongs to a benchmark: fig7.svg and fig7-rate.svg belong to fig7.
fn is_of(benchmark: &str, file: &Path) -> bool {
    let kind = file.extension().unwrap_or_default();
    let rest_is = |rest: &str| rest.is_empty() || (rest.starts_with('-') && kind == "svg");
    stem(file).strip_prefix(benchmark).is_some_and(rest_is)
}

pub(crate) fn files_of(benchmark: &str, dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = files(dir)?;
    files.retain(|file| {
        let kind = file.extension().unwrap_or_default();
        is_of(benchmark, file) && ["json", "txt", "svg", "run"].iter().any(|known| kind == *known)
    });
    Ok(files)
}

fn read(path: &Path) -> anyhow::Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// Writes the document in Markdown. `plots` is the prefix of the plots' file names.
pub(crate) fn document(found: &Found, checked: &[Checked], plots: &str) -> String {
    let mut text = String::from(
        "# Experiments\n\nMade by `percolator-bench all`, which runs every benchmark but `webindex` \
         and writes this page from what they found; no figure here is written by hand. A figure with \
         an interval is the \
         median over the rounds of a run, of what is taken within each round, with its 95 % interval; one \
         without was measured once. \"Each CPU-s\" is a second of processor time, of all processes.\n\n",
    );
    machine(&mut text, found);
    goals(&mut text, found, checked);
    further(&mut text, found, checked);
    paper(&mut text, found, checked);
    for benchmark in &found.benchmarks {
        section(&mut text, benchmark, plots);
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn line(text: &mut String, line: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{line}");
}

fn row(text: &mut String, cells: &[String]) {
    let escaped: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    line(text, &format!("| {} |", escaped.join(" | ")));
}

fn table(text: &mut String, header: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    row(text, &header.iter().map(ToString::to_string).collect::<Vec<_>>());
    let rule = |at: usize| if at == 0 || at + 1 == header.len() { "---" } else { "--:" };
    row(text, &(0..header.len()).map(|at| rule(at).to_owned()).collect::<Vec<_>>());
    rows.for_each(|cells| row(text, &cells));
    line(text, "");
}

fn machine(text: &mut String, found: &Found) {
    line(text, "## Machine\n");
    // The most detailed description of the machine; all benchmarks ran on the same one.
    let machines = || found.benchmarks.iter().map(|benchmark| &benchmark.told["machine"]);
    let first =
        |name: &str| machines().map(|machine| &machine[name]).find(|value| !value.is_null());
    let word = |name: &str| first(name).map_or("unknown".to_owned(), plain);
    let memory = first("memory_bytes").and_then(Value::as_f64);
    let memory =
        memory.map_or("unknown".to_owned(), |bytes| format!("{:.1} GiB", bytes / 1_073_741_824.0));
    let version =
        found.benchmarks.first().map_or("unknown".to_owned(), |b| plain(&b.told["version"]));
    line(
        text,
        &format!(
            "{} processors ({}), {memory} of memory, {} on {}; percolator {version}.\n",
            word("cpus"),
            word("processor"),
            word("os"),
            word("arch"),
        ),
    );
    line(
        text,
        "Load is how many processes wanted to run, on average over a minute, before and after; pressure the \
         share of ten seconds in which one waited for a processor, in percent.\n",
    );
    line(
        text,
        "| benchmark | command | seconds | load | pressure | ended with |\n|---|---|--:|--:|--:|---|",
    );
    for Benchmark { name, told, run, .. } in &found.benchmarks {
        let run = run.as_ref();
        let command =
            run.map_or("by itself".to_owned(), |run| format!("`{}`", plain(&run["command"])));
        let took = run.and_then(|run| run["took_s"].as_f64());
        let took = took.map_or(String::new(), |seconds| format!("{seconds:.0}"));
        let status = match run.map(|run| &run["exit_status"]) {
            Some(Value::Number(status)) => format!("exit status {status}"),
            Some(_) => "a signal".to_owned(),
            None => String::new(),
        };
        let build = if told["optimised"] == true { "" } else { " (NOT OPTIMISED)" };
        let [load, pressure] = ["load_1m", "cpu_pressure_10s"].map(|what| {
            let at = |when: &str| told["machine"][when][what].as_f64().map(number);
            at("before").zip(at("after")).map_or(String::new(), |(b, a)| format!("{b}, {a}"))
        });
        row(text, &[name.clone(), command, took, load, pressure, format!("{status}{build}")]);
    }
    line(text, "");
}

fn goals(text: &mut String, found: &Found, checked: &[Checked]) {
    line(text, "## Goals\n");
    table(text, &HEADINGS, checked.iter().map(|checked| checked.cells().to_vec()));
    for (heading, verdicts) in
        [("Won", ["reached"].as_slice()), ("Lost", &["missed", "unclear", "not measured"])]
    {
        let of = |checked: &&Checked| verdicts.contains(&checked.verdict());
        let rows: Vec<&Checked> = checked.iter().filter(of).collect();
        line(text, &format!("**{heading}**: {} of {} goals.", rows.len(), checked.len()));
        if heading == "Lost" && found.benchmarks.iter().any(|benchmark| benchmark.name == "profile")
        {
            let what =
                "The instructions of an operation, and the engine's share of them, stand under";
            line(text, &format!("{what} [profile](#profile)."));
        }
        for checked in rows {
            let [what, bar, median, ..] = checked.cells();
            let told = match (checked.verdict(), checked.complaint()) {
                ("not measured", Some(complaint)) => complaint,
                (verdict, _) => {
                    let limit = checked.limit().filter(|_| verdict != "reached");
                    let limit = limit.map(|limit| format!("; {limit}")).unwrap_or_default();
                    format!("{what}: {median}, bar {bar}, {verdict}{limit}")
                }
            };
            line(text, &format!("* {told}"));
        }
        line(text, "");
    }
}

/// Lists the figures that miss a bar of their own benchmark.
fn further(text: &mut String, found: &Found, checked: &[Checked]) {
    let mut begun = false;
    for benchmark in &found.benchmarks {
        let name = &benchmark.name;
        for found in benchmark.figures() {
            let [what, median, interval, _, bar, _, verdict] = figure_row(found);
            let known = checked.iter().any(|row| row.is_of(name, &what));
            if known || verdict == "reached" || verdict.is_empty() {
                continue;
            }
            if !std::mem::replace(&mut begun, true) {
                line(text, "**Further bars**, of the benchmarks' own, that are not reached:");
            }
            let interval = if interval.is_empty() { interval } else { format!(" ({interval})") };
            line(text, &format!("* {name}, {what}: {median}{interval}, bar {bar}, {verdict}"));
        }
    }
    if begun {
        line(text, "");
    }
}

fn paper(text: &mut String, found: &Found, checked: &[Checked]) {
    let rows = found.benchmarks.iter().flat_map(|benchmark| {
        let name = &benchmark.name;
        benchmark.figures().iter().filter_map(move |figure| {
            let (median, paper) = (figure["median"].as_f64()?, figure["paper"].as_f64()?);
            let is_better =
                if figure["at_most"] == true { median <= paper } else { median >= paper };
            let told_name = plain(&figure["name"]);
            let cells = [told_name.clone(), number(median), number(paper)].map(code);
            let [figure, ours, paper] = cells;
            let held_to = |row: &&Checked| row.is_of(name, &told_name);
            let counts = checked.iter().find(held_to).is_none_or(Checked::is_measured);
            let verdict = match (counts, is_better) {
                (false, _) => "does not count at this size",
                (true, true) => "won",
                (true, false) => "lost",
            };
            Some(vec![name.clone(), figure, ours, paper, verdict.to_owned()])
        })
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return;
    }
    line(text, "## Beside the paper\n");
    line(
        text,
        "The paper's own figures, from its machines of 2010: ratios of things on the same machine, and a few \
         figures that are none.\n",
    );
    table(text, &["benchmark", "figure", "here", "paper", ""], rows.into_iter());
}

/// Marks up a cell as code, unless it is a number.
fn code(cell: String) -> String {
    if cell.starts_with(|c: char| c.is_ascii_digit()) { cell } else { format!("`{cell}`") }
}

fn section(text: &mut String, benchmark: &Benchmark, plots: &str) {
    let Benchmark { name, told, plots: files, .. } = benchmark;
    line(text, &format!("## {name}\n"));
    for file in files {
        let file = file.file_name().unwrap_or_default().to_string_lossy();
        line(text, &format!("![{name}]({plots}{file})\n"));
    }
    if let Some(note) = told["note"].as_str() {
        line(text, &format!("{note}\n"));
    }
    if told["check_ok"] != true {
        line(text, "**Void**: its check failed, and no figure of it counts.\n");
    }
    line(text, &format!("Settings: {}.\n", tables::settings(told)));
    let rows = benchmark.figures().iter().filter(|figure| figure["median"].is_number());
    table(text, &FIGURES, rows.map(|figure| figure_row(figure).into()));
    for tables::Table { about, header, rows } in tables::of(told) {
        line(text, &format!("{about}\n"));
        table(text, &header, rows.into_iter());
    }
    for what in left_out(told) {
        line(text, &format!("Left out: {what}\n"));
    }
    if !told["check"].is_null() {
        line(text, &format!("Checked: `{}`.\n", told["check"]));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::check;

    use super::*;

    #[test]
    fn the_document_says_what_the_files_say() {
        let dir = tempfile::tempdir().unwrap();
        let told = json!({
            "benchmark": "fig8", "version": "1", "optimised": true, "check_ok": true,
            "settings": { "cells": 100_000, "data": "/tmp/x" },
            "machine": { "cpus": 2, "processor": "P", "memory_bytes": 8_589_934_592_u64, "os": "linux", "arch": "a",
                         "before": { "load_1m": 0.5 }, "after": { "load_1m": 2.0 } },
            "figures": [
                { "name": "get/raw_get", "median": 0.95, "low": 0.9, "high": 0.97, "bar": 0.9, "at_most": false,
                  "median_per_cpu": 0.96, "paper": 0.94, "verdict": "reached" },
                { "name": "tx_9/raw_9", "median": 0.3, "bar": 0.45, "at_most": false, "verdict": "missed" },
                { "name": "left out", "median": null },
            ],
            "arms": [{ "name": "get", "ops_per_s": 2000.0, "operation": "a get" }],
            "left_out": ["postgres: install it"],
        });
        let write = |name: &str, text: String| std::fs::write(dir.path().join(name), text).unwrap();
        write("fig8.json", told.to_string());
        write("fig8.svg", "<svg/>".to_owned());
        write("fig8-more.svg", "<svg/>".to_owned());
        write("fig8-more.txt", "somebody's own".to_owned());
        write("fig10.json", told.to_string());
        write("profile.json", told.to_string());
        write("check.json", json!({ "ok": true }).to_string());
        let command = "percolator-bench fig8 --out DIR";
        let run = json!({ "command": command, "exit_status": 0, "took_s": 3.2 });
        write("fig8.run", run.to_string());
        let found = Found::read(dir.path()).unwrap();
        assert_eq!(found.plots().count(), 2);
        let mut files = files_of("fig8", dir.path()).unwrap();
        files.sort_unstable();
        let names: Vec<_> = files.iter().filter_map(|file| file.file_name()?.to_str()).collect();
        assert_eq!(names, ["fig8-more.svg", "fig8.json", "fig8.run", "fig8.svg"]);
        let text = document(&found, &check::all(dir.path()), "experiments/");
        for part in [
            "2 processors (P), 8.0 GiB of memory",
            "| fig8 | `percolator-bench fig8 --out DIR` | 3 | 0.5, 2 |  | exit status 0 |",
            "![fig8](experiments/fig8.svg)",
            "| get/raw_get | 0.95 | 0.9 to 0.97 | 0.96 | >= 0.9 | 0.94 | reached |",
            "| get | 2,000 |  |  |  | a get |",
            "and the engine's share of them, stand under [profile](#profile).",
            "* fig8, tx_9/raw_9: 0.3, bar >= 0.45, missed",
            "| fig8 | `get/raw_get` | 0.95 | 0.94 | won |",
            "* snapshot get / raw get, embedded: 0.95, bar >= 0.9, reached",
            "Left out: postgres: install it",
            "not measured: notify.json:",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        assert!(!text.contains("/tmp/x") && !text.contains("check.json"));
        assert!(text.find("## fig8").unwrap() < text.find("## fig10").unwrap());
    }
}
