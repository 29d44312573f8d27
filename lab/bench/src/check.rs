//! Checks the figures of the benchmarks against the project's goals.
//!
//! A benchmark writes its figures to NAME.json. [`ROWS`] assigns goals to them. The goals are
//! defined only here: a goal that a benchmark writes beside a figure does not count. Such a bar
//! of a benchmark's own shows only in its report.

use std::path::{Path, PathBuf};

use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::{Exit, Failure};
use percolator_cli::output::{Column, Out};
use serde_json::{Value, json};

use crate::report::Bar::{self, AtLeast, AtMost};
use crate::report::number;
use crate::statistics::Estimate;
use crate::tables::interval;

/// Compare the figures of benchmarks with the goals of the project.
///
/// The command reads the files that benchmarks wrote with --out DIR. The exit status is 6 if a goal
/// is missed, even by the better end of the figure's interval, or has no figure that counts.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator-bench check results --json")]
pub(crate) struct Check {
    /// The directory with fig7.json, fig8.json and the others.
    dir: PathBuf,
}

impl Check {
    pub(crate) fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        if !self.dir.is_dir() {
            let help = "name the directory that was given to --out; `percolator-bench all --out DIR` \
                        fills one";
            return Err(Failure::usage(format!("{}: no such directory", self.dir.display()), help));
        }
        let checked = all(&self.dir);
        if context.out.json {
            context.out.json(&json(&checked))?
        } else {
            print(context.out, &checked)?
        }
        let complaints: Vec<String> = checked.iter().filter_map(Checked::complaint).collect();
        if complaints.is_empty() {
            return Ok(Exit::Done);
        }
        let (count, listed) = (complaints.len(), listed(&complaints));
        let what = format!("{count} goals are missed or not measured:{listed}");
        let help = "`percolator-bench all --out DIR` measures everything";
        Err(Failure::error(Exit::Missed, what, help))
    }
}

