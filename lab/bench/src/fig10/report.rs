//! Computes the figures of `percolator-bench fig10`, and its plot.

use percolator_cli::output::grouped;
use serde_json::{Value, json};

use crate::plot::{Axis, Line, Plot, Point, Role, Unit};
use crate::report::{Bar, Figure, Report};
use crate::statistics::Estimate;

use super::{Fig10, Outcome, Round, worker};

/// Least share of the baseline while a third of the capacity is away.
const LEFT_MIN: f64 = 0.66;
/// Share of the baseline at which throughput counts as back.
pub(super) const BACK: f64 = 0.97;

/// The paper's Figure 10, read off it: minutes since a third of the tablet servers was killed,
/// and Trade-Results a second.
pub(super) const PAPER: [(f64, f64); 6] =
    [(0.0, 56.2), (4.0, 38.9), (11.0, 38.9), (14.0, 55.0), (17.0, 54.5), (28.0, 56.0)];
pub(super) const PAPER_BASELINE: f64 = 56.2;
/// The minute at which the paper's servers were back, where the plateau ends.
const PAPER_RETURNED: f64 = 11.0;

const NOTE: &str = "Workers have a capacity, which is lost when they are killed. Throughput is that of all \
                    transactions, of which Trade-Results are a fixed part and too few for figures by the \
                    second. There is one table server: moving tablets to others is the store's work, and is \
                    not measured here.";

type Moment = fn(&Round) -> f64;

const KILLED: Moment = |round| round.killed;
const RETURNED: Moment = |round| round.returned;
const TABLE_KILLED: Moment = |round| round.table_killed;
const TABLE_RETURNED: Moment = |round| round.table_returned;
const END: Moment = |round| round.end;

/// Estimates a quantity from its values in all rounds.
fn over_rounds(
    settings: &Fig10,
    outcome: &Outcome,
    of: impl Fn(&Round, f64) -> Vec<f64>,
) -> Option<Estimate> {
    let each = |round| of(round, outcome.baseline(round));
    // Zero divided by zero is not a number, and is dropped.
    let sample: Vec<f64> =
        outcome.rounds.iter().flat_map(each).filter(|number| number.is_finite()).collect();
    Estimate::of(&sample, settings.common.seed)
}

fn figures(settings: &Fig10, outcome: &Outcome) -> Vec<Figure> {
    let (window, grace) = (settings.window_s(), settings.grace_s());
    let shares = |from: Moment, after: f64, to: Moment| {
        over_rounds(settings, outcome, |round, baseline| {
            let rates = outcome.all.rates(from(round) + after, to(round), window);
            rates.into_iter().map(|rate| rate / baseline).collect()
        })
    };
    let until = |from: Moment, to: Moment| {
        over_rounds(settings, outcome, |round, baseline| {
            let (from, to) = (from(round), to(round));
            let found = outcome.all.until(BACK * baseline, from, to, settings.probe_s());
            // The throughput never came back, so the time was at least this long.
            vec![found.unwrap_or(to - from)]
        })
    };
    let results = over_rounds(settings, outcome, |round, _| {
        let before = outcome.trade_results.rate(round.begin, round.killed);
        vec![outcome.trade_results.rate(round.killed, round.returned) / before]
    });
    let lowest = over_rounds(settings, outcome, |round, baseline| {
        let rates = outcome.all.rates(round.killed, round.returned, 1.0);
        rates.into_iter().reduce(f64::min).map(|least| least / baseline).into_iter().collect()
    });
    let idle = over_rounds(settings, outcome, |round, _| {
        let rates = outcome.all.rates(round.killed, round.returned, 1.0);
        vec![rates.iter().filter(|rate| **rate == 0.0).count() as f64]
    });
    let lost = outcome.audit.lost as f64;
    vec![
        Figure::new("workers killed/baseline", shares(KILLED, 0.0, RETURNED))
            .bar(Bar::AtLeast(LEFT_MIN))
            .paper(0.69),
        Figure::new("workers killed/baseline, Trade-Results alone", results).paper(0.69),
        Figure::new("workers killed: lowest second/baseline", lowest),
        Figure::new("workers killed: seconds without a commit", idle).bar(Bar::AtMost(0.0)),
        Figure::new("workers back: seconds to 0.97", until(RETURNED, TABLE_KILLED))
            .bar(Bar::AtMost(grace)),
        Figure::new("workers back/baseline", shares(RETURNED, grace, TABLE_KILLED))
            .bar(Bar::AtLeast(BACK))
            .paper(BACK),
        Figure::new("table server back: seconds to 0.97", until(TABLE_RETURNED, END))
            .bar(Bar::AtMost(grace)),
        Figure::new("table server back/baseline", shares(TABLE_RETURNED, grace, END))
            .bar(Bar::AtLeast(BACK)),
        Figure::alone("lost commits", Some(lost)).bar(Bar::AtMost(0.0)),
    ]
}

