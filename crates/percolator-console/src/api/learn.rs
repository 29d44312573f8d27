//! Answers the requests of the Figure 4 page: begin a session, take a step, show cells.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use percolator::{Error, RowKey};
use serde::{Deserialize, Serialize};

use crate::api::answer::Answer;
use crate::api::moments::{MomentDto, Question, explained};
use crate::learn::{BALANCE, LearnError, Sessions, Step, TABLE, balances};
use crate::problem::Problem;
use crate::state::App;

impl From<LearnError> for Problem {
    fn from(error: LearnError) -> Self {
        let status = match &error {
            LearnError::Ended(_) => StatusCode::GONE,
            LearnError::Full => StatusCode::TOO_MANY_REQUESTS,
            LearnError::Order(_) | LearnError::Row(_) => StatusCode::BAD_REQUEST,
            LearnError::Database(_) => StatusCode::CONFLICT,
        };
        Problem::new(status, error.to_string(), "begin another client")
    }
}

fn sessions(app: &App) -> Result<&Sessions, Problem> {
    app.sessions.as_ref().ok_or_else(|| {
        Problem::missing(
            "this console does not play Figure 4, because that writes to the store",
            "use the console of `percolator demo`, or start this console with --allow-writes",
        )
    })
}

/// A session.
#[derive(Debug, Serialize)]
pub(crate) struct Begun {
    session: u64,
}

pub(crate) async fn begin(State(app): State<App>) -> Answer<Begun> {
    Ok(Json(Begun { session: sessions(&app)?.begin().await? }))
}

/// A request for a step of a session, for the cells, or for a read. With `read` another client
/// reads, which belongs to no session.
#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    session: Option<u64>,
    #[serde(flatten)]
    step: Option<Step>,
    /// The rows whose cells the answer shows.
    #[serde(default)]
    rows: Vec<String>,
    /// Whether another client reads all balances, instead of a step.
    #[serde(default)]
    read: bool,
}

/// The outcome of a step.
#[derive(Debug, Serialize)]
pub(crate) struct Stepped {
    /// The outcome in words; `None` if the request wanted only the cells.
    answer: Option<String>,
    /// Whether the step failed.
    failed: bool,
    cells: Vec<CellMoments>,
}

/// A cell as it is now.
#[derive(Debug, Serialize)]
pub(crate) struct CellMoments {
    row: String,
    moments: Vec<MomentDto>,
}

/// The most rows that are shown.
const ROWS_MAX: usize = 8;
/// The most moments of each cell.
const MOMENTS_MAX: usize = 20;

pub(crate) async fn step(
    State(app): State<App>,
    Json(asked): Json<Asked>,
) -> Result<Json<Stepped>, Problem> {
    let sessions = sessions(&app)?;
    let taken = match (asked.read, asked.session, asked.step) {
        (true, ..) => Some(read(&app).await),
        (false, Some(session), Some(step)) => Some(sessions.step(session, step).await),
        (false, ..) => None,
    };
    let (answer, failed) = match taken {
        None => (None, false),
        Some(Ok(answer)) => (Some(answer), false),
        // An abort or a lock is what the page wants to show, so it is no error of the request.
        Some(Err(LearnError::Database(error @ (Error::Aborted { .. } | Error::Locked { .. })))) => {
            (Some(error.to_string()), true)
        }
        Some(Err(error)) => return Err(error.into()),
    };
    let table = app.db.table(TABLE).await?;
    let mut cells = Vec::new();
    for row in asked.rows.into_iter().take(ROWS_MAX) {
        let key = RowKey::from(row.clone());
        let question = Question {
            table: &table,
            row: &key,
            column: &BALANCE,
            at: None,
            moments_max: MOMENTS_MAX,
            hide: false,
        };
        let explained = explained(&app.db, &app.recorder.clock, &question).await?;
        cells.push(CellMoments { row, moments: explained.moments });
    }
    Ok(Json(Stepped { answer, failed, cells }))
}

async fn read(app: &App) -> Result<String, LearnError> {
    let (at, rows) = balances(&app.db).await?;
    let rows: Vec<String> = rows.iter().map(|(row, value)| format!("{row} has {value}")).collect();
    let rows = if rows.is_empty() { "there are no accounts".to_owned() } else { rows.join(", ") };
    Ok(format!("another client reads at {at}: {rows}"))
}
