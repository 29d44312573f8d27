//! Computes the figures of `percolator-bench fig9`, and its plot: Trade-Results a second over
//! cores, on the paper's axes.

use percolator_cli::output::grouped;
use serde_json::{Value, json};

use crate::plot::{Axis, Plot, Point, Role, Unit};
use crate::report::{Bar, Figure, Report};
use crate::statistics::Estimate;

use super::{Arm, Fig9, Outcome, Store, Stored, sent_late};

const NOTE: &str =
    "a TPC-E-like workload; the results are not comparable with published TPC-E results";

/// The points of the paper's Figure 9: cores, Trade-Results a second. Read off the figure.
const PAPER: [(u64, u64); 4] = [(676, 541), (1_270, 1_117), (6_595, 5_586), (15_000, 11_200)];

type Rate = fn(&Value) -> Option<f64>;

fn over(block: &Value, above: &str, below: &str) -> Option<f64> {
    Some(block[above].as_f64()? / block[below].as_f64()?)
}

pub(super) fn transactions_per_s(block: &Value) -> Option<f64> {
    over(block, "transactions", "seconds")
}

fn trade_results_per_s(block: &Value) -> Option<f64> {
    over(block, "trade_results", "seconds")
}

fn transactions_per_cpu_s(block: &Value) -> Option<f64> {
    over(block, "transactions", "cpu_seconds")
}

fn trade_results_per_cpu_s(block: &Value) -> Option<f64> {
    over(block, "trade_results", "cpu_seconds")
}

fn cores_used(block: &Value) -> Option<f64> {
    over(block, "cpu_seconds", "seconds")
}

/// The rates of Trade-Results and of all transactions. Their mix is the same, and there are ten
/// times as many transactions, so the second figure is more precise.
const PER_SECOND: [Rate; 2] = [trade_results_per_s, transactions_per_s];
const PER_CPU_SECOND: [Rate; 2] = [trade_results_per_cpu_s, transactions_per_cpu_s];

