//! Grows a store, and measures single operations at each size. The bare engine and SQLite grow
//! beside it.
//!
//! ```text
//! load      rows in random order, 1,000 in a transaction; for SQLite sorted by name, 1,000,000 at
//!           a time, which suits its trees
//! get       a row's value, at a snapshot that is read a hundred times
//! absent    a get of a row that does not exist
//! update    begin, get, set, commit
//! two       the same with two rows
//! observed  a write of an observed column, with the run of its observer, which copies the value
//! scan      rows in the order of their names
//! ```
//!
//! Rows are drawn at random. Each program runs in a process of its own for each size, so that
//! memory and processor time are its own. Files stay in the operating system's memory if it has
//! enough. SQLite runs in Python, and a call from Python takes time, too. `call` is the time of the
//! least statement there.

pub(super) mod engine;
mod ours;
mod work;

use std::collections::HashSet;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::Failure;
use serde_json::{Value, json};

use super::churn::bytes_of;
use crate::flags::{Common, Place, within};
use crate::plot::{Axis, Plot, Point, Role, Unit};
use crate::processes::own_program;
use crate::report::{Bar, Figure, Report};
use crate::turns::go_on;

pub(crate) use work::GrowWork;
use work::{NAME_BYTES, VALUE_BYTES};

const SQLITE: &str = include_str!("grow/sqlite.py");

/// The programs, the first of them ours.
pub(super) const PROGRAMS: [&str; 3] = ["percolator", "engine", "sqlite"];
const SIZES: [u64; 4] = [1_000_000, 4_000_000, 16_000_000, 40_000_000];
const SIZES_QUICK: [u64; 3] = [1_000_000, 4_000_000, 8_000_000];

/// The figures: the name, the program and the field above, those below, and the goal.
type Ratio = (&'static str, Of, Option<Of>, Option<f64>);
/// A field of a program, at the largest or at the smallest size.
type Of = (&'static str, &'static str, At);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Smallest,
    Largest,
}
use At::{Largest, Smallest};

const OURS: &str = "percolator";
const FIGURES: [Ratio; 9] = [
    (
        "get, largest/smallest",
        (OURS, "/get/us", Largest),
        Some((OURS, "/get/us", Smallest)),
        Some(3.5),
    ),
    (
        "update, largest/smallest",
        (OURS, "/update/us", Largest),
        Some((OURS, "/update/us", Smallest)),
        Some(2.0),
    ),
    (
        "update at the largest, p99/p50",
        (OURS, "/update/p99_us", Largest),
        Some((OURS, "/update/p50_us", Largest)),
        Some(4.0),
    ),
    ("memory at the largest, MB", (OURS, "/memory_mb", Largest), None, Some(600.0)),
    ("opening at the largest, ms", (OURS, "/open_ms", Largest), None, None),
    (
        "get at the largest, percolator/engine",
        (OURS, "/get/us", Largest),
        Some(("engine", "/get/us", Largest)),
        None,
    ),
    (
        "update at the largest, percolator/engine",
        (OURS, "/update/us", Largest),
        Some(("engine", "/update/us", Largest)),
        None,
    ),
    (
        "get at the largest, percolator/sqlite",
        (OURS, "/get/us", Largest),
        Some(("sqlite", "/get/us", Largest)),
        None,
    ),
    (
        "update at the largest, percolator/sqlite",
        (OURS, "/update/us", Largest),
        Some(("sqlite", "/update/us", Largest)),
        None,
    ),
];

/// Single operations as the store grows to 40 million rows, beside the engine and SQLite.
///
/// At each size the benchmark measures get, absent get, update, two rows, an observed write with
/// its run, scan, opening, memory and disk. A quick run goes to 8 million rows, and takes some five
/// minutes. The exit status is 3 if a value is not as it was written.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-bench micro grow --out results
  percolator-bench micro grow --quick --json
  percolator-bench micro grow --rows 1000000 --rows 8000000 --cache-mb 16")]
