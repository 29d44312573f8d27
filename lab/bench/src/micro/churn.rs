//! Overwrites the cells of a store at a fixed rate for a long time, while garbage is collected. The
//! bare engine and SQLite do the same, one after the other. Shows how the cost of an update and the
//! size of the store develop, minute by minute.
//!
//! An update is a transaction that gets a cell and sets it. One client updates random rows. Each
//! program runs in a process of its own, so that memory and processor time are its own. SQLite runs
//! in Python, and a call from Python takes time, too. The bare engine and SQLite keep no older
//! versions.
//!
//! A call counts as slow if it takes longer than [`SLOW`]. Callers notice such a call, and
//! percentiles do not show it. At 5,000 calls a second, 50 slow ones a minute are beyond the 99.9th
//! percentile.
//!
//! After each minute, the embedded store reads rows as they were before that minute. These reads
//! count for no other figure.

mod work;

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use percolator::admin::GcOptions;
use percolator_cli::context::Context;
use serde_json::{Value, json};

use super::bed::KEY_BYTES;
use super::grow::{PROGRAMS, chosen, with_lines};
use crate::flags::{Common, Place, within};
use crate::plot::{Axis, Plot, Unit};
use crate::processes::Driver;
use crate::report::{Bar, Figure, Report};
use crate::turns::go_on;

pub(crate) use work::ChurnWork;
use work::{SLOW, VALUE_BYTES};

const SQLITE: &str = include_str!("churn/sqlite.py");

/// Most CPU of an update in the last minute, compared with the first.
const CPU: f64 = 1.25;
/// Most bytes on disk, per byte of live and of retained versions.
const DISK: f64 = 1.5;
/// The retention of a quick run; a full run has the default.
const RETENTION_QUICK: Duration = Duration::from_secs(60);

/// Updates at a fixed rate for half an hour: CPU, slow calls, disk and memory by the minute.
///
/// The embedded store, with its garbage collection, the bare engine and SQLite run one after the
/// other, half an hour each. A quick run has the embedded store alone, takes five minutes, and
/// retains versions for one minute. The exit status is 3 if a value is not as it was written.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-bench micro churn --out results
  percolator-bench micro churn --quick --json
  percolator-bench micro churn --minutes 10 --program percolator --program engine")]
pub(crate) struct Churn {
    #[command(flatten)]
    pub(crate) common: Common,
    /// The number of rows [default: 2000000, quick: 500000].
    #[arg(long, value_name = "N")]
    rows: Option<usize>,
    /// Measure this program; may be repeated [default: all, quick: percolator].
    #[arg(long, value_name = "NAME", value_parser = PROGRAMS)]
    program: Vec<String>,
    /// Updates a second.
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    rate: u32,
    /// Minutes to update for [default: 30, quick: 5].
    #[arg(long, value_name = "N")]
    minutes: Option<usize>,
    /// The length of a minute in the report, in seconds.
    #[arg(long, value_name = "S", default_value_t = 60.0, hide = true)]
    minute: f64,
}

impl Churn {
    pub(crate) async fn measure(&self, context: &Context) -> anyhow::Result<Report> {
        let Churn { common, rate, .. } = self;
        let rows = self.rows.unwrap_or(common.sized(500_000, 2_000_000));
        let minutes = self.minutes.unwrap_or(common.sized(5, 30));
        within("rows", rows, 1..=100_000_000)?;
        within("rate", *rate, 1..=1_000_000)?;
        within("minutes", minutes, 2..=10_000)?;
        within("minute", self.minute, 0.1..=3_600.0)?;
        let default = common.sized(&PROGRAMS[..1], &PROGRAMS[..]);
        let (programs, left_out) = chosen(&self.program, default);
        let retention = common.sized(RETENTION_QUICK, GcOptions::default().retention);
        let place = Place::temporary()?;
        let (mut told, mut wrong) = (Vec::new(), 0);
        for program in &programs {
            let work = ChurnWork {
                program: (*program).to_owned(),
                data: place.join(program),
                rows,
                rate: *rate,
                minute: self.minute,
                retention: retention.as_secs(),
                seed: common.seed,
            };
            wrong += run(context, &work, minutes, &mut told)?;
            std::fs::remove_dir_all(&work.data)?;
        }
        let length = Duration::from_secs_f64(self.minute) * minutes as u32;
        let retained = f64::from(*rate) * retention.min(length).as_secs_f64();
        let needed = (rows as f64 + retained) * (KEY_BYTES + VALUE_BYTES) as f64;
        let settings = json!({
            "rows": rows,
            "rate": rate,
            "minutes": minutes,
            "value_bytes": VALUE_BYTES,
            "retention_s": retention.as_secs(),
            "durability": "buffered",
        });
        let updates: u64 = told.iter().filter_map(|minute| minute["updates"].as_u64()).sum();
        let why = format!("{wrong} values were not as they were written");
        let report = Report::new("churn", settings, figures(&told, needed))
            .plot("churn.svg", plot(&programs, &told))
            .with("minutes", json!(told))
            .with("left_out", json!(left_out));
        Ok(report.check_counts(json!({ "updates": updates, "wrong": wrong }), wrong == 0, &why))
    }
}

