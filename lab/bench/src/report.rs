//! Holds a benchmark's results: arms, figures, and their conditions. Writes them as JSON and as
//! tables.

use std::time::Duration;

use percolator_cli::output::{Column, Out, grouped};
use serde_json::{Value, json};

use crate::Turns;
use crate::statistics::Estimate;
use crate::system::{Load, machine};
use crate::tables::{self, FIGURES, figure_row, plain};
use crate::turns::{Measured, Turn};

/// A number over the rounds, with its goal and the paper's value.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) estimate: Option<Estimate>,
    /// The same number by processor time instead of elapsed time.
    per_cpu: Option<Estimate>,
    bar: Option<Bar>,
    paper: Option<f64>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

impl Bar {
    pub(crate) fn value(self) -> f64 {
        match self {
            Bar::AtLeast(value) | Bar::AtMost(value) => value,
        }
    }

    pub(crate) fn is_at_most(self) -> bool {
        matches!(self, Bar::AtMost(_))
    }

    /// Compares an estimate with the goal. `reached` goes by the median. `missed` means that
    /// even the better end of the interval misses it. Otherwise `unclear`.
    pub(crate) fn verdict(self, Estimate { median, low, high }: Estimate) -> &'static str {
        let (reached, missed) = match self {
            Bar::AtLeast(bar) => (median >= bar, high < bar),
            Bar::AtMost(bar) => (median <= bar, low > bar),
        };
        match (reached, missed) {
            (true, _) => "reached",
            (_, true) => "missed",
            _ => "unclear",
        }
    }
}

impl std::fmt::Display for Bar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.is_at_most() { "<=" } else { ">=" };
        write!(f, "{sign} {}", number(self.value()))
    }
}

pub(crate) fn number(value: f64) -> String {
    match value {
        value if value >= 1000.0 => grouped(value as u64),
        value if value != 0.0 && value.abs() < 0.1 => format!("{value:.4}"),
        value => format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, estimate: Option<Estimate>) -> Self {
        Figure { name: name.into(), estimate, per_cpu: None, bar: None, paper: None }
    }

    pub(crate) fn alone(name: impl Into<String>, value: Option<f64>) -> Self {
        Figure::new(name, value.map(Estimate::alone))
    }

    pub(crate) fn bar(self, bar: impl Into<Option<Bar>>) -> Self {
        Figure { bar: bar.into(), ..self }
    }

    pub(crate) fn paper(self, paper: impl Into<Option<f64>>) -> Self {
        Figure { paper: paper.into(), ..self }
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "median": self.estimate.map(|e| e.median),
            "low": self.estimate.map(|e| e.low),
            "high": self.estimate.map(|e| e.high),
            "median_per_cpu": self.per_cpu.map(|e| e.median),
            "bar": self.bar.map(Bar::value),
            "at_most": self.bar.map(Bar::is_at_most),
            "paper": self.paper,
            "verdict": self.bar.zip(self.estimate).map(|(bar, estimate)| bar.verdict(estimate)),
        })
    }
}

pub(crate) type Of = fn(&Turn) -> Option<f64>;

/// A figure of arms that is computed round by round: a number of one arm, or its ratio to
/// another's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    above: &'static str,
    below: Option<&'static str>,
    /// A part of the figure's name.
    what: &'static str,
    /// The whole name, if it is a different one.
    name: Option<&'static str>,
    of: Of,
    /// The same number by processor time.
    of_cpu: Option<Of>,
    bar: Option<Bar>,
    paper: Option<f64>,
}

pub(crate) const fn rate(above: &'static str, below: &'static str) -> Row {
    let row = ratio(above, below, "", |turn| Some(turn.rate));
    Row { of_cpu: Some(|turn| turn.cpu_rate), ..row }
}

/// The ratio of the median times of two arms' operations.
pub(crate) const fn p50(above: &'static str, below: &'static str) -> Row {
    ratio(above, below, " p50", |turn| Some(turn.p50))
}

/// The ratio of the times at the 99th percentile.
pub(crate) const fn p99(above: &'static str, below: &'static str) -> Row {
    ratio(above, below, " p99", |turn| Some(turn.p99))
}

/// The ratio of a number of two arms.
pub(crate) const fn ratio(
    above: &'static str,
    below: &'static str,
    what: &'static str,
    of: Of,
) -> Row {
    Row { below: Some(below), ..own(above, what, of) }
}

/// A number of one arm. The figure's name begins with the arm's.
pub(crate) const fn own(arm: &'static str, what: &'static str, of: Of) -> Row {
    Row { above: arm, below: None, what, name: None, of, of_cpu: None, bar: None, paper: None }
}

/// A number of one arm, under another name.
pub(crate) const fn named(name: &'static str, arm: &'static str, of: Of) -> Row {
    Row { name: Some(name), ..own(arm, "", of) }
}

impl Row {
    pub(crate) const fn at_least(self, bar: f64) -> Self {
        Row { bar: Some(Bar::AtLeast(bar)), ..self }
    }

