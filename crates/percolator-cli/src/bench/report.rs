//! What `bench micro` prints.

use serde_json::{Value, json};

use crate::bench::bed::{CACHE_BYTES, KEY_BYTES, VALUE_BYTES};
use crate::bench::micro::{Arm, Load, Measured, Outcome, Settings};
use crate::bench::statistics::Estimate;
use crate::output::{Column, Out, grouped};

/// One arm's rate over another's.
struct Ratio {
    over: (Arm, Arm),
    /// What the project wants to reach.
    bar: Option<f64>,
    /// What the paper's Figure 8 has.
    paper: Option<f64>,
}

const RATIOS: [Ratio; 8] = [
    Ratio { over: (Arm::RawRead, Arm::FjallGet), bar: Some(0.6), paper: None },
    Ratio { over: (Arm::RawWrite, Arm::FjallInsert), bar: Some(0.6), paper: None },
    Ratio { over: (Arm::RawAppend, Arm::FjallInsert), bar: Some(0.6), paper: None },
    Ratio { over: (Arm::TxRead, Arm::RawRead), bar: Some(0.80), paper: Some(0.94) },
    Ratio { over: (Arm::SnapshotRead, Arm::RawRead), bar: None, paper: None },
    Ratio { over: (Arm::TxWrite, Arm::RawWrite), bar: Some(0.23), paper: Some(0.23) },
    Ratio { over: (Arm::TxWrite, Arm::RawAppend), bar: Some(0.23), paper: Some(0.23) },
    Ratio { over: (Arm::TwoPhases, Arm::RawAppend), bar: None, paper: Some(0.23) },
];

impl Ratio {
    fn name(&self) -> String {
        format!("{} / {}", self.over.0.name(), self.over.1.name())
    }

    /// The ratio of rates, round by round.
    fn estimate(
        &self,
        settings: &Settings,
        result: &Outcome,
        rates: impl Fn(&Measured) -> &[f64],
    ) -> Option<Estimate> {
        let above = rates(result.arm(self.over.0)?);
        let below = rates(result.arm(self.over.1)?);
        let ratios: Vec<f64> = above.iter().zip(below).map(|(a, b)| a / b).collect();
        Estimate::of(&ratios, settings.seed)
    }

    /// How the ratio stands to its bar: `reached` by the median, `missed` even by the upper end of the
    /// interval, or `unclear`.
    fn verdict(&self, estimate: Option<Estimate>) -> Option<&'static str> {
        let (estimate, bar) = (estimate?, self.bar?);
        Some(match estimate {
            Estimate { median, .. } if median >= bar => "reached",
            Estimate { high, .. } if high < bar => "missed",
            _ => "unclear",
        })
    }
}

fn per_second(measured: &Measured) -> f64 {
    measured.operations as f64 / measured.elapsed.as_secs_f64()
}

fn per_cpu_second(measured: &Measured) -> Option<f64> {
    Some(measured.operations as f64 / measured.cpu?.as_secs_f64())
}

fn micros(measured: &Measured, quantile: f64) -> f64 {
    measured.latencies.value_at_quantile(quantile) as f64 / 1000.0
}

/// The settings and figures in JSON.
pub(crate) fn json(settings: &Settings, result: &Outcome) -> Value {
    let load = |load: Load| json!({ "load_1m": load.processes, "cpu_pressure_10s": load.pressure });
    let arms: Vec<Value> = result.arms.iter().map(arm_json).collect();
    let ratio = |ratio: &Ratio| {
        let wall = ratio.estimate(settings, result, |m| &m.rates);
        let cpu = ratio.estimate(settings, result, |m| &m.cpu_rates);
        json!({
            "name": ratio.name().replace(' ', ""),
            "median": wall.map(|e| e.median),
            "low": wall.map(|e| e.low),
            "high": wall.map(|e| e.high),
            "median_per_cpu": cpu.map(|e| e.median),
            "bar": ratio.bar,
            "paper": ratio.paper,
            "verdict": ratio.verdict(wall),
        })
    };
    json!({
        "benchmark": "micro",
        "version": env!("CARGO_PKG_VERSION"),
        "optimised": !cfg!(debug_assertions),
        "settings": {
            "durability": settings.durability.name(),
            "cells": settings.cells,
            "key_bytes": KEY_BYTES,
            "value_bytes": VALUE_BYTES,
            "cache_bytes": CACHE_BYTES,
            "threads": 1,
            "blocks": settings.blocks(),
            "block_ms": settings.block().as_millis() as u64,
            "seed": settings.seed,
            "data": settings.dir.display().to_string(),
        },
        "machine": {
            "os": std::env::consts::OS,
            "arch": std::env::consts::ARCH,
            "cpus": std::thread::available_parallelism().map_or(0, usize::from),
            "before": load(result.before),
            "after": load(result.after),
        },
        "arms": arms,
        "ratios": RATIOS.iter().map(ratio).collect::<Vec<_>>(),
        "check": { "cells": result.check.cells, "wrong": result.check.wrong },
        "check_ok": result.check.wrong == 0,
    })
}