pub(crate) fn listed(complaints: &[String]) -> String {
    complaints.iter().map(|complaint| format!("\n  {complaint}")).collect()
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// The goal in words.
    pub(crate) what: &'static str,
    pub(crate) bar: Bar,
    /// The benchmark whose file contains the figure, and the figure's name there.
    pub(crate) benchmark: &'static str,
    pub(crate) figure: &'static str,
    /// A setting and its smallest value at which the figure counts.
    pub(crate) at_size: Option<(&'static str, f64)>,
    /// An upper limit for the figure: its description in words, and its name in the same
    /// benchmark.
    pub(crate) limit: Option<(&'static str, &'static str)>,
}

const fn row(what: &'static str, bar: Bar, benchmark: &'static str, figure: &'static str) -> Row {
    Row { what, bar, benchmark, figure, at_size: None, limit: None }
}

impl Row {
    const fn at_size(self, setting: &'static str, least: f64) -> Self {
        Row { at_size: Some((setting, least)), ..self }
    }

    const fn limit(self, words: &'static str, figure: &'static str) -> Self {
        Row { limit: Some((words, figure)), ..self }
    }
}

#[rustfmt::skip]
pub(crate) const ROWS: [Row; 47] = [
    row("snapshot get / raw get, embedded", AtLeast(0.90), "fig8", "get/raw_get"),
    row("single-cell tx / raw write: as in the paper", AtLeast(0.15), "fig8", "paper_faithful/raw_set"),
    row("single-cell tx / raw write: two phases", AtLeast(0.40), "fig8", "two_phases/raw_set")
        .limit("the two mutations alone come to", "two_mutations/raw_set"),
    row("single-cell tx / raw write: default", AtLeast(0.60), "fig8", "tx/raw_set"),
    // Raw writes in two layouts: with the newest version apart, like write records, and blind,
    // which is faster.
    row("single-cell tx / raw blind write: as in the paper", AtLeast(0.15), "fig8", "paper_faithful/raw_set_blind"),
    row("single-cell tx / raw blind write: two phases", AtLeast(0.40), "fig8", "two_phases/raw_set_blind")
        .limit("the two mutations alone come to", "two_mutations/raw_set_blind"),
    row("single-cell tx / raw blind write: default", AtLeast(0.60), "fig8", "tx/raw_set_blind")
        .limit("one mutation where write records lie comes to", "raw_set/raw_set_blind"),
    row("synced: 64 clients", AtLeast(0.60), "fig8", "tx_sync_many/raw_set_sync_many"),
    row("synced: one client, default", AtLeast(0.80), "fig8", "tx_sync/raw_set_sync"),
    row("synced: one client, two phases", AtLeast(0.45), "fig8", "two_phases_sync/raw_set_sync"),
    row("ten-cell transactions, cells / raw writes", AtLeast(0.45), "fig8", "tx_ten/raw_set"),
    row("get with a recorder / without", AtLeast(0.93), "fig8", "get_recorded/get"),
    row("single-cell tx with a recorder / without", AtLeast(0.93), "fig8", "tx_recorded/tx"),
    row("raw get / bare fjall", AtLeast(0.6), "fig8", "raw_get/fjall_get"),
    row("raw write / bare fjall", AtLeast(0.6), "fig8", "raw_set/fjall_insert")
        .limit("the engine itself comes, with the same bytes, to", "fjall_packs/fjall_insert"),
    row("raw blind write / bare fjall", AtLeast(0.6), "fig8", "raw_set_blind/fjall_insert"),
    row("raw synced write / bare fjall", AtLeast(0.6), "fig8", "raw_set_sync/fjall_insert_sync"),
    row("snapshot scan / raw scan: one version", AtLeast(0.70), "scan", "snapshot_scan/raw_scan"),
    row("snapshot scan / raw scan: ten versions", AtLeast(0.35), "scan", "snapshot_scan_ten/raw_scan"),
    row("1,000 dirty among 10 million clean / 100,000", AtMost(1.2), "scan", "notify_many/notify_few scan")
        .at_size("clean_many", 10_000_000.0),
    row("the same after reopening", AtMost(1.2), "scan", "notify_many_reopened/notify_few_again scan")
        .at_size("clean_many", 10_000_000.0),
    row("the same after a million were processed", AtMost(1.2), "scan", "notify_many_processed/notify_few_last scan")
        .at_size("processed", 1_000_000.0),
    // Threads that hand over work run on two processors or, in the best case, on one.
    row("write to observer's start / hand-off between two processors, p50", AtMost(5.0), "notify", "start_hinted/hand_off_across p50"),
    row("write from outside to observer's start / hand-off between two processors, p50", AtMost(5.0), "notify", "start_outside/hand_off_across p50"),
    row("write to observer's start / hand-off on one processor, p50", AtMost(5.0), "notify", "start_hinted/hand_off p50")
        .limit("the commit before it takes, after the same rest", "rested_commit/hand_off p50"),
    row("notifications / single-cell transactions", AtLeast(0.5), "notify", "notifications/transactions"),
    row("Figure 7: saturation / row-wise batch", AtLeast(0.133), "fig7", "documents/s, ours/rows")
        .limit("the engine alone comes to", "documents/s, engine/rows"),
    row("Figure 7: row-wise batch / DuckDB's, documents/CPU-s", AtLeast(1.0), "fig7", "documents/CPU-s, rows/rows of DuckDB"),
    row("Figure 7: batch delay / ours at 1 %", AtLeast(1_000.0), "fig7", "median delay at the lowest rate, rows/ours")
        .at_size("documents", 2_000_000.0),
    row("Figure 9: Trade-Results/CPU-s / PostgreSQL", AtLeast(1.0), "fig9", "embedded/postgres_per_cpu_s"),
    row("Figure 9: two cores / one", AtLeast(1.7), "fig9", "two_cores/one_core"),
    row("Figure 10: a third killed / baseline", AtLeast(0.66), "fig10", "workers killed/baseline"),
    row("Figure 10: seconds without a commit then", AtMost(0.0), "fig10", "workers killed: seconds without a commit"),
    row("Figure 10: workers back, seconds to 0.97", AtMost(5.0), "fig10", "workers back: seconds to 0.97"),
    row("Figure 10: workers back / baseline", AtLeast(0.97), "fig10", "workers back/baseline"),
    row("Figure 10: table server back, seconds to 0.97", AtMost(5.0), "fig10", "table server back: seconds to 0.97"),
    row("Figure 10: table server back / baseline", AtLeast(0.97), "fig10", "table server back/baseline"),
    row("Figure 10: lost commits", AtMost(0.0), "fig10", "lost commits"),
    row("reads / with columns read ahead, short values", AtLeast(10.0), "prefetch", "one_by_one/ahead, short values"),
    row("reads / with columns read ahead, long values", AtLeast(10.0), "prefetch", "one_by_one/ahead, long values"),
    row("grow: get at 40 million rows / at 1 million", AtMost(3.5), "grow", "get, largest/smallest")
        .at_size("rows", 40_000_000.0),
    row("grow: update at 40 million rows / at 1 million", AtMost(2.0), "grow", "update, largest/smallest")
        .at_size("rows", 40_000_000.0),
    row("grow: update at 40 million rows, p99 / p50", AtMost(4.0), "grow", "update at the largest, p99/p50")
        .at_size("rows", 40_000_000.0),
    row("grow: memory at 40 million rows, MB", AtMost(600.0), "grow", "memory at the largest, MB")
        .at_size("rows", 40_000_000.0),
    row("churn: CPU of an update, last minute / first", AtMost(1.25), "churn", "CPU of an update, last minute/first")
        .at_size("minutes", 5.0),
    row("churn: slowest call, ms", AtMost(20.0), "churn", "slowest call, ms")
        .at_size("minutes", 5.0),
    row("churn: bytes on disk / live and retained", AtMost(1.5), "churn", "bytes on disk/live and retained")
        .at_size("minutes", 5.0),
];

/// A goal with its measured figure.
#[derive(Debug)]
pub(crate) struct Checked {
    row: Row,
    /// The figure, or the reason why there is none.
    found: Result<Estimate, String>,
    /// The upper limit for the figure, if the goal names one.
    limit: Option<Result<Estimate, String>>,
}

impl Checked {
    fn of(row: Row, dir: &Path) -> Self {
        let limit = row.limit.map(|(_, figure)| find(&Row { figure, ..row }, dir));
        Checked { row, found: find(&row, dir), limit }
    }

    pub(crate) fn is_of(&self, benchmark: &str, figure: &str) -> bool {
        self.row.benchmark == benchmark && self.row.figure == figure
    }

    pub(crate) fn is_measured(&self) -> bool {
        self.found.is_ok()
    }

    pub(crate) fn limit(&self) -> Option<String> {
        let (words, limit) = (self.row.limit?.0, self.limit.as_ref()?.as_ref().ok()?);
        Some(format!("{words} {}", number(limit.median)))
    }

    /// `reached`, `missed`, `unclear` or `not measured`.
    pub(crate) fn verdict(&self) -> &'static str {
        match self.found {
            Ok(estimate) => self.row.bar.verdict(estimate),
            Err(_) => "not measured",
        }
    }

    /// The reason why the goal is not reached. `None` if it is reached, or may be.
    pub(crate) fn complaint(&self) -> Option<String> {
        match (&self.found, self.verdict()) {
            (Err(why), _) => Some(format!("{}: not measured: {why}", self.row.what)),
            (Ok(found), "missed") => {
                let (median, bar) = (number(found.median), self.row.bar);
                let limit = self.limit().map(|limit| format!("; {limit}")).unwrap_or_default();
                Some(format!("{}: {median} instead of {bar}{limit}", self.row.what))
            }
            _ => None,
        }
    }

    fn json(&self) -> Value {
        let estimate = self.found.as_ref().ok();
        json!({
            "what": self.row.what,
            "bar": self.row.bar.value(),
            "at_most": self.row.bar.is_at_most(),
            "median": estimate.map(|e| e.median),
            "low": estimate.map(|e| e.low),
            "high": estimate.map(|e| e.high),
            "verdict": self.verdict(),
            "why": self.found.as_ref().err(),
            "limit": self.limit.as_ref().and_then(|limit| Some(limit.as_ref().ok()?.median)),
            "why_no_limit": self.limit.as_ref().and_then(|limit| limit.as_ref().err()),
            "file": format!("{}.json", self.row.benchmark),
            "figure": self.row.figure,
        })
    }

    pub(crate) fn cells(&self) -> [String; 5] {
        let cells = |e: &Estimate| (number(e.median), interval(e.low, e.high));
        let (figure, interval) = self.found.as_ref().map(cells).unwrap_or_default();
        let (what, bar) = (self.row.what.to_owned(), self.row.bar.to_string());
        [what, bar, figure, interval, self.verdict().to_owned()]
    }
}

