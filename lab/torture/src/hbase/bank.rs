//! Kills region servers of HBase under the workload of the torture, then judges the store.
//!
//! The workload runs in this process and is not killed. Its requests fail or wait while a region
//! server is away. The cluster must start a killed server again by itself, as `scripts/hbase.sh`
//! does with `HBASE_RESTART_S`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bigtable_hbase::{HbaseAddress, HbaseStore};
use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::{Exit, Failure};
use percolator_torture::{ServerProcess, Servers};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{Which, connect, kill};
use crate::judge::{self, Judgement};
use crate::parent::{SITE_PAGES, prepare, report};
use crate::place::Place;
use crate::work::Working;
use crate::world::Stored;

/// The pause before a kill, in milliseconds.
const PAUSE_MS: std::ops::RangeInclusive<u64> = 500..=4_000;
/// One kill in this many is of the server with `hbase:meta`.
const META_ONE_IN: u64 = 4;
/// Longest time for a killed server to be replaced, and for transactions to commit again.
const BACK_MAX: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Kill region servers under bank transfers, observers and a web index, then look for damage.
///
/// The servers must be processes of this machine that are started again when they end. A
/// directory keeps the ledger of all transactions. The exit status is 3 if a check fails.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  HBASE_SESSION_MS=6000 HBASE_RESTART_S=3 scripts/hbase.sh sh -c \\
    'percolator-torture hbase bank \"$PERCOLATOR_HBASE\" --kills 20 --data D'")]
pub(crate) struct Bank {
    /// The address of the cluster, with a namespace that does not exist yet.
    store: HbaseAddress,
    /// The number of region servers that are killed.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    kills: u64,
    /// The seed of the kills and of the work.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Work in this directory, and keep it. It must be empty, or not exist yet.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

impl Bank {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let place = Place::new(&self.data);
        prepare(&place)?;
        webindex::generate::Site { pages: SITE_PAGES, seed: self.seed }.write(&place.site())?;
        let (began, admin) = (Instant::now(), connect(&self.store).await?);
        context.out.line(&Servers::of(&admin).await?.lines())?;
        let stored = Stored::Hbase(Box::new(self.store.clone()));
        let working = Working::start(&place, &stored, self.seed).await?;
        if self.kill_all(context, &admin, &working).await?.is_none() {
            return Ok(Exit::Interrupted);
        }
        working.end().await?;
        context.out.note("verifying");
        let judging = judge::judge(&place, &stored);
        let Some(judgement) = context.interrupt.cut_off(judging).await else {
            return Ok(Exit::Interrupted);
        };
        let judgement = judgement?;
        report(context.out, (self.kills, self.seed, None), &judgement, began.elapsed())?;
        let exit = self.judged(&judgement)?;
        // The judgement stands, also if a server was started a moment ago and names no process yet.
        match Servers::of(&admin).await {
            Ok(servers) => context.out.line(&servers.lines())?,
            Err(error) => context.out.note(&format!("the servers are not known: {error}")),
        }
        Ok(exit)
    }

    fn judged(&self, found: &Judgement) -> anyhow::Result<Exit> {
        if found.violations == 0 {
            return Ok(Exit::Done);
        }
        let (count, checks) = (found.violations, found.checks);
        let named = found.named.join("\n  ");
        let help = format!("the ledger is kept in {}", self.data.display());
        let what = format!("{count} of {checks} checks failed:\n  {named}");
        Err(Failure::error(Exit::Violated, what, help))
    }

    /// Kills one server after the other. `None` after Ctrl-C.
    async fn kill_all(
        &self,
        context: &Context,
        admin: &HbaseStore,
        working: &Working,
    ) -> anyhow::Result<Option<()>> {
        let mut random = StdRng::seed_from_u64(self.seed);
        let servers = admin.cluster().await?.servers.len();
        for number in 1..=self.kills {
            let pause = Duration::from_millis(random.random_range(PAUSE_MS));
            if context.interrupt.cut_off(tokio::time::sleep(pause)).await.is_none() {
                return Ok(None);
            }
            working.check()?;
            let meta = number.is_multiple_of(META_ONE_IN);
            let which = if meta { Which::Meta } else { Which::Any };
            let before = working.committed();
            let killed = kill(admin, which, &mut random).await?;
            let at = Instant::now();
            let back = back(admin, working, (servers, &killed, before));
            let Some(back) = context.interrupt.cut_off(back).await else { return Ok(None) };
            let silent = back?;
            context.out.line(&format!(
                "{number} of {}: killed region server {}; {before} commits before; {:.1} s without a \
                 commit; replaced after {:.1} s",
                self.kills,
                killed.line(),
                silent.as_secs_f64(),
                at.elapsed().as_secs_f64(),
            ))?;
        }
        Ok(Some(()))
    }
}

/// Waits until the killed server is replaced and transactions commit again. Returns the longest
/// time without a commit.
async fn back(
    admin: &HbaseStore,
    working: &Working,
    (servers, killed, before): (usize, &ServerProcess, u64),
) -> anyhow::Result<Duration> {
    let (begun, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
    let (mut commits, mut replaced) = (before, false);
    while begun.elapsed() < BACK_MAX {
        tokio::time::sleep(LOOK_EVERY).await;
        working.check()?;
        longest = longest.max(last.elapsed());
        let now = working.committed();
        if now > commits {
            (commits, last) = (now, Instant::now());
            if replaced {
                return Ok(longest);
            }
        }
        // The master may be busy with the dead server.
        if let Ok(cluster) = admin.cluster().await {
            let old = killed.server.start_code;
            let gone = cluster.servers.iter().all(|of| of.start_code != old);
            // A server that has just been started does not name its web server yet.
            let known = cluster.servers.iter().all(|of| of.info_address.is_some());
            replaced = gone && known && cluster.servers.len() == servers;
        }
    }
    let address = &killed.server.address;
    if replaced {
        let what =
            format!("nothing commits for {BACK_MAX:?} after region server {address} was killed");
        return Err(Failure::error(Exit::Violated, what, "the servers' logs say more"));
    }
    let what = format!("region server {address} was not replaced within {BACK_MAX:?}");
    let help = "the cluster must start its servers again: HBASE_RESTART_S for scripts/hbase.sh";
    Err(Failure::error(Exit::Unreachable, what, help))
}
