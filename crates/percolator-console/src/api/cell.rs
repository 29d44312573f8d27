//! A cell: its history, as it is now, or as soon as it changes.

use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use percolator::{Column, RowKey, Table};
use serde::{Deserialize, Serialize};

use crate::api::answer::Answer;
use crate::api::moments::{MomentDto, moment_dto};
use crate::cells::{CellDto, cell_dto, parse_key};
use crate::problem::Problem;
use crate::state::App;

/// How long an answer is held at most, and how often the cell is looked at meanwhile.
const HELD_MAX: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The most moments of one answer; the newest are there.
const MOMENTS_MAX: usize = 200;

/// Which cell; `since` is the `version` of an answer that is known already.
#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    table: String,
    row: String,
    column: String,
    since: Option<String>,
}

/// A cell.
#[derive(Debug, Serialize)]
pub(crate) struct CellView {
    cell: CellDto,
    moments: Vec<MomentDto>,
    /// How many moments there are; the newest two hundred are shown.
    total: usize,
    latest_ts: u64,
    /// Timestamps below this may be collected.
    floor: u64,
    /// Changes when a moment does.
    version: String,
}

/// The table of a request.
pub(crate) async fn table_of(app: &App, name: &str) -> Result<Table, Problem> {
    // Opening a table creates it, and no GET changes anything.
    let names = app.db().table_names().await?;
    if !names.iter().any(|known| known == name) {
        return Err(Problem::missing(
            format!("the store has no table {name:?}"),
            format!("there are: {}", names.join(", ")),
        ));
    }
    Ok(app.db().table(name).await?)
}

pub(crate) async fn cell(State(app): State<App>, Query(asked): Query<Asked>) -> Answer<CellView> {
    let table = table_of(&app, &asked.table).await?;
    let wrong = |error| Problem::bad(error, "give text, or b64: and base64");
    let row = RowKey::from(parse_key(&asked.row).map_err(wrong)?);
    let column = Column::new(parse_key(&asked.column).map_err(wrong)?)?;
    let first = view(&app, &table, &row, &column).await?;
    if asked.since.as_deref() != Some(&first.version) {
        return Ok(Json(first));
    }
    // Nobody else may be kept from an answer by those who wait for a change.
    let Ok(_held) = app.held().try_acquire() else { return Ok(Json(first)) };
    let looks = HELD_MAX.as_millis() / LOOK_EVERY.as_millis();
    let mut last = first;
    for _ in 0..looks {
        tokio::time::sleep(LOOK_EVERY).await;
        let known = last.version;
        last = view(&app, &table, &row, &column).await?;
        if last.version != known {
            break;
        }
    }
    Ok(Json(last))
}

async fn view(
    app: &App,
    table: &Table,
    row: &RowKey,
    column: &Column,
) -> Result<CellView, Problem> {
    let (db, clock) = (app.db(), &app.recorder().clock);
    let history = db.cell_history(table, row.clone(), column).await?;
    let hide = app.settings().hide_values;
    let mut moments = Vec::new();
    for moment in history.iter().take(MOMENTS_MAX) {
        moments.push(moment_dto(db, clock, moment, hide).await?);
    }
    // Ages change with time, and are no change of the cell. What becomes of a lock is one.
    let mut hasher = blake3::Hasher::new();
    for (moment, dto) in history.iter().zip(&moments) {
        hasher.update(format!("{moment:?}{:?}", dto.fate()).as_bytes());
    }
    Ok(CellView {
        cell: cell_dto(table.name(), row, column),
        total: history.len(),
        latest_ts: db.oracle().peek().await?.as_u64(),
        floor: db.services().store.floor().as_u64(),
        version: hasher.finalize().to_hex()[..16].to_owned(),
        moments,
    })
}