pub(crate) struct Grow {
    #[command(flatten)]
    pub(crate) common: Common,
    /// A number of rows to measure at; may be repeated [default: 1, 4, 16 and 40 million; quick: 1,
    /// 4 and 8 million].
    #[arg(long, value_name = "N")]
    rows: Vec<u64>,
    /// Measure this program alone; may be repeated.
    #[arg(long, value_name = "NAME", value_parser = PROGRAMS)]
    program: Vec<String>,
    /// Seconds to measure each operation for [default: 5, quick: 1].
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Megabytes of memory for blocks read from disk, in each program.
    #[arg(long, value_name = "N", default_value_t = 128)]
    cache_mb: u64,
}

impl Grow {
    pub(crate) async fn measure(&self, context: &Context) -> anyhow::Result<Report> {
        let (common, cache_mb) = (&self.common, self.cache_mb);
        let mut sizes = self.rows.clone();
        if sizes.is_empty() {
            sizes.extend(common.sized(&SIZES_QUICK[..], &SIZES[..]));
        }
        sizes.sort_unstable();
        let seconds = self.seconds.unwrap_or(common.sized(1.0, 5.0));
        sizes.iter().try_for_each(|rows| within("rows", *rows, 1_000..=1_000_000_000))?;
        within("seconds", seconds, 0.01..=600.0)?;
        within("cache-mb", cache_mb, 1..=1_000_000)?;
        let (programs, left_out) = chosen(&self.program, &PROGRAMS);
        let place = Place::temporary()?;
        let mut grown: Vec<Value> = Vec::new();
        let mut before = 0;
        for rows in &sizes {
            for program in &programs {
                go_on(context)?;
                context.out.note(&format!("{program} at {rows} rows"));
                let work = GrowWork {
                    program: (*program).to_owned(),
                    data: place.join(program),
                    from: before,
                    to: *rows,
                    seconds,
                    cache_mb,
                    seed: common.seed,
                };
                grown.push(one(&work)?);
            }
            before = *rows;
        }
        let settings = json!({
            "rows": sizes.last(),
            "value_bytes": VALUE_BYTES,
            "name_bytes": NAME_BYTES,
            "cache_mb": cache_mb,
            "seconds": seconds,
            "durability": "buffered",
            "seed": common.seed,
        });
        let wrong: u64 = grown.iter().filter_map(|row| row["wrong"].as_u64()).sum();
        let why = format!("{wrong} values were not as they were written");
        let report = Report::new("grow", settings, figures(&grown))
            .plot("grow.svg", plot(&programs, &grown))
            .with("grown", json!(grown))
            .with("left_out", json!(left_out));
        Ok(report.check_counts(json!({ "wrong": wrong }), wrong == 0, &why))
    }
}

/// The programs to measure: those that were asked for, or these by default. Also returns why some
/// of them are left out, with remedies.
pub(super) fn chosen(
    asked: &[String],
    default: &[&'static str],
) -> (Vec<&'static str>, Vec<String>) {
    let is_asked = |name: &&str| asked.iter().any(|asked| asked == name);
    let mut programs = default.to_vec();
    if !asked.is_empty() {
        programs = PROGRAMS.into_iter().filter(is_asked).collect();
    }
    if programs.contains(&"sqlite")
        && let Err(why) = sqlite_version()
    {
        programs.retain(|program| *program != "sqlite");
        return (programs, vec![why]);
    }
    (programs, Vec::new())
}

/// The error if Python cannot run SQLite, with the remedy.
fn sqlite_version() -> Result<(), String> {
    let import = ["-c", "import sqlite3"];
    let status = Command::new("python3").args(import).stderr(Stdio::null()).status();
    if status.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    Err("sqlite: Python runs it, and is not installed; Debian's package is `python3`, `apt-get install \
         python3`"
        .to_owned())
}

/// Grows a program's store and measures it, in a process of its own.
fn one(work: &GrowWork) -> anyhow::Result<Value> {
    let mut command = if work.program == "sqlite" {
        let mut python = Command::new("python3");
        python.args(["-c", SQLITE]);
        python
    } else {
        let mut own = own_program()?;
        own.args(["--quiet", "grow-work", &work.program, "--"]);
        own
    };
    let output = command
        .args(work.arguments())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("starting {command:?}"))?;
    let (program, status) = (&work.program, output.status);
    if !status.success() {
        let what = format!("{program} ended with {status} at {} rows", work.to);
        return Err(Failure::usage(what, "its error is above; see that the disk has room"));
    }
    let mut told: Value =
        serde_json::from_slice(&output.stdout).context("reading the process's report")?;
    told["rows"] = json!(work.to);
    told["program"] = json!(program);
    told["disk_mb"] = json!((bytes_of(&work.data, &mut HashSet::new())? as f64 / 1e6).round());
    Ok(told)
}