/// One arm over another: the name, both arms, the compared rates, the goal if there is one, and
/// the paper's value.
type Ratio = (&'static str, [(Store, usize); 2], [Rate; 2], Option<f64>, Option<f64>);

const TWO: (Store, usize) = (Store::Embedded, 2);
const RATIOS: [Ratio; 6] = [
    ("two_cores/one_core", [TWO, (Store::Embedded, 1)], PER_SECOND, Some(1.7), Some(1.7)),
    (
        "embedded/postgres_per_cpu_s",
        [TWO, (Store::Postgres, 2)],
        PER_CPU_SECOND,
        Some(1.0),
        Some(0.033),
    ),
    (
        "rpc/postgres_per_cpu_s",
        [(Store::Rpc, 2), (Store::Postgres, 2)],
        PER_CPU_SECOND,
        Some(0.2),
        Some(0.033),
    ),
    ("hbase/rpc_per_cpu_s", [(Store::Hbase, 2), (Store::Rpc, 2)], PER_CPU_SECOND, None, None),
    (
        "hbase/postgres_per_cpu_s",
        [(Store::Hbase, 2), (Store::Postgres, 2)],
        PER_CPU_SECOND,
        None,
        Some(0.033),
    ),
    (
        "all_customers/an_eighth_per_cpu_s",
        [TWO, (Store::Small, 2)],
        PER_CPU_SECOND,
        Some(0.8),
        None,
    ),
];

/// The ratio of two arms, round by round.
fn estimate(outcome: &Outcome, seed: u64, arms: [(Store, usize); 2], of: Rate) -> Option<Estimate> {
    let each = |(store, cores): (Store, usize)| {
        let found = outcome.arms.iter().find(|arm| arm.store == store && arm.cores == cores);
        found.map(|arm| arm.each(of))
    };
    let ratios = each(arms[0])?.into_iter().zip(each(arms[1])?).map(|(above, below)| above / below);
    let ratios: Vec<f64> = ratios.filter(|ratio| ratio.is_finite()).collect();
    Estimate::of(&ratios, seed)
}

pub(super) fn report(settings: &Fig9, scale: tpce::Scale, outcome: &Outcome) -> Report {
    let seed = settings.common.seed;
    let arms = outcome.arms.iter().map(|arm| arm_json(settings, outcome, arm));
    let about = json!({
        "customers": settings.customers(),
        "trades_before": scale.trades(),
        "seconds": settings.seconds(),
        "blocks": settings.blocks(),
        "block_s": settings.block_s(),
        "quick": settings.common.quick,
        "seed": seed,
        "durability": "buffered",
    });
    let ratios = || {
        let wanted = |(_, arms, ..): &&Ratio| {
            settings.hbase.is_some() || arms.iter().all(|(store, _)| *store != Store::Hbase)
        };
        RATIOS.iter().filter(wanted)
    };
    let figures = ratios().map(|(name, arms, [results, _], bar, paper)| {
        let figure = Figure::new(*name, estimate(outcome, seed, *arms, *results));
        figure.bar(bar.map(Bar::AtLeast)).paper(*paper)
    });
    let all = ratios().map(|(name, arms, [_, all], ..)| {
        let all = estimate_json(estimate(outcome, seed, *arms, *all));
        json!({ "name": name, "of_transactions": all })
    });
    let own = json!({
        "note": NOTE,
        "took_s": outcome.took_s,
        "arms": arms.collect::<Vec<_>>(),
        "stores": outcome.stores.iter().map(stored_json).collect::<Vec<_>>(),
        "open_loops": higher_json(outcome),
        "ratios": all.collect::<Vec<_>>(),
        "left_out": outcome.missing,
    });
    let void = outcome.void().map(|(what, help)| (what, help.to_owned()));
    Report::new("fig9", about, figures.collect())
        .with_all(own)
        .check(Value::Null, void)
        .plot("fig9.svg", plot(settings, outcome).svg())
}

fn estimate_json(estimate: Option<Estimate>) -> Value {
    estimate.map_or(Value::Null, |e| json!({ "median": e.median, "low": e.low, "high": e.high }))
}

fn arm_json(settings: &Fig9, outcome: &Outcome, arm: &Arm) -> Value {
    let estimate = |rate: Rate| estimate_json(Estimate::of(&arm.each(rate), settings.common.seed));
    let name = arm.name();
    let stored = outcome.stores.iter().find(|stored| stored.store == arm.store);
    json!({
        "name": name,
        "store": arm.store.name(),
        "cores": arm.cores,
        "customers": arm.store.customers(settings.customers()),
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

/// Open loops above half of the rate. If requests were sent late, their latencies mean little.
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

impl Store {
    /// The store's name in the plot, and its role there.
    fn legend(self) -> (&'static str, Role) {
        match self {
            Store::Embedded => ("embedded, on one core and on two", Role::Ours(0)),
            Store::Small => ("embedded, an eighth of the customers", Role::Ours(1)),
            Store::Rpc => ("over RPC", Role::Ours(2)),
            Store::Postgres => ("PostgreSQL, functions in PL/pgSQL", Role::Peer(0)),
            Store::Hbase => ("over HBase", Role::Ours(3)),
        }
    }
}

/// Draws the plot. The paper's points lie at thousands of cores, so both axes are logarithmic,
/// as in the paper.
fn plot(settings: &Fig9, outcome: &Outcome) -> Plot {
    let paper = PAPER.map(|(cores, rate)| Point::at(cores as f64, rate as f64));
    let subtitle = format!(
        "TPC-E-like, {} customers, durability buffered; cores are the processor time of all processes by \
         time. Not comparable with published TPC-E results",
        grouped(settings.customers()),
    );
    let x = Axis::log("cores", Unit::Plain);
    let y = Axis::log("Trade-Results a second", Unit::Plain);
    let plot = Plot::over(x, y, "Figure 9: Trade-Results a second over cores", subtitle);
    let mut plot = plot.dashed("Percolator, 2010", Role::Paper(0), paper.to_vec());
    for stored in &outcome.stores {
        let arms = outcome.arms.iter().filter(|arm| arm.store == stored.store);
        let points: Vec<Point> = arms.filter_map(|arm| point(settings.common.seed, arm)).collect();
        let (name, role) = stored.store.legend();
        plot = match points.len() {
            2.. => plot.line(name, role, points),
            _ => plot.points(name, role, points),
        };
    }
    plot
}

/// The point of an arm; `None` if processor time cannot be measured.
fn point(seed: u64, arm: &Arm) -> Option<Point> {
    let rate = Estimate::of(&arm.each(trade_results_per_s), seed)?;
    let cores = Estimate::of(&arm.each(cores_used), seed)?;
    Some(Point::of(cores.median, rate))
}
