//! The figures of `bench oracle`, as JSON and as tables.

use serde_json::{Value, json};

use super::{Arm, Measured, Outcome, Settings};
use crate::bench::statistics::Estimate;
use crate::output::{Column, Out, grouped};

/// A figure with the goal that it is measured against.
struct Goal {
    name: &'static str,
    estimate: Option<Estimate>,
    bar: f64,
    /// Whether the figure is to be at most the bar, instead of at least.
    at_most: bool,
}

impl Goal {
    fn verdict(&self) -> Option<&'static str> {
        let Estimate { median, low, high } = self.estimate?;
        let (reached, missed) = match self.at_most {
            true => (median <= self.bar, low > self.bar),
            false => (median >= self.bar, high < self.bar),
        };
        Some(match (reached, missed) {
            (true, _) => "reached",
            (_, true) => "missed",
            _ => "unclear",
        })
    }
}

fn goals(settings: &Settings, result: &Outcome) -> [Goal; 3] {
    let turns = |arm: Arm| &result.arm(arm).turns;
    let ratios = |above: Vec<f64>, below: Vec<f64>| {
        let ratios: Vec<f64> = above.iter().zip(&below).map(|(a, b)| a / b).collect();
        Estimate::of(&ratios, settings.seed)
    };
    let rates = |arm| turns(arm).iter().map(|(rate, _)| *rate).collect::<Vec<_>>();
    let p99s = |arm| turns(arm).iter().map(|(_, p99)| *p99).collect::<Vec<_>>();
    [
        Goal {
            name: "batched/unbatched rate",
            estimate: ratios(rates(Arm::Batched), rates(Arm::Unbatched)),
            bar: 100.0,
            at_most: false,
        },
        Goal {
            name: "batched timestamps per s",
            estimate: Estimate::of(&rates(Arm::Batched), settings.seed),
            bar: 2_000_000.0,
            at_most: false,
        },
        Goal {
            name: "half_load/echo p99",
            estimate: ratios(p99s(Arm::HalfLoad), p99s(Arm::Echo)),
            bar: 3.0,
            at_most: true,
        },
    ]
}

fn per_second(measured: &Measured) -> f64 {
    measured.all.operations as f64 / measured.all.elapsed.as_secs_f64()
}

/// Of both processes.
fn per_cpu_second(measured: &Measured) -> Option<f64> {
    let cpu = measured.all.client_cpu? + measured.all.server_cpu?;
    Some(measured.all.operations as f64 / cpu.as_secs_f64())
}

fn micros(measured: &Measured, quantile: f64) -> f64 {
    measured.all.latencies.value_at_quantile(quantile) as f64 / 1000.0
}

/// The settings and figures in JSON.
pub(crate) fn json(settings: &Settings, result: &Outcome) -> Value {
    let arm = |measured: &Measured| {
        json!({
            "name": measured.arm.name(),
            "operation": measured.arm.description(),
            "operations": measured.all.operations,
            "seconds": measured.all.elapsed.as_secs_f64(),
            "client_cpu_seconds": measured.all.client_cpu.map(|cpu| cpu.as_secs_f64()),
            "server_cpu_seconds": measured.all.server_cpu.map(|cpu| cpu.as_secs_f64()),
            "ops_per_s": per_second(measured).round(),
            "ops_per_cpu_s": per_cpu_second(measured).map(f64::round),
            "p50_us": micros(measured, 0.5),
            "p99_us": micros(measured, 0.99),
        })
    };
    let goal = |goal: &Goal| {
        json!({
            "name": goal.name,
            "median": goal.estimate.map(|e| e.median),
            "low": goal.estimate.map(|e| e.low),
            "high": goal.estimate.map(|e| e.high),
            "bar": goal.bar,
            "at_most": goal.at_most,
            "verdict": goal.verdict(),
        })
    };
    json!({
        "benchmark": "oracle",
        "version": env!("CARGO_PKG_VERSION"),
        "optimised": !cfg!(debug_assertions),
        "settings": {
            "callers": settings.callers,
            "blocks": settings.blocks(),
            "block_ms": settings.block().as_millis() as u64,
            "seed": settings.seed,
            "processes": "one server, one client",
        },
        "machine": {
            "os": std::env::consts::OS,
            "arch": std::env::consts::ARCH,
            "cpus": std::thread::available_parallelism().map_or(0, usize::from),
            "load_1m_before": result.load[0],
            "load_1m_after": result.load[1],
        },
        "arms": result.arms.iter().map(arm).collect::<Vec<_>>(),
        "goals": goals(settings, result).iter().map(goal).collect::<Vec<_>>(),
        "check": { "timestamps": result.timestamps, "wrong": result.wrong },
        "check_ok": result.wrong == 0,
    })
}