/// Runs a program in a process of its own, and gathers its minutes. Returns the number of values
/// that were not as they were written. The program updates nothing while its files are measured.
fn run(
    context: &Context,
    work: &ChurnWork,
    minutes: usize,
    told: &mut Vec<Value>,
) -> anyhow::Result<u64> {
    let program = &work.program;
    context.out.note(&format!("{program}: loading"));
    let mut process = if program == "sqlite" {
        let mut python = Command::new("python3");
        python.args(["-c", SQLITE]).args(work.arguments());
        Driver::over(python)?
    } else {
        let program = [program.as_str(), "--"].map(Into::into);
        Driver::start("churn-work", program.into_iter().chain(work.arguments()), &[])?
    };
    let mut wrong = 0;
    for minute in 1..=minutes {
        let mut one = process.ask(&json!(minute))?;
        one["program"] = json!(program);
        one["minute"] = json!(minute);
        one["disk_mb"] = json!((bytes_of(&work.data, &mut HashSet::new())? as f64 / 1e6).round());
        wrong += one["wrong"].as_u64().context("the process tells the number of wrong values")?;
        context.out.note(&format!("{program}: minute {minute} of {minutes} has ended"));
        told.push(one);
        go_on(context)?;
    }
    process.end()?;
    Ok(wrong)
}

/// Figures of the minutes. `needed` are the bytes of live and of retained versions.
fn figures(minutes: &[Value], needed: f64) -> Vec<Figure> {
    let of = |program: &'static str| minutes.iter().filter(move |one| one["program"] == program);
    let ours = || of(PROGRAMS[0]);
    let number = |minute: Option<&Value>, field: &str| minute?[field].as_f64();
    let first = |field| number(ours().next(), field);
    let last = |field| number(ours().next_back(), field);
    let all = |field| ours().map(|minute| minute[field].as_f64()).collect::<Option<Vec<f64>>>();
    let sum = |field| Some(all(field)?.iter().sum::<f64>());
    let slowest = all("slowest_ms").and_then(|each| each.into_iter().reduce(f64::max));
    let changed = sum("updates").map(|updates| updates * (KEY_BYTES + VALUE_BYTES) as f64 / 1e6);
    let ratio = |above: Option<f64>, below: Option<f64>| Some(above? / below?);
    let other = |program| number(of(program).next_back(), "cpu_us");
    let cpu = last("cpu_us");
    [
        ("CPU of an update in the first minute, us", first("cpu_us"), None),
        ("CPU of an update, last minute/first", ratio(cpu, first("cpu_us")), Some(CPU)),
        ("slowest call, ms", slowest, Some(SLOW.as_secs_f64() * 1e3)),
        ("slow calls a minute", ratio(sum("slow"), Some(ours().count() as f64)), None),
        ("bytes written/bytes updated", ratio(sum("written_mb"), changed), None),
        ("bytes on disk/live and retained", ratio(last("disk_mb"), Some(needed / 1e6)), Some(DISK)),
        ("CPU in the last minute, percolator/engine", ratio(cpu, other("engine")), None),
        ("CPU in the last minute, percolator/sqlite", ratio(cpu, other("sqlite")), None),
    ]
    .map(|(name, value, bar)| Figure::alone(name, value).bar(bar.map(Bar::AtMost)))
    .into()
}

/// Bytes that the files of a directory take, without second names of the same file.
pub(super) fn bytes_of(dir: &Path, seen: &mut HashSet<u64>) -> anyhow::Result<u64> {
    let entries = std::fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let mut bytes = 0;
    for entry in entries {
        let entry = entry?;
        // The store may have removed the file meanwhile.
        let Ok(found) = entry.metadata() else { continue };
        if found.is_dir() {
            bytes += bytes_of(&entry.path(), seen)?;
        } else if seen.insert(found.ino()) {
            bytes += found.blocks() * 512;
        }
    }
    Ok(bytes)
}

fn plot(programs: &[&str], minutes: &[Value]) -> String {
    let (x, y) = (Axis::linear("minute", Unit::Plain), Axis::linear("us", Unit::Plain));
    let subtitle =
        "Durability buffered; with all threads of the store. SQLite is called from Python.";
    let plot = Plot::over(x, y, "CPU of an update", subtitle);
    with_lines(plot, programs, minutes, ["/minute", "/cpu_us"]).svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_ours_and_compare_the_last_minutes() {
        let minute = |program: &str, cpu: f64, slowest: f64| {
            json!({
                "program": program, "cpu_us": cpu, "slowest_ms": slowest, "slow": 3,
                "updates": 1_000_000, "written_mb": 648, "disk_mb": 10.0 * cpu,
            })
        };
        let minutes = [
            minute("percolator", 20.0, 50.0),
            minute("percolator", 30.0, 40.0),
            minute("engine", 1.0, 90.0),
            minute("engine", 10.0, 90.0),
        ];
        let figures = figures(&minutes, 150e6);
        let of = |name: &str| {
            let found = figures.iter().find(|figure| figure.name == name).expect(name);
            found.estimate.map(|estimate| estimate.median)
        };
        assert_eq!(of("CPU of an update in the first minute, us"), Some(20.0));
        assert_eq!(of("CPU of an update, last minute/first"), Some(1.5));
        assert_eq!(of("slowest call, ms"), Some(50.0));
        assert_eq!(of("slow calls a minute"), Some(3.0));
        assert_eq!(of("bytes written/bytes updated"), Some(2.0));
        assert_eq!(of("bytes on disk/live and retained"), Some(2.0));
        assert_eq!(of("CPU in the last minute, percolator/engine"), Some(3.0));
        assert_eq!(of("CPU in the last minute, percolator/sqlite"), None);
    }
}