/// The headings of [`Checked::cells`].
pub(crate) const HEADINGS: [&str; 5] = ["goal", "bar", "median", "95 %", "verdict"];

pub(crate) fn all(dir: &Path) -> Vec<Checked> {
    ROWS.into_iter().map(|row| Checked::of(row, dir)).collect()
}

/// Fewest blocks for a median with an interval.
const BLOCKS_MIN: f64 = 10.0;

/// Finds the figure of a goal, or the reason why none counts.
fn find(row: &Row, dir: &Path) -> Result<Estimate, String> {
    let file = format!("{}.json", row.benchmark);
    let text =
        std::fs::read_to_string(dir.join(&file)).map_err(|error| format!("{file}: {error}"))?;
    let told: Value = serde_json::from_str(&text).map_err(|error| format!("{file}: {error}"))?;
    let figures = told["figures"].as_array().map_or(&[][..], Vec::as_slice);
    let is_it = |figure: &&Value| {
        figure["name"].as_str().is_some_and(|name| name.replace(" / ", "/") == row.figure)
    };
    let figure = figures.iter().find(is_it);
    let figure = figure.ok_or_else(|| format!("{file} has no figure {:?}", row.figure))?;
    if told["check_ok"] != true {
        return Err(format!("{file}: the run is void, its check failed"));
    }
    if told["optimised"] != true {
        return Err(format!("{file}: of a build that is not optimised"));
    }
    if let Some((setting, least)) = row.at_size {
        let size = told["settings"][setting].as_f64().unwrap_or_default();
        if size < least {
            let (size, least) = (number(size), number(least));
            return Err(format!("{file}: {setting} are {size}; it counts from {least}"));
        }
    }
    let few = told["settings"]["blocks"].as_f64().filter(|blocks| *blocks < BLOCKS_MIN);
    if let Some(few) = few {
        return Err(format!("{file}: of {few} blocks, and it counts from {BLOCKS_MIN}"));
    }
    let [median, low, high] = ["median", "low", "high"].map(|name| figure[name].as_f64());
    let estimate = || Some(Estimate { median: median?, low: low?, high: high? });
    estimate().ok_or_else(|| format!("{file}: {:?} was left out", row.figure))
}

