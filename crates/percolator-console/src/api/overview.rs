//! Answers the request for the overview: one sentence, the present rates, and fifteen minutes of
//! charts.

use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use percolator::admin::Stats;
use serde::{Deserialize, Serialize};

use crate::api::answer::{Answer, retention};
use crate::recorder::series::Point;
use crate::recorder::{Age, read};
use crate::state::App;
use crate::survey::{Found, Look};
use crate::verdict::{Insight, Signs, Verdict, insights, judge};

/// The length of "now", in seconds.
const NOW: Duration = Duration::from_secs(10);
/// A look that began at most this long ago knows the newest timestamp well enough.
const YOUNG: Duration = Duration::from_secs(2);

/// The database, and the program that shows it.
#[derive(Debug, Serialize)]
pub(crate) struct About {
    version: &'static str,
    title: String,
    incarnation: String,
    uptime_s: f64,
    read_only: bool,
    open_reads: bool,
    hide_values: bool,
    recorded: bool,
    /// The name of the application that has a panel.
    app: Option<&'static str>,
    learn: bool,
}

pub(crate) async fn about(State(app): State<App>) -> Json<About> {
    let (settings, policy) = (&app.settings, &app.policy);
    Json(About {
        version: env!("CARGO_PKG_VERSION"),
        title: settings.title.clone(),
        incarnation: app.db.incarnation().to_string(),
        uptime_s: app.since.elapsed().as_secs_f64(),
        read_only: policy.read_only,
        open_reads: policy.open_reads,
        hide_values: settings.hide_values,
        recorded: settings.recorded,
        app: app.panel.as_deref().map(|panel| panel.name()),
        learn: app.sessions.is_some(),
    })
}

#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    /// Seconds of charts.
    #[serde(default = "quarter_of_an_hour")]
    window_s: u64,
}

fn quarter_of_an_hour() -> u64 {
    900
}

/// The overview.
#[derive(Debug, Serialize)]
pub(crate) struct Overview {
    verdict: Verdict,
    insights: Vec<Insight>,
    now: Now,
    totals: Totals,
    series: Vec<Point>,
}

/// Means over the last ten seconds, and the results of the last look. `null` is "not known".
#[derive(Debug, Default, Serialize)]
struct Now {
    commits_s: f64,
    aborts_s: f64,
    runs_s: f64,
    abort_ratio: Option<f64>,
    commit_p50_ms: Option<f64>,
    commit_p99_ms: Option<f64>,
    delay_p50_ms: Option<f64>,
    delay_p95_ms: Option<f64>,
    backlog: Option<u64>,
    /// Whether that is all; else there are at least so many.
    backlog_whole: bool,
    oldest: Option<Age>,
    locks: Option<u64>,
    oldest_lock: Option<Age>,
    set_aside: Option<u64>,
    safe_point_behind: Option<u64>,
    safe_point_age: Option<Age>,
    readers: Option<u64>,
    latest_ts: Option<u64>,
    /// Seconds since the look with these results began, and how long that look took.
    looked_s_ago: Option<f64>,
    look_took_s: Option<f64>,
}

/// Counts since this process opened the database.
#[derive(Debug, Serialize)]
struct Totals {
    begun: u64,
    committed: u64,
    one_step: u64,
    aborted: u64,
    conflicts: u64,
    unknown: u64,
    observer_runs: u64,
    observer_failures: u64,
    reads: u64,
    locks_met: u64,
    rolled_forward: u64,
    rolled_back: u64,
    gc_rounds: u64,
}

impl Totals {
    fn of(stats: &Stats, gc_rounds: u64) -> Self {
        Totals {
            begun: stats.begun,
            committed: stats.committed,
            one_step: stats.committed_one_step,
            aborted: stats.aborted,
            conflicts: stats.conflicts,
            unknown: stats.unknown,
            observer_runs: stats.observer_runs,
            observer_failures: stats.observer_failures,
            reads: stats.reads,
            locks_met: stats.locks_met,
            rolled_forward: stats.rolled_forward,
            rolled_back: stats.rolled_back,
            gc_rounds,
        }
    }
}

fn mean(points: &[Point], of: impl Fn(&Point) -> f64) -> f64 {
    let sum: f64 = points.iter().map(of).sum();
    sum / points.len().max(1) as f64
}

/// Returns the mean of the known values. The mean of one-second quantiles is close enough to the
/// quantile of ten seconds.
fn mean_known(points: &[Point], of: impl Fn(&Point) -> Option<f64>) -> Option<f64> {
    let known: Vec<f64> = points.iter().filter_map(of).collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
}

