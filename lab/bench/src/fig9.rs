//! Measures a TPC-E-like brokerage (the paper's Figure 9).
//!
//! ```text
//!   embedded_1   store, clients and market in one process, on one core
//!   embedded_2   the same process on two cores
//!   small_2      an eighth of the customers, on two cores: the effect of size
//!   rpc_2        store and oracle in processes of their own, over gRPC, all on the same two cores
//!   postgres_2   PostgreSQL over a unix socket, each transaction one function in PL/pgSQL, all on
//!                the same two cores
//!   hbase_2      a cluster of HBase on the same two cores, if `--hbase` names one
//! ```
//!
//! A process of its own drives each store (`work`), and the arms take turns in short blocks.
//! Processor time is that of all processes of an arm. A run is void if the books of a store are
//! not in order at the end. It is also void if all measurements of the latencies of one store
//! sent requests late.

mod report;
mod work;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context as _;
use bigtable_hbase::HbaseAddress;
use clap::{Args, ValueEnum};
use percolator_cli::context::Context;
use percolator_cli::exit::Failure;
use percolator_cli::progress::Progress;
use percolator_torture::process_ids;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use serde_json::{Value, json};
use tpce::postgres::Server;

use crate::flags::{Common, brokerage, within};
use crate::hbase::own_namespace;
use crate::processes::{Driver, cores};
use crate::report::Report;
use crate::statistics::is_late;
use crate::system;
use crate::turns::go_on;

pub(crate) use work::{Fig9Store, Store};

/// Fewest blocks of an arm, and the longest time of one.
const BLOCKS_MIN: usize = 10;
const BLOCK_S_MAX: f64 = 2.0;
/// Rate of open-loop requests, as a share of the arm's closed-loop rate.
const OPEN_SHARE: f64 = 0.5;
/// Further shares in the full form.
const HIGHER_SHARES: [f64; 2] = [0.75, 0.9];
/// Length of the open loop, as a share of the closed loop's; for the higher shares together.
const OPEN_TIME: f64 = 0.4;
/// Most measurements of latencies, until one sends no request late.
const OPEN_TRIES: usize = 3;

/// A TPC-E-like brokerage (the paper's Figure 9): embedded on one and two cores, over RPC, and the
/// same transactions in PostgreSQL, as functions in PL/pgSQL.
///
/// A process of its own drives each store. The processes take turns in blocks of a second or
/// two, in an order drawn from the seed. A ratio is the median of the ratios of each round.
/// Latencies are measured with requests at half the rate that each store reached. The full
/// form also measures them at 0.75 and 0.9 of that rate.
///
/// At the end the books are checked. The exit status is 3 if they are wrong, or if requests
/// were sent late. The figures are not comparable with published TPC-E results.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-bench fig9 --quick --out fig9
  percolator-bench fig9 --customers 5000 --seconds 60 --json
  scripts/hbase.sh sh -c \\
    'percolator-bench fig9 --quick --hbase \"$PERCOLATOR_HBASE\" --pids \"$HBASE_PIDS\"'")]
pub(crate) struct Fig9 {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Customers of the brokerage; all else is in proportion [default: 5000, quick: 300].
    #[arg(long, value_name = "N")]
    customers: Option<u64>,
    /// Seconds to measure each arm for [default: 60, quick: 10].
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Leave out a store; may be repeated.
    #[arg(long, value_enum, value_name = "STORE")]
    without: Vec<Store>,
    /// Also measure over HBase at this address, in a new namespace, which stays. All its processes
    /// must be of this machine.
    #[arg(long, value_name = "ADDRESS", requires = "pids")]
    pub(crate) hbase: Option<HbaseAddress>,
    /// A directory with a file for each process of HBase and HDFS, which holds the process's id.
    /// Their processor time is that of the arm.
    #[arg(long, value_name = "DIR", requires = "hbase")]
    pids: Option<PathBuf>,
}

impl Fig9 {
    fn customers(&self) -> u64 {
        self.customers.unwrap_or(self.common.sized(300, 5_000))
    }

    fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(self.common.sized(10.0, 60.0))
    }

    fn blocks(&self) -> usize {
        ((self.seconds() / BLOCK_S_MAX).ceil() as usize).max(BLOCKS_MIN)
    }

    fn block_s(&self) -> f64 {
        self.seconds() / self.blocks() as f64
    }

    fn higher_shares(&self) -> &'static [f64] {
        if self.common.quick { &[] } else { &HIGHER_SHARES }
    }
}

impl Fig9 {
    pub(crate) async fn measure(&self, context: &Context) -> anyhow::Result<Report> {
        within("seconds", self.seconds(), 0.1..=3600.0)?;
        let scale = brokerage(self.customers(), self.common.seed)?;
        Ok(report::report(self, scale, &self.run(context)?))
    }
}

#[derive(Debug)]
struct Arm {
    store: Store,
    cores: usize,
    /// The driver's report about each block, with the machine's load.
    blocks: Vec<Value>,
}

impl Arm {
    fn name(&self) -> String {
        format!("{}_{}", self.store.name(), self.cores)
    }

