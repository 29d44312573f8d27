//! What `percolator-bench fig7` prints, and its plots.

use percolator_cli::output::{Column, Out, grouped};
use serde_json::{Value, json};

use super::duckdb::ROWS_OF_DUCKDB;
use super::ours::{Offered, Work};
use super::rivals::Cycle;
use super::{
    GROWTH_MAX, Outcome, Purpose, RivalOutcome, SHARES, Settings, THREADS, paper, quantile,
};
use crate::findings::Condition;
use crate::plot::{Axis, Bar, BarSeries, Bars, Chart, Point, Reference, Role, Series, Unit};
use crate::report::Bar::{AtLeast, AtMost};
use crate::report::{Figure, print_figures};
use crate::statistics::Estimate;
use crate::system::{Load, machine};

/// Most operations on the store for each document.
const OPERATIONS_MAX: f64 = 12.0;

/// Our throughput over a rival's, round by round.
fn ratio(
    settings: &Settings,
    result: &Outcome,
    rival: usize,
    ours: impl Fn(&Work) -> Option<f64>,
    theirs: impl Fn(&Cycle) -> Option<f64>,
) -> Option<Estimate> {
    let rounds = result.rounds.iter();
    let ratios = rounds.filter_map(|r| Some(ours(&r.ours)? / theirs(r.rivals.get(rival)?)?));
    Estimate::of(&ratios.collect::<Vec<f64>>(), settings.seed)
}

/// An estimate over the rounds.
fn over_rounds(
    settings: &Settings,
    result: &Outcome,
    of: impl Fn(&super::Round) -> Option<f64>,
) -> Option<Estimate> {
    let values: Vec<f64> = result.rounds.iter().filter_map(of).collect();
    Estimate::of(&values, settings.seed)
}

fn figures(settings: &Settings, result: &Outcome) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (index, rival) in result.rivals.iter().enumerate() {
        let wall = |w: &Work| Some(w.per_second());
        let estimate = ratio(settings, result, index, wall, |c| Some(c.per_second()));
        let mut figure = Figure::new(format!("documents/s, ours / {}", rival.name), estimate);
        if rival.is(Purpose::Goal) {
            figure = figure.bar(AtLeast(paper::RATIO)).paper(paper::RATIO);
        }
        figures.push(figure);
        let estimate = ratio(settings, result, index, Work::per_cpu_second, Cycle::per_cpu_second);
        figures.push(Figure::new(format!("documents/CPU-s, ours / {}", rival.name), estimate));
    }
    figures.extend(beside_figures(settings, result));
    let estimate = over_rounds(settings, result, |r| r.rivals[result.goal].per_cpu_second());
    figures.push(Figure::new("rows: documents/CPU-s", estimate));
    let low = delay_at(result, 0);
    for rival in result.rivals.iter().filter(|rival| !rival.swept.is_empty()) {
        let theirs = rival.swept.first().and_then(|(_, c)| quantile(&c.delays, 0.5));
        let ratio = theirs.zip(low).map(|(theirs, ours)| theirs / ours);
        let name = format!("median delay at the lowest rate, {} / ours", rival.name);
        let mut figure = Figure::alone(name, ratio);
        if rival.is(Purpose::Goal) {
            figure.paper = Some(paper::DELAY_RATIO);
            // The ratio grows with the repository; the paper's is for one that takes 20 minutes.
            if settings.documents >= 2_000_000 {
                figure = figure.bar(AtLeast(paper::DELAY_RATIO));
            }
        }
        figures.push(figure);
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

/// What others come to beside the rival that ours is held to: the floor, which transactions over it
/// cannot be cheaper than, and the yardstick, than which that rival is to be no slower.
fn beside_figures(settings: &Settings, result: &Outcome) -> Vec<Figure> {
    let goal = result.goal;
    let at = |purpose| result.rivals.iter().position(|rival| rival.is(purpose));
    let name = |rival: usize| result.rivals[rival].name;
    let figure = |unit, above: usize, below: usize, of: fn(&Cycle) -> Option<f64>| {
        let ratio = |r: &super::Round| Some(of(&r.rivals[above])? / of(&r.rivals[below])?);
        let name = format!("{unit}, {} / {}", name(above), name(below));
        Figure::new(name, over_rounds(settings, result, ratio))
    };
    let mut figures = Vec::new();
    if let Some(floor) = at(Purpose::Floor) {
        figures.push(figure("documents/s", floor, goal, |cycle| Some(cycle.per_second())));
        figures.push(figure("documents/CPU-s", floor, goal, Cycle::per_cpu_second));
    }
    let held = match at(Purpose::Yardstick) {
        Some(yardstick) => figure("documents/CPU-s", goal, yardstick, Cycle::per_cpu_second),
        None => Figure::new(format!("documents/CPU-s, {} / {ROWS_OF_DUCKDB}", name(goal)), None),
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

/// The highest share that was kept up with, and the lowest that was not.
fn knee(result: &Outcome) -> (Option<f64>, Option<f64>) {
    let above = result.offered.iter().find(|(_, o)| o.is_saturated()).map(|(share, _)| *share);
    let below = result.offered.iter().map(|(share, _)| *share);
    let below = below.filter(|share| above.is_none_or(|above| *share < above));
    (below.reduce(f64::max), above)
}

/// The settings and figures in JSON.
pub(crate) fn json(settings: &Settings, result: &Outcome) -> Value {
    let (kept, exceeded) = knee(result);
    json!({
        "benchmark": "fig7",
        "version": env!("CARGO_PKG_VERSION"),
        "optimised": !cfg!(debug_assertions),
        "settings": {
            "documents": settings.documents,
            "document_bytes": 1024,
            "durability": settings.served.durability.name(),
            "workers": settings.served.workers,
            "loaders": settings.served.loaders,
            "batch_threads": THREADS,
            "blocks": settings.rounds,
            "window_s": settings.window.as_secs_f64(),
            "growth_max": GROWTH_MAX,
            "seed": settings.seed,
            "quick": settings.quick,
            "duckdb": result.duckdb,
        },
        "machine": machine(result.load),
        "first_load": work_json(&result.first_load),
        "documents_per_cluster": result.first_shape.per_cluster(),
        "clustered_share": result.first_shape.clustered_share(),
        "passes_s": result.passes_s(),
        "figures": figures(settings, result).iter().map(Figure::json).collect::<Vec<_>>(),
        "knee": { "kept_up_with": kept, "not_kept_up_with": exceeded, "paper": paper::knee() / 100.0 },
        "ours": result.offered.iter().map(|(s, o)| offered_json(*s, o)).collect::<Vec<_>>(),
        "rivals": result.rivals.iter().enumerate().map(|(i, r)| rival_json(settings, result, i, r))
            .collect::<Vec<_>>(),
        "fourth_key": {
            "before": work_json(&result.fourth.before),
            "added": work_json(&result.fourth.added),
            "arrived_meanwhile": result.fourth.arrived,
            "after": work_json(&result.fourth.after),
        },
        "missing": result.missing,
        "check": result.conditions.iter().map(Condition::json).collect::<Vec<_>>(),
        "check_ok": result.broken().next().is_none(),
    })
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
        "lateness_p50_s": offered.lateness[0].as_secs_f64(),
        "lateness_p99_s": offered.lateness[1].as_secs_f64(),
        "late": offered.is_late(),
        "clustered": work_json(&offered.work),
    })
}

fn rival_json(settings: &Settings, result: &Outcome, index: usize, rival: &RivalOutcome) -> Value {
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
        "goes_over_all": rival.traits.goes_over_all(),
        "documents_per_s": wall.map(|e| e.median),
        "documents_per_cpu_s": cpu.map(|e| e.median),
        "rates": swept.collect::<Vec<_>>(),
    })
}

