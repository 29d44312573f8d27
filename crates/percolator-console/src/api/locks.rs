//! Answers the requests for held locks, and for cells where transactions conflict or wait.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use axum::Json;
use axum::extract::{Query, State};
use percolator::admin::LockView;
use serde::{Deserialize, Serialize};

use crate::api::answer::Answer;
use crate::api::moments::{LockDto, lock_dto, waiter_dto};
use crate::cells::CellDto;
use crate::recorder::Heat;
use crate::state::App;

/// The most locks of one answer.
const LOCKS_MAX: usize = 1_000;

/// The most waiters of one lock.
const WAITERS_MAX: usize = 100;

/// A filter of locks.
#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    limit: Option<usize>,
}

/// The locks, the oldest first.
pub(crate) async fn list(
    State(app): State<App>,
    Query(asked): Query<Asked>,
) -> Answer<Vec<LockDto>> {
    let locks = app.db.held_locks(asked.limit.unwrap_or(100).min(LOCKS_MAX)).await?;
    // Locks of one transaction share their fate, so each transaction is looked up once.
    let mut fates = BTreeMap::new();
    for lock in &locks {
        if let Entry::Vacant(fate) = fates.entry(lock.start_ts) {
            fate.insert(app.db.lock_fate(lock).await?);
        }
    }
    let waiters = app.db.lock_waiters().await?;
    let dto = |lock: &LockView| {
        let of = waiters.iter().filter(|w| w.lock_ts == lock.start_ts && w.cell == lock.cell);
        let waiters = of.take(WAITERS_MAX).map(waiter_dto).collect();
        LockDto { waiters, ..lock_dto(&app.recorder.clock, lock, fates[&lock.start_ts]) }
    };
    Ok(Json(locks.iter().map(dto).collect()))
}

/// Where transactions get in each other's way.
#[derive(Debug, Serialize)]
pub(crate) struct Conflicts {
    cells: Vec<HotCell>,
    recent: Vec<ClashDto>,
}

/// A cell with conflicts or waits.
#[derive(Debug, Serialize)]
pub(crate) struct HotCell {
    cell: CellDto,
    conflicts: u64,
    waits: u64,
    waited_ms: f64,
    advice: &'static str,
}

/// A conflict.
#[derive(Debug, Serialize)]
pub(crate) struct ClashDto {
    cell: CellDto,
    loser: String,
    loser_start_ts: u64,
    /// `None` if this process does not remember the winner.
    winner: Option<String>,
    winner_start_ts: u64,
    wall_ms: u64,
}

fn advice(heat: &Heat) -> &'static str {
    if heat.conflicts >= heat.waits {
        "many transactions write this cell: spread it over several cells, or let transactions \
         write to cells of their own and one observer combine them"
    } else {
        "readers wait here for writers that take long: keep the writing transactions short"
    }
}

pub(crate) async fn conflicts(State(app): State<App>) -> Json<Conflicts> {
    let recorder = &app.recorder;
    let hot = |(cell, heat): (crate::cells::Place, Heat)| HotCell {
        cell: (&cell).into(),
        conflicts: heat.conflicts,
        waits: heat.waits,
        waited_ms: heat.waited.as_secs_f64() * 1e3,
        advice: advice(&heat),
    };
    let recent = recorder.contention.clashes(100).into_iter().map(|clash| ClashDto {
        cell: (&clash.cell).into(),
        loser: clash.loser.to_string(),
        loser_start_ts: clash.loser_start_ts.as_u64(),
        winner: recorder.recent.find(clash.winner_start_ts).map(|ended| ended.name.to_string()),
        winner_start_ts: clash.winner_start_ts.as_u64(),
        wall_ms: clash.wall_ms,
    });
    Json(Conflicts {
        cells: recorder.contention.hottest(50).into_iter().map(hot).collect(),
        recent: recent.collect(),
    })
}
