//! Computes the figures of `percolator-bench fig7`, and its plots.

use percolator_cli::output::grouped;
use serde_json::{Value, json};

use super::duckdb::ROWS_OF_DUCKDB;
use super::ours::{Offered, Work};
use super::rivals::Cycle;
use super::{Fig7, GROWTH_MAX, Outcome, Purpose, RivalOutcome, Round, SHARES, THREADS, paper};
use crate::plot::{Axis, Line, Plot, Point, Role, Unit};
use crate::report::Bar::{AtLeast, AtMost};
use crate::report::{Figure, Report};
use crate::statistics::{Estimate, quantile};

/// Most operations on the store for each document.
const OPERATIONS_MAX: f64 = 12.0;

/// Estimates a quantity from its values in all rounds.
fn over_rounds(
    settings: &Fig7,
    result: &Outcome,
    of: impl Fn(&Round) -> Option<f64>,
) -> Option<Estimate> {
    let values: Vec<f64> = result.rounds.iter().filter_map(of).collect();
    Estimate::of(&values, settings.common.seed)
}

fn figures(settings: &Fig7, result: &Outcome) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (index, rival) in result.rivals.iter().enumerate() {
        let wall = |r: &Round| Some(r.ours.per_second() / r.rivals.get(index)?.per_second());
        let wall = over_rounds(settings, result, wall);
        let figure = Figure::new(format!("documents/s, ours/{}", rival.name), wall);
        let bar = rival.is(Purpose::Goal).then_some(paper::RATIO);
        figures.push(figure.bar(bar.map(AtLeast)).paper(bar));
        let cpu =
            |r: &Round| Some(r.ours.per_cpu_second()? / r.rivals.get(index)?.per_cpu_second()?);
        let cpu = over_rounds(settings, result, cpu);
        figures.push(Figure::new(format!("documents/CPU-s, ours/{}", rival.name), cpu));
    }
    figures.extend(beside_figures(settings, result));
    let estimate = over_rounds(settings, result, |r| r.rivals[result.goal].per_cpu_second());
    figures.push(Figure::new("rows: documents/CPU-s", estimate));
    let low = delay_at(result, 0);
    for rival in result.rivals.iter().filter(|rival| !rival.swept.is_empty()) {
        let theirs = rival.swept.first().and_then(|(_, c)| quantile(&c.delays, 0.5));
        let ratio = theirs.zip(low).map(|(theirs, ours)| theirs / ours);
        let name = format!("median delay at the lowest rate, {}/ours", rival.name);
        let paper = rival.is(Purpose::Goal).then_some(paper::DELAY_RATIO);
        // The ratio grows with the repository; the paper's is for one that takes 20 minutes.
        let bar = paper.filter(|_| settings.documents() >= 2_000_000).map(AtLeast);
        figures.push(Figure::alone(name, ratio).bar(bar).paper(paper));
    }
    let (knee, _) = knee(result);
    let knee = Figure::alone("highest rate kept up with, part of a repository", knee);
    figures.push(knee.paper(paper::knee() / 100.0));
    let per_document = |of: fn(&Work) -> f64| over_rounds(settings, result, |r| Some(of(&r.ours)));
    let operations = per_document(|w| w.each(w.operations.all()));
    let operations = Figure::new("operations on the store, each document", operations);
    figures.push(operations.bar(AtMost(OPERATIONS_MAX)).paper(paper::OPERATIONS));
    figures.push(Figure::new("of these, reads", per_document(|w| w.each(w.operations.reads))));
    figures.push(Figure::new("keys looked up", per_document(|w| w.each(w.lookups.lookups))));
    figures.push(Figure::new("keys registered", per_document(|w| w.each(w.lookups.registered))));
    figures.extend(fourth_figures(result));
    figures
}

/// Figures of the other programs. The floor is a lower bound on the cost of transactions over
/// it. The yardstick checks the rival that our goals compare with, which must not be slower.
fn beside_figures(settings: &Fig7, result: &Outcome) -> Vec<Figure> {
    let goal = result.goal;
    let at = |purpose| result.rivals.iter().position(|rival| rival.is(purpose));
    let name = |rival: usize| result.rivals[rival].name;
    let figure = |unit, above: usize, below: usize, of: fn(&Cycle) -> Option<f64>| {
        let ratio = |r: &Round| Some(of(&r.rivals[above])? / of(&r.rivals[below])?);
        let name = format!("{unit}, {}/{}", name(above), name(below));
        Figure::new(name, over_rounds(settings, result, ratio))
    };
    let mut figures = Vec::new();
    if let Some(floor) = at(Purpose::Floor) {
        figures.push(figure("documents/s", floor, goal, |cycle| Some(cycle.per_second())));
        figures.push(figure("documents/CPU-s", floor, goal, Cycle::per_cpu_second));
    }
    let held = match at(Purpose::Yardstick) {
        Some(yardstick) => figure("documents/CPU-s", goal, yardstick, Cycle::per_cpu_second),
        None => Figure::new(format!("documents/CPU-s, {}/{ROWS_OF_DUCKDB}", name(goal)), None),
    };
    figures.push(held.bar(AtLeast(1.0)));
    figures
}

