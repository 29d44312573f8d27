//! Answers the requests for a cell: its history, at once or as soon as it changes.

use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use percolator::{Column, RowKey, Table, Timestamp};
use serde::{Deserialize, Serialize};

use crate::api::answer::Answer;
use crate::api::moments::{Explained, Question, explained};
use crate::cells::{CellDto, cell_dto, parse_key};
use crate::problem::Problem;
use crate::state::App;

/// How long an answer is delayed at most, and how often the cell is read meanwhile.
const HELD_MAX: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The most moments of one answer; the newest ones are returned.
const MOMENTS_MAX: usize = 200;

/// A request for a cell. `since` is the `version` of the last answer.
#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    table: String,
    row: String,
    column: String,
    /// The start timestamp of the reader.
    at: Option<u64>,
    since: Option<String>,
}

/// A cell.
#[derive(Debug, Serialize)]
pub(crate) struct CellView {
    cell: CellDto,
    #[serde(flatten)]
    explained: Explained,
}

/// The table of a request.
pub(crate) async fn table_of(app: &App, name: &str) -> Result<Table, Problem> {
    // Opening a table creates it, and no GET changes anything.
    let names = app.db.table_names().await?;
    if !names.iter().any(|known| known == name) {
        return Err(Problem::missing(
            format!("the store has no table {name:?}"),
            format!("the store's tables are {}", names.join(", ")),
        ));
    }
    Ok(app.db.table(name).await?)
}

/// The cell of a request.
pub(crate) async fn cell_of(
    app: &App,
    [table, row, column]: [&str; 3],
) -> Result<(Table, RowKey, Column), Problem> {
    let table = table_of(app, table).await?;
    let wrong = |error| Problem::bad(error, "give text, or b64: and base64");
    let row = RowKey::from(parse_key(row).map_err(wrong)?);
    Ok((table, row, Column::new(parse_key(column).map_err(wrong)?)?))
}

/// The timestamp of a request.
pub(crate) fn timestamp(ts: u64) -> Result<Timestamp, Problem> {
    let wrong = || Problem::bad(format!("{ts} is not a timestamp"), "give a smaller number");
    Timestamp::new(ts).ok_or_else(wrong)
}

pub(crate) async fn cell(State(app): State<App>, Query(asked): Query<Asked>) -> Answer<CellView> {
    let (table, row, column) = cell_of(&app, [&asked.table, &asked.row, &asked.column]).await?;
    let at = asked.at.map(timestamp).transpose()?;
    let question = Question {
        table: &table,
        row: &row,
        column: &column,
        at,
        moments_max: MOMENTS_MAX,
        hide: app.settings.hide_values,
    };
    let first = view(&app, &question).await?;
    if asked.since.as_deref() != Some(&first.explained.version) {
        return Ok(Json(first));
    }
    // Only a few requests may wait for a change, so that others are still answered. One too many
    // is answered at once.
    let Ok(_held) = app.held.try_acquire() else { return Ok(Json(first)) };
    let looks = HELD_MAX.as_millis() / LOOK_EVERY.as_millis();
    let mut last = first;
    for _ in 0..looks {
        tokio::time::sleep(LOOK_EVERY).await;
        let known = last.explained.version;
        last = view(&app, &question).await?;
        if last.explained.version != known {
            break;
        }
    }
    Ok(Json(last))
}

async fn view(app: &App, question: &Question<'_>) -> Result<CellView, Problem> {
    let explained = explained(&app.db, &app.recorder.clock, question).await?;
    Ok(CellView { cell: cell_dto(question.table.name(), question.row, question.column), explained })
}
