//! Loads the web index in a cluster of processes on this machine, and counts the requests of a
//! page by table, method and process.
//!
//! A table server, an oracle and the workers are processes of this program. This process loads.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bigtable_grpc::{Address, ClientOptions, GrpcStore};
use clap::Args;
use percolator::cluster::{Cluster, Locks, TableLocks};
use percolator::{Percolator, WorkerOptions};
use percolator_cli::cmd::webindex::{drive, wait};
use percolator_cli::context::Context;
use percolator_cli::output::{Column, Out};
use serde_json::{Value, json};
use webindex::address::Base;
use webindex::{LoadOptions, Progress, WebIndex, Worker};

use crate::calls::{Calls, Counts};
use crate::processes::{Driver, requests, say};
use crate::server::{ANY_PORT, Server};
use crate::system;
use crate::tables::plain;

/// As `percolator worker` and `percolator webindex load` wait.
const BATCH_DELAY: Duration = Duration::from_millis(1);
/// As `percolator worker`.
const THREADS: usize = 64;
const SCAN_PERIOD: Duration = Duration::from_millis(100);
const IDLE_MAX: Duration = Duration::from_secs(10);
const PEEK_EVERY: Duration = Duration::from_millis(500);

/// A client of the cluster, whose requests are counted.
struct Counted {
    db: Percolator,
    calls: Arc<Calls>,
    client: Arc<GrpcStore>,
    cpu: Option<Duration>,
}

impl Counted {
    async fn connect(table: &str, oracle: &str) -> anyhow::Result<Self> {
        let cpu = system::cpu_time();
        let address = Address::from_env(&format!("bigtable://{table}/bench/webindex"))?;
        let options = ClientOptions { batch_delay: BATCH_DELAY, ..ClientOptions::default() };
        let client = Arc::new(GrpcStore::open(&address, options).await?);
        let calls = Calls::on(client.clone());
        let locks = Locks::table(TableLocks::LIFETIME);
        let cluster = Cluster { locks, ..Cluster::new(vec![oracle.parse()?]) };
        Ok(Counted { db: Percolator::connect(calls.clone(), cluster).await?, calls, client, cpu })
    }

    fn report(&self) -> Value {
        let cpu = system::cpu_time().zip(self.cpu).map(|(now, then)| (now - then).as_secs_f64());
        json!({
            "calls": self.calls.counts(),
            "requests_sent": self.client.requests_sent(),
            "cpu_seconds": cpu,
        })
    }
}

/// A worker of `percolator-bench webindex --cluster`, until its input says that it should end.
#[derive(Debug, Args)]
pub(crate) struct WebindexWorker {
    /// The address of the table server.
    #[arg(long)]
    table: String,
    /// The address of the oracle.
    #[arg(long)]
    oracle: String,
    /// The directory of the search index.
    #[arg(long)]
    search: PathBuf,
}

impl WebindexWorker {
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let mut requests = requests();
        let counted = Counted::connect(&self.table, &self.oracle).await?;
        let options = WorkerOptions {
            threads: THREADS,
            scan_period: SCAN_PERIOD,
            idle_max: IDLE_MAX,
            peek_every: Some(PEEK_EVERY),
            ..WorkerOptions::default()
        };
        let worker = Worker::start(counted.db.clone(), Some(&self.search), options).await?;
        say(&json!({ "ready": true }))?;
        if requests.recv().await.is_some() {
            say(&counted.report())?;
        }
        worker.stop().await;
        Ok(())
    }
}

