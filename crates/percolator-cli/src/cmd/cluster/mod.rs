//! `cluster up|status|down`: runs a table server, two oracles and workers as processes of this
//! machine.
//!
//! ```text
//!   plan.rs     the plan of a cluster, kept in its directory
//!   process.rs  one process: starting it, checking whether it lives, ending it
//!   look.rs     which processes run, hang, lead or write
//!   up.rs  status.rs  down.rs
//! ```
//!
//! Nothing restarts a process that dies. `up` starts every process that does not run, so run `up`
//! again to bring a dead one back.

mod down;
mod look;
mod plan;
mod process;
mod status;
mod up;

use clap::Subcommand;

use crate::context::Context;
use crate::exit::Exit;

/// Run a cluster of local processes: a table server, two oracles, and workers.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  percolator cluster up --workers 3 --data D
  percolator webindex load site/ --base https://example.org/ --config D/percolator.toml
  percolator cluster status --data D
  percolator cluster down --data D")]
pub(crate) enum Cluster {
    Up(up::Up),
    Status(status::Status),
    Down(down::Down),
}

impl Cluster {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        match self {
            Cluster::Up(up) => up.run(context).await,
            Cluster::Status(status) => status.run(context).await,
            Cluster::Down(down) => down.run(context).await,
        }
    }
}
