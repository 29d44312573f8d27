//! Kills and stops processes of HBase under the workload of the torture, then judges the store.
//!
//! The workload runs in this process and is not killed. Its requests fail or wait while a server is
//! away. The cluster must start a process that ended again by itself, as `scripts/hbase.sh` does
//! with `HBASE_RESTART_S`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bigtable_hbase::HbaseAddress;
use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::{Exit, Failure};
use percolator_torture::Servers;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::connect;
use super::faults::{Fault, Inflicted, Target};
use crate::judge::{self, Judgement};
use crate::parent::{SITE_PAGES, prepare, report};
use crate::place::Place;
use crate::work::Working;
use crate::world::Stored;

/// The pause before a fault, in milliseconds.
const PAUSE_MS: std::ops::RangeInclusive<u64> = 500..=4_000;
/// Longest time for the cluster to recover, and for transactions to commit again. A stop of
/// processes does not count.
const BACK_MAX: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Kill and stop servers under bank transfers, observers and a web index, then look for damage.
///
/// The servers must be processes of this machine that are started again when they end. A
/// directory keeps the ledger of all transactions. The exit status is 3 if a check fails.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  HBASE_SESSION_MS=6000 HBASE_RESTART_S=3 scripts/hbase.sh sh -c \\
    'percolator-torture hbase bank \"$PERCOLATOR_HBASE\" --kills 20 --data D'
  HBASE_SESSION_MS=6000 HBASE_RESTART_S=3 HBASE_DATANODES=3 scripts/hbase.sh sh -c \\
    'percolator-torture hbase bank \"$PERCOLATOR_HBASE\" --pids \"$HBASE_PIDS\" --data D \\
     --faults kill,stop,restart,master,datanode,stall --kills 18'")]
pub(crate) struct Bank {
    /// The address of the cluster, with a namespace that does not exist yet.
    store: HbaseAddress,
    /// The number of faults.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    kills: u64,
    /// The faults, in turns.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "kill",
        value_name = "FAULT,.."
    )]
    faults: Vec<Fault>,
    /// The directory with the process ids of data nodes, for their faults.
    #[arg(long, value_name = "DIR")]
    pids: Option<PathBuf>,
    /// How long all data nodes stand still in the fault `stall`, in seconds.
    #[arg(long, value_name = "S", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=3600))]
    stall_s: u64,
    /// The seed of the faults and of the work.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Work in this directory, and keep it. It must be empty, or not exist yet.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

impl Bank {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        if self.pids.is_none() && self.faults.iter().any(|fault| fault.is_of_data_nodes()) {
            let help = "give --pids \"$HBASE_PIDS\", and set HBASE_DATANODES for scripts/hbase.sh";
            let what = "the process ids of the data nodes are not known";
            return Err(Failure::usage(what.to_owned(), help));
        }
        let place = Place::new(&self.data);
        prepare(&place)?;
        webindex::generate::Site { pages: SITE_PAGES, seed: self.seed }.write(&place.site())?;
        let (began, admin) = (Instant::now(), connect(&self.store).await?);
        context.out.line(&Servers::of(&admin).await?.lines())?;
        let stored = Stored::Hbase(Box::new(self.store.clone()));
        let servers = admin.cluster().await?.servers.len();
        let (address, pids) = (self.store.clone(), self.pids.clone());
        let stall = Duration::from_secs(self.stall_s);
        let target = Target { store: admin, address, pids, servers, stall };
        let working = Working::start(&place, &stored, self.seed).await?;
        if self.inflict_all(context, &target, &working).await?.is_none() {
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
        match Servers::of(&target.store).await {
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

    /// Inflicts one fault after the other. `None` after Ctrl-C.
    async fn inflict_all(
        &self,
        context: &Context,
        target: &Target,
        working: &Working,
    ) -> anyhow::Result<Option<()>> {
        let mut random = StdRng::seed_from_u64(self.seed);
        let kinds = self.faults.len() as u64;
        for number in 1..=self.kills {
            let pause = Duration::from_millis(random.random_range(PAUSE_MS));
            if context.interrupt.cut_off(tokio::time::sleep(pause)).await.is_none() {
                return Ok(None);
            }
            working.check()?;
            let fault = self.faults[((number - 1) % kinds) as usize];
            let turn = (number - 1) / kinds + 1;
            let before = working.committed();
            let mut inflicted = target.inflict(fault, turn, &mut random).await?;
            let at = Instant::now();
            let back = back(target, working, &mut inflicted, before);
            let Some(back) = context.interrupt.cut_off(back).await else { return Ok(None) };
            let silent = back?;
            if silent < inflicted.silence_min {
                let what = format!(
                    "{}: transactions committed after {:.1} s, so the fault did not bite",
                    inflicted.line,
                    silent.as_secs_f64()
                );
                let help = "give a directory that names all data nodes of the cluster";
                return Err(Failure::error(Exit::No, what, help));
            }
            context.out.line(&format!(
                "{number} of {}: {}; {before} commits before; {:.1} s without a commit; recovered \
                 after {:.1} s",
                self.kills,
                inflicted.line,
                silent.as_secs_f64(),
                at.elapsed().as_secs_f64(),
            ))?;
        }
        Ok(Some(()))
    }
}

/// Waits until the cluster has recovered and transactions commit again. Returns the longest time
/// without a commit.
async fn back(
    target: &Target,
    working: &Working,
    inflicted: &mut Inflicted,
    before: u64,
) -> anyhow::Result<Duration> {
    let (begun, mut last, mut longest) = (inflicted.ends_at(), Instant::now(), Duration::ZERO);
    let (mut commits, mut over) = (before, false);
    while begun.elapsed() < BACK_MAX {
        tokio::time::sleep(LOOK_EVERY).await;
        working.check()?;
        longest = longest.max(last.elapsed());
        let now = working.committed();
        if now > commits {
            (commits, last) = (now, Instant::now());
            if over {
                return Ok(longest);
            }
        }
        over = inflicted.is_over(target).await?;
    }
    let line = &inflicted.line;
    if over {
        let what = format!("{line}: nothing commits for {BACK_MAX:?}");
        return Err(Failure::error(Exit::Violated, what, "the servers' logs say more"));
    }
    let lacks = inflicted.lacks();
    let what = format!("{line}: {lacks} the cluster has not recovered within {BACK_MAX:?}");
    let help = "the cluster must start its servers again: HBASE_RESTART_S for scripts/hbase.sh";
    Err(Failure::error(Exit::Unreachable, what, help))
}
