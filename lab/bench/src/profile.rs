//! What one operation takes, whatever else the machine does: instructions and allocations of the
//! arms of Figure 8 and of a document of Figure 7, counted by Valgrind, and what they ask of files,
//! counted by the kernel without it.
//!
//! Each arm is run twice by a process of its own, with so many operations and with twice as many;
//! what the second takes more is what they take. Writing out and merging sorted runs is not in it:
//! too little is written for that.

mod callgrind;

use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::plot::{self, Axis, BarSeries, Bars, Role, Unit};
use crate::report::{Bar, Figure, print_figures};
use crate::system::{Load, io, machine};
use crate::{fig7, fig8};

use callgrind::{Counts, Owner};
use percolator_cli::context::Context;
use percolator_cli::output::{Column, Out, grouped};

const MISSING: &str = "valgrind: it counts the instructions, and is not installed; Debian's package is \
                       `valgrind`, `apt-get install valgrind`";
/// What makes callgrind count, and write it down as it is read.
const CALLGRIND: [&str; 6] = [
    "-q",
    "--tool=callgrind",
    "--dump-instr=no",
    "--compress-strings=yes",
    "--separate-threads=no",
    "--collect-jumps=no",
];

/// How it is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// So many in the first run, and twice as many in the second.
    pub(crate) operations: u64,
    pub(crate) cells: usize,
    pub(crate) seed: u64,
}

/// What one operation takes.
#[derive(Debug)]
struct Taken {
    arm: &'static str,
    counts: Counts,
    asked: Option<Asked>,
}

/// What is asked of files: system calls that read or write, and bytes.
#[derive(Debug, Clone, Copy)]
struct Asked {
    calls: f64,
    written_bytes: f64,
}

/// The result.
#[derive(Debug)]
pub(crate) struct Outcome {
    settings: Settings,
    taken: Vec<Taken>,
    /// Reads that were wrong.
    pub(crate) wrong: u64,
    left_out: Vec<&'static str>,
    load: [Load; 2],
}

/// A document is so many operations: what is put into the engine's write buffers must stay there.
const DOCUMENT: u64 = 10;

/// An arm, what it is compared with, and how many times as many instructions it may take.
const RATIOS: [(&str, &str, Option<Bar>); 17] = [
    ("get", "raw_get", Some(Bar::AtMost(1.15))),
    ("raw_get", "fjall_get", None),
    ("paper_faithful_get", "raw_get", None),
    ("raw_set", "fjall_insert", None),
    ("fjall_packs", "fjall_insert", None),
    ("raw_set", "fjall_packs", None),
    ("raw_set_blind", "fjall_insert", None),
    ("tx", "raw_set", None),
    ("tx", "raw_set_blind", None),
    ("tx_ten", "raw_set", None),
    ("two_mutations", "raw_set", None),
    ("two_phases", "two_mutations", None),
    ("two_phases", "raw_set", None),
    ("two_phases", "raw_set_blind", None),
    ("paper_faithful", "raw_set", None),
    ("paper_faithful", "raw_set_blind", None),
    ("document", "engine_document", None),
];

/// The arms of the plot: writes, from the engine's own to the paper's.
const PLOTTED: [&str; 6] =
    ["fjall_insert", "fjall_packs", "raw_set", "tx", "two_phases", "paper_faithful"];

/// Does an arm's operations, and tells in a line of JSON what of them the process itself can tell.
pub(crate) async fn work(
    arm: &str,
    dir: &Path,
    settings: Settings,
    check: bool,
) -> anyhow::Result<()> {
    let Settings { operations, cells, seed } = settings;
    let (asked, wrong) = if is_document(arm) {
        fig7::alone(arm, dir, cells as u64, operations, seed, check).await?
    } else {
        let wrong = fig8::alone(arm, dir, cells, operations, seed).await?;
        (io(), wrong)
    };
    let asked = asked.map(|io| json!([io.read_calls + io.write_calls, io.written_bytes]));
    let told = json!({ "wrong": wrong, "asked": asked });
    Ok(writeln!(std::io::stdout(), "{told}")?)
}

fn is_document(arm: &str) -> bool {
    fig7::ALONE.contains(&arm)
}