pub(crate) fn json(checked: &[Checked]) -> Value {
    let count = |verdict: &str| checked.iter().filter(|row| row.verdict() == verdict).count();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "rows": checked.iter().map(Checked::json).collect::<Vec<_>>(),
        "reached": count("reached"),
        "unclear": count("unclear"),
        "missed": count("missed"),
        "not_measured": count("not measured"),
        "ok": checked.iter().all(|row| row.complaint().is_none()),
    })
}

pub(crate) fn print(out: Out, checked: &[Checked]) -> std::io::Result<()> {
    let mut header = HEADINGS.map(Column::right);
    header[0] = Column::left(HEADINGS[0]);
    header[4] = Column::left("");
    out.table(&header, checked.iter().map(|row| row.cells().to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: Row = row("so fast", AtLeast(0.5), "some", "a/b");

    fn check(row: Row, told: &Value) -> Checked {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("some.json"), told.to_string()).unwrap();
        Checked::of(row, dir.path())
    }

    fn results(low: f64, high: f64) -> Value {
        let figure =
            json!({ "name": "a / b", "median": low.midpoint(high), "low": low, "high": high });
        json!({ "check_ok": true, "optimised": true, "settings": { "n": 5 }, "figures": [figure] })
    }

    #[test]
    fn rows_are_reached_missed_or_unclear() {
        for (low, high, verdict) in
            [(0.4, 0.7, "reached"), (0.1, 0.6, "unclear"), (0.1, 0.4, "missed")]
        {
            let row = check(ROW, &results(low, high));
            assert_eq!(row.verdict(), verdict);
            assert_eq!(row.complaint().is_some(), verdict == "missed");
        }
        let missed = check(ROW, &results(0.2, 0.2)).complaint().unwrap();
        assert_eq!(missed, "so fast: 0.2 instead of >= 0.5");
        let row = Row { limit: Some(("at most", "a/b")), ..ROW };
        let missed = check(row, &results(0.2, 0.2)).complaint().unwrap();
        assert_eq!(missed, "so fast: 0.2 instead of >= 0.5; at most 0.2");
        let most = Row { bar: AtMost(0.5), ..ROW };
        assert_eq!(check(most, &results(0.6, 0.7)).verdict(), "missed");
    }

    #[test]
    fn a_row_whose_figure_is_missing_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let none = Checked::of(ROW, dir.path());
        assert_eq!(none.verdict(), "not measured");
        assert!(none.complaint().unwrap().contains("some.json"));
        let renamed = Row { figure: "a/c", ..ROW };
        let complaint = check(renamed, &results(1.0, 1.0)).complaint().unwrap();
        assert!(complaint.contains("some.json has no figure \"a/c\""), "{complaint}");
        for (name, value) in [("check_ok", json!(false)), ("optimised", json!(false))] {
            let mut told = results(1.0, 1.0);
            told[name] = value;
            assert_eq!(check(ROW, &told).verdict(), "not measured", "{name}");
        }
        let mut left_out = results(1.0, 1.0);
        left_out["figures"][0]["median"] = Value::Null;
        assert!(check(ROW, &left_out).complaint().unwrap().contains("left out"));
        let mut few = results(1.0, 1.0);
        few["settings"]["blocks"] = json!(9);
        assert!(check(ROW, &few).complaint().unwrap().contains("of 9 blocks"));
        let small = Row { at_size: Some(("n", 6.0)), ..ROW };
        assert_eq!(check(small, &results(1.0, 1.0)).verdict(), "not measured");
        assert_eq!(json(&[none])["ok"], false);
    }

    #[test]
    fn every_row_is_there_once() {
        let mut figures = ROWS.map(|row| (row.benchmark, row.figure)).to_vec();
        assert!(ROWS.iter().all(|row| row.limit.is_none_or(|(_, figure)| figure != row.figure)));
        figures.sort_unstable();
        figures.dedup();
        assert_eq!(figures.len(), ROWS.len());
    }
}
