//! Lists the commands: one for each benchmark, and one for each process that benchmarks start.

use clap::Subcommand;
use percolator_cli::cmd::serve::ServeRole;
use percolator_cli::context::Context;
use percolator_cli::exit::Exit;
use percolator_cli::log::ServiceLog;

use crate::flags::run;
use crate::micro::{self, churn, grow, large_txn};
use crate::{all, check, fig7, fig8, fig9, fig10, profile, webindex};

/// A benchmark, or a process that a benchmark starts.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    All(all::All),
    Check(check::Check),
    Fig7(fig7::Fig7),
    Fig8(fig8::Fig8),
    Fig8Hbase(fig8::Fig8Hbase),
    Fig9(fig9::Fig9),
    #[command(hide = true, after_help = "Example:\n  percolator-bench fig9 --quick")]
    Fig9Store(fig9::Fig9Store),
    Fig10(fig10::Fig10),
    Fig10Hbase(fig10::Fig10Hbase),
    #[command(hide = true, after_help = "Example:\n  percolator-bench fig10 --quick")]
    Fig10Worker(fig10::Fig10Worker),
    #[command(
        subcommand,
        after_help = "Examples:
  percolator-bench micro scan --quick --out results
  percolator-bench micro oracle --callers 2000 --json"
    )]
    Micro(micro::Arm),
    #[command(hide = true, after_help = "Example:\n  percolator-bench micro churn --quick")]
    ChurnWork(churn::ChurnWork),
    #[command(hide = true, after_help = "Example:\n  percolator-bench micro grow --quick")]
    GrowWork(grow::GrowWork),
    #[command(hide = true, after_help = "Example:\n  percolator-bench micro large-txn --quick")]
    LargeTxnMemory(large_txn::LargeTxnMemory),
    Profile(profile::Profile),
    #[command(hide = true, after_help = "Example:\n  percolator-bench profile --quick")]
    ProfileWork(profile::ProfileWork),
    Webindex(webindex::Webindex),
    #[command(hide = true, after_help = "Example:\n  percolator-bench webindex DIR --cluster")]
    WebindexWorker(webindex::WebindexWorker),
    /// Servers as processes of this program, which benchmarks start.
    #[command(hide = true)]
    Serve(Box<ServeRole>),
}

impl Bench {
    /// The log of a server that a benchmark has started.
    pub(crate) fn log(&self) -> Option<ServiceLog> {
        match self {
            Bench::Serve(serve) => Some(serve.log()),
            _ => None,
        }
    }

    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        match self {
            Bench::All(all) => return all.run(context),
            Bench::Check(check) => return check.run(context),
            Bench::Fig7(it) => return run(context, &it.common, it.measure(context)).await,
            Bench::Fig8(it) => return run(context, &it.measure.common, it.measure(context)).await,
            Bench::Fig8Hbase(it) => {
                return run(context, &it.measure.common, it.measure(context)).await;
            }
            Bench::Fig9(it) => return run(context, &it.common, it.measure(context)).await,
            Bench::Fig10(it) => return run(context, &it.common, it.measure(context)).await,
            Bench::Fig10Hbase(it) => {
                return run(context, &it.common, it.measure(context)).await;
            }
            Bench::Micro(arm) => return arm.run(context).await,
            Bench::Profile(it) => return run(context, &it.common, it.measure(context)).await,
            Bench::Webindex(webindex) => return webindex.run(context).await,
            Bench::Serve(serve) => return serve.run(context).await,
            Bench::Fig9Store(store) => store.run().await?,
            Bench::Fig10Worker(worker) => worker.run().await?,
            Bench::WebindexWorker(worker) => worker.run().await?,
            Bench::ChurnWork(work) => work.run(context).await?,
            Bench::GrowWork(work) => work.run().await?,
            Bench::LargeTxnMemory(memory) => memory.run().await?,
            Bench::ProfileWork(work) => work.run().await?,
        }
        Ok(Exit::Done)
    }
}