    pub(crate) const fn at_most(self, bar: f64) -> Self {
        Row { bar: Some(Bar::AtMost(bar)), ..self }
    }

    pub(crate) const fn paper(self, paper: f64) -> Self {
        Row { paper: Some(paper), ..self }
    }

    /// Computes the figure; `None` if an arm was left out.
    fn figure(&self, turns: Turns, arms: &[Measured]) -> Option<Figure> {
        let above = arm(arms, self.above)?;
        let below = self.below.map(|name| arm(arms, name).ok_or(())).transpose().ok()?;
        let estimate = |of: Of| {
            let numbers: Vec<f64> = match below {
                None => above.turns.iter().filter_map(of).collect(),
                Some(below) => {
                    let rounds = above.turns.iter().zip(&below.turns);
                    rounds.filter_map(|(a, b)| Some(of(a)? / of(b)?)).collect()
                }
            };
            Estimate::of(&numbers, turns.seed)
        };
        let name = match (self.name, self.below) {
            (Some(name), _) => name.to_owned(),
            (None, None) => format!("{}{}", self.above, self.what),
            (None, Some(below)) => format!("{}/{below}{}", self.above, self.what),
        };
        Some(Figure {
            name,
            estimate: estimate(self.of),
            per_cpu: self.of_cpu.and_then(estimate),
            bar: self.bar,
            paper: self.paper,
        })
    }
}

/// Finds the arm of this name, unless it was left out.
pub(crate) fn arm<'a>(arms: &'a [Measured], name: &str) -> Option<&'a Measured> {
    arms.iter().find(|arm| arm.name == name)
}

/// Computes the figures of arms, without those of arms that were left out.
pub(crate) fn figures(turns: Turns, arms: &[Measured], rows: &[Row]) -> Vec<Figure> {
    rows.iter().filter_map(|row| row.figure(turns, arms)).collect()
}

/// A condition without which the figures are void.
#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) name: String,
    pub(crate) ok: bool,
    /// The observation.
    pub(crate) found: String,
}

impl Condition {
    pub(crate) fn new(name: impl Into<String>, ok: bool, found: impl Into<String>) -> Self {
        Condition { name: name.into(), ok, found: found.into() }
    }
}

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) benchmark: &'static str,
    settings: Value,
    /// Fields that only this benchmark has.
    own: Value,
    figures: Vec<Figure>,
    check: Value,
    /// The reason why the figures are void, and the remedy.
    pub(crate) void: Option<(String, String)>,
    /// The plots as SVG documents, each with its file name.
    pub(crate) plots: Vec<(String, String)>,
}

impl Report {
    pub(crate) fn new(benchmark: &'static str, settings: Value, figures: Vec<Figure>) -> Self {
        let (own, check) = (json!({}), Value::Null);
        Report { benchmark, settings, own, figures, check, void: None, plots: Vec::new() }
    }

    pub(crate) fn of_arms(
        benchmark: &'static str,
        settings: Value,
        turns: Turns,
        arms: &[Measured],
        figures: Vec<Figure>,
    ) -> Self {
        let mut report = Report::new(benchmark, settings, figures);
        report.settings["blocks"] = json!(turns.blocks());
        report.settings["block_ms"] = json!(turns.block().as_millis() as u64);
        report.settings["seed"] = json!(turns.seed);
        report.with("arms", arms.iter().map(arm_json).collect())
    }

    pub(crate) fn with(mut self, name: &str, value: Value) -> Self {
        self.own[name] = value;
        self
    }

    /// Sets the benchmark's own fields to those of an object.
    pub(crate) fn with_all(self, own: Value) -> Self {
        Report { own, ..self }
    }

    pub(crate) fn plot(mut self, name: &str, svg: String) -> Self {
        self.plots.push((name.to_owned(), svg));
        self
    }

    /// Adds the final counts, and the reason if they make the figures void.
    pub(crate) fn check(self, check: Value, void: Option<(String, String)>) -> Self {
        Report { check, void, ..self }
    }

    /// Adds the final counts. If they are wrong, the only remedy is a report.
    pub(crate) fn check_counts(self, check: Value, is_ok: bool, wrong: &str) -> Self {
        let help = "the figures are void; please report this with the settings above";
        self.check(check, (!is_ok).then(|| (wrong.to_owned(), help.to_owned())))
    }

    pub(crate) fn conditions(self, conditions: &[Condition], help: &str) -> Self {
        let json = |c: &Condition| json!({ "condition": c.name, "ok": c.ok, "found": c.found });
        let broken = conditions.iter().filter(|condition| !condition.ok);
        let broken: String = broken.map(|c| format!("\n  {}: {}", c.name, c.found)).collect();
        let void = || (format!("the figures are void:{broken}"), help.to_owned());
        let void = (!broken.is_empty()).then(void);
        self.check(conditions.iter().map(json).collect(), void)
    }

