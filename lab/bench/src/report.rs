//! Arms and figures of a benchmark, as JSON and as tables.

use percolator_cli::output::{Column, Out, grouped};
use serde_json::{Value, json};

use crate::Turns;
use crate::statistics::Estimate;
use crate::system::{Load, machine};
use crate::turns::{Measured, Turn};

/// A number over the rounds, and what it is measured against.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) estimate: Option<Estimate>,
    /// The same by processor time instead of time.
    pub(crate) per_cpu: Option<Estimate>,
    /// What the project wants to reach.
    pub(crate) bar: Option<Bar>,
    /// What the paper has.
    pub(crate) paper: Option<f64>,
}

/// A goal.
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

    /// How a number stands to it: `reached` by the median, `missed` even by the better end of the
    /// interval, or `unclear`.
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

/// A number of a table.
pub(crate) fn number(value: f64) -> String {
    match value {
        value if value >= 1000.0 => grouped(value as u64),
        value if value != 0.0 && value.abs() < 0.1 => format!("{value:.4}"),
        value => format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}

impl Figure {
    /// A number without a goal.
    pub(crate) fn new(name: impl Into<String>, estimate: Option<Estimate>) -> Self {
        Figure { name: name.into(), estimate, per_cpu: None, bar: None, paper: None }
    }

    /// A number without a spread.
    pub(crate) fn alone(name: impl Into<String>, value: Option<f64>) -> Self {
        let estimate = value.map(|value| Estimate { median: value, low: value, high: value });
        Figure::new(name, estimate)
    }

    /// How many times as often an operation of one arm is done as one of another.
    pub(crate) fn rates(turns: Turns, above: &Measured, below: &Measured) -> Self {
        let cpu_rate = |turn: &Turn| turn.cpu_rate;
        Figure {
            name: format!("{} / {}", above.name, below.name),
            estimate: ratio(turns, above, below, |turn| Some(turn.rate)),
            per_cpu: ratio(turns, above, below, cpu_rate),
            bar: None,
            paper: None,
        }
    }

    /// How many times as long something of one arm takes as of another.
    pub(crate) fn latencies(
        turns: Turns,
        above: &Measured,
        below: &Measured,
        what: &str,
        of: impl Fn(&Turn) -> f64,
    ) -> Self {
        Figure {
            name: format!("{} / {} {what}", above.name, below.name),
            estimate: ratio(turns, above, below, |turn| Some(of(turn))),
            per_cpu: None,
            bar: None,
            paper: None,
        }
    }

    /// A number of each round.
    pub(crate) fn each(name: impl Into<String>, turns: Turns, values: &[f64]) -> Self {
        let estimate = Estimate::of(values, turns.seed);
        Figure { name: name.into(), estimate, per_cpu: None, bar: None, paper: None }
    }

    pub(crate) fn bar(self, bar: Bar) -> Self {
        Figure { bar: Some(bar), ..self }
    }

    pub(crate) fn paper(self, paper: f64) -> Self {
        Figure { paper: Some(paper), ..self }
    }

    /// How the figure stands to its bar.
    fn verdict(&self) -> Option<&'static str> {
        Some(self.bar?.verdict(self.estimate?))
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "name": self.name.replace(" / ", "/"),
            "median": self.estimate.map(|e| e.median),
            "low": self.estimate.map(|e| e.low),
            "high": self.estimate.map(|e| e.high),
            "median_per_cpu": self.per_cpu.map(|e| e.median),
            "bar": self.bar.map(Bar::value),
            "at_most": self.bar.map(Bar::is_at_most),
            "paper": self.paper,
            "verdict": self.verdict(),
        })
    }

    fn row(&self, with_per_cpu: bool) -> Vec<String> {
        let maybe = |value: Option<f64>| value.map_or(String::new(), number);
        let spread = self.estimate.filter(|e| e.low < e.high);
        let mut row = vec![
            self.name.clone(),
            maybe(self.estimate.map(|e| e.median)),
            spread.map_or(String::new(), |e| format!("{} to {}", number(e.low), number(e.high))),
        ];
        row.extend(with_per_cpu.then(|| maybe(self.per_cpu.map(|e| e.median))));
        row.push(self.bar.map_or(String::new(), |bar| bar.to_string()));
        row.push(maybe(self.paper));
        row.push(self.verdict().unwrap_or_default().to_owned());
        row
    }
}

/// Prints figures as a table.
pub(crate) fn print_figures(out: Out, figures: &[Figure]) -> std::io::Result<()> {
    let mut header = vec![Column::left("figure")];
    let with_per_cpu = figures.iter().any(|figure| figure.per_cpu.is_some());
    header.extend(["median", "95 %"].map(Column::right));
    header.extend(with_per_cpu.then(|| Column::right("per CPU-s")));
    header.extend(["bar", "paper"].map(Column::right));
    header.push(Column::left(""));
    out.table(&header, figures.iter().map(|figure| figure.row(with_per_cpu)).collect())
}

/// The ratio of two arms, round by round.
fn ratio(
    turns: Turns,
    above: &Measured,
    below: &Measured,
    of: impl Fn(&Turn) -> Option<f64>,
) -> Option<Estimate> {
    let rounds = above.turns.iter().zip(&below.turns);
    let ratios: Vec<f64> = rounds.filter_map(|(a, b)| Some(of(a)? / of(b)?)).collect();
    Estimate::of(&ratios, turns.seed)
}

