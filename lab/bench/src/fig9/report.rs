//! What `percolator-bench fig9` prints.

use percolator_cli::output::{Column, Out, grouped};
use serde_json::{Value, json};

use crate::report::{Bar, Figure};
use crate::statistics::Estimate;
use crate::system::{Load, machine};

use super::{Arm, Outcome, Settings, Store, Stored, sent_late};

const NOTE: &str =
    "a TPC-E-like workload; the results are not comparable with published TPC-E results";

/// The points of the paper's Figure 9: cores, Trade-Results a second. Read off the figure.
pub(super) const PAPER: [(u64, u64); 4] =
    [(676, 541), (1_270, 1_117), (6_595, 5_586), (15_000, 11_200)];

pub(super) fn transactions_per_s(block: &Value) -> Option<f64> {
    Some(block["transactions"].as_f64()? / block["seconds"].as_f64()?)
}

pub(super) fn trade_results_per_s(block: &Value) -> Option<f64> {
    Some(block["trade_results"].as_f64()? / block["seconds"].as_f64()?)
}

fn transactions_per_cpu_s(block: &Value) -> Option<f64> {
    Some(block["transactions"].as_f64()? / block["cpu_seconds"].as_f64()?)
}

fn trade_results_per_cpu_s(block: &Value) -> Option<f64> {
    Some(block["trade_results"].as_f64()? / block["cpu_seconds"].as_f64()?)
}

pub(super) fn cores_used(block: &Value) -> Option<f64> {
    Some(block["cpu_seconds"].as_f64()? / block["seconds"].as_f64()?)
}

/// What is compared.
type Rate = fn(&Value) -> Option<f64>;

/// One arm over another.
struct Ratio {
    name: &'static str,
    above: (Store, usize),
    below: (Store, usize),
    /// Of Trade-Results, and of all transactions: their mix is the same, and there are ten times as
    /// many, so that this is the surer figure.
    rates: [Rate; 2],
    /// The goal, if there is one.
    bar: Option<f64>,
    paper: Option<f64>,
}

const RATIOS: [Ratio; 6] = [
    Ratio {
        name: "two_cores/one_core",
        above: (Store::Embedded, 2),
        below: (Store::Embedded, 1),
        rates: [trade_results_per_s, transactions_per_s],
        bar: Some(1.7),
        paper: Some(1.7),
    },
    Ratio {
        name: "embedded/postgres_per_cpu_s",
        above: (Store::Embedded, 2),
        below: (Store::Postgres, 2),
        rates: [trade_results_per_cpu_s, transactions_per_cpu_s],
        bar: Some(1.0),
        paper: Some(0.033),
    },
    Ratio {
        name: "rpc/postgres_per_cpu_s",
        above: (Store::Rpc, 2),
        below: (Store::Postgres, 2),
        rates: [trade_results_per_cpu_s, transactions_per_cpu_s],
        bar: Some(0.2),
        paper: Some(0.033),
    },
    // What PostgreSQL would do without the round trips: beside the others, not against a goal.
    Ratio {
        name: "embedded/plpgsql_per_cpu_s",
        above: (Store::Embedded, 2),
        below: (Store::Plpgsql, 2),
        rates: [trade_results_per_cpu_s, transactions_per_cpu_s],
        bar: None,
        paper: None,
    },
    Ratio {
        name: "plpgsql/postgres_per_cpu_s",
        above: (Store::Plpgsql, 2),
        below: (Store::Postgres, 2),
        rates: [trade_results_per_cpu_s, transactions_per_cpu_s],
        bar: None,
        paper: None,
    },
    Ratio {
        name: "all_customers/an_eighth_per_cpu_s",
        above: (Store::Embedded, 2),
        below: (Store::Small, 2),
        rates: [trade_results_per_cpu_s, transactions_per_cpu_s],
        bar: Some(0.8),
        paper: None,
    },
];

