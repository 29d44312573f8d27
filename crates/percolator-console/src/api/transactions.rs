//! Answers the requests for transactions: counts by name, and single ones that the recorder
//! keeps.

use axum::Json;
use axum::extract::{Query, State};
use percolator::Timestamp;
use serde::{Deserialize, Serialize};

use crate::api::answer::Answer;
use crate::cells::CellDto;
use crate::problem::Problem;
use crate::recorder::{Ended, read};
use crate::state::App;

/// How many transactions of each kind one answer lists.
const LISTED_MAX: usize = 100;

/// Transactions.
#[derive(Debug, Serialize)]
pub(crate) struct Transactions {
    names: Vec<NameDto>,
    slowest: Vec<EndedDto>,
    failed: Vec<EndedDto>,
    /// A sample of the transactions that committed: one of sixteen of each name.
    sampled: Vec<EndedDto>,
}

/// Counts of the transactions with one name, since this process began.
#[derive(Debug, Serialize)]
pub(crate) struct NameDto {
    name: String,
    committed: u64,
    failed: u64,
    conflicts: u64,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
}

/// A transaction that has ended.
#[derive(Debug, Serialize)]
pub(crate) struct EndedDto {
    name: String,
    start_ts: u64,
    commit_ts: Option<u64>,
    path: Option<&'static str>,
    total_ms: f64,
    /// From `begin` until the commit began: the application's own work, and its reads.
    work_ms: f64,
    prewrite_ms: f64,
    commit_ms: f64,
    cells: usize,
    first: Option<CellDto>,
    cause: Option<CellDto>,
    error: Option<String>,
    wall_ms: u64,
}

impl From<Ended> for EndedDto {
    fn from(ended: Ended) -> Self {
        let ms = |duration: std::time::Duration| duration.as_secs_f64() * 1e3;
        let path = if ended.one_step { "one_step" } else { "two_phases" };
        EndedDto {
            name: ended.name.to_string(),
            start_ts: ended.start_ts.as_u64(),
            commit_ts: ended.commit_ts.map(Timestamp::as_u64),
            path: ended.commit_ts.map(|_| path),
            total_ms: ms(ended.total),
            work_ms: ms(ended.total.saturating_sub(ended.prewrite + ended.commit)),
            prewrite_ms: ms(ended.prewrite),
            commit_ms: ms(ended.commit),
            cells: ended.cells,
            first: ended.first.as_ref().map(Into::into),
            cause: ended.cause.as_ref().map(Into::into),
            error: ended.error,
            wall_ms: ended.wall_ms,
        }
    }
}

/// A filter of transactions.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Filter {
    name: Option<String>,
}

pub(crate) async fn list(
    State(app): State<App>,
    Query(filter): Query<Filter>,
) -> Json<Transactions> {
    let recorder = &app.recorder;
    let names = recorder.names.all();
    let names = names.iter().map(|of| {
        let durations = of.duration.counts();
        NameDto {
            name: of.name.to_string(),
            committed: read(&of.committed),
            failed: read(&of.failed),
            conflicts: read(&of.conflicts),
            p50_ms: durations.quantile_ms(0.5),
            p99_ms: durations.quantile_ms(0.99),
        }
    });
    let wanted = |ended: &Ended| filter.name.as_deref().is_none_or(|name| *ended.name == *name);
    let listed = |all: Vec<Ended>| {
        all.into_iter().filter(wanted).take(LISTED_MAX).map(EndedDto::from).collect()
    };
    Json(Transactions {
        names: names.collect(),
        slowest: listed(recorder.recent.slowest(usize::MAX)),
        failed: listed(recorder.recent.failures(usize::MAX)),
        sampled: listed(recorder.recent.commits(usize::MAX)),
    })
}

/// A request for one transaction.
#[derive(Debug, Deserialize)]
pub(crate) struct One {
    start_ts: u64,
}

pub(crate) async fn one(State(app): State<App>, Query(one): Query<One>) -> Answer<EndedDto> {
    let missing = || {
        Problem::missing(
            format!("this process does not remember transaction {}", one.start_ts),
            "the process remembers the slowest and the failed transactions, and one of sixteen \
             others, until it ends",
        )
    };
    let start_ts = Timestamp::new(one.start_ts).ok_or_else(missing)?;
    Ok(Json(app.recorder.recent.find(start_ts).ok_or_else(missing)?.into()))
}