fn figures(grown: &[Value]) -> Vec<Figure> {
    let find = |(program, field, at): Of| {
        let mut rows = grown.iter().filter(|row| row["program"] == program);
        let row = if at == Smallest { rows.next() } else { rows.next_back() };
        row?.pointer(field)?.as_f64()
    };
    let figure = |(name, above, below, bar): Ratio| {
        let below = below.map_or(Some(1.0), find);
        let value = find(above).zip(below).map(|(above, below)| above / below);
        Figure::alone(name, value).bar(bar.map(Bar::AtMost))
    };
    FIGURES.into_iter().map(figure).collect()
}

fn plot(programs: &[&str], grown: &[Value]) -> String {
    let (x, y) = (Axis::log("rows", Unit::Plain), Axis::log("us", Unit::Plain));
    let subtitle = "Random rows of 100 bytes, one client. SQLite is called from Python.";
    let plot = Plot::over(x, y, "An update as the store grows", subtitle);
    with_lines(plot, programs, grown, ["/rows", "/update/us"]).svg()
}

/// Adds a line for each of the programs. The two fields of a row are the place and the value.
pub(super) fn with_lines(
    mut plot: Plot,
    programs: &[&str],
    rows: &[Value],
    [x, y]: [&str; 2],
) -> Plot {
    for (role, program) in [Role::Ours(0), Role::Peer(0), Role::Peer(1)].into_iter().zip(PROGRAMS) {
        if !programs.contains(&program) {
            continue;
        }
        let number = |row: &Value, field: &str| row.pointer(field)?.as_f64();
        let point = |row: &Value| Some(Point::at(number(row, x)?, number(row, y)?));
        let own = rows.iter().filter(|row| row["program"] == program);
        plot = plot.line(program, role, own.filter_map(point).collect());
    }
    plot
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_compares_sizes_and_programs() {
        let row = |program: &str, get: f64| json!({ "program": program, "get": { "us": get }, "memory_mb": 10.0 * get });
        let grown = [row(OURS, 2.0), row("engine", 1.0), row(OURS, 6.0), row("engine", 4.0)];
        let figures = figures(&grown);
        let of = |name: &str| {
            let found = figures.iter().find(|figure| figure.name == name).unwrap();
            found.estimate.map(|estimate| estimate.median)
        };
        assert_eq!(of("get, largest/smallest"), Some(3.0));
        assert_eq!(of("get at the largest, percolator/engine"), Some(1.5));
        assert_eq!(of("memory at the largest, MB"), Some(60.0));
        assert_eq!(of("get at the largest, percolator/sqlite"), None);
    }

    /// Grows each program twice, and measures it for a moment.
    #[test]
    fn sqlite_takes_what_our_programs_take() {
        if let Err(why) = sqlite_version() {
            use std::io::Write;
            let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        for (from, to) in [(0, 1_000), (1_000, 3_000)] {
            let program = "sqlite".to_owned();
            let data = dir.path().join("data");
            let work = GrowWork { program, data, from, to, seconds: 0.01, cache_mb: 1, seed: 1 };
            let told = one(&work).unwrap();
            assert_eq!(told["wrong"], 0, "{told}");
            for field in ["get", "absent", "update", "two", "scan"] {
                assert!(told[field]["us"].as_f64() > Some(0.0), "{field}: {told}");
            }
            assert!(told["memory_mb"].as_f64() > Some(0.0), "{told}");
        }
    }
}
