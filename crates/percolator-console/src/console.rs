//! Defines the console of a database: its settings, and how it listens.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use percolator::Percolator;
use rand::Rng;
use rand::distr::Alphanumeric;
use tokio::net::{TcpListener, ToSocketAddrs};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::api;
use crate::panel::Panel;
use crate::recorder::Recorder;
use crate::server;
use crate::server::guard::Policy;
use crate::server::listener::Bounded;
use crate::state::{App, Gauge, Settings};

/// The name of the file that holds the token, in the directory of the store.
const TOKEN_FILE: &str = "console.token";
/// Characters of a token: 190 bits of randomness.
const TOKEN_CHARS: usize = 32;
/// How often counters become a point of the charts.
const TICK: Duration = Duration::from_secs(1);
/// The recorder reads the set of observed columns once in this many ticks.
const OBSERVERS_EVERY: u64 = 10;

/// The right to read a console. Changes always need the token.
///
/// ```
/// use percolator_console::Access;
/// assert_eq!(Access::default(), Access::Token);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Access {
    /// Holders of the token may read. The default: any user of this machine can reach loopback.
    #[default]
    Token,
    /// Everyone who can reach the address may read. For demonstrations.
    OpenReads,
}

/// Why a console cannot listen.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use percolator::Percolator;
/// use percolator_console::{Console, ConsoleError};
/// let db = Percolator::in_memory().await?;
/// let far = Console::new(&db).listen("0.0.0.0:0").await;
/// assert!(matches!(far, Err(ConsoleError::Insecure { .. })));
/// # Ok::<(), percolator::Error>(()) }).unwrap();
/// ```
#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    /// The console cannot listen at the address.
    #[error(
        "the console cannot listen at {addr}: {source}\n  help: give another address, or port 0 \
         for any free port"
    )]
    Listen {
        /// The address.
        addr: String,
        /// Why.
        source: io::Error,
    },
    /// The address is not loopback, and [`Console::insecure`] was not set.
    #[error(
        "the console would listen at {addr} without encryption, and anyone on the network could \
         read the token\n  help: listen at 127.0.0.1 and use `ssh -L`, or a proxy with TLS; or \
         allow it with --insecure-console (`Console::insecure` in a program)"
    )]
    Insecure {
        /// The address.
        addr: SocketAddr,
    },
    /// The file of the token cannot be written.
    #[error("{}: the token cannot be written: {source}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The base path is malformed.
    #[error("base path {0:?}: write it as /name, without a slash at its end")]
    BasePath(String),
}

/// A console that does not listen yet.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use percolator::Percolator;
/// use percolator_console::Console;
/// let db = Percolator::in_memory().await?;
/// let console = Console::new(&db).listen("127.0.0.1:0").await?;
/// assert!(console.url().starts_with("http://127.0.0.1:"));
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct Console {
    db: Percolator,
    recorder: Option<Arc<Recorder>>,
    panel: Option<Arc<dyn Panel>>,
    access: Access,
    read_only: bool,
    hide_values: bool,
    insecure: bool,
    learn: bool,
    metrics_only: bool,
    base_path: String,
    hosts: Vec<String>,
    token_dir: Option<PathBuf>,
    title: String,
    open_search: bool,
    gauges: Vec<Gauge>,
}

/// An address that is taken before its console exists. Until then, connections wait.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use percolator::Percolator;
/// use percolator_console::{Bound, Console};
/// let bound = Bound::at("127.0.0.1:0", false).await?;
/// let db = Percolator::in_memory().await?;
/// let console = Console::new(&db).listen_on(bound)?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    addr: SocketAddr,
}

impl Bound {
    /// Takes an address. `insecure` allows one beyond loopback, as [`Console::insecure`] does.
    ///
    /// # Errors
    /// [`ConsoleError::Listen`] and [`ConsoleError::Insecure`].
    pub async fn at(
        addr: impl ToSocketAddrs + std::fmt::Debug,
        insecure: bool,
    ) -> Result<Bound, ConsoleError> {
        let problem = |source| ConsoleError::Listen { addr: format!("{addr:?}"), source };
        let listener = TcpListener::bind(&addr).await.map_err(problem)?;
        let addr = listener.local_addr().map_err(problem)?;
        if !addr.ip().is_loopback() && !insecure {
            return Err(ConsoleError::Insecure { addr });
        }
        Ok(Bound { listener, addr })
    }

    /// Returns the address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

/// A console that listens, until this value is dropped.
///
/// See [`Console`] for an example.
#[derive(Debug)]
pub struct Listening {
    addr: SocketAddr,
    page: String,
    url: String,
    token_file: Option<PathBuf>,
    ticking: JoinHandle<()>,
    /// Dropping this stops the server: it accepts nothing more, and its connections end after the
    /// answers in flight.
    _stop: oneshot::Sender<()>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.ticking.abort();
    }
}

