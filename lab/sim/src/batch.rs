//! Runs many seeds on several threads, and prints their findings and the sums over all of them.

use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, bail};
use percolator_sim::{Fault, Report, Sometimes, Totals, regressions, run_seed};
use rustix::time::{ClockId, clock_gettime};

/// A range of at least this many seeds fails if something that must happen sometimes never did.
const SOMETIMES_SEEDS_MIN: u64 = 1000;

/// A range of seeds, the end excluded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seeds {
    from: u64,
    to: u64,
}

impl FromStr for Seeds {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (from, to) = text.split_once("..").context("write the seeds as A..B")?;
        let number = |text: &str| text.parse().with_context(|| format!("{text:?} is not a number"));
        let seeds = Seeds { from: number(from)?, to: number(to)? };
        if seeds.from >= seeds.to {
            bail!("{text} holds no seeds");
        }
        Ok(seeds)
    }
}

/// Runs the seeds and prints the results. Returns true if no seed has a finding and nothing
/// that must happen sometimes is missing.
pub(crate) fn run(seeds: Seeds, jobs: usize) -> anyhow::Result<bool> {
    let mut failed = run_known();
    let next = AtomicU64::new(seeds.from);
    let (send, receive) = mpsc::channel::<Report>();
    let mut totals = Totals::default();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            let (send, next) = (send.clone(), &next);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.to || send.send(run_seed(seed, false)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        for report in receive {
            totals.add(&report.totals);
            if !report.findings.is_empty() {
                print_findings(&report);
                println!("{} --trace", replay_command(report.seed));
                failed.push(report.seed);
            }
        }
    });
    print_totals(&totals);
    let never = totals.never();
    let complete = totals.seeds < SOMETIMES_SEEDS_MIN || never.is_empty();
    if !complete {
        println!("never happened: {}", never.join(", "));
    }
    println!("seeds with findings: {}", failed.len());
    Ok(failed.is_empty() && complete)
}

/// Runs the recorded seeds, and returns those that have a finding again.
fn run_known() -> Vec<u64> {
    let mut failed = Vec::new();
    for known in regressions() {
        let report = run_seed(known.seed, false);
        print_findings(&report);
        if !report.findings.is_empty() {
            println!("seed {} once showed: {}", known.seed, known.note);
            failed.push(known.seed);
        }
    }
    failed
}

/// Prints the findings of a run.
pub(crate) fn print_findings(report: &Report) {
    for finding in &report.findings {
        println!("seed {}: {}: {}", report.seed, finding.property, finding.facts);
    }
}

/// Returns the command that repeats a run.
pub(crate) fn replay_command(seed: u64) -> String {
    format!("cargo run --release -p percolator-sim -- replay --seed {seed}")
}

fn print_totals(totals: &Totals) {
    let cpu = cpu_time();
    println!("seeds {}, {} of them scheduled by priority", totals.seeds, totals.by_priority);
    println!(
        "transactions {}: {} committed, {} aborted or read-only",
        totals.transactions, totals.committed, totals.aborted
    );
    println!("messages {}", totals.messages);
    println!("hash of all histories {:016x}", totals.histories);
    println!("virtual time {:.0} s", totals.virtual_time.as_secs_f64());
    println!("write skews {}", totals.skews);
    println!("faults");
    for (fault, count) in Fault::ALL.iter().zip(&totals.faults) {
        println!("  {:<28}{count:>12}", fault.name());
    }
    println!("sometimes");
    for (what, count) in Sometimes::ALL.iter().zip(&totals.sometimes) {
        println!("  {:<28}{count:>12}", what.name());
    }
    println!(
        "CPU time {:.1} s: {:.0} committed transactions per CPU second",
        cpu.as_secs_f64(),
        totals.committed as f64 / cpu.as_secs_f64()
    );
}

/// Returns the CPU time of this process, all threads together.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}