fn per_second(measured: &Measured) -> f64 {
    measured.operations as f64 / measured.spent.elapsed.as_secs_f64()
}

fn per_cpu_second(measured: &Measured) -> Option<f64> {
    let rate = measured.operations as f64 / measured.spent.cpu()?.as_secs_f64();
    Some(rate).filter(|rate| rate.is_finite())
}

fn micros(measured: &Measured, quantile: f64) -> f64 {
    measured.latencies.value_at_quantile(quantile) as f64 / 1000.0
}

fn arm_json(measured: &Measured) -> Value {
    let seconds = |cpu: Option<std::time::Duration>| cpu.map(|cpu| cpu.as_secs_f64());
    json!({
        "name": measured.name,
        "operation": measured.operation,
        "operations": measured.operations,
        "seconds": measured.spent.elapsed.as_secs_f64(),
        "client_cpu_seconds": seconds(measured.spent.client_cpu),
        "server_cpu_seconds": seconds(measured.spent.server_cpu),
        "ops_per_s": per_second(measured).round(),
        "ops_per_cpu_s": per_cpu_second(measured).map(f64::round),
        "p50_us": micros(measured, 0.5),
        "p99_us": micros(measured, 0.99),
        "read_calls": measured.spent.io.map(|io| io.read_calls),
        "write_calls": measured.spent.io.map(|io| io.write_calls),
        "written_bytes": measured.spent.io.map(|io| io.written_bytes),
    })
}

/// What a benchmark has found.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    pub(crate) benchmark: &'static str,
    pub(crate) turns: Turns,
    /// Before and after.
    pub(crate) load: [Load; 2],
    pub(crate) arms: &'a [Measured],
    pub(crate) figures: Vec<Figure>,
}

impl Report<'_> {
    /// In JSON; `settings` and `check` are the benchmark's own objects.
    pub(crate) fn json(&self, mut settings: Value, check: Value, check_ok: bool) -> Value {
        settings["blocks"] = json!(self.turns.blocks());
        settings["block_ms"] = json!(self.turns.block().as_millis() as u64);
        settings["seed"] = json!(self.turns.seed);
        json!({
            "benchmark": self.benchmark,
            "version": env!("CARGO_PKG_VERSION"),
            "optimised": !cfg!(debug_assertions),
            "settings": settings,
            "machine": machine(self.load),
            "arms": self.arms.iter().map(arm_json).collect::<Vec<_>>(),
            "figures": self.figures.iter().map(Figure::json).collect::<Vec<_>>(),
            "check": check,
            "check_ok": check_ok,
        })
    }

    /// Prints tables, between what the benchmark says of itself and of its check.
    pub(crate) fn print(&self, out: Out, about: &str, check: &str) -> std::io::Result<()> {
        let build = if cfg!(debug_assertions) { "; NOT OPTIMISED" } else { "" };
        let [before, after] = self
            .load
            .map(|load| load.processes.map_or("unknown".to_owned(), |n| format!("{n:.2}")));
        let (blocks, ms, seed) =
            (self.turns.blocks(), self.turns.block().as_millis(), self.turns.seed);
        out.line(&format!(
            "{about}\n{blocks} blocks of {ms} ms an arm, in turns; seed {seed}; load {before} before, \
             {after} after{build}\n"
        ))?;
        let mut header = vec![Column::left("arm")];
        header.extend(["ops/s", "ops/CPU-s", "p50", "p99"].map(Column::right));
        header.push(Column::left("one operation"));
        out.table(&header, self.arms.iter().map(arm_row).collect())?;
        out.line("")?;
        print_figures(out, &self.figures)?;
        out.line(&format!("\nchecked: {check}"))
    }
}

fn arm_row(measured: &Measured) -> Vec<String> {
    vec![
        measured.name.to_owned(),
        grouped(per_second(measured) as u64),
        per_cpu_second(measured).map_or(String::new(), |rate| grouped(rate as u64)),
        format!("{:.1} µs", micros(measured, 0.5)),
        format!("{:.1} µs", micros(measured, 0.99)),
        measured.operation.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_reached_by_the_median_alone() {
        let verdict = |bar, median, low, high| {
            let estimate = Some(Estimate { median, low, high });
            let (name, per_cpu, paper) = (String::new(), None, None);
            Figure { name, estimate, per_cpu, bar: Some(bar), paper }.verdict()
        };
        assert_eq!(verdict(Bar::AtMost(3.0), 3.0, 2.0, 9.0), Some("reached"));
        assert_eq!(verdict(Bar::AtMost(3.0), 3.1, 2.0, 9.0), Some("unclear"));
        assert_eq!(verdict(Bar::AtMost(3.0), 3.9, 3.1, 9.0), Some("missed"));
        assert_eq!(verdict(Bar::AtLeast(3.0), 3.0, 2.0, 9.0), Some("reached"));
        assert_eq!(verdict(Bar::AtLeast(3.0), 2.9, 2.0, 3.1), Some("unclear"));
        assert_eq!(verdict(Bar::AtLeast(3.0), 2.0, 1.0, 2.9), Some("missed"));
    }
}
