//! Answers the requests for tables and their rows, as of the latest timestamp.

use std::ops::Bound;

use axum::Json;
use axum::extract::{Query, State};
use percolator::{RowKey, RowRange};
use serde::{Deserialize, Serialize};

use crate::api::answer::Answer;
use crate::api::cell::table_of;
use crate::api::moments::{ValueDto, value_dto};
use crate::cells::{Key, parse_key};
use crate::problem::Problem;
use crate::state::App;

/// The most rows of one answer.
const ROWS_MAX: usize = 1_000;
/// The most bytes of keys and values that one answer reads.
const BYTES_MAX: usize = 4 << 20;

/// A table.
#[derive(Debug, Serialize)]
pub(crate) struct TableDto {
    name: String,
    /// The columns that observers watch.
    observed: Vec<Key>,
}

pub(crate) async fn list(State(app): State<App>) -> Answer<Vec<TableDto>> {
    let observers = app.db.observers().await?;
    let names = app.db.table_names().await?;
    let table = |name: String| {
        let of = observers.iter().filter(|observed| observed.table == name);
        let mut observed: Vec<Key> = of.map(|o| Key::of(o.column.as_bytes())).collect();
        observed.dedup();
        TableDto { name, observed }
    };
    Ok(Json(names.into_iter().map(table).collect()))
}

/// A request for rows.
#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    table: String,
    prefix: Option<String>,
    /// Only rows after this one.
    after: Option<String>,
    limit: Option<usize>,
}

/// Rows of a table.
#[derive(Debug, Serialize)]
pub(crate) struct Rows {
    at: u64,
    rows: Vec<RowDto>,
    /// The value of `after` for the next request; `None` at the end of the table.
    next: Option<Key>,
}

/// A row.
#[derive(Debug, Serialize)]
pub(crate) struct RowDto {
    row: Key,
    cells: Vec<RowCell>,
}

/// A cell of a row.
#[derive(Debug, Serialize)]
pub(crate) struct RowCell {
    column: Key,
    value: ValueDto,
}

pub(crate) async fn rows(State(app): State<App>, Query(asked): Query<Asked>) -> Answer<Rows> {
    let table = table_of(&app, &asked.table).await?;
    let wrong = |error| Problem::bad(error, "give text, or b64: and base64");
    let prefix = parse_key(asked.prefix.as_deref().unwrap_or_default()).map_err(wrong)?;
    let after = asked.after.as_deref().map(parse_key).transpose().map_err(wrong)?;
    // A row outside of the prefix is not one that an earlier answer returned, so it is ignored.
    let after = after.filter(|after| after.starts_with(&prefix));
    let limit = asked.limit.unwrap_or(100).clamp(1, ROWS_MAX);
    let mut range = RowRange::prefix(prefix);
    if let Some(after) = after {
        range.start = Bound::Excluded(RowKey::from(after));
    }
    let snapshot = app.db.snapshot().await?;
    let mut scan = snapshot.scan(&table).range(range);
    let (mut rows, mut bytes, mut next) = (Vec::new(), 0, None);
    let hide = app.settings.hide_values;
    while let Some(row) = scan.next().await? {
        bytes +=
            row.cells.iter().map(|(column, v)| column.as_bytes().len() + v.len()).sum::<usize>();
        let cell = |(column, value): &(percolator::Column, percolator::Bytes)| RowCell {
            column: Key::of(column.as_bytes()),
            value: value_dto(value, hide),
        };
        let key = Key::of(row.row.as_bytes());
        rows.push(RowDto { row: key.clone(), cells: row.cells.iter().map(cell).collect() });
        if rows.len() >= limit || bytes > BYTES_MAX {
            next = Some(key);
            break;
        }
    }
    Ok(Json(Rows { at: snapshot.timestamp().as_u64(), rows, next }))
}
