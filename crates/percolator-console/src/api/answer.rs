//! Shared by the routes: the type of an answer, and the retention that they compute with.

use std::time::Duration;

use axum::Json;
use percolator::admin::GcOptions;

use crate::problem::Problem;

/// The answer of a route.
pub(crate) type Answer<T> = Result<Json<T>, Problem>;

/// For how long garbage is kept where nobody says otherwise: what the state of collection is
/// computed for.
pub(crate) fn retention() -> Duration {
    GcOptions::default().retention
}
