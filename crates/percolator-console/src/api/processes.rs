//! Lists the live processes of a cluster that write a status, so that one console shows all of
//! them. A killed process leaves the list when its liveness token has expired.

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use crate::api::answer::Answer;
use crate::recorder::wall_ms;
use crate::state::App;

/// A client of the store.
#[derive(Debug, Serialize)]
pub(crate) struct ProcessDto {
    client: String,
    role: String,
    host: String,
    pid: u32,
    version: String,
    /// The time when the status was written, by the clock of that process.
    since_ms: u64,
    /// Seconds since it wrote its status, by the clocks of both machines.
    written_s_ago: f64,
    observers: Vec<String>,
    committed: u64,
    observer_runs: u64,
    /// Cells that its observers fail on and try again, and locks that it waits for.
    failing: u64,
    lock_waits: u64,
}

pub(crate) async fn list(State(app): State<App>) -> Answer<Vec<ProcessDto>> {
    let mut all = app.db.statuses().await?;
    // A status outlives its process for a while.
    all.retain(|status| status.alive);
    all.sort_by(|a, b| (&a.process.role, a.since_ms).cmp(&(&b.process.role, b.since_ms)));
    let now = wall_ms();
    let dto = |status: percolator::admin::Status| {
        let count = |name: &str| {
            let found = status.counters.iter().find(|(counter, _)| counter == name);
            found.map_or(0, |(_, n)| *n)
        };
        ProcessDto {
            committed: count("committed"),
            observer_runs: count("observer_runs"),
            failing: status.failing_cells,
            lock_waits: status.lock_waits,
            client: status.client.to_string(),
            since_ms: status.since_ms,
            written_s_ago: now.saturating_sub(status.written_ms) as f64 / 1e3,
            role: status.process.role,
            host: status.process.host,
            pid: status.process.pid,
            version: status.process.version,
            observers: status.observers,
        }
    };
    Ok(Json(all.into_iter().map(dto).collect()))
}
