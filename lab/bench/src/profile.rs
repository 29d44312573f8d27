//! Measures the cost of one operation independently of other load on the machine. Its arms are
//! those of Figure 8, a document of Figure 7, a write of an observed cell, and an observer's run.
//! Valgrind counts their instructions and allocations. The kernel counts their file operations,
//! in a run without Valgrind.
//!
//! Each arm runs with N operations and again with 2 N, under Valgrind and without it. Each of
//! the four runs is a new process on new data. The difference between 2 N and N is the cost of N
//! operations. The cost does not include writing out and merging sorted runs: too little is
//! written for that.

mod callgrind;
mod gate;
mod observed;

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::Failure;
use serde_json::{Value, json};

use crate::fig8::TEN;
use crate::flags::{Common, within};
use crate::plot::{Axis, Plot, Role, Unit};
use crate::processes::own_program;
use crate::report::{Bar, Figure, Report};
use crate::statistics::Estimate;
use crate::system::io;
use crate::turns::go_on;
use crate::{fig7, fig8};

use callgrind::{Counts, Owner};
use gate::Gate;

const MISSING: &str = "valgrind: it counts the instructions, and is not installed; Debian's package is \
                       `valgrind`, `apt-get install valgrind`";
/// The options with which callgrind counts, and writes the format that this program reads.
const CALLGRIND: [&str; 6] = [
    "-q",
    "--tool=callgrind",
    "--dump-instr=no",
    "--compress-strings=yes",
    "--separate-threads=no",
    "--collect-jumps=no",
];

const NOTE: &str = "The cost of one operation of the arms of `fig8`, and of one document of `fig7`, of a tenth as many in a \
     repository that began with as many; writing out and merging is not in it. `observed_set` writes a cell that \
     an observer without a worker observes. `run` is one strong observer's run alone: it reads the changed cell, \
     and writes another cell of the row. For `document` and `run` one worker without periodic passes handles one \
     change at a time, on the thread of the writer. The instructions are \
     parted by whose function they are in: this project's, the engine's, the allocator's, or that of \
     the libraries and the benchmark, which draws a cell and a value. File calls are system calls that \
     read or write.";

/// Most cells, and fewest writes of each before anything counts. Its versions are then laid out
/// as in the long run.
const CELLS_MAX: u64 = 1_000;
const WRITTEN_BEFORE: u64 = 5;

/// The instructions, allocations and file calls of one operation.
///
/// The operations are those of `percolator-bench fig8`, a document of `percolator-bench fig7`, a
/// write of an observed cell, and a run of an observer.
///
/// Valgrind and the kernel count them, so other load of the machine does not change the
/// figures. Each arm is a process that does nothing else, once with N operations and once with
/// twice as many.
///
/// If a cell is not as it was written, or a document is misplaced, the figures are void and
/// the exit status is 3.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-bench profile --quick --out results
  percolator-bench profile --arm raw_set --arm fjall_insert
  percolator-bench profile --gate")]
pub(crate) struct Profile {
    #[command(flatten)]
    pub(crate) common: Common,
    /// The number of counted operations [default: 20000, quick: 5000].
    #[arg(long, value_name = "N")]
    operations: Option<u64>,
    /// Count this arm alone; may be repeated.
    #[arg(long, value_name = "NAME")]
    arm: Vec<String>,
    /// Count a few arms with a fixed number of operations. The exit status is 3 if one takes
    /// more than 2 % more instructions than the source says.
    #[arg(long, conflicts_with_all = ["arm", "operations"])]
    gate: bool,
}

/// Do the operations of one arm, in a process that does nothing else.
#[derive(Debug, Args)]
pub(crate) struct ProfileWork {
    arm: String,
    #[arg(long)]
    operations: u64,
    #[arg(long)]
    cells: usize,
    #[arg(long)]
    seed: u64,
    /// A directory that does not exist yet.
    #[arg(long)]
    data: PathBuf,
    /// Compare the clusters with the rule at the end.
    #[arg(long)]
    check: bool,
}

impl ProfileWork {
    /// Does the operations. Prints a line of JSON with the counts that the process knows about
    /// itself.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let ProfileWork { arm, data, operations, cells, seed, check } = self;
        let (asked, wrong) = if is_document(arm) {
            fig7::alone(arm, data, *cells as u64, *operations, *seed, *check).await?
        } else if observed::ALONE.contains(&&**arm) {
            let wrong = observed::alone(arm, data, *cells, *operations, *seed).await?;
            (io(), wrong)
        } else {
            let wrong = fig8::alone(arm, data, *cells, *operations, *seed).await?;
            (io(), wrong)
        };
        let asked = asked.map(|io| json!([io.read_calls + io.write_calls, io.written_bytes]));
        let told = json!({ "wrong": wrong, "asked": asked });
        Ok(writeln!(std::io::stdout(), "{told}")?)
    }
}

