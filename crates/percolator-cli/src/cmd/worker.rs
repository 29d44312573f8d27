//! `worker`: runs the observers of an application in a process of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use percolator::cluster::Config;
use percolator::watch::Sampling;
use percolator::{Percolator, WorkerOptions};
use percolator_console::Readiness;
use percolator_rpc::health::HealthListener;
use serde_json::json;
use tokio::net::TcpListener;

use crate::clock;
use crate::cmd::config;
use crate::cmd::serve::asked_to_end;
use crate::cmd::webindex::search_dir;
use crate::console::{ConsoleArgs, Shown};
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::log::{LogArgs, ServiceLog};
use crate::output::Out;
use crate::service::{self, State};
use crate::store::{Place, connect, in_batches, replaced};

/// The applications whose observers this program has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum App {
    /// The incremental web index.
    Webindex,
}

/// The longest pause between two scans of an idle worker. These scans find what the questions to
/// the oracle have missed.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// How often a worker asks the oracle whether there may be changes. The worker that parses a
/// changed page waits for one such question, and the worker that feeds the search index for
/// another. So the page is searchable within two seconds.
const PEEK_EVERY: Duration = Duration::from_millis(500);

/// How many changes a worker handles at once, unless an option says otherwise. Each of them waits
/// for answers most of the time. Changes that wait together send their requests together (paper
/// section 2.5: "greater parallelism").
pub(crate) const THREADS: u16 = 64;

/// Run an application's observers on the store of a cluster, until Ctrl-C or SIGTERM.
///
/// Any number of workers may run on one store, and each may start, end or be killed at any time.
/// Settings that are not given here come from the files and the environment (`percolator config
/// view`).
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator worker --app webindex --store bigtable://127.0.0.1:8086/p/i --oracle 127.0.0.1:7070")]
pub(crate) struct Worker {
    /// The application whose observers run.
    #[arg(long, value_enum)]
    app: App,
    /// The number of changes that the worker handles at the same time.
    #[arg(long, value_name = "N", default_value_t = THREADS,
          value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// The time between two scans of the store for changes, while changes arrive; an idle worker
    /// scans less often.
    #[arg(long, value_name = "DURATION", value_parser = clock::duration, default_value = "100ms")]
    scan_period: Duration,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// The directory of the search index. Only one worker at a time may write to it.
    #[arg(long, value_name = "DIR", help_heading = "Cluster")]
    search: Option<PathBuf>,
    /// Leave a trace of the observers' transactions, for `percolator why`: off, all, or one cascade
    /// in N. All processes of a cluster should get the same value.
    #[arg(long, value_name = "off|1/N|all", default_value_t)]
    trace: Sampling,
    /// Answer gRPC's health protocol (grpc.health.v1) at ADDR, in plain text, to everybody.
    #[arg(long, value_name = "ADDR", help_heading = "Console")]
    health: Option<SocketAddr>,
    #[command(flatten)]
    console: ConsoleArgs,
    #[command(flatten)]
    log: LogArgs,
}

/// Which cluster.
#[derive(Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct ClusterArgs {
    /// A file of settings, instead of the usual ones.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The store: bigtable://HOST:PORT/PROJECT/INSTANCE or hbase://HOST:PORT/NAMESPACE.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The oracle processes.
    #[arg(long, value_name = "HOST:PORT,...")]
    oracle: Option<String>,
    /// The lock service: `table`, or etcd://HOST:PORT,HOST:PORT/PREFIX.
    #[arg(long, value_name = "URL")]
    locks: Option<String>,
}

impl ClusterArgs {
    /// Returns the settings, with those of the flags.
    pub(crate) fn settings(&self) -> anyhow::Result<Config> {
        let mut settings = match &self.config {
            Some(file) => Config::load_file(file).map_err(config::with_advice)?,
            None => config::load()?,
        };
        for (flag, key, value) in
            [("--store", "store", &self.store), ("--oracle", "oracles", &self.oracle)]
        {
            if let Some(value) = value {
                settings.set(flag, key, value).map_err(config::with_advice)?;
            }
        }
        if let Some(locks) = &self.locks {
            set_locks(&mut settings, locks)?;
        }
        Ok(settings)
    }
}