impl Listening {
    /// Returns the address at which the console listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the URL to open. Where a token is needed, the fragment of the URL holds it: no
    /// browser sends the fragment, and no server logs it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// As [`url`](Listening::url), without the token: for a log.
    pub fn url_without_token(&self) -> &str {
        &self.page
    }

    /// The file that holds the token, if [`Console::token_dir`] named its directory.
    pub fn token_file(&self) -> Option<&Path> {
        self.token_file.as_deref()
    }
}

impl Console {
    /// Makes a console of a database. The console keeps the database open until it is dropped.
    pub fn new(db: &Percolator) -> Self {
        Console {
            db: db.clone(),
            recorder: None,
            panel: None,
            access: Access::Token,
            read_only: false,
            hide_values: false,
            insecure: false,
            learn: false,
            metrics_only: false,
            base_path: String::new(),
            hosts: Vec::new(),
            token_dir: None,
            title: "percolator".to_owned(),
            open_search: false,
            gauges: Vec::new(),
        }
    }

    /// Sets the recorder, which must also be the database's
    /// [`Options::watch`](percolator::Options::watch). Without a recorder the console shows the
    /// store, but no rates or durations. Default: none.
    #[must_use]
    pub fn recorder(mut self, recorder: Arc<Recorder>) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// Sets the panel of the application. Default: none.
    #[must_use]
    pub fn panel(mut self, panel: Arc<dyn Panel>) -> Self {
        self.panel = Some(panel);
        self
    }

    /// Sets the right to read. Default: [`Access::Token`].
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Sets whether the console refuses every change. Default: no.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets whether the console shows the length and a hash of each value instead of the value.
    /// Default: no.
    #[must_use]
    pub fn hide_values(mut self, hide: bool) -> Self {
        self.hide_values = hide;
        self
    }

    /// Sets whether the console may listen beyond loopback, where others can read its traffic.
    /// Default: no.
    #[must_use]
    pub fn insecure(mut self, insecure: bool) -> Self {
        self.insecure = insecure;
        self
    }

    /// Sets whether the page of the paper's Figure 4 may write to a table of its own,
    /// `percolator-learn`. Default: no.
    #[must_use]
    pub fn learn(mut self, learn: bool) -> Self {
        self.learn = learn;
        self
    }

    /// Serves only `/metrics`, `/healthz` and `/readyz`. Default: the console, too.
    #[must_use]
    pub fn metrics_only(mut self) -> Self {
        self.metrics_only = true;
        self
    }

    /// Sets the path under which a proxy serves the console, such as `/percolator`. Default:
    /// none.
    #[must_use]
    pub fn base_path(mut self, path: impl Into<String>) -> Self {
        self.base_path = path.into();
        self
    }

    /// Adds a name under which the console is reached, such as that of a proxy. It needs its port
    /// unless that is the default one. Requests under any other name are refused.
    #[must_use]
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.hosts.push(host.into());
        self
    }

    /// Sets the directory for the file `console.token`, which only its owner can read. Default:
    /// none, so only the URL holds the token.
    #[must_use]
    pub fn token_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.token_dir = Some(dir.into());
        self
    }

    /// Sets the name of the database on the pages, such as its directory or cluster. Default:
    /// `percolator`.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }

    /// Whether everybody who can reach the address may search the application, on a page that works
    /// without JavaScript. A console whose reads are open has that page in any case. Default: no.
    #[must_use]
    pub fn open_search(mut self, open: bool) -> Self {
        self.open_search = open;
        self
    }

    /// Adds a number to `/metrics`. See [`Gauge`] for an example.
    #[must_use]
    pub fn gauge(mut self, gauge: Gauge) -> Self {
        self.gauges.push(gauge);
        self
    }

    /// Listens, and answers requests until the returned value is dropped. Runs in a tokio
    /// runtime.
    ///
    /// # Errors
    /// [`ConsoleError`]; each variant says what to do next.
    pub async fn listen(
        self,
        addr: impl ToSocketAddrs + std::fmt::Debug,
    ) -> Result<Listening, ConsoleError> {
        let bound = Bound::at(addr, self.insecure).await?;
        self.listen_on(bound)
    }

    /// As [`listen`](Console::listen), at an address that was taken before. [`Bound::at`] has
    /// checked the address, so [`insecure`](Console::insecure) has no effect here.
    ///
    /// # Errors
    /// [`ConsoleError`]; each variant says what to do next.
    pub fn listen_on(self, Bound { listener, addr }: Bound) -> Result<Listening, ConsoleError> {
        let base = self.base_path.clone();
        let malformed = !base.starts_with('/')
            || base.ends_with('/')
            || base.contains(['{', '*', '"', '<', '>', '&', ' ']);
        if !base.is_empty() && malformed {
            return Err(ConsoleError::BasePath(base));
        }
        let token = fresh_token();
        if let Some(dir) = &self.token_dir {
            write_token(dir, &token)?;
        }
        let fragment = match self.access {
            Access::Token => format!("#t={token}"),
            // Only changes need the token.
            Access::OpenReads if self.read_only => String::new(),
            Access::OpenReads => format!("#t={token}"),
        };
        let page = format!("http://{addr}{base}/");
        let (url, token_file) =
            (format!("{page}{fragment}"), self.token_dir.as_ref().map(|dir| dir.join(TOKEN_FILE)));
        let app = self.app(addr, token);
        let router = server::router(app.clone(), api::routes());
        let (stop, stopped) = oneshot::channel::<()>();
        tokio::spawn(Bounded::new(listener).serve(router, stopped));
        let ticking = tokio::spawn(tick(app));
        Ok(Listening { addr, page, url, token_file, ticking, _stop: stop })
    }

    fn app(self, addr: SocketAddr, token: String) -> App {
        let recorded = self.recorder.is_some();
        let policy = Policy {
            hosts: known_hosts(addr, self.hosts),
            token,
            open_reads: self.access == Access::OpenReads,
            open_search: self.open_search,
            read_only: self.read_only,
            loopback: addr.ip().is_loopback(),
        };
        let settings = Settings {
            base_path: self.base_path,
            hide_values: self.hide_values,
            title: self.title,
            recorded,
            metrics_only: self.metrics_only,
            gauges: self.gauges,
        };
        let recorder = self.recorder.unwrap_or_default();
        let learn = self.learn && !self.read_only;
        App::new(self.db, recorder, policy, settings, self.panel, learn)
    }
}