    /// The report in JSON, with the load of the machine before and after.
    pub(crate) fn json(&self, load: [Load; 2]) -> Value {
        let mut told = self.own.clone();
        for (name, value) in [
            ("benchmark", json!(self.benchmark)),
            ("version", json!(env!("CARGO_PKG_VERSION"))),
            ("optimised", json!(!cfg!(debug_assertions))),
            ("settings", self.settings.clone()),
            ("machine", machine(load)),
            ("figures", self.figures.iter().map(Figure::json).collect()),
            ("check", self.check.clone()),
            ("check_ok", json!(self.void.is_none())),
            ("void", json!(self.void.as_ref().map(|(what, _)| what))),
        ] {
            told[name] = value;
        }
        told
    }
}

/// The remedy for conditions that only a fault of ours can break.
pub(crate) const PLEASE_REPORT: &str = "please report this with the settings above";

fn arm_json(arm: &Measured) -> Value {
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    let each = |time: Option<Duration>| seconds(time).map(|s| arm.operations as f64 / s);
    let micros = |quantile| arm.latencies.value_at_quantile(quantile) as f64 / 1000.0;
    let spent = &arm.spent;
    json!({
        "name": arm.name,
        "operation": arm.operation,
        "operations": arm.operations,
        "seconds": spent.elapsed.as_secs_f64(),
        "client_cpu_seconds": seconds(spent.client_cpu),
        "server_cpu_seconds": seconds(spent.server_cpu),
        "ops_per_s": each(Some(spent.elapsed)).map(f64::round),
        "ops_per_cpu_s": each(spent.cpu()).filter(|rate| rate.is_finite()).map(f64::round),
        "p50_us": micros(0.5),
        "p99_us": micros(0.99),
        "read_calls": spent.io.map(|io| io.read_calls),
        "write_calls": spent.io.map(|io| io.write_calls),
        "written_bytes": spent.io.map(|io| io.written_bytes),
    })
}

/// The parts that a benchmark left out, each with the remedy.
pub(crate) fn left_out(told: &Value) -> Vec<String> {
    let all = ["left_out", "missing"].map(|name| told[name].as_array());
    all.into_iter().flatten().flatten().map(plain).collect()
}

pub(crate) fn print(out: Out, told: &Value) -> std::io::Result<()> {
    let load = |when: &str| told["machine"][when]["load_1m"].as_f64();
    let load = |when| load(when).map_or("unknown".to_owned(), |load| format!("{load:.2}"));
    let build = if told["optimised"] == true { "" } else { "; NOT OPTIMISED" };
    out.line(&format!(
        "{}: {}; load {} before, {} after{build}",
        plain(&told["benchmark"]),
        tables::settings(told),
        load("before"),
        load("after"),
    ))?;
    if let Some(note) = told["note"].as_str() {
        out.line(note)?;
    }
    let header = |names: &[&str]| -> Vec<Column> {
        let column = |(at, name): (usize, &&str)| {
            if at == 0 || at + 1 == names.len() {
                Column::left(*name)
            } else {
                Column::right(*name)
            }
        };
        names.iter().enumerate().map(column).collect()
    };
    for table in tables::of(told) {
        out.line(&format!("\n{}\n", table.about))?;
        out.table(&header(&table.header), table.rows)?;
    }
    out.line("")?;
    let figures = told["figures"].as_array().into_iter().flatten();
    out.table(&header(&FIGURES), figures.map(|figure| figure_row(figure).into()).collect())?;
    if told["check"].is_null() {
        return Ok(());
    }
    out.line("\nchecked:")?;
    match &told["check"] {
        Value::Array(conditions) => {
            for condition in conditions {
                let ok = if condition["ok"] == true { "yes" } else { "NO " };
                let [name, found] = ["condition", "found"].map(|of| plain(&condition[of]));
                out.line(&format!("  {ok} {name}: {found}"))?;
            }
            Ok(())
        }
        counts => out.line(&format!("  {}", tables::list(counts))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_reached_by_the_median_alone() {
        let verdict = |bar: Bar, median, low, high| {
            let estimate = Some(Estimate { median, low, high });
            Figure::new("", estimate).bar(bar).json()["verdict"].clone()
        };
        assert_eq!(verdict(Bar::AtMost(3.0), 3.0, 2.0, 9.0), "reached");
        assert_eq!(verdict(Bar::AtMost(3.0), 3.1, 2.0, 9.0), "unclear");
        assert_eq!(verdict(Bar::AtMost(3.0), 3.9, 3.1, 9.0), "missed");
        assert_eq!(verdict(Bar::AtLeast(3.0), 3.0, 2.0, 9.0), "reached");
        assert_eq!(verdict(Bar::AtLeast(3.0), 2.9, 2.0, 3.1), "unclear");
        assert_eq!(verdict(Bar::AtLeast(3.0), 2.0, 1.0, 2.9), "missed");
    }
}
