//! Adds `--console` and `--metrics` to commands: shows the database that a command has open.

mod panel;

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use percolator::Percolator;
use percolator_console::{Access, Bound, Console, ConsoleError, Gauge, Listening, Recorder};
use tempfile::TempDir;
use webindex::WebIndex;

use crate::context::Context;
use crate::environment::XDG_RUNTIME_DIR;
use crate::store::{Place, StoreArgs};

pub use panel::WebPanel;

/// Where a console listens unless another address is named.
pub(crate) const ADDRESS: &str = "127.0.0.1:7090";

/// The options that show the database of a command.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Console")]
pub(crate) struct ConsoleArgs {
    /// Show the database in the browser while the command runs: at 127.0.0.1:7090, or at ADDR.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = ADDRESS)]
    console: Option<SocketAddr>,
    /// Serve only /metrics, /healthz and /readyz, for Prometheus and for probes.
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,
    #[command(flatten)]
    shown: ShownArgs,
}

/// The options of a console: its contents, and the changes that it allows.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Console")]
pub(crate) struct ShownArgs {
    /// Let the console refuse every change.
    #[arg(long)]
    read_only: bool,
    /// Let the console show the length and a hash of each value instead of the value.
    #[arg(long)]
    hide_values: bool,
    /// Let everyone who can reach the console search, on a page that works without JavaScript.
    #[arg(long)]
    open_search: bool,
    /// Let the console listen beyond loopback without encryption. Everyone on the network can
    /// then read what it shows.
    #[arg(long)]
    insecure_console: bool,
    /// Another name, with its port, under which a proxy reaches the console; may be repeated.
    #[arg(long, value_name = "HOST")]
    console_host: Vec<String>,
    /// The path under which a proxy serves the console, such as /percolator.
    #[arg(long, value_name = "PATH", default_value = "", hide_default_value = true)]
    base_path: String,
    /// Let the page of the paper's Figure 4 write to its table `percolator-learn`.
    #[arg(long)]
    allow_writes: bool,
}

/// The consoles of one command.
#[derive(Debug, Default)]
pub(crate) struct Consoles {
    _listening: Vec<Listening>,
    /// The directories of tokens that the store has no place for, one for each listener.
    _private: Vec<TempDir>,
}

/// The addresses of one command's consoles, taken before there is a database to show.
#[derive(Debug)]
pub(crate) struct Taken {
    console: Option<Bound>,
    metrics: Option<Bound>,
}

impl ConsoleArgs {
    /// Whether anything is to be shown.
    pub(crate) fn is_wanted(&self) -> bool {
        self.console.is_some() || self.metrics.is_some()
    }

    /// Returns a recorder, if a console or metrics are wanted.
    pub(crate) fn recorder(&self) -> Option<Arc<Recorder>> {
        self.is_wanted().then(|| Arc::new(Recorder::new()))
    }

    /// Returns arguments that open a store with this recorder.
    pub(crate) fn watched(&self, store: &StoreArgs, recorder: Option<&Arc<Recorder>>) -> StoreArgs {
        match recorder {
            Some(recorder) => store.watched_by(recorder.clone()),
            None => store.clone(),
        }
    }

    /// Takes the addresses that the options name.
    pub(crate) async fn take(&self) -> Result<Taken, ConsoleError> {
        let take = async |addr: Option<SocketAddr>| match addr {
            Some(addr) => Bound::at(addr, self.shown.insecure_console).await.map(Some),
            None => Ok(None),
        };
        Ok(Taken { console: take(self.console).await?, metrics: take(self.metrics).await? })
    }

    /// Begins to listen at the addresses that the options name, and prints them.
    pub(crate) async fn listen(
        &self,
        context: &Context,
        shown: Shown<'_>,
    ) -> anyhow::Result<Consoles> {
        self.listen_on(self.take().await?, context, shown)
    }

    /// As [`listen`](ConsoleArgs::listen), at addresses that were taken before.
    pub(crate) fn listen_on(
        &self,
        taken: Taken,
        context: &Context,
        shown: Shown<'_>,
    ) -> anyhow::Result<Consoles> {
        let mut consoles = Consoles::default();
        if let Some(bound) = taken.console {
            let dir = consoles.token_dir(shown.place)?;
            let console = self.shown.console(&shown).token_dir(dir).listen_on(bound)?;
            context.out.note(&format!(
                "console  {}",
                announced(&console, is_read_by_a_person() && !context.out.logs)
            ));
            consoles._listening.push(console);
        }
        if let Some(bound) = taken.metrics {
            let mut metrics = self.shown.console(&shown).metrics_only();
            // On loopback they need no token.
            if !bound.addr().ip().is_loopback() {
                metrics = metrics.token_dir(consoles.private_dir()?);
            }
            let metrics = metrics.listen_on(bound)?;
            context.out.note(&format!("metrics  {}metrics", metrics.url_without_token()));
            if let Some(file) = metrics.token_file() {
                context.out.note(&format!("metrics need the bearer token in {}", file.display()));
            }
            consoles._listening.push(metrics);
        }
        Ok(consoles)
    }
}

