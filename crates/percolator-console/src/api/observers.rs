//! Answers the requests for observers: their columns, runs and failures, and the graph of what
//! they read and write.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::{Query, State};
use percolator::observe::{Observed, Strength};
use serde::{Deserialize, Serialize};

use crate::api::answer::{Answer, retention};
use crate::cells::{CellDto, Key, cell_dto};
use crate::recorder::{Age, ByName, read};
use crate::state::App;

/// An observer of a column.
#[derive(Debug, Serialize)]
pub(crate) struct ObserverDto {
    observer: String,
    table: String,
    column: Key,
    strength: &'static str,
    /// Counts of this process, since it began. An observer of several columns has the same counts
    /// in each row.
    runs: u64,
    conflicts: u64,
    failures: u64,
    /// The share of one thread that the observer works.
    busy: f64,
    run_p50_ms: Option<f64>,
    run_p99_ms: Option<f64>,
    delay_p50_ms: Option<f64>,
    delay_p99_ms: Option<f64>,
    /// Cells that the observer fails on in this process, and tries again.
    failing: usize,
    set_aside: Option<usize>,
    paused: bool,
    /// Notified cells of the column; at least so many, if not the whole column was counted.
    backlog: Option<usize>,
    backlog_whole: bool,
    oldest: Option<Age>,
}

pub(crate) async fn list(State(app): State<App>) -> Answer<Vec<ObserverDto>> {
    let observers = app.db.observers().await?;
    let look = app.survey.last(&app.db, retention());
    let found = look.as_deref().and_then(|look| look.found.as_ref().ok());
    let failing = app.db.failing(usize::MAX);
    let paused = app.db.paused_observers().await?;
    let counts = app.recorder.observers.all();
    let up_s = app.since.elapsed().as_secs_f64().max(1.0);
    let of = |observed: Observed| {
        let Observed { table, column, observer, strength } = observed;
        let counts = counts.iter().find(|of| *of.name == *observer);
        let n = |get: fn(&ByName) -> u64| counts.map_or(0, |of| get(of));
        let durations = counts.map(|of| of.duration.counts()).unwrap_or_default();
        let delays = counts.map(|of| of.delay.counts()).unwrap_or_default();
        let backlog = found
            .map(|found| found.backlog.iter().find(|b| b.table == table && b.column == column));
        let aside = |found: &crate::survey::Found| {
            found.set_aside.iter().filter(|cell| cell.observer == observer).count()
        };
        ObserverDto {
            runs: n(|of| read(&of.committed)),
            conflicts: n(|of| read(&of.conflicts)),
            failures: n(|of| read(&of.failed)),
            busy: n(|of| read(&of.busy)) as f64 / 1e6 / up_s,
            run_p50_ms: durations.quantile_ms(0.5),
            run_p99_ms: durations.quantile_ms(0.99),
            delay_p50_ms: delays.quantile_ms(0.5),
            delay_p99_ms: delays.quantile_ms(0.99),
            failing: failing.iter().filter(|failing| failing.observer == observer).count(),
            set_aside: found.map(aside),
            paused: paused.iter().any(|p| p.observer == observer && p.table == table),
            backlog_whole: backlog.flatten().is_none_or(|b| b.whole),
            backlog: backlog.map(|backlog| backlog.map_or(0, |b| b.cells)),
            oldest: backlog.flatten().and_then(|b| app.recorder.clock.age(b.oldest)),
            strength: match strength {
                Strength::Strong => "strong",
                Strength::Weak => "weak",
            },
            column: Key::of(column.as_bytes()),
            observer,
            table,
        }
    };
    Ok(Json(observers.into_iter().map(of).collect()))
}

/// A column, a family or an observer.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Node {
    id: String,
    kind: &'static str,
    label: String,
}

