//! Implements the command `percolator-sim`, which runs, replays and minimises seeds, and runs
//! the other checks of the protocol.

#![allow(clippy::print_stdout, reason = "printing is what this program is for")]

mod batch;
mod mutants;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use percolator_sim::{Minimal, Part, Restrictions, run_with};

use batch::Seeds;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The exit code of a command that found something wrong.
const FOUND: u8 = 3;

/// Simulates Percolator with faults, every choice drawn from a seed, and checks the results.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs seeds, each in a world of its own, and prints the findings and the sums over all of
    /// them. The seeds recorded as regressions run first. The exit status is 3 if a check finds an
    /// error. It is also 3 if an event that must happen sometimes never happened in a thousand
    /// seeds or more.
    ///
    /// The output has a hash of all histories of the range. The hash is the same for each
    /// number of jobs, and on each machine.
    Run {
        /// The range of seeds, `A..B`, B excluded.
        #[arg(long, default_value = "0..1000")]
        seeds: Seeds,
        /// The number of seeds that run at the same time; by default one for each core.
        #[arg(long)]
        jobs: Option<usize>,
    },
    /// Runs a seed twice and prints the hash of each run's trace, which must be the same. The exit
    /// status is 3 if the hashes differ, or if a check finds an error.
    Replay {
        /// The seed.
        #[arg(long)]
        seed: u64,
        /// Prints every event of the run.
        #[arg(long)]
        trace: bool,
        /// Leaves a part of the seed's world out; may be given several times.
        #[arg(long)]
        without: Vec<Part>,
        /// The maximum number of pieces of work.
        #[arg(long)]
        transactions: Option<u64>,
        /// The maximum number of clients at the same time.
        #[arg(long)]
        clients: Option<u64>,
    },
    /// Leaves out of a failing seed's world the parts that the finding does not need, and prints
    /// the command that replays the rest. The exit status is 3 if the seed has no finding.
    Minimise {
        /// The seed.
        #[arg(long)]
        seed: u64,
    },
    /// Plays every crash, and every late or lost message, of a transaction of three cells, alone
    /// and in pairs. The exit status is 3 if a case ends inconsistently.
    CrashPoints,
    /// Explores small models of the protocol to exhaustion. The exit status is 3 if a model shows a
    /// defect, or is not exhausted.
    Model,
    /// Runs the core over the store on disk, with threads, and checks what the threads saw. The
    /// exit status is 3 if a check finds an error. The work is drawn from the seed; the
    /// interleaving of the threads is not.
    Threads {
        /// The duration of the run, in seconds.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// The seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The name of a defence to switch off.
        #[cfg(mutants)]
        #[arg(long)]
        mutant: Option<String>,
    },
    /// Switches off one defence after the other, and prints the check that notices. The exit status
    /// is 3 if no check notices the loss of a defence.
    Mutants {
        /// The number of seeds that are tried for each mutant.
        #[arg(long, default_value_t = 1000)]
        seeds: u64,
        /// Looks over stores like HBase, in the tests and seeds that can run there. Leaves out
        /// mutants of the store on disk, of floors, of one-step commits and of notifications in
        /// tables of their own.
        #[arg(long)]
        like_hbase: bool,
        /// The mutants to try; by default all.
        names: Vec<String>,
    },
    /// Looks for one mutant.
    #[cfg(mutants)]
    #[command(hide = true)]
    RunMutant {
        #[arg(long)]
        mutant: Option<String>,
        #[arg(long)]
        means: mutants::Means,
        #[arg(long)]
        seeds: u64,
    },
}

fn main() -> anyhow::Result<ExitCode> {
    let good = match Arguments::parse().command {
        Command::Run { seeds, jobs } => {
            let jobs = jobs.map_or_else(std::thread::available_parallelism, |jobs| {
                Ok(std::num::NonZero::new(jobs).unwrap_or(std::num::NonZero::<usize>::MIN))
            })?;
            batch::run(seeds, jobs.get())?
        }
        Command::Replay { seed, trace, without, transactions, clients } => {
            let without = without.into_iter().collect();
            let (transactions_max, clients_max) = (transactions, clients);
            replay(seed, &Restrictions { without, transactions_max, clients_max }, trace)
        }
        Command::Minimise { seed } => minimise(seed),
        Command::CrashPoints => percolator_sim::crash_points::run(&mut std::io::stdout())? == 0,
        Command::Model => percolator_sim::model::run(&mut std::io::stdout())?,
        #[cfg(mutants)]
        Command::Threads { seconds, seed, mutant } => {
            mutants::switch_off(mutant.as_deref())?;
            let time = std::time::Duration::from_secs(seconds);
            percolator_sim::threads::run(time, seed, &mut std::io::stdout())? == 0
        }
        #[cfg(not(mutants))]
        Command::Threads { seconds, seed } => {
            let time = std::time::Duration::from_secs(seconds);
            percolator_sim::threads::run(time, seed, &mut std::io::stdout())? == 0
        }
        Command::Mutants { seeds, like_hbase, names } => mutants::run(seeds, &names, like_hbase)?,
        #[cfg(mutants)]
        Command::RunMutant { mutant, means, seeds } => {
            mutants::look(mutant.as_deref(), means, seeds)?
        }
    };
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(FOUND) })
}

fn replay(seed: u64, restrictions: &Restrictions, trace: bool) -> bool {
    let first = run_with(seed, restrictions, trace);
    let second = run_with(seed, restrictions, false);
    first.trace.iter().for_each(|line| println!("{line}"));
    for report in [&first, &second] {
        println!("seed {seed}: trace hash {:016x}", report.hash);
    }
    batch::print_findings(&first);
    if first.hash != second.hash {
        println!("seed {seed}: the two runs differ");
    }
    first.hash == second.hash && first.findings.is_empty()
}

fn minimise(seed: u64) -> bool {
    let Some(Minimal { restrictions, report, runs }) = percolator_sim::minimise(seed) else {
        println!("seed {seed}: nothing is found wrong");
        return false;
    };
    batch::print_findings(&report);
    let (begun, options) = (report.totals.transactions, restrictions.options());
    println!("seed {seed}: {begun} transactions are left, after {runs} runs");
    println!("{}{options} --trace", batch::replay_command(seed));
    true
}
