//! Answers `/healthz`, `/readyz` and `/metrics`.

use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::api::answer::retention;
use crate::metrics;
use crate::state::App;

/// How long store and oracle may take to answer.
const READY_WITHIN: Duration = Duration::from_secs(5);

/// The process runs.
pub(crate) async fn alive() -> &'static str {
    "alive\n"
}

/// Store and oracle answer. Nothing else is said: whoever asks needs no token.
pub(crate) async fn ready(State(app): State<App>) -> Response {
    let asked = async {
        app.db.oracle().peek().await.map_err(|_| "the oracle does not answer\n")?;
        app.db.observers().await.map_err(|_| "the store does not answer\n")?;
        Ok::<(), &'static str>(())
    };
    match tokio::time::timeout(READY_WITHIN, asked).await {
        Ok(Ok(())) => "ready\n".into_response(),
        Ok(Err(why)) => (StatusCode::SERVICE_UNAVAILABLE, why).into_response(),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "no answer within 5 s\n").into_response(),
    }
}

/// Counters, durations, and what the last look through the store found.
pub(crate) async fn metrics(State(app): State<App>) -> Response {
    let look = app.survey.last(&app.db, retention());
    let text = metrics::text(&app, look.as_deref());
    ([(header::CONTENT_TYPE, metrics::MEDIA_TYPE)], text).into_response()
}