    fn each(&self, of: impl Fn(&Value) -> Option<f64>) -> Vec<f64> {
        self.blocks.iter().filter_map(of).collect()
    }
}

#[derive(Debug)]
struct Stored {
    store: Store,
    loaded_s: Option<f64>,
    /// The open loop at half of the closed loop's rate.
    open: Value,
    /// Earlier open loops, discarded because requests were sent late.
    late: Vec<Value>,
    higher: Vec<(f64, Value)>,
    /// Violations, and types of transactions by arm.
    end: Value,
}

#[derive(Debug)]
struct Outcome {
    arms: Vec<Arm>,
    stores: Vec<Stored>,
    /// The parts that were left out, each with the remedy.
    missing: Vec<String>,
    took_s: f64,
}

impl Outcome {
    /// The reason why the figures are void, and the remedy; `None` if they are valid.
    fn void(&self) -> Option<(String, &'static str)> {
        for stored in &self.stores {
            let found = stored.end["violations"].as_array().map_or(&[][..], Vec::as_slice);
            if let Some(first) = found.first().and_then(Value::as_str) {
                let (store, count) = (stored.store.name(), found.len());
                return Some((
                    format!("{store}: {count} violations of the books, the first one: {first}"),
                    "the figures are void; please report this with the settings above",
                ));
            }
        }
        for stored in &self.stores {
            let [late, delays] = lateness_ms(&stored.open);
            if sent_late(&stored.open) {
                return Some((
                    format!(
                        "{}: {OPEN_TRIES} times requests were sent late; in the end one in a hundred by \
                         {:.1} ms or more, and one in two by {:.1} ms; one in a hundred took {:.1} ms, \
                         one in two {:.1} ms",
                        stored.store.name(),
                        late[1],
                        late[0],
                        delays[1],
                        delays[0],
                    ),
                    "the latencies are void: run it again on a machine that does nothing else",
                ));
            }
        }
        None
    }
}

/// The generator's lateness at the median and the 99th percentile, in milliseconds, and the
/// same of the latencies.
fn lateness_ms(open: &Value) -> [[f64; 2]; 2] {
    [["lateness_p50_ms", "lateness_p99_ms"], ["p50_ms", "p99_ms"]]
        .map(|names| names.map(|name| open[name].as_f64().unwrap_or_default()))
}

fn sent_late(open: &Value) -> bool {
    let [late, delays] = lateness_ms(open).map(|pair| pair.map(|ms| ms / 1000.0));
    is_late(late, delays)
}

/// Measures latencies again while requests are sent late, a few times at most. Returns the last
/// measurement and the earlier ones.
fn in_time(
    mut measure: impl FnMut() -> anyhow::Result<Value>,
) -> anyhow::Result<(Value, Vec<Value>)> {
    let (mut open, mut late) = (measure()?, Vec::new());
    while sent_late(&open) && late.len() + 1 < OPEN_TRIES {
        late.push(std::mem::replace(&mut open, measure()?));
    }
    Ok((open, late))
}

impl Fig9 {
    fn run(&self, context: &Context) -> anyhow::Result<Outcome> {
        let started = Instant::now();
        let data = tempfile::Builder::new().prefix("percolator-bench-").tempdir()?;
        let mut missing = Vec::new();
        let cores: Vec<usize> = cores().into_iter().take(2).collect();
        if cores.len() < 2 {
            let what = "two cores, and `taskset` of the package util-linux to choose them";
            missing.push(format!("scaling: needs {what}"));
        }
        let mut stores: Vec<Store> = Store::value_variants().to_vec();
        stores.retain(|store| !self.without.contains(store));
        stores.retain(|store| *store != Store::Hbase || self.hbase.is_some());
        if let Err(error) = Server::find()
            && stores.contains(&Store::Postgres)
        {
            missing.push(format!("{}: {error}", Store::Postgres.name()));
            stores.retain(|store| *store != Store::Postgres);
        }
        let steps = stores.len() * 3 + (self.blocks() + 1) * (stores.len() + 1);
        let progress = Progress::new(context.out.quiet, Some(steps as u64));
        let mut drivers = Vec::new();
        let mut arms = Vec::new();
        for (at, store) in stores.iter().enumerate() {
            go_on(context)?;
            progress.say(at as u64, &format!("loading {}", store.name()));
            let dir = data.path().join(store.name());
            std::fs::create_dir(&dir)?;
            let customers = store.customers(self.customers()).to_string();
            let (data, seed) = (dir.to_string_lossy(), self.common.seed.to_string());
            let arguments = ["--store", store.name(), "--customers", &customers];
            let arguments = arguments.into_iter().chain(["--seed", &seed, "--data", &data]);
            let of_hbase = if *store == Store::Hbase { self.of_hbase()? } else { Vec::new() };
            let arguments = arguments.chain(of_hbase.iter().map(String::as_str));
            let mut driver = Driver::start("fig9-store", arguments, &cores)?;
            let loaded = driver.answer()?;
            drivers.push((*store, driver, loaded));
            if *store == Store::Embedded && cores.len() == 2 {
                arms.push(Arm { store: *store, cores: 1, blocks: Vec::new() });
            }
            arms.push(Arm { store: *store, cores: cores.len().max(1), blocks: Vec::new() });
        }
        let done = stores.len() as u64;
        closed(context, self, &progress, done, (&mut drivers, &mut arms), &cores)?;
        let mut ended = Vec::new();
        for (at, (store, driver, loaded)) in drivers.into_iter().enumerate() {
            let step = (steps - stores.len() + at) as u64;
            progress.say(step, &format!("latencies of {}", store.name()));
            let arm = arms.iter().rfind(|arm| arm.store == store);
            ended.push(self.latencies(store, driver, &loaded, arm)?);
        }
        let took_s = started.elapsed().as_secs_f64();
        Ok(Outcome { arms, stores: ended, missing, took_s })
    }

