//! Defines the flags that benchmarks share, and writes a benchmark's report.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::{Exit, Failure};

use crate::Turns;
use crate::report::Report;
use crate::system::Load;

/// Runs a benchmark, and reports its results. `measure` checks the settings and measures.
pub(crate) async fn run(
    context: &Context,
    common: &Common,
    measure: impl Future<Output = anyhow::Result<Report>>,
) -> anyhow::Result<Exit> {
    common.prepare(context)?;
    let before = Load::now();
    let report = match measure.await {
        Err(_) if context.interrupt.requested() => {
            context.out.note("interrupted before the end: nothing to report");
            return Ok(Exit::Interrupted);
        }
        measured => measured?,
    };
    let told = report.json([before, Load::now()]);
    if let Some(out) = &common.out {
        let file = out.join(format!("{}.json", report.benchmark));
        std::fs::write(file, format!("{told:#}\n"))?;
        for (name, svg) in &report.plots {
            std::fs::write(out.join(name), svg)?;
        }
    }
    if context.out.json {
        context.out.json(&told)?
    } else {
        crate::report::print(context.out, &told)?
    }
    for missing in crate::report::left_out(&told) {
        context.out.warn(&format!("left out: {missing}"));
    }
    match report.void {
        None => Ok(Exit::Done),
        Some((what, help)) => Err(Failure::error(Exit::Violated, what, help)),
    }
}

/// How large a run is, its seed, and where its results go.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Smaller and shorter: three minutes at most, on two cores.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Seed of all that is drawn: data, requests, the order of turns.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Write the figures to NAME.json in this directory, and plots beside it.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

impl Common {
    /// Chooses between two defaults.
    pub(crate) fn sized<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Creates the directory for the results before the run, which may be long.
    fn prepare(&self, context: &Context) -> anyhow::Result<()> {
        if let Some(out) = &self.out {
            std::fs::create_dir_all(out).map_err(|error| {
                let what = format!("{}: {error}", out.display());
                Failure::usage(what, "name a directory that can be written to with --out")
            })?;
        }
        if cfg!(debug_assertions) {
            context.out.warn("this build is not optimised: build with --release for real figures");
        }
        Ok(())
    }
}

/// The flags of benchmarks whose arms take turns.
#[derive(Debug, Args)]
pub(crate) struct Measure {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Seconds to measure each arm for [default: 10, over a network 5, quick: 2].
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
}

impl Measure {
    /// The length of the arms' turns: the flag, or the default of a full or a quick run.
    pub(crate) fn turns(&self, full: f64) -> anyhow::Result<Turns> {
        let seconds = self.seconds.unwrap_or(self.common.sized(2.0, full));
        within("seconds", seconds, 0.01..=600.0)?;
        Ok(Turns { seconds, seed: self.common.seed })
    }
}

/// Refuses a flag's value that is out of its range.
pub(crate) fn within<T: PartialOrd + Display>(
    flag: &str,
    value: T,
    range: RangeInclusive<T>,
) -> anyhow::Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    let help = format!("give {} to {}", range.start(), range.end());
    Err(Failure::usage(format!("--{flag} {value}"), help))
}

/// Refuses an impossible brokerage.
pub(crate) fn brokerage(customers: u64, seed: u64) -> anyhow::Result<tpce::Scale> {
    let scale = tpce::Scale::new(customers, seed);
    scale.check().map_err(|error| {
        Failure::usage(error.to_string(), "choose another number with --customers")
    })?;
    Ok(scale)
}

/// The place of a benchmark's data.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) dir: PathBuf,
    /// A directory that is removed at the end.
    _temporary: Option<tempfile::TempDir>,
}

impl Place {
    pub(crate) fn temporary() -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("percolator-bench-").tempdir()?;
        Ok(Place { dir: dir.path().to_owned(), _temporary: Some(dir) })
    }

    /// Uses an empty directory of this name, or a temporary one.
    pub(crate) fn of(named: Option<&Path>) -> anyhow::Result<Self> {
        let Some(dir) = named else { return Place::temporary() };
        if dir.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(Failure::usage(
                format!("{}: the directory is not empty", dir.display()),
                "name an empty directory, or one that does not exist yet",
            ));
        }
        std::fs::create_dir_all(dir).map_err(|error| {
            let what = format!("{}: {error}", dir.display());
            Failure::usage(what, "name a directory that can be written to with --data")
        })?;
        Ok(Place { dir: dir.to_owned(), _temporary: None })
    }

    pub(crate) fn join(&self, part: &str) -> PathBuf {
        self.dir.join(part)
    }
}