impl Ratio {
    /// Round by round.
    fn estimates(&self, settings: &Settings, outcome: &Outcome) -> Option<[Option<Estimate>; 2]> {
        let find = |(store, cores): (Store, usize)| {
            outcome.arms.iter().find(|arm| arm.store == store && arm.cores == cores)
        };
        let (above, below) = (find(self.above)?, find(self.below)?);
        Some(self.rates.map(|rate| {
            let (above, below) = (above.each(rate), below.each(rate));
            let ratios: Vec<f64> = above
                .iter()
                .zip(&below)
                .map(|(above, below)| above / below)
                .filter(|ratio| ratio.is_finite())
                .collect();
            Estimate::of(&ratios, settings.seed)
        }))
    }

    /// As other benchmarks tell their figures.
    fn figure(&self, settings: &Settings, outcome: &Outcome) -> Figure {
        let [results, _] = self.estimates(settings, outcome).unwrap_or([None, None]);
        let bar = self.bar.map(Bar::AtLeast);
        Figure { bar, paper: self.paper, ..Figure::new(self.name, results) }
    }

    /// How the ratio stands to its bar.
    fn verdict(&self, estimate: Option<Estimate>) -> Option<&'static str> {
        Some(Bar::AtLeast(self.bar?).verdict(estimate?))
    }
}

/// The settings and figures in JSON.
pub(crate) fn json(settings: &Settings, outcome: &Outcome) -> Value {
    let arms: Vec<Value> =
        outcome.arms.iter().map(|arm| arm_json(settings, outcome, arm)).collect();
    let points: Vec<Value> = outcome.arms.iter().filter_map(|arm| point(settings, arm)).collect();
    let paper = PAPER.map(|(cores, tps)| json!({ "cores": cores, "trade_results_per_s": tps }));
    json!({
        "benchmark": "fig9",
        "note": NOTE,
        "version": env!("CARGO_PKG_VERSION"),
        "optimised": !cfg!(debug_assertions),
        "settings": {
            "customers": settings.customers,
            "trades_before": tpce::Scale::new(settings.customers, settings.seed).trades(),
            "seconds": settings.seconds,
            "blocks": settings.blocks(),
            "block_s": settings.block_s(),
            "quick": settings.quick,
            "seed": settings.seed,
            "durability": "buffered",
        },
        "machine": machine(outcome.load),
        "took_s": outcome.took_s,
        "arms": arms,
        "stores": outcome.stores.iter().map(stored_json).collect::<Vec<_>>(),
        "open_loops": higher_json(outcome),
        "figures": RATIOS.iter().map(|ratio| ratio.figure(settings, outcome).json()).collect::<Vec<_>>(),
        "ratios": RATIOS.iter().map(|ratio| ratio_json(ratio, settings, outcome)).collect::<Vec<_>>(),
        "plot": {
            "x": "cores used",
            "y": "Trade-Results a second",
            "points": points,
            "paper": paper,
        },
        "left_out": outcome.missing,
        "void": outcome.void().map(|(what, _)| what),
        "check_ok": outcome.void().is_none(),
    })
}

fn estimate_json(estimate: Option<Estimate>) -> Value {
    estimate.map_or(Value::Null, |e| json!({ "median": e.median, "low": e.low, "high": e.high }))
}

fn arm_json(settings: &Settings, outcome: &Outcome, arm: &Arm) -> Value {
    let estimate = |rate: Rate| estimate_json(Estimate::of(&arm.each(rate), settings.seed));
    let name = arm.name();
    let stored = outcome.stores.iter().find(|stored| stored.store == arm.store);
    json!({
        "name": name,
        "store": arm.store.name(),
        "cores": arm.cores,
        "customers": arm.store.customers(settings),
        "trade_results_per_s": estimate(trade_results_per_s),
        "transactions_per_s": estimate(transactions_per_s),
        "trade_results_per_cpu_s": estimate(trade_results_per_cpu_s),
        "transactions_per_cpu_s": estimate(transactions_per_cpu_s),
        "cores_used": estimate(cores_used),
        "conflicts": arm.each(|block| block["conflicts"].as_f64()).iter().sum::<f64>(),
        "types": stored.map(|stored| &stored.end["types"][&name]),
        "blocks": arm.blocks,
    })
}

