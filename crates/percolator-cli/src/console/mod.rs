//! Adds `--console` and `--metrics` to commands: shows the database that a command has open.

mod panel;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use percolator::Percolator;
use percolator_console::{Access, Console, ConsoleError, Listening, Recorder};
use webindex::WebIndex;

use crate::context::Context;
use crate::store::{Place, StoreArgs};

pub use panel::WebPanel;

/// Where a console listens unless another address is named.
pub(crate) const ADDRESS: &str = "127.0.0.1:7090";

/// Whether and where a command shows the database that it has open.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Console")]
pub(crate) struct ConsoleArgs {
    /// Show the database in the browser while the command runs: at 127.0.0.1:7090, or at ADDR.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = ADDRESS)]
    console: Option<SocketAddr>,
    /// Serve /metrics, /healthz and /readyz alone, for Prometheus and for probes.
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,
    #[command(flatten)]
    shown: ShownArgs,
}

/// The options of a console: its contents, and the changes that it allows.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Console")]
pub(crate) struct ShownArgs {
    /// The console refuses every change.
    #[arg(long)]
    read_only: bool,
    /// The console shows the length and a hash of each value instead of the value.
    #[arg(long)]
    hide_values: bool,
    /// The console listens beyond loopback without encryption, and you know what that means.
    #[arg(long)]
    insecure_console: bool,
    /// Another name, with its port, under which a proxy reaches the console; may be repeated.
    #[arg(long, value_name = "HOST")]
    console_host: Vec<String>,
    /// The path under which a proxy serves the console, such as /percolator.
    #[arg(long, value_name = "PATH", default_value = "", hide_default_value = true)]
    base_path: String,
    /// The page of the paper's Figure 4 may write to its table `percolator-learn`.
    #[arg(long)]
    allow_writes: bool,
}

/// The consoles of one command.
#[derive(Debug, Default)]
pub(crate) struct Consoles {
    _listening: Vec<Listening>,
}

impl ConsoleArgs {
    /// A recorder, if anything is to be shown.
    pub(crate) fn recorder(&self) -> Option<Arc<Recorder>> {
        let wanted = self.console.is_some() || self.metrics.is_some();
        wanted.then(|| Arc::new(Recorder::new()))
    }

    /// Arguments that open a store with this recorder.
    pub(crate) fn watched(&self, store: &StoreArgs, recorder: Option<&Arc<Recorder>>) -> StoreArgs {
        match recorder {
            Some(recorder) => store.watched_by(recorder.clone()),
            None => store.clone(),
        }
    }

    /// Begins to listen where that was asked for, and says where.
    pub(crate) async fn listen(
        &self,
        context: &Context,
        shown: Shown<'_>,
    ) -> anyhow::Result<Consoles> {
        let mut listening = Vec::new();
        if let Some(addr) = self.console {
            let console = self.shown.console(&shown);
            let console = match shown.place {
                Some(Place::Directory(dir)) => console.token_dir(dir),
                _ => console,
            };
            let console = console.listen(addr).await?;
            context.out.note(&format!("console  {}", console.url()));
            listening.push(console);
        }
        if let Some(addr) = self.metrics {
            let metrics = self.shown.console(&shown).metrics_only().listen(addr).await?;
            context.out.note(&format!("metrics  http://{}/metrics", metrics.addr()));
            listening.push(metrics);
        }
        Ok(Consoles { _listening: listening })
    }
}

impl ShownArgs {
    pub(crate) fn console(&self, shown: &Shown<'_>) -> Console {
        let mut console = Console::new(shown.db)
            .read_only(self.read_only)
            .hide_values(self.hide_values)
            .insecure(self.insecure_console)
            .base_path(&self.base_path)
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
}

/// The console of `demo`: open for reading, with Figure 4 to play with, at any port that is free if
/// its own is taken.
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
