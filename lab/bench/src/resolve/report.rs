//! The figures of `percolator-bench resolve`.

use serde_json::json;

use super::{ARMS, BACKOFF_MAX, LIFETIME, LOCKS};
use crate::Turns;
use crate::findings::{Condition, Findings};
use crate::plot::{self, Axis, BarSeries, Bars, Reference, Role, Unit};
use crate::report::{Bar, Figure};
use crate::system::Load;
use crate::turns::{Measured, Turn};

/// The goals: how many commits the first lock of a transaction costs at most, and a further one.
const FIRST: f64 = 3.0;
const FURTHER: f64 = 1.2;

pub(super) fn findings(
    turns: Turns,
    load: [Load; 2],
    arms: Vec<Measured>,
    conditions: Vec<Condition>,
) -> Findings {
    let figures = figures(turns, &arms);
    let plot = Some(plot(&figures));
    let about = format!(
        "locks left by dead clients, embedded store, durability buffered; transactions of {LOCKS} locks; \
         locks live {} ms where their owners do",
        LIFETIME.as_millis()
    );
    let settings = json!({
        "durability": "buffered",
        "locks": LOCKS,
        "lock_lifetime_ms": LIFETIME.as_millis() as u64,
        "backoff_max_ms": BACKOFF_MAX.as_millis() as u64,
    });
    let name = "resolve";
    Findings { name, about, settings, turns, load, arms, figures, conditions, plot }
}

fn figures(turns: Turns, arms: &[Measured]) -> Vec<Figure> {
    let arm = |name: &str| {
        let at = ARMS.iter().position(|arm| arm.0 == name);
        &arms[at.expect("every arm that is asked for is there")]
    };
    let p50 = |above: &str, below: &str| {
        Figure::latencies(turns, arm(above), arm(below), "p50", |turn: &Turn| turn.p50)
    };
    let latest = (LIFETIME + 2 * BACKOFF_MAX).as_nanos() as f64;
    let resumed: Vec<f64> = arm("resume").turns.iter().map(|turn| turn.p99 / latest).collect();
    let resumed = Figure::each("resume p99 / (lifetime + 2 backoffs)", turns, &resumed);
    vec![
        p50("first_lock", "commit").bar(Bar::AtMost(FIRST)),
        p50("further_lock", "commit").bar(Bar::AtMost(FURTHER)),
        p50("first_lock", "commit_two_phases"),
        p50("further_lock", "commit_two_phases"),
        p50("first_lock", "get"),
        p50("further_lock", "get"),
        resumed.bar(Bar::AtMost(1.0)),
    ]
}

/// What a lock costs, in commits.
fn plot(figures: &[Figure]) -> String {
    let value = |name: &str| {
        let figure = figures.iter().find(|figure| figure.name == name)?;
        figure.estimate.map(plot::Bar::from)
    };
    let commits = |role, told: &str, below: &str| BarSeries {
        name: told.into(),
        role,
        values: ["first_lock", "further_lock"]
            .map(|lock| value(&format!("{lock} / {below} p50")))
            .into(),
    };
    Bars {
        title: "What it costs a reader to remove a dead client's lock".into(),
        subtitle: "Embedded store; the read itself is in it.".into(),
        y: Axis::linear("times a commit on one cell", Unit::Plain),
        groups: vec!["first lock of a transaction".into(), "further lock of it".into()],
        series: vec![
            commits(Role::Ours(0), "commit in one step", "commit"),
            commits(Role::Ours(1), "commit in two phases", "commit_two_phases"),
        ],
        references: vec![
            Reference::y(FIRST, "goal for the first"),
            Reference::y(FURTHER, "goal for a further one"),
        ],
    }
    .svg()
}
