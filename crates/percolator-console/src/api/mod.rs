//! Defines the routes and their answers: JSON under `/api/v1`, the search page, health and metrics.
//!
//! No GET requests a new timestamp from the oracle: reads go through
//! [`snapshot`](percolator::Client::snapshot). No GET changes anything, with one exception. A GET
//! that shows rows, searches, or shows pages and counts of the application reads rows. So it
//! resolves the locks of dead owners, as any reader does.

mod actions;
mod answer;
mod cell;
mod health;
mod keys;
mod learn;
mod locks;
pub(crate) mod moments;
mod observers;
mod overview;
mod panel;
mod processes;
mod search;
mod tables;
mod transactions;
mod why;

use axum::routing::{get, post};

use crate::server::guard::Class;
use crate::server::route::Route;

/// All routes but the files of the console.
pub(crate) fn routes() -> Vec<Route> {
    let read = |path, answers| Route { path, class: Class::Read, answers };
    let write = |path, answers| Route { path, class: Class::Write, answers };
    vec![
        Route { path: "/healthz", class: Class::Health, answers: get(health::alive) },
        Route { path: "/readyz", class: Class::Health, answers: get(health::ready) },
        Route { path: "/metrics", class: Class::Metrics, answers: get(health::metrics) },
        Route { path: "/search", class: Class::Search, answers: get(search::page) },
        read("/api/v1/about", get(overview::about)),
        read("/api/v1/overview", get(overview::overview)),
        read("/api/v1/processes", get(processes::list)),
        read("/api/v1/observers", get(observers::list)),
        read("/api/v1/graph", get(observers::graph)),
        read("/api/v1/failures", get(observers::failures)),
        write("/api/v1/failures/replay", post(actions::replay)),
        write("/api/v1/failures/skip", post(actions::skip)),
        write("/api/v1/observers/pause", post(actions::pause)),
        write("/api/v1/observers/resume", post(actions::resume)),
        read("/api/v1/cell", get(cell::cell)),
        read("/api/v1/why", get(why::why)),
        read("/api/v1/keys", get(keys::keys)),
        read("/api/v1/locks", get(locks::list)),
        write("/api/v1/locks/resolve", post(actions::resolve)),
        read("/api/v1/conflicts", get(locks::conflicts)),
        read("/api/v1/transactions", get(transactions::list)),
        read("/api/v1/transaction", get(transactions::one)),
        read("/api/v1/tables", get(tables::list)),
        read("/api/v1/rows", get(tables::rows)),
        read("/api/v1/app/search", get(panel::search)),
        read("/api/v1/app/page", get(panel::page)),
        read("/api/v1/app/stats", get(panel::stats)),
        write("/api/v1/learn/begin", post(learn::begin)),
        write("/api/v1/learn/step", post(learn::step)),
    ]
}
