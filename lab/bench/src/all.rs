//! Implements `percolator-bench all`: it runs every benchmark but `webindex`, checks the goals,
//! and writes a document about the results.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::Context as _;
use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::{Exit, Failure};
use serde_json::{Value, json};

use crate::check::{Checked, listed};
use crate::processes::own_program;
use crate::{check, experiments, micro};

/// The benchmarks with a command of their own. The benchmarks of `micro` run too.
const LARGE: [&str; 5] = ["fig7", "fig8", "fig9", "fig10", "profile"];

/// Run every benchmark but `webindex`, including those of `micro`, and then check whether the
/// project is as fast as it must be.
///
/// `webindex` is left out because it needs pages of the caller's. The benchmarks run one after
/// another, each in a process of its own, so that none inherits the memory of another. If one
/// fails, the others still run, and the failure is reported at the end.
///
/// DIR gets NAME.json, NAME.txt and the plots of each benchmark. It also gets check.json, and
/// experiments.md, which is made from these files alone. The exit status is 6 if a benchmark
/// failed, or if a goal is missed or was not measured.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-bench all --quick --out results
  percolator-bench all --out results --report docs/experiments.md
  percolator-bench all --out results --none --report docs/experiments.md")]
pub(crate) struct All {
    /// Run each benchmark in its smaller and shorter form.
    #[arg(long)]
    quick: bool,
    /// The seed of each benchmark.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The directory for the results.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Run this benchmark alone; may be repeated. Results of other benchmarks in DIR still
    /// count.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Run no benchmark: check the results in DIR, and write the document.
    #[arg(long, conflicts_with = "only")]
    none: bool,
    /// Write the document here as well, with the plots in a directory beside it that has its name.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl All {
    pub(crate) fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let names = self.names()?;
        std::fs::create_dir_all(&self.out).map_err(|error| {
            let what = format!("{}: {error}", self.out.display());
            Failure::usage(what, "name a directory that can be written to with --out")
        })?;
        let mut failed = Vec::new();
        for (at, name) in names.iter().enumerate() {
            if context.interrupt.requested() {
                return Ok(Exit::Interrupted);
            }
            context.out.note(&format!("{name} ({} of {})", at + 1, names.len()));
            let status = self.one(name)?;
            if status == Some(Exit::Interrupted as i32) {
                return Ok(Exit::Interrupted);
            }
            if status != Some(Exit::Done as i32) {
                let status = status.map_or("a signal".to_owned(), |n| format!("exit status {n}"));
                failed.push(format!("percolator-bench {name} ended with {status}"));
            }
        }
        let checked = check::all(&self.out);
        let told = check::json(&checked);
        write(&self.out.join("check.json"), &format!("{told:#}\n"))?;
        let found = experiments::Found::read(&self.out)?;
        write(&self.out.join("experiments.md"), &experiments::document(&found, &checked, ""))?;
        if let Some(report) = &self.report {
            publish(report, &found, &checked)?;
        }
        if context.out.json {
            context.out.json(&told)?
        } else {
            check::print(context.out, &checked)?
        }
        failed.extend(checked.iter().filter_map(Checked::complaint));
        if failed.is_empty() {
            Ok(Exit::Done)
        } else {
            Err(Failure::error(
                Exit::Missed,
                format!("{} benchmarks or goals failed:{}", failed.len(), listed(&failed)),
                format!("NAME.txt and NAME.json in {} say more", self.out.display()),
            ))
        }
    }

    fn names(&self) -> anyhow::Result<Vec<String>> {
        let all: Vec<String> = LARGE.map(str::to_owned).into_iter().chain(micro::names()).collect();
        if let Some(unknown) = self.only.iter().find(|name| !all.contains(name)) {
            let help = format!("choose from {}", all.join(", "));
            return Err(Failure::usage(format!("--only {unknown}: no such benchmark"), help));
        }
        Ok(match (self.none, self.only.is_empty()) {
            (true, _) => Vec::new(),
            (false, true) => all,
            (false, false) => self.only.clone(),
        })
    }

    /// Runs a benchmark. Returns its exit status, or `None` if it was killed.
    fn one(&self, name: &str) -> anyhow::Result<Option<i32>> {
        let path = |kind: &str| self.out.join(format!("{name}.{kind}"));
        // Results of an earlier run must not pass for results of this one.
        for left in experiments::files_of(name, &self.out)? {
            std::fs::remove_file(&left).with_context(|| left.display().to_string())?;
        }
        let seed = self.seed.to_string();
        let mut words = if LARGE.contains(&name) { vec![name] } else { vec!["micro", name] };
        words.extend(["--seed", &seed]);
        words.extend(self.quick.then_some("--quick"));
        let started = Instant::now();
        let status = own_program()?
            .args(&words)
            .arg("--out")
            .arg(&self.out)
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(path("txt"))?)
            .status()
            .with_context(|| format!("starting `percolator-bench {name}`"))?;
        let run: Value = json!({
            "command": format!("percolator-bench {} --out DIR", words.join(" ")),
            "exit_status": status.code(),
            "took_s": started.elapsed().as_secs_f64(),
        });
        write(&path("run"), &format!("{run:#}\n"))?;
        Ok(status.code())
    }
}

/// Writes the document to a file, and the plots into the directory beside it.
fn publish(
    report: &Path,
    found: &experiments::Found,
    checked: &[check::Checked],
) -> anyhow::Result<()> {
    let name = report.file_stem().map(|name| name.to_string_lossy().into_owned());
    let name = name.ok_or_else(|| {
        Failure::usage(
            format!("--report {}", report.display()),
            "name a file, as docs/experiments.md",
        )
    })?;
    let plots = report.with_file_name(&name);
    std::fs::create_dir_all(&plots).with_context(|| plots.display().to_string())?;
    for plot in found.plots() {
        let to = plots.join(plot.file_name().unwrap_or_default());
        // Written, not copied: copying a plot onto itself would empty it.
        let svg = std::fs::read_to_string(plot).with_context(|| plot.display().to_string())?;
        write(&to, &svg)?;
    }
    write(report, &experiments::document(found, checked, &format!("{name}/")))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| path.display().to_string())
}
