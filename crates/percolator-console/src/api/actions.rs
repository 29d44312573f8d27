//! Answers the requests for changes: replay, skip, pause, resume, resolve.
//!
//! Replay, skip and resolve can also count without a change, so that the page shows the number
//! before the button acts.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use percolator::admin::{LockEnd, LockFate, LockView};
use percolator::observe::SetAside;
use serde::{Deserialize, Serialize};

use crate::api::answer::Answer;
use crate::problem::Problem;
use crate::recorder::wall_ms;
use crate::state::App;

/// The most locks that one request reads.
const LOCKS_MAX: usize = 10_000;

/// The outcome of a change.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Done {
    /// How many changes, registrations or locks the filter matches.
    matched: usize,
    /// How many of them were changed.
    done: usize,
}

/// A filter of changes that were set aside.
#[derive(Debug, Deserialize)]
pub(crate) struct Aside {
    /// Only those of this observer; of all observers if it is missing.
    observer: Option<String>,
    /// Only those whose last error contains this text.
    error: Option<String>,
    /// Whether to count only, and change nothing.
    #[serde(default)]
    dry_run: bool,
}

impl Aside {
    fn names(&self, aside: &SetAside) -> bool {
        let observer = self.observer.as_deref().is_none_or(|wanted| wanted == aside.observer);
        observer && self.error.as_deref().is_none_or(|text| aside.error.contains(text))
    }
}

/// Lets observers try again the changes that they gave up on.
pub(crate) async fn replay(State(app): State<App>, Json(asked): Json<Aside>) -> Answer<Done> {
    end_aside(&app, &asked, false).await
}

/// Makes observers never handle the changes that they gave up on.
pub(crate) async fn skip(State(app): State<App>, Json(asked): Json<Aside>) -> Answer<Done> {
    end_aside(&app, &asked, true).await
}

async fn end_aside(app: &App, asked: &Aside, skip: bool) -> Answer<Done> {
    let mut named = app.db.set_aside().await?;
    named.retain(|aside| asked.names(aside));
    let mut done = Done { matched: named.len(), done: 0 };
    for aside in named.iter().filter(|_| !asked.dry_run) {
        let ended = if skip { app.db.skip(aside).await? } else { app.db.replay_one(aside).await? };
        done.done += usize::from(ended);
    }
    Ok(Json(done))
}

/// The observer that a request names.
#[derive(Debug, Deserialize)]
pub(crate) struct Named {
    observer: String,
}

fn registered(observer: &str, registrations: usize) -> Answer<Done> {
    if registrations == 0 {
        return Err(Problem::missing(
            format!("no observer is called {observer:?}"),
            "the page of observers lists the names",
        ));
    }
    Ok(Json(Done { matched: registrations, done: registrations }))
}

/// Stops the runs of an observer in all processes, until it is resumed.
pub(crate) async fn pause(State(app): State<App>, Json(asked): Json<Named>) -> Answer<Done> {
    let paused = app.db.pause_observer(&asked.observer).await?;
    registered(&asked.observer, paused)
}

/// Lets a paused observer run again, also for all changes that it has missed.
pub(crate) async fn resume(State(app): State<App>, Json(asked): Json<Named>) -> Answer<Done> {
    let resumed = app.db.resume_observer(&asked.observer).await?;
    registered(&asked.observer, resumed)
}

/// A filter of locks.
#[derive(Debug, Deserialize)]
pub(crate) struct Held {
    /// Only locks that were last written at least this many seconds ago, by their owner's clock.
    #[serde(default)]
    older_s: u64,
    /// Whether to count only, and change nothing.
    #[serde(default)]
    dry_run: bool,
}

/// Resolves locks by the rule of readers: the lock of a living owner stays.
pub(crate) async fn resolve(State(app): State<App>, Json(asked): Json<Held>) -> Answer<Done> {
    let now = wall_ms();
    let old = |lock: &LockView| {
        Duration::from_millis(now.saturating_sub(lock.wall_ms))
            >= Duration::from_secs(asked.older_s)
    };
    let mut done = Done::default();
    for lock in app.db.held_locks(LOCKS_MAX).await?.iter().filter(|lock| old(lock)) {
        if asked.dry_run {
            done.matched += usize::from(app.db.lock_fate(lock).await? != LockFate::OwnerAlive);
        } else if app.db.resolve_lock(lock).await? != LockEnd::OwnerAlive {
            done.matched += 1;
            done.done += 1;
        }
    }
    Ok(Json(done))
}
