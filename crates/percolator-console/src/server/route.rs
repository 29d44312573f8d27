//! Defines a route: its path, its class, and its handlers.

use axum::routing::MethodRouter;

use crate::server::guard::Class;
use crate::state::App;

/// A route of the server.
pub(crate) struct Route {
    pub(crate) path: &'static str,
    pub(crate) class: Class,
    pub(crate) answers: MethodRouter<App>,
}