impl Consoles {
    /// The directory for a console's token: that of the store, or a private one.
    pub(crate) fn token_dir(&mut self, place: Option<&Place>) -> io::Result<PathBuf> {
        match place {
            Some(Place::Directory(dir)) => Ok(dir.clone()),
            _ => self.private_dir(),
        }
    }

    /// A new directory that nobody else can enter, and that ends with these.
    fn private_dir(&mut self) -> io::Result<PathBuf> {
        let runtime = XDG_RUNTIME_DIR.value().map(PathBuf::from);
        let runtime = runtime.filter(|dir| dir.is_dir());
        let parent = runtime.unwrap_or_else(std::env::temp_dir);
        let dir = tempfile::Builder::new().prefix("percolator-console-").tempdir_in(parent)?;
        let path = dir.path().to_owned();
        self._private.push(dir);
        Ok(path)
    }
}

/// Whether a person reads the remarks of this process. Else they go into a log, which others may
/// read, and which outlives the process.
pub(crate) fn is_read_by_a_person() -> bool {
    io::stderr().is_terminal()
}

/// A console's URL for a person, or without its token for a log.
pub(crate) fn announced(console: &Listening, to_a_person: bool) -> String {
    match console.token_file() {
        Some(file) if !to_a_person => {
            let url = console.url_without_token();
            format!("{url}  (its token is in {})", file.display())
        }
        _ => console.url().to_owned(),
    }
}

impl ShownArgs {
    pub(crate) fn console(&self, shown: &Shown<'_>) -> Console {
        let mut console = Console::new(shown.db)
            .read_only(self.read_only)
            .hide_values(self.hide_values)
            .insecure(self.insecure_console)
            .base_path(&self.base_path)
            .open_search(self.open_search)
            .learn(self.allow_writes);
        for host in &self.console_host {
            console = console.host(host);
        }
        if let Some(place) = shown.place {
            console = console.title(place.to_string());
        }
        if let Some(recorder) = shown.recorder {
            console = console.recorder(recorder.clone());
        }
        if let Some(gauge) = shown.gauge {
            console = console.gauge(gauge.clone());
        }
        if let Some(index) = shown.index {
            console = console.panel(Arc::new(WebPanel::new(index.clone())));
        }
        console
    }
}

/// The database to show, with all that belongs to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown<'a> {
    pub(crate) db: &'a Percolator,
    pub(crate) recorder: Option<&'a Arc<Recorder>>,
    pub(crate) place: Option<&'a Place>,
    pub(crate) index: Option<&'a Arc<WebIndex>>,
    /// A further gauge for the metrics.
    pub(crate) gauge: Option<&'a Gauge>,
}

/// Makes the console of `demo`: reads need no token, and Figure 4 may write. If the usual port is
/// taken, the console takes any free one.
pub(crate) async fn of_demo(
    db: &Percolator,
    recorder: Arc<Recorder>,
    index: &Arc<WebIndex>,
    data: &Path,
) -> Result<Listening, ConsoleError> {
    let console = || {
        Console::new(db)
            .recorder(recorder.clone())
            .panel(Arc::new(WebPanel::new(index.clone())))
            .access(Access::OpenReads)
            .learn(true)
            .token_dir(data)
            .title("demo")
    };
    match console().listen(ADDRESS).await {
        Err(ConsoleError::Listen { .. }) => console().listen("127.0.0.1:0").await,
        listening => listening,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::context::Input;
    use crate::interrupt::Interrupt;
    use crate::output::Out;

    /// The file of each listener holds the token of that listener.
    #[tokio::test]
    async fn the_console_and_the_metrics_of_a_cluster_have_a_token_each() {
        let db = Percolator::in_memory().await.unwrap();
        let args = ConsoleArgs {
            console: Some((Ipv4Addr::LOCALHOST, 0).into()),
            metrics: Some((IpAddr::from(Ipv4Addr::UNSPECIFIED), 0).into()),
            shown: ShownArgs { insecure_console: true, ..ShownArgs::default() },
        };
        let place = Place::Cluster(Box::default());
        let shown =
            Shown { db: &db, recorder: None, place: Some(&place), index: None, gauge: None };
        let out = Out { json: false, quiet: true, color: false, logs: false };
        let context = Context {
            out,
            interrupt: Interrupt::asked_by(tokio::sync::watch::channel(false).1),
            input: Input::default(),
            tree: || clap::Command::new("percolator"),
        };
        let consoles = args.listen(&context, shown).await.unwrap();
        assert_eq!(consoles._listening.len(), 2);
        for listening in &consoles._listening {
            let token = std::fs::read_to_string(listening.token_file().unwrap()).unwrap();
            assert_eq!(listening.url().split_once("#t=").unwrap().1, token);
        }
    }
}