/// Returns the values of `Host` under which the console is reached.
fn known_hosts(addr: SocketAddr, more: Vec<String>) -> Vec<String> {
    let port = addr.port();
    let mut hosts = vec![addr.to_string()];
    if addr.ip().is_loopback() || addr.ip().is_unspecified() {
        hosts.extend(["127.0.0.1", "localhost", "[::1]"].map(|name| format!("{name}:{port}")));
    }
    // A browser omits the default port.
    if port == 80 {
        let short: Vec<String> =
            hosts.iter().filter_map(|host| Some(host.strip_suffix(":80")?.to_owned())).collect();
        hosts.extend(short);
    }
    hosts.extend(more);
    hosts
}

fn fresh_token() -> String {
    rand::rng().sample_iter(Alphanumeric).take(TOKEN_CHARS).map(char::from).collect()
}

/// Writes the token to a file that only its owner can read. Replaces the file of an earlier
/// process.
fn write_token(dir: &Path, token: &str) -> Result<(), ConsoleError> {
    let path = dir.join(TOKEN_FILE);
    let fresh = dir.join(format!("{TOKEN_FILE}.new"));
    let write = || -> io::Result<()> {
        let _ = std::fs::remove_file(&fresh);
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&fresh)?;
        io::Write::write_all(&mut file, token.as_bytes())?;
        std::fs::rename(&fresh, &path)
    };
    write().map_err(|source| ConsoleError::Token { path, source })
}

/// Adds a point to the charts every second, and samples the newest timestamp.
async fn tick(app: App) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // If the oracle is in this process, the question costs nothing.
    let near = app.db.services().store.commits_rows();
    for second in 0u64.. {
        interval.tick().await;
        if second.is_multiple_of(OBSERVERS_EVERY)
            && app.settings.recorded
            && let Ok(observers) = app.db.observers().await
        {
            app.recorder.graph.declared(&observers);
        }
        app.series.tick(&app.recorder, app.db.hints_waiting());
        if let Some(sessions) = app.sessions.as_ref() {
            sessions.expire();
        }
        if near && let Ok(latest) = app.db.oracle().peek().await {
            app.recorder.clock.note(latest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        for token in ["first", "second"] {
            write_token(dir.path(), token).unwrap();
            let path = dir.path().join(TOKEN_FILE);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), token);
            #[cfg(unix)]
            {
                use std::os::unix::fs::PermissionsExt;
                let mode = std::fs::metadata(&path).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o600);
            }
        }
        assert_ne!(fresh_token(), fresh_token());
        assert_eq!(fresh_token().len(), TOKEN_CHARS);
        let nowhere = write_token(Path::new("/nonexistent"), "t").unwrap_err();
        assert!(nowhere.to_string().contains("/nonexistent/console.token"), "{nowhere}");
    }

    #[test]
    fn hosts_are_our_names_with_our_port() {
        let hosts = known_hosts("127.0.0.1:7090".parse().unwrap(), vec!["p.example".into()]);
        let all = ["127.0.0.1:7090", "127.0.0.1:7090", "localhost:7090", "[::1]:7090", "p.example"];
        assert_eq!(hosts, all);
        let far = known_hosts("192.0.2.1:80".parse().unwrap(), Vec::new());
        assert_eq!(far, ["192.0.2.1:80", "192.0.2.1"]);
    }
}