/// Loads the directory with `workers` workers, and returns what it took; `None` after Ctrl-C.
pub(super) async fn load(
    context: &Context,
    dir: &Path,
    options: &LoadOptions,
    workers: usize,
) -> anyhow::Result<Option<Value>> {
    let temporary = tempfile::Builder::new().prefix("percolator-bench-").tempdir()?;
    let search = temporary.path().join("search");
    let store = temporary.path().join("table");
    let table = Server::over(&store, "table", ANY_PORT, &["--durability", "buffered"])?;
    let oracle = Server::over(&temporary.path().join("oracle"), "oracle", ANY_PORT, &[])?;
    let start = || {
        let arguments = [
            ("--table", table.address().to_owned()),
            ("--oracle", oracle.address().to_owned()),
            ("--search", search.to_string_lossy().into_owned()),
        ];
        let arguments = arguments.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        let mut worker = Driver::start("webindex-worker", arguments, &[])?;
        worker.answer()?;
        anyhow::Ok(worker)
    };
    let mut workers: Vec<Driver> = (0..workers).map(|_| start()).collect::<Result<_, _>>()?;
    let loader = Counted::connect(table.address(), oracle.address()).await?;
    let index = WebIndex::connect(loader.db.clone(), Some(&search)).await?;
    let (progress, started) = (Progress::default(), Instant::now());
    let base = Base::parse("https://example.org/")?;
    let loaded = index.load(dir, &base, options, &progress);
    let loaded = drive(context, "loading in a cluster", &progress, loaded).await?;
    if loaded.stopped || !wait(context, &index).await? {
        return Ok(None);
    }
    let seconds = started.elapsed().as_secs_f64();
    let mut processes = vec![("loader".to_owned(), loader.report())];
    for (number, worker) in workers.iter_mut().enumerate() {
        let told = worker.ask(&json!({ "end": true })).context("asking a worker what it did")?;
        processes.push((format!("worker {}", number + 1), told));
    }
    let cpu = |server: &Server| server.cpu_time().map(|time| time.as_secs_f64());
    let table = json!({ "cpu_seconds": cpu(&table) });
    let oracle = json!({ "cpu_seconds": cpu(&oracle) });
    processes.extend([("table".to_owned(), table), ("oracle".to_owned(), oracle)]);
    let verify = index.verify().await?;
    Ok(Some(summary(loaded.loaded, seconds, &processes, verify.is_ok())))
}

/// The results in JSON: sums, and the calls for each page.
fn summary(pages: usize, seconds: f64, processes: &[(String, Value)], verified: bool) -> Value {
    let each = |value: f64| value / (pages.max(1) as f64);
    let sum = |name: &str| -> f64 { processes.iter().filter_map(|(_, p)| p[name].as_f64()).sum() };
    let mut calls = Counts::new();
    for (_, process) in processes {
        for (kind, count) in process["calls"].as_object().into_iter().flatten() {
            *calls.entry(kind.clone()).or_default() += count.as_u64().unwrap_or_default();
        }
    }
    let all: u64 = calls.values().sum();
    let calls: serde_json::Map<String, Value> =
        calls.into_iter().map(|(kind, count)| (kind, each(count as f64).into())).collect();
    let processes: serde_json::Map<String, Value> = processes.iter().cloned().collect();
    json!({
        "pages": pages,
        "seconds": seconds,
        "cpu_ms_a_page": each(1e3 * sum("cpu_seconds")),
        "calls_a_page": each(all as f64),
        "requests_a_page": each(sum("requests_sent")),
        "calls_a_page_by_kind": calls,
        "processes": processes,
        "verify_ok": verified,
    })
}

/// The rows of the printed table: the heading of each, and the place of its cell in the results.
const ROWS: [(&str, &str); 7] = [
    ("pages", "/cluster/pages"),
    ("seconds in the cluster", "/cluster/seconds"),
    ("CPU ms a page, embedded", "/embedded_cpu_ms_a_page"),
    ("CPU ms a page, cluster", "/cluster/cpu_ms_a_page"),
    ("cluster / embedded", "/cluster~1embedded"),
    ("calls of the store a page", "/cluster/calls_a_page"),
    ("requests sent a page", "/cluster/requests_a_page"),
];

/// Prints what a page costs, by kind of call and by process.
pub(super) fn print(out: Out, told: &Value) -> std::io::Result<()> {
    let row = |(name, at): (&str, &str)| {
        let cell = told.pointer(at).filter(|value| !value.is_null());
        vec![name.to_owned(), cell.map_or("-".to_owned(), plain)]
    };
    out.table(&["", ""].map(Column::right), ROWS.into_iter().map(row).collect())?;
    let kinds = told["cluster"]["calls_a_page_by_kind"].as_object().into_iter().flatten();
    let mut kinds: Vec<(&String, f64)> =
        kinds.map(|(kind, calls)| (kind, calls.as_f64().unwrap_or_default())).collect();
    kinds.sort_by(|a, b| b.1.total_cmp(&a.1));
    let kinds = kinds.iter().map(|(kind, calls)| vec![(*kind).clone(), format!("{calls:.3}")]);
    out.table(&["table and method", "calls a page"].map(Column::right), kinds.collect())?;
    let processes = told["cluster"]["processes"].as_object().into_iter().flatten();
    let processes = processes.map(|(name, process)| {
        let cell = |at: &str| process[at].as_f64().map_or("-".to_owned(), |n| format!("{n:.2}"));
        vec![name.clone(), cell("cpu_seconds"), cell("requests_sent")]
    });
    out.table(&["process", "CPU s", "requests sent"].map(Column::right), processes.collect())?;
    let verified = told["cluster"]["verify_ok"] == true;
    out.line(&format!("durability buffered, verified without difference: {verified}"))
}