/// Counts; `None` after Ctrl-C.
pub(crate) fn run(
    context: &Context,
    settings: Settings,
    arms: &[&'static str],
) -> anyhow::Result<Option<Outcome>> {
    let before = Load::now();
    let (mut taken, mut wrong, mut left_out) = (Vec::new(), 0, Vec::new());
    if !is_there()? {
        left_out.push(MISSING);
    }
    for arm in arms.iter().copied().filter(|_| left_out.is_empty()) {
        if context.interrupt.requested() {
            return Ok(None);
        }
        context.out.note(&format!("counting what {arm} takes"));
        let Settings { mut operations, mut cells, seed } = settings;
        if is_document(arm) {
            operations /= DOCUMENT;
            cells = operations as usize;
        }
        let of = |operations| one(arm, Settings { operations, cells, seed });
        let (once, more) = (of(operations)?, of(2 * operations)?);
        wrong += once.wrong + more.wrong;
        taken.push(Taken::between(arm, &once, &more, operations as f64));
    }
    Ok(Some(Outcome { settings, taken, wrong, left_out, load: [before, Load::now()] }))
}

fn is_there() -> anyhow::Result<bool> {
    let status = Command::new("valgrind")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match status {
        Ok(status) => Ok(status.success()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).context("starting valgrind"),
    }
}

/// What one process told, and what was counted of it.
struct Counted {
    counts: Counts,
    wrong: u64,
    asked: Option<Asked>,
}

/// Counts an arm's operations: by Valgrind, and again without it. What a process asks of the kernel
/// is not what it asks in there, where threads take turns by means of a pipe.
fn one(arm: &str, settings: Settings) -> anyhow::Result<Counted> {
    let dir = tempfile::Builder::new().prefix("percolator-bench-").tempdir()?;
    let file = dir.path().join("callgrind");
    let program = std::env::current_exe().context("this program's own file")?;
    let mut inside = Command::new("valgrind");
    // What somebody likes by default must not change it.
    inside
        .env_remove("VALGRIND_OPTS")
        .args(CALLGRIND)
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(&program);
    let told = done(inside, arm, settings, false, &dir.path().join("inside"))?;
    let alone = done(Command::new(program), arm, settings, true, &dir.path().join("alone"))?;
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let wrong = |told: &Value| told["wrong"].as_u64().context("how many reads were wrong");
    let wrong = wrong(&told)? + wrong(&alone)?;
    let asked = alone["asked"][0].as_f64().zip(alone["asked"][1].as_f64());
    let asked = asked.map(|(calls, written_bytes)| Asked { calls, written_bytes });
    Ok(Counted { counts: Counts::read(&text)?, wrong, asked })
}

/// Runs an arm's operations in a process of their own, and returns what it tells. To check clusters
/// takes instructions for each document, so where they are counted it is not done.
fn done(
    mut command: Command,
    arm: &str,
    settings: Settings,
    check: bool,
    data: &Path,
) -> anyhow::Result<Value> {
    let output = command
        .args(["--quiet", "profile-work", arm, "--data"])
        .arg(data)
        .args(["--operations", &settings.operations.to_string()])
        .args(["--cells", &settings.cells.to_string(), "--seed", &settings.seed.to_string()])
        .args(check.then_some("--check"))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("starting {command:?}"))?;
    let status = output.status;
    anyhow::ensure!(status.success(), "{arm} ended with {status} while it was counted");
    serde_json::from_slice(&output.stdout).context("what the process told")
}

impl Taken {
    /// What each of so many operations took that the second process did and the first did not.
    fn between(arm: &'static str, once: &Counted, more: &Counted, operations: f64) -> Self {
        let each = |more: f64, once: f64| (more - once) / operations;
        let (a, b) = (&more.counts, &once.counts);
        let counts = Counts {
            instructions: std::array::from_fn(|i| each(a.instructions[i], b.instructions[i])),
            allocations: each(a.allocations, b.allocations),
        };
        let asked = more.asked.zip(once.asked).map(|(more, once)| Asked {
            calls: each(more.calls, once.calls),
            written_bytes: each(more.written_bytes, once.written_bytes),
        });
        Taken { arm, counts, asked }
    }

    fn json(&self) -> Value {
        let Taken { arm, counts, asked } = self;
        let of = |owner: Owner| counts.instructions[owner as usize].round();
        json!({
            "arm": arm,
            "instructions": counts.all_instructions().round(),
            "ours": of(Owner::Ours),
            "engine": of(Owner::Engine),
            "allocator": of(Owner::Allocator),
            "others": of(Owner::Others),
            "allocations": hundredths(counts.allocations),
            "file_calls": asked.map(|asked| hundredths(asked.calls)),
            "written_bytes": asked.map(|asked| asked.written_bytes.round()),
        })
    }

    fn row(&self) -> Vec<String> {
        let whole = |count: f64| grouped(count.max(0.0).round() as u64);
        let mut row = vec![self.arm.to_owned(), whole(self.counts.all_instructions())];
        row.extend(self.counts.instructions.map(whole));
        let hundredths = |count: f64| format!("{:.2}", hundredths(count));
        row.push(hundredths(self.counts.allocations));
        row.push(self.asked.map_or(String::new(), |asked| hundredths(asked.calls)));
        row.push(self.asked.map_or(String::new(), |asked| whole(asked.written_bytes)));
        row
    }
}

fn hundredths(count: f64) -> f64 {
    // Without a sign where it is nothing.
    (count * 100.0).round() / 100.0 + 0.0
}