#[derive(Debug, Clone, Copy)]
struct Settings {
    /// Operations in the first run. The second run does twice as many.
    operations: u64,
    cells: usize,
    seed: u64,
}

#[derive(Debug)]
struct Taken {
    arm: &'static str,
    counts: Counts,
    asked: Option<Asked>,
}

/// File operations: system calls that read or write, and written bytes.
type Asked = [f64; 2];

#[derive(Debug)]
struct Outcome {
    settings: Settings,
    taken: Vec<Taken>,
    wrong: u64,
    left_out: Vec<&'static str>,
}

/// Operations that a document stands for: its writes must stay in the engine's write buffers.
const DOCUMENT: u64 = 10;

/// An arm, the arm to compare with, and the largest ratio of their instructions.
const RATIOS: [(&str, &str, Option<Bar>); 21] = [
    ("get", "raw_get", Some(Bar::AtMost(1.15))),
    ("get_recorded", "get", None),
    ("raw_get", "fjall_get", None),
    ("paper_faithful_get", "raw_get", None),
    ("raw_set", "fjall_insert", None),
    ("fjall_packs", "fjall_insert", None),
    ("raw_set", "fjall_packs", None),
    ("raw_set_blind", "fjall_insert", None),
    ("tx", "raw_set", None),
    ("tx", "raw_set_blind", None),
    ("tx_recorded", "tx", None),
    ("tx_ten", "raw_set", None),
    ("two_mutations", "raw_set", None),
    ("two_phases", "two_mutations", None),
    ("two_phases", "raw_set", None),
    ("two_phases", "raw_set_blind", None),
    ("paper_faithful", "raw_set", None),
    ("paper_faithful", "raw_set_blind", None),
    ("observed_set", "tx", None),
    ("run", "tx", None),
    ("document", "engine_document", None),
];

/// The arms of the plot: writes, from the engine's own to the paper's.
const PLOTTED: [&str; 6] =
    ["fjall_insert", "fjall_packs", "raw_set", "tx", "two_phases", "paper_faithful"];

fn is_document(arm: &str) -> bool {
    fig7::ALONE.contains(&arm)
}

fn run(context: &Context, settings: Settings, arms: &[&'static str]) -> anyhow::Result<Outcome> {
    let (mut taken, mut wrong, mut left_out) = (Vec::new(), 0, Vec::new());
    if !is_there()? {
        left_out.push(MISSING);
    }
    for arm in arms.iter().copied().filter(|_| left_out.is_empty()) {
        go_on(context)?;
        context.out.note(&format!("counting what {arm} takes"));
        let Settings { mut operations, mut cells, seed } = settings;
        if is_document(arm) {
            operations /= DOCUMENT;
            cells = operations as usize;
        } else if arm == observed::RUN {
            cells = 2 * operations as usize;
        }
        let of = |operations| one(arm, Settings { operations, cells, seed });
        let (once, more) = (of(operations)?, of(2 * operations)?);
        wrong += once.wrong + more.wrong;
        taken.push(Taken::between(arm, &once, &more, operations as f64));
    }
    Ok(Outcome { settings, taken, wrong, left_out })
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

/// One process's own report, and the counts about it.
struct Counted {
    counts: Counts,
    wrong: u64,
    asked: Option<Asked>,
}

/// Counts an arm's operations under Valgrind, and again without it. System calls are counted
/// without: under Valgrind threads take turns through a pipe, which adds calls.
fn one(arm: &str, settings: Settings) -> anyhow::Result<Counted> {
    let dir = tempfile::Builder::new().prefix("percolator-bench-").tempdir()?;
    let file = dir.path().join("callgrind");
    let program = own_program()?;
    let mut inside = Command::new("valgrind");
    // A user's default options must not change the counts.
    inside
        .env_remove("VALGRIND_OPTS")
        .args(CALLGRIND)
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program.get_program());
    let told = done(inside, arm, settings, false, &dir.path().join("inside"))?;
    let alone = done(program, arm, settings, true, &dir.path().join("alone"))?;
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let wrong = |told: &Value| {
        told["wrong"].as_u64().context("the process did not report the number of wrong reads")
    };
    let wrong = wrong(&told)? + wrong(&alone)?;
    let asked = alone["asked"][0].as_f64().zip(alone["asked"][1].as_f64()).map(Into::into);
    Ok(Counted { counts: Counts::read(&text)?, wrong, asked })
}

/// Runs an arm's operations in a process of their own, and returns its report. Checking
/// clusters takes instructions for each document, so the counted run does not check them.
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
    serde_json::from_slice(&output.stdout).context("reading the process's report")
}

