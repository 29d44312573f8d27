//! `cluster up`: starts the processes of a local cluster that do not run.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use percolator::cluster::{Oracle as _, StoreAddress};
use percolator_rpc::oracle::{RemoteOracle, RemoteOracleOptions};

use super::look::{self, Look, State};
use super::plan::{Place, Plan, Role, WORKERS_MAX};
use super::{process, status};
use crate::cmd::config;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::store::Durability;

/// How long a process that was killed may keep its address, and how often the command looks.
const FREE_MAX: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How long the oracles may take until one of them leads.
const LEADER_MAX: Duration = Duration::from_secs(20);

/// How long the processes may take until all of them serve, and how often the command looks. After
/// a restart of the table server, an oracle serves once it has read the store again.
const SERVES_MAX: Duration = Duration::from_secs(10);
const SERVES_EVERY: Duration = Duration::from_millis(100);

/// Start a cluster, or those of its processes that do not run.
///
/// The processes keep running when the command ends. The first `up` chooses the ports of the
/// processes, and later ones keep them, unless --ports moves a cluster of which nothing runs. Give
/// DIR/percolator.toml to other commands with --config.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator cluster up --workers 3 --data D
  percolator cluster up --ports 7070 --data D")]
pub(crate) struct Up {
    /// The number of worker processes; by default 3 at first, and later as many as before.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=i64::from(WORKERS_MAX)))]
    workers: Option<u16>,
    /// The number of changes that each worker handles at the same time.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// A store that runs already, instead of a table server: bigtable://HOST:PORT/PROJECT/INSTANCE
    /// or hbase://HOST:PORT/NAMESPACE.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The lock service: `table`, or etcd://HOST:PORT,HOST:PORT/PREFIX.
    #[arg(long, value_name = "URL")]
    locks: Option<String>,
    /// The first port of the processes: the table server listens there, and the two oracles at the
    /// next two ports. With --store, the oracles listen at FIRST and FIRST + 1. By default the
    /// first `up` takes any free ports.
    #[arg(long, value_name = "FIRST")]
    ports: Option<u16>,
    /// When the table server's writes count as durable; by default `sync` at first, and later as
    /// before.
    #[arg(long, value_enum, value_name = "LEVEL")]
    durability: Option<Durability>,
    /// The directory of the cluster.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

impl Up {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let place = Place::at(&self.data)?;
        let plan = self.plan(&place)?;
        place.make()?;
        let _alone = place.lock()?;
        place.keep(&plan)?;
        // A process that needs another one starts only when that one serves.
        for step in [
            |role: &Role| matches!(role, Role::Table),
            |role: &Role| matches!(role, Role::Oracle(_)),
            |role: &Role| matches!(role, Role::Worker(_)),
        ] {
            let mut started = Vec::new();
            for role in plan.roles().into_iter().filter(step) {
                if process::pid(&place, role)?.is_none() {
                    check_free(&plan, role).await?;
                    started.push(process::start(&place, role, &args(&place, &plan, role)?)?);
                }
            }
            let oracles =
                plan.roles().iter().any(|role| step(role) && matches!(role, Role::Oracle(_)));
            for process in &started {
                process.ready(&place).await?;
            }
            if oracles {
                someone_leads(&plan).await?;
            }
        }
        let look = serving(&place, &plan).await?;
        let exit = status::show(context, &place, &plan, &look)?;
        context.out.note(&format!(
            "give --config {} to other commands; `percolator cluster down --data {}` ends the \
             cluster",
            place.settings_file().display(),
            place.dir().display(),
        ));
        Ok(exit)
    }

