//! Runs the command `percolator-bench`, which measures Percolator.
//!
//! An **arm** is one of the operations or programs that a benchmark compares. A **bed** holds
//! the stores, servers and clients on which the arms of a benchmark run. A **bar** is the goal
//! for a figure.
//!
//! Arms take turns in short blocks, so that other load affects all of them. Ratios are taken
//! within a round. The report has the median over the rounds with its 95 % interval. Most
//! benchmarks run all their arms in this process, beside servers in processes of their own.
//! There are two exceptions:
//!
//! * `fig9` drives each store from a process of its own, and these processes take turns.
//! * `profile` counts instructions, which other load does not change. It runs one arm after the
//!   other, in new processes and without turns.
//!
//! ```text
//!   cli, cmd             the tree of commands, and the errors that benchmarks know
//!   flags                flags that benchmarks share; writing a report
//!   fig7 to fig10        the paper's figures: flags, arms, results
//!   micro                small benchmarks, each of one mechanism
//!   profile              counts instructions and allocations
//!   webindex             the whole application, alone and in a cluster; no arms
//!   turns, callers       turns of the arms; callers that repeat an operation at the same time
//!   report, tables       arms, figures and conditions, as JSON and as tables
//!   all, check, experiments
//!                        the results of all: against the goals, and as a document
//!   statistics, system   medians; the operating system's figures
//!   server               a role of this program in a process of its own
//!   hbase                the processes of an HBase cluster
//!   processes, priority  processes of this program that drive a store; priorities of threads
//!   spy, calls           stores that count their requests
//! ```

mod all;
mod callers;
mod calls;
mod check;
mod cli;
mod cmd;
mod experiments;
mod fig10;
mod fig7;
mod fig8;
mod fig9;
mod flags;
mod hbase;
mod micro;
mod plot;
mod priority;
mod processes;
mod profile;
mod report;
mod server;
mod spy;
mod statistics;
mod system;
mod tables;
mod turns;
mod webindex;

use turns::Turns;

/// Many small buffers are allocated on one thread and freed on another. With the system's
/// allocator, that alone takes a quarter of the time of `percolator demo`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    percolator_cli::program::run::<cli::Cli>()
}