pub(super) fn report(settings: &Fig10, scale: tpce::Scale, outcome: &Outcome) -> Report {
    let audit = &outcome.audit;
    let violations: Vec<String> = audit.violations.iter().map(ToString::to_string).collect();
    let sum =
        |name: &str| outcome.workers.iter().filter_map(|said| said[name].as_u64()).sum::<u64>();
    let about = json!({
        "customers": settings.customers(),
        "trades_before": scale.trades(),
        "workers": settings.workers,
        "workers_killed": settings.killed(),
        "seconds": settings.seconds(),
        "table_away_s": settings.table_away_s(),
        "rounds": settings.rounds(),
        "taken_for_dead_after_s": worker::LIFETIME.as_secs_f64(),
        "durability": "buffered",
        "seed": settings.common.seed,
        "quick": settings.common.quick,
    });
    let own = json!({
        "note": NOTE,
        "loaded_s": outcome.loaded_s,
        "took_s": outcome.took_s,
        "capacity": {
            "free_per_s": outcome.capacity.free,
            "worker_per_s": outcome.capacity.each,
            "cpu_share": outcome.capacity.cpu_share,
        },
        "rounds": outcome.rounds.iter().map(|round| round_json(outcome, round)).collect::<Vec<_>>(),
        "series": series_json(outcome),
        "paper": { "minutes": PAPER.map(|(at, _)| at), "trade_results_per_s": PAPER.map(|(_, y)| y) },
        "workers": { "conflicts": sum("conflicts"), "retries": sum("retries") },
    });
    let check = json!({
        "acknowledged": audit.acknowledged,
        "lost": audit.lost,
        "in_doubt": audit.in_doubt,
        "violations": violations,
    });
    let void = outcome.void(settings).map(|(what, help)| (what, help.to_owned()));
    let report = Report::new("fig10", about, figures(settings, outcome)).with_all(own);
    let report = report.check(check, void);
    match chart(settings, outcome) {
        Some(chart) => report.plot("fig10.svg", chart.svg()),
        None => report,
    }
}

fn round_json(outcome: &Outcome, round: &Round) -> Value {
    json!({
        "begin_s": round.begin,
        "workers_killed_s": round.killed,
        "workers_returned_s": round.returned,
        "table_killed_s": round.table_killed,
        "table_returned_s": round.table_returned,
        "table_listens_s": round.table_listens,
        "end_s": round.end,
        "baseline_per_s": outcome.baseline(round),
        "baseline_trade_results_per_s": outcome.trade_results.rate(round.begin, round.killed),
    })
}

fn series_json(outcome: &Outcome) -> Value {
    let end = outcome.rounds.last().map_or(0.0, |round| round.end);
    let counts = |series: &super::Series| series.rates(0.0, end, 1.0);
    json!({
        "transactions_per_s": counts(&outcome.all),
        "trade_results_per_s": counts(&outcome.trade_results),
    })
}

/// The first round: throughput over time as a share of the baseline, and the paper's.
fn chart(settings: &Fig10, outcome: &Outcome) -> Option<Plot> {
    let round = outcome.rounds.first()?;
    let line = |series: &super::Series, window: f64| -> Vec<Point> {
        let baseline = series.rate(round.begin, round.killed);
        let rates = series.rates(round.begin, round.end, window).into_iter().enumerate();
        let at = |n: usize| (n as f64 + 0.5) * window;
        rates.map(|(n, rate)| Point::at(at(n), rate / baseline)).collect()
    };
    let (all, results) = (&outcome.all, &outcome.trade_results);
    let since = |at: f64| at - round.begin;
    let minute = (round.returned - round.killed) / PAPER_RETURNED;
    let paper = PAPER.map(|(at, rate)| (since(round.killed) + at * minute, rate / PAPER_BASELINE));
    // The paper's curve ends where ours continues with the table server.
    let paper = paper.into_iter().filter(|(at, _)| *at <= since(round.table_killed));
    let paper = paper.map(|(x, y)| Point::at(x, y)).collect();
    let (killed, workers, window) = (settings.killed(), settings.workers, settings.window_s());
    let subtitle = format!(
        "TPC-E-like, {} customers, {} transactions/s in the baseline, of them {:.1} Trade-Results; workers \
         of a capped rate, one table server, one oracle, each a process",
        grouped(settings.customers()),
        grouped(outcome.baseline(round) as u64),
        results.rate(round.begin, round.killed),
    );
    let x = Axis::linear("seconds", Unit::Plain);
    let y = Axis::linear("throughput / baseline", Unit::Plain);
    let mark = |at| Line::X(since(at));
    let of_paper = "the paper, 5 of 15 tablet servers killed; its time stretched to ours";
    let each = format!("Trade-Results, each {window:.0} s");
    let plot = Plot::over(x, y, "Figure 10: throughput while servers are killed", subtitle)
        .dashed(of_paper, Role::Paper(0), paper)
        .line("all transactions, each second", Role::Ours(0), line(all, 1.0))
        .points(each, Role::Ours(1), line(results, window))
        .mark(mark(round.killed), format!("{killed} of {workers} workers killed"))
        .mark(mark(round.returned), "workers return")
        .mark(mark(round.table_killed), "table server killed")
        .mark(mark(round.table_returned), "it returns");
    Some(plot)
}