impl Taken {
    /// The cost of each operation that the second process did and the first did not.
    fn between(arm: &'static str, once: &Counted, more: &Counted, operations: f64) -> Self {
        let each = |more: f64, once: f64| (more - once) / operations;
        let (a, b) = (&more.counts, &once.counts);
        let counts = Counts {
            instructions: std::array::from_fn(|i| each(a.instructions[i], b.instructions[i])),
            allocations: each(a.allocations, b.allocations),
        };
        let asked = more.asked.zip(once.asked);
        let asked = asked.map(|(more, once)| [0, 1].map(|i| each(more[i], once[i])));
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
            "file_calls": asked.map(|[calls, _]| hundredths(calls)),
            "written_bytes": asked.map(|[_, bytes]| bytes.round()),
        })
    }
}

fn hundredths(count: f64) -> f64 {
    // Adding zero removes the sign of a negative zero.
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
            let figure = Figure::alone(format!("{above}/{below} instructions"), Some(ratio));
            Some(figure.bar(*bar))
        };
        RATIOS.iter().filter_map(figure).collect()
    }

    fn report(&self) -> Report {
        let Settings { operations, cells, seed } = self.settings;
        let about = json!({ "operations": operations, "cells": cells, "seed": seed });
        let why = format!("{} cells or clusters were not as they should be", self.wrong);
        let report = Report::new("profile", about, self.figures())
            .with("note", json!(NOTE))
            .with("profile", self.taken.iter().map(Taken::json).collect())
            .with("left_out", json!(self.left_out))
            .check_counts(json!({ "wrong": self.wrong }), self.wrong == 0, &why);
        match self.plot() {
            Some(svg) => report.plot("profile.svg", svg),
            None => report,
        }
    }

    /// Plots the instructions of a write by owner; `None` if none was counted.
    fn plot(&self) -> Option<String> {
        let counts = |arm: &&str| self.taken.iter().find(|taken| taken.arm == *arm);
        let arms: Vec<&Taken> = PLOTTED.iter().filter_map(counts).collect();
        let of = |owner: Owner| {
            arms.iter()
                .map(move |arm| Some(Estimate::alone(arm.counts.instructions[owner as usize])))
        };
        let y = Axis::linear("instructions", Unit::Plain);
        let title = "Whose instructions a write of one cell takes";
        let subtitle = "In memory; without writing out and merging sorted runs.";
        let plot = Plot::groups(arms.iter().map(|taken| taken.arm), y, title, subtitle)
            .bars("this project's", Role::Ours(0), of(Owner::Ours))
            .bars("the engine's", Role::Peer(0), of(Owner::Engine))
            .bars("the allocator's", Role::Peer(1), of(Owner::Allocator))
            .bars("libraries and the benchmark", Role::Peer(2), of(Owner::Others));
        (!arms.is_empty()).then(|| plot.svg())
    }
}

fn all() -> impl Iterator<Item = &'static str> {
    fig8::alone_names().chain(observed::ALONE).chain(fig7::ALONE)
}

impl Profile {
    pub(crate) async fn measure(&self, context: &Context) -> anyhow::Result<Report> {
        let sized = if self.gate { gate::OPERATIONS } else { self.common.sized(5_000, 20_000) };
        let operations = self.operations.unwrap_or(sized);
        // So few that nothing is written out meanwhile.
        within("operations", operations, 100..=50_000)?;
        if !operations.is_multiple_of(TEN as u64) {
            let what = format!("--operations {operations}");
            return Err(Failure::usage(what, format!("give a multiple of {TEN}")));
        }
        let known = |name: &String| {
            all().find(|known| known == name).ok_or_else(|| {
                let help = format!("choose from {}", all().collect::<Vec<_>>().join(", "));
                Failure::usage(format!("--arm {name}: no such arm"), help)
            })
        };
        let mut arms = self.arm.iter().map(known).collect::<anyhow::Result<Vec<_>>>()?;
        if self.gate {
            arms.extend(gate::arms());
        } else if arms.is_empty() {
            arms.extend(all());
        }
        let cells = (operations / WRITTEN_BEFORE).min(CELLS_MAX) as usize;
        let settings = Settings { operations, cells, seed: self.common.seed };
        let outcome = run(context, settings, &arms)?;
        if !self.gate {
            return Ok(outcome.report());
        }
        let counted = outcome.taken.iter();
        let gate = Gate::of(counted.map(|taken| (taken.arm, taken.counts.all_instructions())));
        if let Some(note) = gate.note() {
            context.out.warn(&note);
        }
        let mut report = outcome.report();
        report.void = report.void.or_else(|| gate.failure());
        Ok(report)
    }
}