fn stored_json(stored: &Stored) -> Value {
    json!({
        "store": stored.store.name(),
        "loaded_s": stored.loaded_s,
        "open_loop": stored.open,
        "open_loop_sent_late": stored.late,
        "violations": stored.end["violations"],
    })
}

/// Requests at more than half of the rate. Where they were sent late, their latencies say little.
fn higher_json(outcome: &Outcome) -> Vec<Value> {
    let of = |stored: &Stored| {
        let store = stored.store.name();
        let row = |(share, open): &(f64, Value)| {
            let mut row = open.clone();
            row["store"] = json!(store);
            row["share"] = json!(share);
            row["sent_late"] = json!(sent_late(open));
            row
        };
        stored.higher.iter().map(row).collect::<Vec<_>>()
    };
    outcome.stores.iter().flat_map(of).collect()
}

fn ratio_json(ratio: &Ratio, settings: &Settings, outcome: &Outcome) -> Value {
    let [results, all] = ratio.estimates(settings, outcome).unwrap_or([None, None]);
    json!({
        "name": ratio.name,
        "of_trade_results": estimate_json(results),
        "of_transactions": estimate_json(all),
        "bar": ratio.bar,
        "paper": ratio.paper,
        "verdict": ratio.verdict(results),
    })
}

/// A point of the figure.
fn point(settings: &Settings, arm: &Arm) -> Option<Value> {
    let median = |rate: Rate| Some(Estimate::of(&arm.each(rate), settings.seed)?.median);
    Some(json!({
        "arm": arm.name(),
        "cores_used": median(cores_used)?,
        "trade_results_per_s": median(trade_results_per_s)?,
    }))
}

/// Prints the settings and figures as tables.
pub(crate) fn print(out: Out, settings: &Settings, outcome: &Outcome) -> anyhow::Result<()> {
    let build = if cfg!(debug_assertions) { ", NOT OPTIMISED" } else { "" };
    out.line(&format!(
        "{NOTE}\n{} customers, {} trades before the run, durability buffered{build}\n{} blocks of {:.1} s \
         an arm, in turns; seed {}",
        grouped(settings.customers),
        grouped(tpce::Scale::new(settings.customers, settings.seed).trades()),
        settings.blocks(),
        settings.block_s(),
        settings.seed,
    ))?;
    let load = |load: Load| load.processes.map_or("unknown".to_owned(), |n| format!("{n:.2}"));
    out.line(&format!("load {} before, {} after\n", load(outcome.load[0]), load(outcome.load[1])))?;
    arms(out, settings, outcome)?;
    out.line("")?;
    latencies(out, outcome)?;
    out.line("")?;
    if outcome.stores.iter().any(|stored| !stored.higher.is_empty()) {
        higher(out, outcome)?;
        out.line("")?;
    }
    let rows = RATIOS.iter().map(|ratio| ratio_row(ratio, settings, outcome));
    let mut header = vec![Column::left("ratio")];
    header.extend(["median", "95 %", "all types", "bar", "paper"].map(Column::right));
    header.push(Column::left(""));
    out.table(&header, rows.collect())?;
    out.line("")?;
    for Stored { store, end, .. } in &outcome.stores {
        let found = end["violations"].as_array().map_or(0, Vec::len);
        out.line(&format!("books of {}: {found} violations", store.name()))?;
    }
    for Stored { store, open, .. } in &outcome.stores {
        if let Some(waiting) = open["saturated"].as_u64() {
            let (store, waiting) = (store.name(), grouped(waiting));
            out.line(&format!(
                "latencies of {store}: none, it did not keep up; {waiting} requests waited"
            ))?;
        }
    }
    for Stored { store, late, .. } in outcome.stores.iter().filter(|stored| !stored.late.is_empty())
    {
        out.line(&format!(
            "latencies of {} were measured {} times: until then, requests were sent late",
            store.name(),
            late.len() + 1,
        ))?;
    }
    for what in &outcome.missing {
        out.line(&format!("left out: {what}"))?;
    }
    Ok(())
}