fn fourth_figures(result: &Outcome) -> Vec<Figure> {
    let fourth = &result.fourth;
    let micros = |work: &Work| Some(1e6 / work.per_cpu_second()?);
    let before = fourth.before.each(fourth.before.operations.all());
    let after = fourth.after.each(fourth.after.operations.all());
    let mut passes: Vec<f64> = result
        .rounds
        .iter()
        .filter_map(|r| Some(1e6 / r.rivals[result.goal].per_cpu_second()? / 3.0))
        .collect();
    passes.sort_unstable_by(f64::total_cmp);
    vec![
        Figure::alone("fourth key: operations for a new document before", Some(before)),
        Figure::alone("fourth key: operations for a new document after", Some(after))
            .bar(AtMost(OPERATIONS_MAX)),
        Figure::alone("fourth key: CPU µs for a new document before", micros(&fourth.before)),
        Figure::alone("fourth key: CPU µs for a new document after", micros(&fourth.after)),
        Figure::alone("fourth key: CPU µs to add it, each document there", micros(&fourth.added)),
        Figure::alone("one more pass of rows, CPU µs each document", quantile(&passes, 0.5)),
    ]
}

fn delay_at(result: &Outcome, rate: usize) -> Option<f64> {
    quantile(&result.offered.get(rate)?.1.delays, 0.5)
}

/// The highest share at which ours kept up, and the lowest at which it did not.
fn knee(result: &Outcome) -> (Option<f64>, Option<f64>) {
    let above = result.offered.iter().find(|(_, o)| o.is_saturated()).map(|(share, _)| *share);
    let below = result.offered.iter().map(|(share, _)| *share);
    let below = below.filter(|share| above.is_none_or(|above| *share < above));
    (below.reduce(f64::max), above)
}

pub(super) fn report(settings: &Fig7, result: &Outcome) -> Report {
    let (kept, exceeded) = knee(result);
    let about = json!({
        "documents": settings.documents(),
        "document_bytes": 1024,
        "durability": "buffered",
        "workers": settings.workers,
        "loaders": settings.workers,
        "batch_threads": THREADS,
        "blocks": settings.rounds,
        "window_s": settings.window().as_secs_f64(),
        "growth_max": GROWTH_MAX,
        "seed": settings.common.seed,
        "quick": settings.common.quick,
        "duckdb": result.duckdb,
    });
    let fourth = &result.fourth;
    let rivals = result.rivals.iter().enumerate();
    let own = json!({
        "first_load": work_json(&result.first_load),
        "documents_per_cluster": result.first_shape.per_cluster(),
        "clustered_share": result.first_shape.clustered_share(),
        "passes_s": result.passes_s,
        "knee": {
            "kept_up_with": kept,
            "not_kept_up_with": exceeded,
            "paper": paper::knee() / 100.0,
        },
        "ours": result.offered.iter().map(|(s, o)| offered_json(*s, o)).collect::<Vec<_>>(),
        "rivals": rivals.map(|(i, r)| rival_json(settings, result, i, r)).collect::<Vec<_>>(),
        "fourth_key": {
            "before": work_json(&fourth.before),
            "added": work_json(&fourth.added),
            "arrived_meanwhile": fourth.arrived,
            "after": work_json(&fourth.after),
        },
        "missing": result.missing,
    });
    let help =
        "a late generator wants an idle machine; anything else please report, with the settings";
    Report::new("fig7", about, figures(settings, result))
        .with_all(own)
        .conditions(&result.conditions, help)
        .plot("fig7.svg", delays(settings, result))
        .plot("fig7-rate.svg", rates(settings, result))
}

fn work_json(work: &Work) -> Value {
    json!({
        "documents": work.documents,
        "seconds": work.elapsed.as_secs_f64(),
        "cpu_seconds": work.cpu.map(|cpu| cpu.as_secs_f64()),
        "documents_per_s": work.per_second(),
        "documents_per_cpu_s": work.per_cpu_second(),
        "operations_per_document": work.each(work.operations.all()),
        "reads_per_document": work.each(work.operations.reads),
        "scans_per_document": work.each(work.operations.scans),
        "writes_per_document": work.each(work.operations.writes),
        "lookups_per_document": work.each(work.lookups.lookups),
        "registered_per_document": work.each(work.lookups.registered),
    })
}

fn delays_json(delays: &[f64]) -> Value {
    json!({
        "documents": delays.len(),
        "p5_s": quantile(delays, 0.05),
        "median_s": quantile(delays, 0.5),
        "p95_s": quantile(delays, 0.95),
        "p99_s": quantile(delays, 0.99),
    })
}

