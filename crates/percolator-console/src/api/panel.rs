//! Answers the requests for the application's panel: its search, its pages, its counts.

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use crate::api::answer::Answer;
use crate::panel::{Panel, PanelError};
use crate::problem::Problem;
use crate::state::App;

/// The most hits of one answer.
const HITS_MAX: usize = 100;

impl From<PanelError> for Problem {
    fn from(error: PanelError) -> Self {
        match error {
            PanelError::Asked(what) => Problem::bad(what, ""),
            PanelError::Failed(why) => Problem::new(StatusCode::SERVICE_UNAVAILABLE, why, ""),
        }
    }
}

fn panel_of(app: &App) -> Result<&dyn Panel, Problem> {
    if app.settings.hide_values {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "this console hides values, and the application's page shows values",
            "start it without --hide-values",
        ));
    }
    app.panel.as_deref().ok_or_else(|| {
        Problem::missing(
            "no application has a page in this console",
            "the consoles of `percolator webindex load --console` and `percolator demo` have the \
             page of the web index",
        )
    })
}

/// A search.
#[derive(Debug, Deserialize)]
pub(crate) struct Search {
    q: String,
    #[serde(default)]
    offset: usize,
    limit: Option<usize>,
}

pub(crate) async fn search(State(app): State<App>, Query(asked): Query<Search>) -> Answer<Value> {
    let limit = asked.limit.unwrap_or(10).min(HITS_MAX);
    Ok(Json(panel_of(&app)?.search(&asked.q, asked.offset, limit).await?))
}

/// A request for the page of one thing.
#[derive(Debug, Deserialize)]
pub(crate) struct Page {
    key: String,
}

pub(crate) async fn page(State(app): State<App>, Query(asked): Query<Page>) -> Answer<Value> {
    let found = panel_of(&app)?.page(&asked.key).await?;
    let missing = || {
        Problem::missing(
            format!("{:?} is not stored", asked.key),
            "search for the page, and open it from the results",
        )
    };
    Ok(Json(found.ok_or_else(missing)?))
}

pub(crate) async fn stats(State(app): State<App>) -> Answer<Value> {
    Ok(Json(panel_of(&app)?.stats().await?))
}