/// Prints the settings and figures as tables.
pub(crate) fn print(out: Out, settings: &Settings, result: &Outcome) -> anyhow::Result<()> {
    let build = if cfg!(debug_assertions) { ", NOT OPTIMISED" } else { "" };
    out.line(&format!(
        "clustering: {} documents of 1 KB at first, durability {}, {} workers{build}; seed {}\n\
         three passes of the row-wise batch take {:.2} s; {:.3} documents a cluster, {:.2} % clustered",
        grouped(settings.documents),
        settings.served.durability.name(),
        settings.served.workers,
        settings.seed,
        result.passes_s(),
        result.first_shape.per_cluster(),
        result.first_shape.clustered_share() * 100.0,
    ))?;
    let load = |load: Load| load.processes.map_or("unknown".to_owned(), |n| format!("{n:.2}"));
    out.line(&format!("load {} before, {} after\n", load(result.load[0]), load(result.load[1])))?;
    print_figures(out, &figures(settings, result))?;
    out.line("\nDelays, from when a document was due:\n")?;
    out.table(
        &["rate", "documents/s", "who", "p5", "median", "p95", "", "late p99"].map(Column::right),
        delay_rows(result),
    )?;
    for missing in &result.missing {
        out.line(&format!("\nleft out: {missing}"))?;
    }
    let (holding, all) =
        (result.conditions.iter().filter(|c| c.ok).count(), result.conditions.len());
    out.line(&format!("\nchecked: {holding} of {all} conditions hold"))?;
    Ok(())
}

fn delay_rows(result: &Outcome) -> Vec<Vec<String>> {
    let time = |delays: &[f64], q| {
        quantile(delays, q).map_or(String::new(), |s| match s {
            s if s < 1.0 => format!("{:.2} ms", s * 1000.0),
            s => format!("{s:.2} s"),
        })
    };
    let row = |share: f64, rate: f64, who: &str, delays: &[f64], mark: String, late: String| {
        let rate = grouped(rate as u64);
        let [p5, p50, p95] = [0.05, 0.5, 0.95].map(|q| time(delays, q));
        vec![format!("{:.1} %", share * 100.0), rate, who.to_owned(), p5, p50, p95, mark, late]
    };
    let mut rows = Vec::new();
    for (share, offered) in &result.offered {
        let mark = if offered.is_saturated() { "saturated" } else { "" };
        let late = format!("{:.2} ms", offered.lateness[1].as_secs_f64() * 1000.0);
        let (rate, delays) = (offered.per_second, &offered.delays);
        rows.push(row(*share, rate, "ours", delays, mark.to_owned(), late));
    }
    for rival in &result.rivals {
        for (share, cycled) in &rival.swept {
            let mark = format!("{} cycles", cycled.medians.len());
            let (rate, delays) = (cycled.per_second, &cycled.delays);
            rows.push(row(*share, rate, rival.name, delays, mark, String::new()));
        }
    }
    rows
}