fn arms(out: Out, settings: &Settings, outcome: &Outcome) -> anyhow::Result<()> {
    let rows = outcome.arms.iter().map(|arm| {
        let rate = |rate: Rate| {
            let estimate = Estimate::of(&arm.each(rate), settings.seed);
            estimate.map_or(String::new(), |estimate| format!("{:.1}", estimate.median))
        };
        vec![
            arm.name(),
            rate(trade_results_per_s),
            rate(transactions_per_s),
            rate(trade_results_per_cpu_s),
            rate(cores_used),
            format!("{:.0}", arm.each(|block| block["conflicts"].as_f64()).iter().sum::<f64>()),
        ]
    });
    let mut header = vec![Column::left("arm")];
    header.extend(
        ["TradeResult/s", "all/s", "TradeResult/CPU-s", "cores used", "conflicts"]
            .map(Column::right),
    );
    Ok(out.table(&header, rows.collect())?)
}

/// The latencies of a few types at half the rate.
fn latencies(out: Out, outcome: &Outcome) -> anyhow::Result<()> {
    let rows = outcome.stores.iter().map(|Stored { store, open, .. }| {
        let types = open["types"].as_array().map_or(&[][..], Vec::as_slice);
        let of = |name: &str, quantile: &str| {
            let found = types.iter().find(|kind| kind["name"] == name);
            let ms = found.and_then(|kind| kind[quantile].as_f64());
            ms.map_or(String::new(), |ms| format!("{ms:.1} ms"))
        };
        let late = open["lateness_p99_ms"].as_f64().unwrap_or_default();
        vec![
            store.name().to_owned(),
            open["per_second"].as_f64().map_or(String::new(), |rate| format!("{rate:.0}/s")),
            of("trade_result", "p50_ms"),
            of("trade_result", "p99_ms"),
            of("trade_order", "p50_ms"),
            of("customer_position", "p50_ms"),
            of("trade_status", "p50_ms"),
            format!("{late:.2} ms"),
        ]
    });
    let mut header = vec![Column::left("at half the rate")];
    header.extend(
        [
            "all",
            "TradeResult p50",
            "p99",
            "TradeOrder p50",
            "Position p50",
            "Status p50",
            "late p99",
        ]
        .map(Column::right),
    );
    Ok(out.table(&header, rows.collect())?)
}

/// The latencies of all types at higher rates.
fn higher(out: Out, outcome: &Outcome) -> anyhow::Result<()> {
    let row = |open: &Value| {
        let ms = |name: &str| open[name].as_f64().map_or(String::new(), |ms| format!("{ms:.1} ms"));
        let told = match (open["saturated"].as_u64(), open["sent_late"] == true) {
            (Some(waiting), _) => format!("not kept up with: {} waited", grouped(waiting)),
            (None, true) => "sent late".to_owned(),
            (None, false) => String::new(),
        };
        vec![
            open["store"].as_str().unwrap_or_default().to_owned(),
            format!("{:.0} %", open["share"].as_f64().unwrap_or_default() * 100.0),
            open["per_second"].as_f64().map_or(String::new(), |rate| format!("{rate:.0}/s")),
            ms("p50_ms"),
            ms("p99_ms"),
            told,
        ]
    };
    let mut header = vec![Column::left("nearer to the rate")];
    header.extend(["share", "all", "p50", "p99"].map(Column::right));
    header.push(Column::left(""));
    Ok(out.table(&header, higher_json(outcome).iter().map(row).collect())?)
}

fn ratio_row(ratio: &Ratio, settings: &Settings, outcome: &Outcome) -> Vec<String> {
    let [results, all] = ratio.estimates(settings, outcome).unwrap_or([None, None]);
    let number = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:.2}"));
    vec![
        ratio.name.to_owned(),
        number(results.map(|e| e.median)),
        results.map_or("left out".to_owned(), |e| format!("{:.2} to {:.2}", e.low, e.high)),
        number(all.map(|e| e.median)),
        number(ratio.bar),
        ratio.paper.map_or(String::new(), |paper| format!("{paper:.3}")),
        ratio.verdict(results).unwrap_or_default().to_owned(),
    ]
}