    /// The driver's arguments about HBase: a namespace of its own, and the processes that serve it.
    fn of_hbase(&self) -> anyhow::Result<Vec<String>> {
        let (Some(address), Some(pids)) = (&self.hbase, &self.pids) else { return Ok(Vec::new()) };
        let processes = process_ids(pids).with_context(|| pids.display().to_string())?;
        if processes.is_empty() {
            let what = format!("{}: no file with the id of a process", pids.display());
            return Err(Failure::usage(what, "give the HBASE_PIDS of scripts/hbase.sh"));
        }
        let address = own_namespace(address, "fig9").to_string();
        let mut arguments = vec!["--address".to_owned(), address];
        for (_, id) in processes {
            arguments.extend(["--process".to_owned(), id.to_string()]);
        }
        Ok(arguments)
    }

    /// Sends requests at a share of the store's closed-loop rate, then ends the store.
    fn latencies(
        &self,
        store: Store,
        mut driver: Driver,
        loaded: &Value,
        arm: Option<&Arm>,
    ) -> anyhow::Result<Stored> {
        let rates = arm.map(|arm| arm.each(report::transactions_per_s)).unwrap_or_default();
        let peak = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        let seconds = self.seconds() * OPEN_TIME;
        let request = json!({ "open": peak * OPEN_SHARE, "seconds": seconds });
        let (open, late) = in_time(|| driver.ask(&request))?;
        let mut higher = Vec::new();
        for share in self.higher_shares() {
            let seconds = seconds / HIGHER_SHARES.len() as f64;
            let request = json!({ "open": peak * share, "seconds": seconds });
            higher.push((*share, driver.ask(&request)?));
        }
        let (loaded_s, end) = (loaded["loaded_s"].as_f64(), driver.ask(&json!({ "end": true }))?);
        Ok(Stored { store, loaded_s, open, late, higher, end })
    }
}

/// Runs the blocks of all arms in turns. The first round warms up.
fn closed(
    context: &Context,
    settings: &Fig9,
    progress: &Progress,
    mut done: u64,
    (drivers, arms): (&mut [(Store, Driver, Value)], &mut [Arm]),
    cores: &[usize],
) -> anyhow::Result<()> {
    let mut order: Vec<usize> = (0..arms.len()).collect();
    let mut random = SmallRng::seed_from_u64(settings.common.seed);
    let rounds = settings.blocks();
    for round in 0..=rounds {
        if round > 0 {
            order.shuffle(&mut random);
        }
        for &at in &order {
            go_on(context)?;
            let arm = &mut arms[at];
            let name = arm.name();
            progress.say(done, &format!("round {round} of {rounds}: {name}"));
            done += 1;
            let driver = drivers.iter_mut().find(|(store, ..)| *store == arm.store);
            let Some((_, driver, _)) = driver else { continue };
            if arm.store == Store::Embedded && !cores.is_empty() {
                driver.move_to(&cores[..arm.cores])?;
            }
            // The warm-up round counts under no arm's name.
            let name = if round == 0 { "" } else { &name };
            let request = json!({ "closed": settings.block_s(), "name": name });
            let mut block = driver.ask(&request)?;
            block["load_1m"] = json!(system::load());
            block["cpu_pressure_10s"] = json!(system::cpu_pressure());
            if round > 0 {
                arm.blocks.push(block);
            }
        }
    }
    for (store, driver, _) in drivers {
        if *store == Store::Embedded && !cores.is_empty() {
            driver.move_to(cores)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latencies(late_p99_ms: f64) -> Value {
        json!({ "lateness_p50_ms": 0.0, "lateness_p99_ms": late_p99_ms, "p50_ms": 1.0, "p99_ms": 20.0 })
    }

    #[test]
    fn latencies_of_late_requests_are_measured_again_a_few_times() {
        for (each, tries) in [(&[1.9][..], 1), (&[2.1, 1.9], 2), (&[2.1, 9.0, 2.2, 0.1], 3)] {
            let mut measured = each.iter().map(|ms| latencies(*ms));
            let (open, late) = in_time(|| Ok(measured.next().unwrap())).unwrap();
            assert_eq!(open, latencies(each[tries - 1]));
            assert_eq!(late.len(), tries - 1);
            assert!(late.iter().all(sent_late));
        }
        assert!(in_time(|| anyhow::bail!("the driver ended")).is_err());
    }
}
