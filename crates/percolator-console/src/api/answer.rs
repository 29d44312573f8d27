//! Defines the type of an answer, and the retention that routes compute with.

use std::time::Duration;

use axum::Json;
use percolator::admin::GcOptions;

use crate::problem::Problem;

/// The answer of a route.
pub(crate) type Answer<T> = Result<Json<T>, Problem>;

/// Returns the default retention. The routes compute the state of garbage collection for it.
pub(crate) fn retention() -> Duration {
    GcOptions::default().retention
}