pub(crate) async fn overview(
    State(app): State<App>,
    Query(asked): Query<Asked>,
) -> Answer<Overview> {
    let look = app.survey.last(&app.db, retention());
    let series = app.series.window(Duration::from_secs(asked.window_s.min(900)));
    let lately = app.series.window(NOW);
    let now = now(&app, &lately, look.as_deref());
    let signs = signs(&app, &now, &lately, look.as_deref());
    let gc_rounds = read(&app.recorder.counters.gc_rounds);
    Ok(Json(Overview {
        verdict: judge(&signs),
        insights: insights(&signs),
        totals: Totals::of(&app.db.stats(), gc_rounds),
        now,
        series,
    }))
}

fn now(app: &App, lately: &[Point], look: Option<&Look>) -> Now {
    let (commits_s, aborts_s) = (mean(lately, |p| p.commits_s), mean(lately, |p| p.aborts_s));
    let ended = commits_s + aborts_s;
    let mut now = Now {
        commits_s,
        aborts_s,
        runs_s: mean(lately, |p| p.runs_s),
        abort_ratio: (ended > 0.0).then(|| aborts_s / ended),
        commit_p50_ms: mean_known(lately, |p| p.commit_p50_ms),
        commit_p99_ms: mean_known(lately, |p| p.commit_p99_ms),
        delay_p50_ms: mean_known(lately, |p| p.delay_p50_ms),
        delay_p95_ms: mean_known(lately, |p| p.delay_p95_ms),
        ..Now::default()
    };
    let Some(look) = look else { return now };
    now.looked_s_ago = Some(look.begun.elapsed().as_secs_f64());
    now.look_took_s = Some(look.took.as_secs_f64());
    let Ok(found) = &look.found else { return now };
    if look.begun.elapsed() < YOUNG {
        // In a cluster a look is the only source of new timestamps for this process.
        app.recorder.clock.note(found.gc.latest);
    }
    let age = |ts| app.recorder.clock.age(ts);
    now.backlog = Some(waiting(found));
    now.backlog_whole = found.backlog.iter().all(|b| b.whole || b.observers.is_empty());
    let of_somebody = found.backlog.iter().filter(|backlog| !backlog.observers.is_empty());
    now.oldest = of_somebody.map(|backlog| backlog.oldest).min().and_then(age);
    now.locks = Some(found.locks.len() as u64);
    now.oldest_lock = found.locks.first().and_then(|lock| age(lock.start_ts));
    now.set_aside = Some(found.set_aside.len() as u64);
    let (latest, safe_point) = (found.gc.latest, found.gc.safe_point);
    now.latest_ts = Some(latest.as_u64());
    now.safe_point_behind = Some(latest.as_u64().saturating_sub(safe_point.as_u64()));
    now.safe_point_age = age(safe_point);
    now.readers = Some(found.gc.readers.len() as u64);
    now
}

/// Notified cells that an observer waits for.
fn waiting(found: &Found) -> u64 {
    let of_somebody = found.backlog.iter().filter(|backlog| !backlog.observers.is_empty());
    of_somebody.map(|backlog| backlog.cells as u64).sum()
}

fn signs(app: &App, now: &Now, lately: &[Point], look: Option<&Look>) -> Signs {
    let growth = match (lately.first(), lately.last()) {
        (Some(first), Some(last)) if lately.len() > 1 => {
            let seconds = last.wall_ms.saturating_sub(first.wall_ms) as f64 / 1e3;
            Some((last.waiting as f64 - first.waiting as f64) / seconds.max(1.0))
        }
        _ => None,
    };
    let mut signs = Signs {
        backlog: now.backlog,
        backlog_at_least: now.backlog.is_some() && !now.backlog_whole,
        oldest_s: now.oldest.map(|age| age.seconds),
        oldest_at_least: now.oldest.is_some_and(|age| age.at_least),
        growth_s: growth,
        runs_s: now.runs_s,
        set_aside: now.set_aside.unwrap_or(0),
        oldest_lock_s: now.oldest_lock.map(|age| age.seconds),
        abort_ratio: now.abort_ratio,
        aborts_s: now.aborts_s,
        ..Signs::default()
    };
    match look.map(|look| &look.found) {
        Some(Ok(found)) => {
            signs.set_aside_of = found.set_aside.first().map(|cell| cell.observer.clone());
        }
        Some(Err(error)) => signs.store_error = Some(error.clone()),
        None => {}
    }
    let mut missing = app.db.missing_observers();
    missing.dedup_by(|a, b| a.observer == b.observer);
    signs.missing = missing.into_iter().map(|observed| observed.observer).collect();
    let failing = app.db.failing(usize::MAX);
    signs.failing = failing.len() as u64;
    signs.failing_of = failing.first().map(|failing| failing.observer.clone());
    signs
}
