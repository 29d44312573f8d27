//! Looks at a real HBase cluster, kills and stops its processes, and changes its regions.
//!
//! The cluster itself names its version and its servers, and each server's web server names its
//! process. `scripts/hbase.sh` starts such a cluster on this machine.

mod bank;
mod faults;

use std::time::{Duration, Instant};

use bigtable_hbase::{HbaseAddress, HbaseOptions, HbaseStore, Reshape};
use clap::{Args, Subcommand, ValueEnum};
use percolator_cli::context::Context;
use percolator_cli::exit::{Exit, Failure};
use percolator_torture::{Program, ServerProcess, Servers};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

/// How long to look for a region server to kill.
const CHOSEN_WITHIN: Duration = Duration::from_secs(60);

/// Look at an HBase cluster on this machine, kill its region servers, or change its regions.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  percolator-torture hbase status hbase://127.0.0.1:16000/percolator
  percolator-torture hbase bank hbase://127.0.0.1:16000/percolator --kills 20 --data D")]
pub(crate) enum Hbase {
    Status(Status),
    Kill(Kill),
    Reshape(Change),
    Bank(bank::Bank),
}

/// Print HBase's version, and the process of each server, as the cluster names them.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator-torture hbase status hbase://127.0.0.1:16000/percolator")]
pub(crate) struct Status {
    /// The address of a master or of a region server, with a namespace.
    store: HbaseAddress,
}

/// Kill a region server of this machine with SIGKILL.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator-torture hbase kill hbase://127.0.0.1:16000/percolator --server meta")]
pub(crate) struct Kill {
    /// The address of a master or of a region server, with a namespace.
    store: HbaseAddress,
    /// The server that is killed.
    #[arg(long, value_enum, default_value = "any", value_name = "WHICH")]
    server: Which,
    /// The seed of the choice.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// The region server that is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    /// Any of them that has regions.
    Any,
    /// The one with the table `hbase:meta`.
    Meta,
}

/// Split, merge and move regions of the namespace's tables, until Ctrl-C.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator-torture hbase reshape hbase://127.0.0.1:16000/percolator --every-ms 2000")]
pub(crate) struct Change {
    /// The address of a master or of a region server, with a namespace.
    store: HbaseAddress,
    /// The pause between two changes, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 2_000)]
    every_ms: u64,
    /// The seed of the choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl Hbase {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        match self {
            Hbase::Status(status) => status.run(context).await,
            Hbase::Kill(kill) => kill.run(context).await,
            Hbase::Reshape(change) => change.run(context).await,
            Hbase::Bank(bank) => bank.run(context).await,
        }
    }
}

async fn connect(address: &HbaseAddress) -> anyhow::Result<HbaseStore> {
    Ok(HbaseStore::connect(address, HbaseOptions::default()).await?)
}

impl Status {
    async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let store = connect(&self.store).await?;
        context.out.line(&Servers::of(&store).await?.lines())?;
        Ok(Exit::Done)
    }
}

/// Chooses a region server whose process is known. A server that has just been started names no web
/// server yet, and the one with `hbase:meta` may be on its way to another.
async fn choose(
    store: &HbaseStore,
    which: Which,
    random: &mut StdRng,
) -> anyhow::Result<ServerProcess> {
    let begun = Instant::now();
    loop {
        let mut servers = store.cluster().await?.servers;
        // The fault of a server without regions would hit nobody.
        let is_used = servers.iter().any(|one| one.regions > 0);
        servers.retain(|one| match which {
            Which::Any => one.regions > 0 || !is_used,
            Which::Meta => one.has_meta,
        });
        servers.shuffle(random);
        let mut last = "the cluster names no such region server".to_owned();
        for server in servers {
            match store.process(&server).await {
                Ok(process) => {
                    let program = Program::RegionServer;
                    return Ok(ServerProcess { program, server, process });
                }
                Err(error) => last = error.to_string(),
            }
        }
        if begun.elapsed() >= CHOSEN_WITHIN {
            let what = format!("no region server can be killed: {last}");
            let help = "percolator-torture hbase status names the servers";
            return Err(Failure::error(Exit::Unreachable, what, help));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

impl Kill {
    async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let store = connect(&self.store).await?;
        let mut random = StdRng::seed_from_u64(self.seed);
        let killed = choose(&store, self.server, &mut random).await?;
        killed.kill().map_err(|error| {
            let what = format!("killing a region server: {error}");
            Failure::error(Exit::No, what, "percolator-torture hbase status names the servers")
        })?;
        context.out.line(&format!("killed region server {}", killed.line()))?;
        Ok(Exit::Done)
    }
}

impl Change {
    async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let store = connect(&self.store).await?;
        let mut random = StdRng::seed_from_u64(self.seed);
        // Regions are split more often than merged, so that there are some to merge.
        for kind in [Reshape::Split, Reshape::Move, Reshape::Split, Reshape::Merge].iter().cycle() {
            let pause = tokio::time::sleep(Duration::from_millis(self.every_ms));
            if context.interrupt.cut_off(pause).await.is_none() {
                return Ok(Exit::Interrupted);
            }
            match store.reshape(*kind, random.random()).await {
                Ok(Some(what)) => context.out.line(&what)?,
                Ok(None) => {}
                // A region that was changed a moment ago, or whose server is away.
                Err(error) => context.out.note(&format!("{kind:?} refused: {error}")),
            }
        }
        Ok(Exit::Done)
    }
}
