//! Answers `/healthz`, `/readyz` and `/metrics`.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::api::answer::retention;
use crate::metrics;
use crate::state::App;

/// The process runs.
pub(crate) async fn alive() -> &'static str {
    "alive\n"
}

/// Whether store and oracle answer. The answer contains nothing else, because the request needs
/// no token.
pub(crate) async fn ready(State(app): State<App>) -> Response {
    match app.readiness.of(&app.db).await {
        Ok(()) => "ready\n".into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, why).into_response(),
    }
}

/// Counters, durations, and what the last look through the store found.
pub(crate) async fn metrics(State(app): State<App>) -> Response {
    let look = app.survey.last(&app.db, retention());
    let text = metrics::text(&app, look.as_deref());
    ([(header::CONTENT_TYPE, metrics::MEDIA_TYPE)], text).into_response()
}