/// Takes the lock service from its URL.
pub(crate) fn set_locks(settings: &mut Config, url: &str) -> anyhow::Result<()> {
    let mut set =
        |key, value: &str| settings.set("--locks", key, value).map_err(config::with_advice);
    if url == "table" {
        return set("locks.kind", "table");
    }
    let Some(rest) = url.strip_prefix("etcd://") else {
        return Err(Failure::usage(
            format!("{url:?} is not the address of a lock service"),
            "give --locks table, or --locks etcd://HOST:PORT,HOST:PORT/PREFIX",
        ));
    };
    let (members, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    set("locks.kind", "etcd")?;
    set("locks.members", members)?;
    match prefix {
        "" => Ok(()),
        prefix => set("locks.prefix", &format!("{}/", prefix.trim_end_matches('/'))),
    }
}

impl Worker {
    pub(crate) fn log(&self) -> ServiceLog {
        ServiceLog::new("worker", &self.log)
    }

    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let out = context.out;
        if self.scan_period < Duration::from_millis(1) {
            return Err(Failure::usage("--scan-period is below a millisecond", "give 1ms or more"));
        }
        let mut settings = self.cluster.settings()?;
        in_batches(&mut settings)?;
        let health = match self.health {
            Some(addr) => Some(TcpListener::bind(addr).await.map_err(|error| {
                Failure::usage(
                    format!("cannot listen at {addr}: {error}"),
                    "choose another address or port with --health; port 0 takes a free one",
                )
            })?),
            None => None,
        };
        let recorder = self.console.recorder();
        let patience = Duration::ZERO;
        let db = connect(&settings, "worker", recorder.clone(), self.trace, patience).await?;
        let (App::Webindex, search) = (self.app, self.search.as_deref());
        let search = search.or_else(|| search_dir(&settings));
        let options = WorkerOptions {
            threads: self.threads.into(),
            scan_period: self.scan_period,
            idle_max: IDLE_MAX,
            peek_every: Some(PEEK_EVERY),
            ..WorkerOptions::default()
        };
        let worker = webindex::Worker::start(db.clone(), search, options).await?;
        let incarnation = db.incarnation().to_string();
        // A program that reads the line may end this process at once.
        let ending = asked_to_end(&context.interrupt)?;
        if out.json {
            out.line(&json!({ "worker": incarnation }).to_string())?
        } else {
            out.line(&format!("worker {incarnation} runs the observers of the web index"))?
        }
        let place = Place::Cluster(Box::new(settings));
        let shown = Shown {
            db: &db,
            recorder: recorder.as_ref(),
            place: Some(&place),
            index: None,
            gauge: None,
        };
        let consoles = self.console.listen(context, shown).await?;
        let health = health.map(|listener| listen_for_health(listener, &db, out)).transpose()?;
        service::report(State::Ready);
        let ended = tokio::select! {
            () = ending => Ok(Exit::Done),
            why = replaced(&*db.services().store) => Err(why),
        };
        drop((consoles, health));
        worker.stop().await;
        ended
    }
}

/// Answers gRPC's health protocol: the worker serves while its store and an oracle answer it.
fn listen_for_health(
    listener: TcpListener,
    db: &Percolator,
    out: Out,
) -> std::io::Result<HealthListener> {
    out.note(&format!("health   {}", listener.local_addr()?));
    let (db, readiness) = (db.clone(), Arc::new(Readiness::default()));
    Ok(HealthListener::start(listener, move || {
        let (db, readiness) = (db.clone(), readiness.clone());
        async move { readiness.of(&db).await.is_ok() }
    }))
}
