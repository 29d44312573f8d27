//! `cluster down`: ends the processes of a local cluster.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use super::plan::{Place, Role};
use super::process;
use crate::context::Context;
use crate::exit::{Exit, Failure};

/// How long processes may take to finish their work before they are killed.
const DRAIN_MAX: Duration = Duration::from_secs(15);
/// How often the command looks whether they have ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// End the processes of a cluster: the workers first, the table server last. The cluster's data
/// stays.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator cluster down --data D")]
pub(crate) struct Down {
    /// The directory of the cluster.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

impl Down {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let (place, plan) = Place::find(&self.data)?;
        let _alone = place.lock()?;
        let mut roles = plan.roles();
        roles.reverse();
        // A process ends before the processes that it needs: workers, then oracles, then the
        // table server.
        for together in
            roles.chunk_by(|a, b| std::mem::discriminant(a) == std::mem::discriminant(b))
        {
            end(context, &place, together).await?;
        }
        Ok(Exit::Done)
    }
}

/// Asks processes to end, and kills those that take longer than [`DRAIN_MAX`].
async fn end(context: &Context, place: &Place, roles: &[Role]) -> anyhow::Result<()> {
    let mut left = Vec::new();
    for role in roles {
        if process::pid(place, *role)?.is_some() {
            process::signal(place, *role, false)?;
            left.push(*role);
        }
    }
    let (ended, begun) = (left.clone(), Instant::now());
    let mut forced = false;
    while !left.is_empty() {
        tokio::time::sleep(LOOK_EVERY).await;
        if begun.elapsed() > DRAIN_MAX && !forced {
            forced = true;
            for role in &left {
                context.out.warn(&format!(
                    "{role} did not end in time and is killed; no acknowledged write is lost"
                ));
                process::signal(place, *role, true)?;
            }
        }
        let mut living = Vec::new();
        for role in left {
            if process::pid(place, role)?.is_some() {
                living.push(role);
            }
        }
        left = living;
        if begun.elapsed() > 2 * DRAIN_MAX
            && let Some(role) = left.first()
        {
            return Err(Failure::error(
                Exit::Unreachable,
                format!("{role} did not end after it was killed"),
                "find out what the process waits for, such as a disk that does not answer; then \
                 run the command again",
            ));
        }
    }
    for role in ended {
        context.out.note(&format!("{role} ended"));
    }
    Ok(())
}