/// Prints the settings and figures as tables.
pub(crate) fn print(out: Out, settings: &Settings, result: &Outcome) -> anyhow::Result<()> {
    let build = if cfg!(debug_assertions) { ", NOT OPTIMISED" } else { "" };
    let load = |load: Option<f64>| load.map_or("unknown".to_owned(), |load| format!("{load:.2}"));
    out.line(&format!(
        "timestamps over loopback: {} callers, server and client a process each{build}\n{} blocks of \
         {} ms an arm, in turns; seed {}; load {} before, {} after\n",
        grouped(settings.callers as u64),
        settings.blocks(),
        settings.block().as_millis(),
        settings.seed,
        load(result.load[0]),
        load(result.load[1]),
    ))?;
    let rows = result.arms.iter().map(|measured| {
        let cpu = per_cpu_second(measured).filter(|rate| rate.is_finite());
        vec![
            measured.arm.name().to_owned(),
            grouped(per_second(measured) as u64),
            cpu.map_or(String::new(), |rate| grouped(rate as u64)),
            format!("{:.1} µs", micros(measured, 0.5)),
            format!("{:.1} µs", micros(measured, 0.99)),
            measured.arm.description().to_owned(),
        ]
    });
    let mut header = vec![Column::left("arm")];
    header.extend(["ops/s", "ops/CPU-s", "p50", "p99"].map(Column::right));
    header.push(Column::left("one operation"));
    out.table(&header, rows.collect())?;
    out.line("")?;
    let rows = goals(settings, result).into_iter().map(|goal| {
        let number = |value: f64| match value {
            value if value >= 1000.0 => grouped(value as u64),
            value => format!("{value:.2}"),
        };
        let range = |e: Estimate| format!("{} to {}", number(e.low), number(e.high));
        vec![
            goal.name.to_owned(),
            goal.estimate.map_or(String::new(), |e| number(e.median)),
            goal.estimate.map_or(String::new(), range),
            format!("{} {}", if goal.at_most { "<=" } else { ">=" }, number(goal.bar)),
            goal.verdict().unwrap_or_default().to_owned(),
        ]
    });
    let mut header = vec![Column::left("figure")];
    header.extend(["median", "95 %", "goal"].map(Column::right));
    header.push(Column::left(""));
    out.table(&header, rows.collect())?;
    out.line(&format!(
        "\nchecked: {} timestamps, {} twice or backwards",
        grouped(result.timestamps),
        grouped(result.wrong)
    ))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_reached_by_the_median_alone() {
        let verdict = |at_most, median, low, high| {
            let estimate = Some(Estimate { median, low, high });
            Goal { name: "", estimate, bar: 3.0, at_most }.verdict()
        };
        assert_eq!(verdict(true, 3.0, 2.0, 9.0), Some("reached"));
        assert_eq!(verdict(true, 3.1, 2.0, 9.0), Some("unclear"));
        assert_eq!(verdict(true, 3.9, 3.1, 9.0), Some("missed"));
        assert_eq!(verdict(false, 3.0, 2.0, 9.0), Some("reached"));
        assert_eq!(verdict(false, 2.9, 2.0, 3.1), Some("unclear"));
        assert_eq!(verdict(false, 2.0, 1.0, 2.9), Some("missed"));
    }
}