/// The plots: name of the file, and SVG.
pub(crate) fn plots(settings: &Settings, result: &Outcome) -> Vec<(String, String)> {
    let named = |name: &str, svg| (name.to_owned(), svg);
    vec![
        named("fig7.svg", delays(settings, result)),
        named("fig7-rate.svg", rates(settings, result)),
    ]
}

fn delays(settings: &Settings, result: &Outcome) -> String {
    let point = |share: f64, delays: &[f64]| {
        let [p5, p50, p95] = [0.05, 0.5, 0.95].map(|q| quantile(delays, q));
        Some(Point::at(share * 100.0, p50?).between(p5?, p95?))
    };
    let mut series = vec![
        Series::dashed("the paper's MapReduce", Role::Paper(1), paper::map_reduce()),
        Series::dashed("the paper's Percolator", Role::Paper(0), paper::percolator()),
    ];
    let swept = result.rivals.iter().enumerate().filter(|(_, rival)| !rival.swept.is_empty());
    for (index, rival) in swept {
        let points = rival.swept.iter().filter_map(|(share, c)| point(*share, &c.delays));
        series.push(Series::line(rival.traits.label, Role::Peer(index), points.collect()));
    }
    let ours = |saturated| {
        let of = move |offered: &&(f64, Offered)| offered.1.is_saturated() == saturated;
        result.offered.iter().filter(of).filter_map(|(share, o)| point(*share, &o.delays)).collect()
    };
    series.push(Series::line("Percolator, here", Role::Ours(0), ours(false)));
    series.push(Series::points("the same, more than it keeps up with", Role::Ours(1), ours(true)));
    let mut references = vec![Reference::x(paper::knee(), "the paper's knee")];
    if let (Some(kept), Some(exceeded)) = knee(result) {
        references.push(Reference::x((kept + exceeded) * 50.0, "knee here"));
    }
    let highest = result.offered.iter().map(|(share, _)| *share).fold(SHARES[5], f64::max);
    Chart {
        title: "Figure 7: time until a crawled document is clustered".to_owned(),
        subtitle: format!(
            "{} documents of 1 KB, three keys, {THREADS} threads; median, 5th and 95th percentile. Crawl \
             rates are relative to the time of three passes over all rows: {:.2} s here, 20 minutes in \
             the paper (a billion documents, 240 machines), so that its 1 % an hour is 0.33 %.",
            grouped(settings.documents),
            result.passes_s(),
        ),
        x: Axis::linear("crawled during three passes, in % of the repository", Unit::Percent)
            .between(0.0, highest * 107.0),
        y: Axis::log("delay", Unit::Seconds),
        series,
        references,
    }
    .svg()
}

fn rates(settings: &Settings, result: &Outcome) -> String {
    let bar = |e: Option<Estimate>| e.map(|e| Bar::of(e.median).between(e.low, e.high));
    let ours = over_rounds(settings, result, |r| r.ours.per_cpu_second());
    let mut groups = vec!["Percolator".to_owned()];
    groups.extend(result.rivals.iter().map(|rival| rival.name.to_owned()));
    let place = |at: usize, value| {
        let mut values = vec![None; groups.len()];
        values[at] = value;
        values
    };
    let mut series = vec![BarSeries {
        name: "new documents, as they come".to_owned(),
        role: Role::Ours(0),
        values: place(0, bar(ours)),
    }];
    for (index, rival) in result.rivals.iter().enumerate() {
        let of = over_rounds(settings, result, |r| r.rivals[index].per_cpu_second());
        series.push(BarSeries {
            name: rival.traits.label.to_owned(),
            role: Role::Peer(index),
            values: place(index + 1, bar(of)),
        });
    }
    let rows = over_rounds(settings, result, |r| r.rivals[result.goal].per_cpu_second());
    let knee = |rows: Estimate| {
        let label = format!("the paper's knee: {} of rows", paper::RATIO);
        Reference::y(rows.median * paper::RATIO, label)
    };
    let references = rows.map(knee).into_iter().collect();
    Bars {
        title: "Figure 7: documents for each second of processor time".to_owned(),
        subtitle: format!(
            "As fast as it goes, {} documents of 1 KB. Batches over all documents spend this on every \
             document of the repository in every cycle, the others on new ones alone; medians over {} \
             rounds with 95 % intervals.",
            grouped(settings.documents),
            result.rounds.len(),
        ),
        y: Axis::log("documents per CPU-second", Unit::Plain),
        groups,
        series,
        references,
    }
    .svg()
}
