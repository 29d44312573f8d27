//! Defines the result type of a route. Also returns the default retention, for which several
//! routes compute the state of garbage collection.

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
