//! Answers the requests for the cause of a cell's value: the changes that led to it, and those
//! that it has set off.

use axum::Json;
use axum::extract::{Query, State};
use serde::Deserialize;

use crate::api::answer::Answer;
use crate::api::cell::{cell_of, timestamp};
use crate::problem::Problem;
use crate::state::App;
use crate::why::WhyDto;

/// Which cell, and the timestamp of its reader.
#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    table: String,
    row: String,
    column: String,
    at: Option<u64>,
}

pub(crate) async fn why(State(app): State<App>, Query(asked): Query<Asked>) -> Answer<WhyDto> {
    let Asked { table, row, column, at } = &asked;
    let cell = format!("{table} {row} {column}");
    let (table, row, column) = cell_of(&app, [table, row, column]).await?;
    let at = at.map(timestamp).transpose()?;
    let why = app.db.why(&table, row, &column, at).await?;
    let why = why.ok_or_else(|| {
        Problem::missing(
            format!("the cell {cell} was not written yet"),
            "look for the cell among the rows of its table, or give a later timestamp",
        )
    })?;
    Ok(Json(WhyDto::from(&why)))
}