    /// Returns the plan of the last `up`, with the changes that this one asks for.
    fn plan(&self, place: &Place) -> anyhow::Result<Plan> {
        let plan = match place.plan()? {
            Some(plan) => {
                let store = match &self.store {
                    Some(store) => StoreAddress::from_env(store)?.to_string(),
                    None => plan.store.clone(),
                };
                let locks = self.locks.as_ref().unwrap_or(&plan.locks);
                if store != plan.store || *locks != plan.locks {
                    return Err(Failure::usage(
                        format!(
                            "the cluster's store is {} and its lock service is {}: neither can be \
                             changed, because they hold the cluster's data and locks",
                            plan.store, plan.locks
                        ),
                        "omit --store and --locks, or start another cluster with --data",
                    ));
                }
                plan
            }
            None => {
                let locks = self.locks.as_deref().unwrap_or("table");
                Plan { workers: 3, ..Plan::new(self.store.as_deref(), locks, self.ports)? }
            }
        };
        let plan = match self.ports {
            Some(first) => self.moved(place, plan, first)?,
            None => plan,
        };
        let running =
            |index: &u16| matches!(process::pid(place, Role::Worker(*index)), Ok(Some(_)));
        let workers = self.workers.unwrap_or(plan.workers);
        if let Some(index) = (workers..plan.workers).find(running) {
            return Err(Failure::usage(
                format!(
                    "{} runs, but would no longer belong to the cluster with fewer workers",
                    Role::Worker(index)
                ),
                "run `percolator cluster down`, then `up` with fewer workers",
            ));
        }
        let threads = self.threads.unwrap_or(plan.threads);
        let durability = self
            .durability
            .map_or_else(|| plan.durability.clone(), |level| level.name().to_owned());
        for (role, flag, changes) in [
            (Role::Table, "--durability", durability != plan.durability),
            (Role::Worker(0), "--threads", threads != plan.threads),
        ] {
            if changes && process::pid(place, role)?.is_some() {
                return Err(Failure::usage(
                    format!("{role} runs already, with another value of {flag}"),
                    "run `percolator cluster down`, then `up` again",
                ));
            }
        }
        Ok(Plan { workers, threads, durability, ..plan })
    }

    /// Returns the plan with the ports from `first` on. No process of another port may run.
    fn moved(&self, place: &Place, plan: Plan, first: u16) -> anyhow::Result<Plan> {
        let moved = plan.moved(first)?;
        if moved == plan {
            return Ok(plan);
        }
        for role in plan.roles() {
            if process::pid(place, role)?.is_some() {
                return Err(Failure::usage(
                    format!("{role} runs already, in a cluster with other ports"),
                    "run `percolator cluster down`, then `up --ports` again",
                ));
            }
        }
        Ok(moved)
    }
}

/// Checks that a process can listen at its address. A process that was just killed may keep its
/// address for a moment.
async fn check_free(plan: &Plan, role: Role) -> anyhow::Result<()> {
    let Some(address) = plan.address(role) else { return Ok(()) };
    let begun = Instant::now();
    loop {
        let Err(error) = TcpListener::bind(address) else { return Ok(()) };
        if begun.elapsed() > FREE_MAX {
            return Err(Failure::usage(
                format!("{role} cannot listen at {address}: {error}"),
                "end the process that listens there; or run `percolator cluster down`, and then \
                 `up` with other ports: --ports FIRST",
            ));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Returns the arguments of a process.
fn args(place: &Place, plan: &Plan, role: Role) -> anyhow::Result<Vec<String>> {
    let path = |name: &str| place.dir().join(name).display().to_string();
    let address = plan.address(role).map(|address| address.to_string()).unwrap_or_default();
    let args: Vec<String> = match role {
        Role::Table => vec![
            "serve".into(),
            "table".into(),
            "--listen".into(),
            address,
            "--data".into(),
            path("table"),
            "--backups".into(),
            path("backups"),
            "--durability".into(),
            plan.durability.clone(),
            "--config".into(),
            path("percolator.toml"),
        ],
        Role::Oracle(_) => vec![
            "serve".into(),
            "oracle".into(),
            "--listen".into(),
            address,
            "--store".into(),
            plan.store.clone(),
            "--config".into(),
            path("percolator.toml"),
        ],
        Role::Worker(_) => vec![
            "worker".into(),
            "--app".into(),
            "webindex".into(),
            "--config".into(),
            path("percolator.toml"),
            "--threads".into(),
            plan.threads.to_string(),
        ],
    };
    Ok(args)
}

/// Looks at the processes until all of them serve, for a bounded time. Returns the last look.
async fn serving(place: &Place, plan: &Plan) -> anyhow::Result<Look> {
    let begun = Instant::now();
    loop {
        let look = look::at(place, plan).await?;
        let hangs = look.processes.iter().any(|seen| seen.state == State::Hangs);
        if look.is_well() || hangs || begun.elapsed() >= SERVES_MAX {
            return Ok(look);
        }
        tokio::time::sleep(SERVES_EVERY).await;
    }
}

/// Waits until an oracle answers.
async fn someone_leads(plan: &Plan) -> anyhow::Result<()> {
    let addresses = plan.oracles.iter().map(|address| (*address).into()).collect();
    let options = RemoteOracleOptions { deadline: LEADER_MAX, ..RemoteOracleOptions::default() };
    let oracle = RemoteOracle::new(addresses, options)?;
    let begun = Instant::now();
    oracle.peek().await.map_err(config::with_advice)?;
    tracing::info!(target: "percolator::cluster", event = "oracle_leads", waited = ?begun.elapsed());
    Ok(())
}
