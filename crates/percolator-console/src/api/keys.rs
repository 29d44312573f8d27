//! The heat map of keys: where conflicts, waits, writes and reads are, minute by minute.

use axum::Json;
use axum::extract::{Query, State};
use percolator::RowKey;
use serde::{Deserialize, Serialize};

use crate::api::answer::Answer;
use crate::cells::Key;
use crate::recorder::{MINUTES_MAX, Map, MapRow, Metric};
use crate::state::App;

/// About how many rows a map has.
const ROWS: usize = 120;
/// How many of the hottest keys are listed.
const HOT_MAX: usize = 10;

/// Which map.
#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    #[serde(default)]
    metric: Metric,
    minutes: Option<usize>,
}

/// A heat map.
#[derive(Debug, Serialize)]
pub(crate) struct KeysDto {
    metric: Metric,
    /// When each minute began, in milliseconds since 1970.
    t: Vec<u64>,
    rows: Vec<RangeDto>,
    /// For each row, the estimated number of events in each minute.
    values: Vec<Vec<f64>>,
    total: f64,
    hot: Vec<HotDto>,
}

/// A range of keys.
#[derive(Debug, Serialize)]
pub(crate) struct RangeDto {
    table: String,
    from: Key,
    to: Key,
    /// The bytes with which all its keys begin.
    label: Key,
    /// How many different keys were sampled.
    keys: usize,
    total: f64,
    hot: Vec<HotDto>,
}

/// A key.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct HotDto {
    table: String,
    row: Key,
    count: f64,
}

fn key(row: &RowKey) -> Key {
    Key::of(row.as_bytes())
}

fn hot(row: &MapRow) -> impl Iterator<Item = HotDto> {
    let of = |(hot, count): &(RowKey, f64)| HotDto {
        table: row.table.to_string(),
        row: key(hot),
        count: *count,
    };
    row.hot.iter().map(of)
}

pub(crate) async fn keys(State(app): State<App>, Query(asked): Query<Asked>) -> Answer<KeysDto> {
    let minutes = asked.minutes.unwrap_or(MINUTES_MAX).clamp(1, MINUTES_MAX);
    let Map { minutes: t, rows } = app.recorder.keys.map(asked.metric, minutes, ROWS);
    let range = |row: &MapRow| RangeDto {
        table: row.table.to_string(),
        from: key(&row.first),
        to: key(&row.last),
        label: Key::of(row.prefix()),
        keys: row.keys,
        total: row.total(),
        hot: hot(row).collect(),
    };
    let mut hottest: Vec<HotDto> = rows.iter().flat_map(hot).collect();
    hottest.sort_by(|a, b| b.count.total_cmp(&a.count));
    hottest.truncate(HOT_MAX);
    Ok(Json(KeysDto {
        metric: asked.metric,
        t,
        total: rows.iter().map(MapRow::total).sum(),
        hot: hottest,
        values: rows.iter().map(|row| row.values.clone()).collect(),
        rows: rows.iter().map(range).collect(),
    }))
}
