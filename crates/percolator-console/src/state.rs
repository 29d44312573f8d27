//! What the routes share: the database, the recorder, the rules and the bounds.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use percolator::Percolator;
use tokio::sync::Semaphore;

use crate::learn::Sessions;
use crate::panel::Panel;
use crate::recorder::Recorder;
use crate::recorder::series::Series;
use crate::server::guard::Policy;
use crate::server::once::Once;
use crate::survey::Survey;

/// How many requests are answered at a time.
const REQUESTS_MAX: usize = 16;
/// How many of them may be held until something changes.
const HELD_MAX: usize = 4;

/// What every route is given.
#[derive(Clone)]
pub(crate) struct App(Arc<Inner>);

struct Inner {
    db: Percolator,
    recorder: Arc<Recorder>,
    series: Series,
    survey: Arc<Survey>,
    policy: Policy,
    settings: Settings,
    panel: Option<Arc<dyn Panel>>,
    once: Once,
    sessions: Option<Sessions>,
    permits: Semaphore,
    held: Semaphore,
    since: Instant,
}

/// What a console shows and where.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    /// Before every path: empty, or `/name`.
    pub(crate) base_path: String,
    /// Whether values are shown as their length and hash.
    pub(crate) hide_values: bool,
    /// What the page is called: the directory or the cluster.
    pub(crate) title: String,
    /// Whether a recorder was given.
    pub(crate) recorded: bool,
    /// Whether health and metrics are all that there is.
    pub(crate) metrics_only: bool,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

impl App {
    pub(crate) fn new(
        db: Percolator,
        recorder: Arc<Recorder>,
        policy: Policy,
        settings: Settings,
        panel: Option<Arc<dyn Panel>>,
        learn: bool,
    ) -> Self {
        App(Arc::new(Inner {
            sessions: learn.then(|| Sessions::new(db.clone())),
            db,
            recorder,
            series: Series::default(),
            survey: Arc::default(),
            policy,
            settings,
            panel,
            once: Once::default(),
            permits: Semaphore::new(REQUESTS_MAX),
            held: Semaphore::new(HELD_MAX),
            since: Instant::now(),
        }))
    }

    pub(crate) fn db(&self) -> &Percolator {
        &self.0.db
    }

    pub(crate) fn recorder(&self) -> &Recorder {
        &self.0.recorder
    }

    pub(crate) fn series(&self) -> &Series {
        &self.0.series
    }

    pub(crate) fn survey(&self) -> &Arc<Survey> {
        &self.0.survey
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.0.policy
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(crate) fn base_path(&self) -> &str {
        &self.0.settings.base_path
    }

    pub(crate) fn panel(&self) -> Option<&dyn Panel> {
        self.0.panel.as_deref()
    }

    pub(crate) fn once(&self) -> &Once {
        &self.0.once
    }

    pub(crate) fn sessions(&self) -> Option<&Sessions> {
        self.0.sessions.as_ref()
    }

    pub(crate) fn permits(&self) -> &Semaphore {
        &self.0.permits
    }

    pub(crate) fn held(&self) -> &Semaphore {
        &self.0.held
    }

    /// When the console began.
    pub(crate) fn since(&self) -> Instant {
        self.0.since
    }
}
