//! The command `percolator-bench`: what is measured, and how.
//!
//! All arms of a benchmark run in one process and take turns in short blocks, so that whatever else
//! the machine does falls on all of them; ratios are taken within a round, and the median over the
//! rounds is reported with its 95 % interval.
//!
//! ```text
//!   cli                  the tree of commands, and the errors that benchmarks know
//!   cmd                  the flags of each benchmark, and what becomes of its findings
//!   fig8, oracle, rpc    what the arms of each do
//!   scan                 scans of snapshots, and of notifications
//!   turns                the arms take turns
//!   callers              callers that get into each other's way
//!   report               arms and figures, as JSON and as tables
//!   findings             the same with conditions and a plot: notify, resolve, large_txn,
//!                        batching
//!   statistics, system   medians; what the operating system says
//!   server               a role of this program in a process of its own
//!   processes, priority  processes of this program that drive a store; who gets a processor first
//!   prefetch             counts reads; nothing is timed
//!   profile              counts instructions and allocations
//!   check, experiments   what all of them found: against the goals, and as a document
//!   webindex             two runs of the whole application; no arms
//! ```

mod batching;
mod callers;
mod check;
mod cli;
mod cmd;
mod experiments;
mod fig10;
mod fig7;
mod fig8;
mod fig9;
mod findings;
mod large_txn;
mod notify;
mod oracle;
mod plot;
mod prefetch;
mod priority;
mod processes;
mod profile;
mod report;
mod resolve;
mod rpc;
mod scan;
mod server;
mod spy;
mod statistics;
mod system;
mod turns;
mod webindex;

use turns::Turns;

/// Many small buffers are allocated on one thread and freed on another; with the system's allocator
/// that alone takes a quarter of the time of `percolator demo`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    percolator_cli::program::run::<cli::Cli>()
}