fn offered_json(share: f64, offered: &Offered) -> Value {
    json!({
        "rate": share,
        "documents_per_s": offered.per_second,
        "delay": delays_json(&offered.delays),
        "saturated": offered.is_saturated(),
        "backlog_growth_per_s": offered.growth,
        "backlog": offered.backlog,
        "lateness_p50_s": offered.lateness[0],
        "lateness_p99_s": offered.lateness[1],
        "late": offered.is_late(),
        "clustered": work_json(&offered.work),
    })
}

fn rival_json(settings: &Fig7, result: &Outcome, index: usize, rival: &RivalOutcome) -> Value {
    let wall = over_rounds(settings, result, |r| Some(r.rivals[index].per_second()));
    let cpu = over_rounds(settings, result, |r| r.rivals[index].per_cpu_second());
    let swept = rival.swept.iter().map(|(share, cycled)| {
        json!({
            "rate": share,
            "documents_per_s": cycled.per_second,
            "delay": delays_json(&cycled.delays),
            "cycles": cycled.medians.len(),
            "least_cycle_median_s": cycled.medians.first(),
            "greatest_cycle_median_s": cycled.medians.last(),
        })
    });
    json!({
        "name": rival.name,
        "goes_over_all": !rival.traits.keeps,
        "documents_per_s": wall.map(|e| e.median),
        "documents_per_cpu_s": cpu.map(|e| e.median),
        "rates": swept.collect::<Vec<_>>(),
    })
}

fn delays(settings: &Fig7, result: &Outcome) -> String {
    let point = |share: f64, delays: &[f64]| {
        let [low, median, high] = [0.05, 0.5, 0.95].map(|q| quantile(delays, q));
        Some(Point::of(share * 100.0, Estimate { median: median?, low: low?, high: high? }))
    };
    let highest = result.offered.iter().map(|(share, _)| *share).fold(SHARES[5], f64::max);
    let x = Axis::linear("crawled during three passes, in % of the repository", Unit::Percent);
    let subtitle = format!(
        "{} documents of 1 KB, three keys, {THREADS} threads; median, 5th and 95th percentile. Crawl \
         rates are relative to the time of three passes over all rows: {:.2} s here, 20 minutes in \
         the paper (a billion documents, 240 machines), so that its 1 % an hour is 0.33 %.",
        grouped(settings.documents()),
        result.passes_s,
    );
    let (x, y) = (x.between(0.0, highest * 107.0), Axis::log("delay", Unit::Seconds));
    let title = "Figure 7: time until a crawled document is clustered";
    let mut plot = Plot::over(x, y, title, subtitle)
        .dashed("the paper's MapReduce", Role::Paper(1), paper::map_reduce())
        .dashed("the paper's Percolator", Role::Paper(0), paper::percolator());
    let swept = result.rivals.iter().enumerate().filter(|(_, rival)| !rival.swept.is_empty());
    for (index, rival) in swept {
        let points = rival.swept.iter().filter_map(|(share, c)| point(*share, &c.delays));
        plot = plot.line(rival.traits.label, Role::Peer(index), points.collect());
    }
    let ours = |saturated| {
        let of = move |offered: &&(f64, Offered)| offered.1.is_saturated() == saturated;
        result.offered.iter().filter(of).filter_map(|(share, o)| point(*share, &o.delays)).collect()
    };
    plot = plot
        .line("Percolator, here", Role::Ours(0), ours(false))
        .points("the same, more than it keeps up with", Role::Ours(1), ours(true))
        .mark(Line::X(paper::knee()), "the paper's knee");
    if let (Some(kept), Some(exceeded)) = knee(result) {
        plot = plot.mark(Line::X((kept + exceeded) * 50.0), "knee here");
    }
    plot.svg()
}

fn rates(settings: &Fig7, result: &Outcome) -> String {
    let of_rival =
        |rival: usize| over_rounds(settings, result, |round| round.rivals[rival].per_cpu_second());
    let groups = ["Percolator"].into_iter().chain(result.rivals.iter().map(|rival| rival.name));
    let subtitle = format!(
        "As fast as it goes, {} documents of 1 KB. Batches over all documents spend this on every \
         document of the repository in every cycle, the others on new ones alone; medians over {} \
         rounds with 95 % intervals.",
        grouped(settings.documents()),
        result.rounds.len(),
    );
    let y = Axis::log("documents per CPU-second", Unit::Plain);
    let title = "Figure 7: documents for each second of processor time";
    let ours = over_rounds(settings, result, |round| round.ours.per_cpu_second());
    let mut plot = Plot::groups(groups, y, title, subtitle).bars(
        "new documents, as they come",
        Role::Ours(0),
        [ours],
    );
    for (index, rival) in result.rivals.iter().enumerate() {
        // In a group of its own.
        let values = std::iter::repeat_n(None, index + 1).chain([of_rival(index)]);
        plot = plot.bars(rival.traits.label, Role::Peer(index), values);
    }
    if let Some(rows) = of_rival(result.goal) {
        let label = format!("the paper's knee: {} of rows", paper::RATIO);
        plot = plot.mark(Line::Y(rows.median * paper::RATIO), label);
    }
    plot.svg()
}
