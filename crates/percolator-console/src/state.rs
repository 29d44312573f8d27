//! Holds the state that all routes share: the database, the recorder, the rules and the bounds.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use percolator::Percolator;
use tokio::sync::Semaphore;

use crate::learn::Sessions;
use crate::panel::Panel;
use crate::readiness::Readiness;
use crate::recorder::Recorder;
use crate::recorder::series::Series;
use crate::server::guard::Policy;
use crate::server::once::Once;
use crate::survey::Survey;

/// The most requests that are answered at a time.
const REQUESTS_MAX: usize = 16;
/// The most requests that wait for a change at a time.
const HELD_MAX: usize = 4;

/// The state that every route is given.
#[derive(Clone)]
pub(crate) struct App(Arc<State>);

/// The state of a console.
pub(crate) struct State {
    pub(crate) db: Percolator,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) series: Series,
    pub(crate) survey: Arc<Survey>,
    pub(crate) policy: Policy,
    pub(crate) settings: Settings,
    pub(crate) panel: Option<Arc<dyn Panel>>,
    pub(crate) once: Once,
    /// The sessions of the Figure 4 page, if it may write.
    pub(crate) sessions: Option<Sessions>,
    /// Permits of requests that are answered at once.
    pub(crate) permits: Semaphore,
    /// Permits of requests that wait for a change.
    pub(crate) held: Semaphore,
    /// Whether store and oracle have answered lately.
    pub(crate) readiness: Readiness,
    /// When the console began.
    pub(crate) since: Instant,
}

impl Deref for App {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

/// A number that the program adds to `/metrics`, as the gauge `percolator_NAME`.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use percolator::Percolator;
/// use percolator_console::{Console, Gauge};
/// let db = Percolator::in_memory().await?;
/// let queued = Gauge::new("jobs_queued", "Jobs that wait", || Some(7.0));
/// let console = Console::new(&db).gauge(queued).listen("127.0.0.1:0").await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Gauge {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) value: Arc<dyn Fn() -> Option<f64> + Send + Sync>,
}

impl Gauge {
    /// Makes the gauge of this name. Each request for `/metrics` calls `value`, which must not
    /// wait. While `value` returns `None`, the answer lacks the gauge.
    pub fn new(
        name: &'static str,
        help: &'static str,
        value: impl Fn() -> Option<f64> + Send + Sync + 'static,
    ) -> Self {
        Gauge { name, help, value: Arc::new(value) }
    }
}

impl fmt::Debug for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gauge").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The settings of a console that concern its pages.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    /// The prefix of every path: empty, or `/name`.
    pub(crate) base_path: String,
    /// Whether values are shown as their length and hash.
    pub(crate) hide_values: bool,
    /// The name of the database: its directory or its cluster.
    pub(crate) title: String,
    /// Whether a recorder was given.
    pub(crate) recorded: bool,
    /// Whether the server has only health and metrics.
    pub(crate) metrics_only: bool,
    /// Numbers of the program's own.
    pub(crate) gauges: Vec<Gauge>,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("settings", &self.settings).finish_non_exhaustive()
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
        App(Arc::new(State {
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
            readiness: Readiness::default(),
            since: Instant::now(),
        }))
    }
}