fn arm_json(measured: &Measured) -> Value {
    json!({
        "name": measured.arm.name(),
        "operation": measured.arm.description(),
        "operations": measured.operations,
        "seconds": measured.elapsed.as_secs_f64(),
        "cpu_seconds": measured.cpu.map(|cpu| cpu.as_secs_f64()),
        "ops_per_s": per_second(measured).round(),
        "ops_per_cpu_s": per_cpu_second(measured).map(f64::round),
        "p50_us": micros(measured, 0.5),
        "p99_us": micros(measured, 0.99),
    })
}

/// Prints the settings and figures as tables.
pub(crate) fn print(out: Out, settings: &Settings, result: &Outcome) -> anyhow::Result<()> {
    let build = if cfg!(debug_assertions) { ", NOT OPTIMISED" } else { "" };
    out.line(&format!(
        "single cells at random: {} cells of {KEY_BYTES} + {VALUE_BYTES} bytes, cached, one thread, \
         durability {}{build}\n{} blocks of {} ms an arm, in turns; seed {}; data in {}",
        grouped(settings.cells as u64),
        settings.durability.name(),
        settings.blocks(),
        settings.block().as_millis(),
        settings.seed,
        settings.dir.display(),
    ))?;
    let load = |load: Load| load.processes.map_or("unknown".to_owned(), |n| format!("{n:.2}"));
    out.line(&format!("load {} before, {} after\n", load(result.before), load(result.after)))?;
    let arms = result.arms.iter().map(|measured| {
        let cpu = per_cpu_second(measured);
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
    out.table(&header, arms.collect())?;
    out.line("")?;
    let ratios = RATIOS.iter().map(|ratio| ratio_row(ratio, settings, result));
    let mut header = vec![Column::left("ratio")];
    header.extend(["median", "95 %", "per CPU-s", "bar", "paper"].map(Column::right));
    header.push(Column::left(""));
    out.table(&header, ratios.collect())?;
    out.line(&format!(
        "\nchecked: {} cells read in each of the four copies, {} wrong",
        grouped(result.check.cells as u64),
        grouped(result.check.wrong)
    ))?;
    Ok(())
}

fn ratio_row(ratio: &Ratio, settings: &Settings, result: &Outcome) -> Vec<String> {
    let wall = ratio.estimate(settings, result, |m| &m.rates);
    let cpu = ratio.estimate(settings, result, |m| &m.cpu_rates);
    let number = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:.2}"));
    vec![
        ratio.name(),
        number(wall.map(|e| e.median)),
        wall.map_or(String::new(), |e| format!("{:.2} to {:.2}", e.low, e.high)),
        number(cpu.map(|e| e.median)),
        number(ratio.bar),
        number(ratio.paper),
        ratio.verdict(wall).unwrap_or_default().to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_reached_by_the_median_alone() {
        let ratio = Ratio { over: (Arm::TxRead, Arm::RawRead), bar: Some(0.8), paper: None };
        let verdict = |median, high| ratio.verdict(Some(Estimate { median, low: 0.1, high }));
        assert_eq!(verdict(0.80, 0.9), Some("reached"));
        assert_eq!(verdict(0.79, 0.9), Some("unclear"));
        assert_eq!(verdict(0.70, 0.79), Some("missed"));
        assert_eq!(ratio.verdict(None), None);
    }
}
