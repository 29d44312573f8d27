//! Runs the processes of `percolator-bench fig10`: a table server, an oracle, and workers that
//! are killed and started again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use percolator::Percolator;
use serde_json::{Value, json};
use tpce::{Entry, Log};

use crate::processes::Driver;
use crate::server::{ANY_PORT, Server};
use crate::system::shared_clock;

use super::series::Series;
use super::worker::{self, LIFETIME};

/// A commit survives the death of the table server, not that of the machine.
const DURABILITY: [&str; 2] = ["--durability", "buffered"];

#[derive(Debug)]
pub(super) struct Cluster {
    data: PathBuf,
    /// Declared before the servers, so that the workers end first.
    workers: Vec<Option<Driver>>,
    /// The table server; `None` while it is killed.
    table: Option<Server>,
    table_address: String,
    /// The store's URL.
    store: String,
    /// Time after the death of a worker until others take it for dead.
    lifetime: Duration,
    oracle: Server,
    customers: u64,
    seed: u64,
    pace: Value,
    /// The log files of all workers ever started.
    logs: Vec<PathBuf>,
    /// The origin of all times.
    begin: Duration,
}

impl Cluster {
    pub(super) fn start(
        data: &Path,
        workers: usize,
        customers: u64,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let table = Server::over(&data.join("table"), "table", ANY_PORT, &DURABILITY)?;
        let store = format!("bigtable://{}/bench/fig10", table.address());
        let own = (store.as_str(), LIFETIME);
        let mut cluster = Cluster::over(data, own, workers, customers, seed)?;
        cluster.table_address = table.address().to_owned();
        cluster.table = Some(table);
        Ok(cluster)
    }

    /// Starts an oracle and workers over a store that others serve.
    pub(super) fn over(
        data: &Path,
        (store, lifetime): (&str, Duration),
        workers: usize,
        customers: u64,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let oracle = Server::over(&data.join("oracle"), "oracle", ANY_PORT, &[])?;
        Ok(Cluster {
            data: data.to_owned(),
            workers: (0..workers).map(|_| None).collect(),
            table_address: String::new(),
            table: None,
            store: store.to_owned(),
            lifetime,
            oracle,
            customers,
            seed,
            pace: json!("halt"),
            logs: Vec::new(),
            begin: shared_clock(),
        })
    }

    pub(super) async fn connect(&self) -> anyhow::Result<Percolator> {
        worker::connect(&self.store, self.oracle.address(), self.lifetime).await
    }

    /// Makes the current time the origin of all times, and returns it.
    pub(super) fn begin(&mut self) -> Duration {
        self.begin = shared_clock();
        self.begin
    }

    pub(super) fn now(&self) -> f64 {
        (shared_clock() - self.begin).as_secs_f64()
    }

    pub(super) fn start_workers(&mut self) -> anyhow::Result<()> {
        let all: Vec<usize> = (0..self.workers.len()).collect();
        self.bring_back(&all)?;
        for worker in self.workers.iter_mut().flatten() {
            worker.answer()?;
        }
        Ok(())
    }

    pub(super) fn pace(&mut self, pace: &Value) -> anyhow::Result<()> {
        self.pace = pace.clone();
        for worker in self.workers.iter_mut().flatten() {
            worker.tell(&json!({ "pace": pace }))?;
        }
        Ok(())
    }

    pub(super) fn kill(&mut self, chosen: &[usize]) -> anyhow::Result<()> {
        chosen.iter().filter_map(|at| self.workers[*at].take()).try_for_each(Driver::kill)
    }

    /// Starts workers in the places of the killed ones, at the pace of the others.
    pub(super) fn bring_back(&mut self, chosen: &[usize]) -> anyhow::Result<()> {
        // Market time goes on from the most advanced worker.
        let of_customers =
            |log: &Vec<Entry>| log.iter().filter(|e| e.done && e.is_customers()).count();
        let made = self.logs()?.iter().map(of_customers).max().unwrap_or_default();
        for at in chosen {
            let number = self.logs.len() as u64 + 1;
            let log = self.data.join(format!("worker-{number}.log"));
            let arguments = [
                ("--store", self.store.clone()),
                ("--lifetime-ms", self.lifetime.as_millis().to_string()),
                ("--oracle", self.oracle.address().to_owned()),
                ("--customers", self.customers.to_string()),
                ("--seed", self.seed.to_string()),
                ("--number", number.to_string()),
                ("--made", made.to_string()),
                ("--log", log.to_string_lossy().into_owned()),
            ];
            let arguments =
                arguments.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
            let mut worker = Driver::start("fig10-worker", arguments, &[])?;
            worker.tell(&json!({ "pace": self.pace }))?;
            self.workers[*at] = Some(worker);
            self.logs.push(log);
        }
        Ok(())
    }

    pub(super) fn kill_table(&mut self) {
        self.table = None;
    }

    /// Starts the table server again at its old address. Returns when it listens.
    pub(super) fn bring_table_back(&mut self) -> anyhow::Result<()> {
        let (data, listen) = (self.data.join("table"), &self.table_address);
        self.table = Some(Server::over(&data, "table", listen, &DURABILITY)?);
        Ok(())
    }

    pub(super) fn end(&mut self) -> anyhow::Result<Vec<Value>> {
        for worker in self.workers.iter_mut().flatten() {
            worker.tell(&json!({ "end": true }))?;
        }
        let mut said = Vec::new();
        for worker in self.workers.iter_mut().flatten() {
            let mut answer = worker.answer()?;
            // A restarted worker still has its `ready` message in the pipe.
            if answer["ready"] == true {
                answer = worker.answer()?;
            }
            said.push(answer);
        }
        self.workers.clear();
        Ok(said)
    }

    /// The entries of all logs so far. A worker that has just been started has no log yet.
    pub(super) fn logs(&self) -> anyhow::Result<Vec<Vec<Entry>>> {
        let there = self.logs.iter().filter(|path| path.exists());
        Ok(there.map(|path| Log::read(path)).collect::<Result<_, _>>()?)
    }

    pub(super) fn rate_since(&self, begin: Duration) -> anyhow::Result<f64> {
        let now = shared_clock();
        let [all, _] = Series::of(&self.logs()?, begin);
        Ok(all.rate(0.0, (now - begin).as_secs_f64()))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // After Ctrl-C, nothing waits for the workers' current work.
        for worker in self.workers.iter_mut().filter_map(Option::take) {
            let _ = worker.kill();
        }
    }
}