impl Outcome {
    fn figures(&self) -> Vec<Figure> {
        let of = |name: &str| {
            let taken = self.taken.iter().find(|taken| taken.arm == name)?;
            Some(taken.counts.all_instructions())
        };
        let figure = |(above, below, bar): &(&str, &str, Option<Bar>)| {
            let ratio = of(above)? / of(below)?;
            let figure = Figure::alone(format!("{above} / {below} instructions"), Some(ratio));
            Some(match bar {
                Some(bar) => figure.bar(*bar),
                None => figure,
            })
        };
        RATIOS.iter().filter_map(figure).collect()
    }

    /// The figures in JSON.
    pub(crate) fn json(&self) -> Value {
        let Settings { operations, cells, seed } = self.settings;
        json!({
            "benchmark": "profile",
            "version": env!("CARGO_PKG_VERSION"),
            "optimised": !cfg!(debug_assertions),
            "settings": { "operations": operations, "cells": cells, "seed": seed },
            "machine": machine(self.load),
            "note": "What one operation of the arms of `fig8` takes, and one document of `fig7`, of a tenth as many in a \
                     repository that began with as many; writing out and merging is not in it. The \
                     instructions are parted by whose function they are in: this project's, the engine's, the \
                     allocator's, or that of the libraries and the benchmark, which draws a cell and a value. File calls \
                     are system calls that read or write.",
            "profile": self.taken.iter().map(Taken::json).collect::<Vec<_>>(),
            "figures": self.figures().iter().map(Figure::json).collect::<Vec<_>>(),
            "left_out": self.left_out,
            "check": { "wrong": self.wrong },
            "check_ok": self.wrong == 0,
        })
    }

    /// Whose instructions a write takes; `None` if none was counted.
    pub(crate) fn plot(&self) -> Option<String> {
        let plotted = |arm: &&&str| self.taken.iter().any(|taken| taken.arm == **arm);
        let arms: Vec<&str> = PLOTTED.iter().filter(plotted).copied().collect();
        let series = |name: &str, role, owner: Owner| {
            let of = |arm: &&str| {
                let taken = self.taken.iter().find(|taken| taken.arm == *arm)?;
                Some(plot::Bar::of(taken.counts.instructions[owner as usize]))
            };
            BarSeries { name: name.into(), role, values: arms.iter().map(of).collect() }
        };
        let bars = Bars {
            title: "Whose instructions a write of one cell takes".into(),
            subtitle: "In memory; without writing out and merging sorted runs.".into(),
            y: Axis::linear("instructions", Unit::Plain),
            groups: arms.iter().map(ToString::to_string).collect(),
            series: vec![
                series("this project's", Role::Ours(0), Owner::Ours),
                series("the engine's", Role::Peer(0), Owner::Engine),
                series("the allocator's", Role::Peer(1), Owner::Allocator),
                series("libraries and the benchmark", Role::Peer(2), Owner::Others),
            ],
            references: Vec::new(),
        };
        (!arms.is_empty()).then(|| bars.svg())
    }

    /// Prints the figures.
    pub(crate) fn print(&self, out: Out) -> std::io::Result<()> {
        let Settings { operations, cells, .. } = self.settings;
        for missing in &self.left_out {
            out.line(&format!("left out: {missing}"))?;
        }
        if self.taken.is_empty() {
            return Ok(());
        }
        let [operations, cells] = [operations, cells as u64].map(grouped);
        out.line(&format!(
            "what one operation takes, of {operations} on {cells} cells; writing out and merging is not in it"
        ))?;
        if self.taken.iter().any(|taken| is_document(taken.arm)) {
            out.line(
                "and one document, of a tenth as many in a repository that began with as many",
            )?;
        }
        out.line("")?;
        let mut header = vec![Column::left("arm")];
        let of = ["instructions", "ours", "engine's", "allocator's", "others'"];
        header.extend(of.map(Column::right));
        header.extend(["allocations", "file calls", "written bytes"].map(Column::right));
        out.table(&header, self.taken.iter().map(Taken::row).collect())?;
        out.line("")?;
        print_figures(out, &self.figures())?;
        out.line(&format!("\nchecked: {} reads or clusters wrong", self.wrong))
    }
}

fn all() -> impl Iterator<Item = &'static str> {
    fig8::ALONE.into_iter().chain(fig7::ALONE)
}

/// The arms that can be counted, all of them or those that are named.
///
/// # Errors
/// The first name that is none.
pub(crate) fn arms(named: &[String]) -> Result<Vec<&'static str>, String> {
    if named.is_empty() {
        return Ok(all().collect());
    }
    let known = |name: &String| all().find(|known| known == name).ok_or(name.clone());
    named.iter().map(known).collect()
}

/// The names of all arms, for a message.
pub(crate) fn known() -> String {
    all().collect::<Vec<_>>().join(", ")
}
