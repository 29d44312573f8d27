//! Converts errors to answers of the API: as JSON that says what is wrong, and what to do next.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// An error as the API writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) error: String,
    pub(crate) help: String,
}

#[derive(Serialize)]
struct Body<'a> {
    error: &'a str,
    help: &'a str,
}

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        error: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Problem { status, error: error.into(), help: help.into() }
    }

    /// The request is wrong.
    pub(crate) fn bad(error: impl Into<String>, help: impl Into<String>) -> Self {
        Problem::new(StatusCode::BAD_REQUEST, error, help)
    }

    /// The requested thing does not exist.
    pub(crate) fn missing(error: impl Into<String>, help: impl Into<String>) -> Self {
        Problem::new(StatusCode::NOT_FOUND, error, help)
    }
}

impl From<percolator::Error> for Problem {
    fn from(error: percolator::Error) -> Self {
        use percolator::Error;
        let status = match &error {
            Error::Invalid { .. } | Error::NotIssued { .. } => StatusCode::BAD_REQUEST,
            Error::TooOld { .. } => StatusCode::GONE,
            Error::Locked { .. } => StatusCode::CONFLICT,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        // The text of an error contains its next step, after a line break.
        let text = error.to_string();
        let (error, help) = text.split_once("\n  help: ").unwrap_or((&text, ""));
        Problem::new(status, error, help)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = Body { error: &self.error, help: &self.help };
        (self.status, Json(body)).into_response()
    }
}