/// An edge: from a column to the observer that it starts, or from an observer to a column that it
/// writes.
#[derive(Debug, Serialize)]
pub(crate) struct Edge {
    from: String,
    to: String,
    /// Whether the store declares the edge; otherwise the recorder has seen it.
    declared: bool,
    /// How many cells this process has seen pass along the edge.
    cells: Option<u64>,
}

/// Observers and what they read and write.
#[derive(Debug, Serialize)]
pub(crate) struct GraphDto {
    nodes: BTreeSet<Node>,
    edges: Vec<Edge>,
}

fn column_node(table: &str, column: &[u8], whole: bool) -> Node {
    let name = String::from_utf8_lossy(column);
    let label = if whole { format!("{table} {name}") } else { format!("{table} {name}:*") };
    let kind = if whole { "column" } else { "family" };
    Node { id: format!("{kind} {label}"), kind, label }
}

fn observer_node(observer: &str) -> Node {
    Node { id: format!("observer {observer}"), kind: "observer", label: observer.to_owned() }
}

pub(crate) async fn graph(State(app): State<App>) -> Answer<GraphDto> {
    let observers = app.db.observers().await?;
    app.recorder.graph.declared(&observers);
    let runs: BTreeMap<String, u64> = {
        let all = app.recorder.observers.all();
        all.iter().map(|of| (of.name.to_string(), read(&of.committed))).collect()
    };
    let (mut nodes, mut edges) = (BTreeSet::new(), Vec::new());
    for Observed { table, column, observer, .. } in &observers {
        let (from, to) = (column_node(table, column.as_bytes(), true), observer_node(observer));
        let cells = runs.get(observer).copied();
        edges.push(Edge { from: from.id.clone(), to: to.id.clone(), declared: true, cells });
        nodes.extend([from, to]);
    }
    for (observer, target, cells) in app.recorder.graph.edges() {
        let from = observer_node(&observer);
        // The recorder may have counted the column before it knew that an observer watches it.
        let names = |o: &Observed| {
            o.table == target.table && o.column.as_bytes() == target.column.as_slice()
        };
        let whole = target.observed || observers.iter().any(names);
        let to = column_node(&target.table, &target.column, whole);
        let cells = Some(cells);
        edges.push(Edge { from: from.id.clone(), to: to.id.clone(), declared: false, cells });
        nodes.extend([from, to]);
    }
    Ok(Json(GraphDto { nodes, edges }))
}

/// A cell that an observer fails on.
#[derive(Debug, Serialize)]
pub(crate) struct FailureDto {
    cell: CellDto,
    observer: String,
    /// `retrying` or `set_aside`.
    state: &'static str,
    attempts: u32,
    error: String,
    next_try_s: Option<f64>,
}

/// A filter of failures.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Filter {
    observer: Option<String>,
    limit: Option<usize>,
}

/// The most failures of one answer.
const FAILURES_MAX: usize = 1_000;

pub(crate) async fn failures(
    State(app): State<App>,
    Query(filter): Query<Filter>,
) -> Answer<Vec<FailureDto>> {
    let limit = filter.limit.unwrap_or(200).min(FAILURES_MAX);
    let wanted =
        |observer: &str| filter.observer.as_deref().is_none_or(|wanted| wanted == observer);
    let mut all = Vec::new();
    for cell in app.db.set_aside().await? {
        if wanted(&cell.observer) && all.len() < limit {
            all.push(FailureDto {
                cell: cell_dto(&cell.table, &cell.row, &cell.column),
                observer: cell.observer,
                state: "set_aside",
                attempts: cell.attempts,
                error: cell.error,
                next_try_s: None,
            });
        }
    }
    for failing in app.db.all_failing().await? {
        if wanted(&failing.observer) && all.len() < limit {
            all.push(FailureDto {
                cell: cell_dto(&failing.table, &failing.row, &failing.column),
                observer: failing.observer,
                state: "retrying",
                attempts: failing.attempts,
                error: failing.error,
                next_try_s: Some(failing.next_attempt.as_secs_f64()),
            });
        }
    }
    Ok(Json(all))
}
