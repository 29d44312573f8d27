//! Starts a command and kills it, or kills a running process, for a script.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::{Exit, Failure};
use percolator_torture::{Victim, kill_process};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// The lifetime in milliseconds of a command without an event to wait for.
const LIFE_MS: std::ops::RangeInclusive<u64> = 50..=950;
/// The time between two reads of the file of events.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Start a command, and kill it with SIGKILL; prints `killed`, or `ended` if it ended by itself.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-torture strike --seed 7 -- percolator webindex rank --data ./web
  percolator-torture strike --after exported --events ./e -- percolator webindex load SITE --events ./e
  percolator-torture strike --process ./cluster/run/worker-1")]
pub(crate) struct Strike {
    /// Kill after this event is in the file of --events; by default at a random moment of the first
    /// second.
    #[arg(long, value_name = "EVENT", requires = "events")]
    after: Option<String>,
    /// The file to which the command writes its events.
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// The longest time from the event to the kill, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    within_ms: u64,
    /// The seed of the moment.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Kill the process whose id is in this file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["after", "events", "command"])]
    process: Option<PathBuf>,
    /// The command to start.
    #[arg(last = true, required_unless_present = "process")]
    command: Vec<OsString>,
}

impl Strike {
    pub(crate) fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let killed = match &self.process {
            Some(file) => kill_by_file(file)?,
            None => self.kill_command()?,
        };
        context.out.line(if killed { "killed" } else { "ended" })?;
        Ok(Exit::Done)
    }

    fn kill_command(&self) -> anyhow::Result<bool> {
        let (program, arguments) = self.command.split_first().context("no command")?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut victim = Victim::start(&mut command)
            .with_context(|| format!("starting {}", program.display()))?;
        let mut random = StdRng::seed_from_u64(self.seed);
        let life = match (&self.after, &self.events) {
            (Some(event), Some(events)) => {
                let named = format!("\"{event}\"");
                let is_there = || std::fs::read_to_string(events).is_ok_and(|e| e.contains(&named));
                while !is_there() {
                    if victim.ends_within(LOOK_EVERY)?.is_some() {
                        return Ok(false);
                    }
                }
                random.random_range(0..=self.within_ms)
            }
            _ => random.random_range(LIFE_MS),
        };
        victim.ends_within(Duration::from_millis(life))?;
        Ok(victim.kill()?)
    }
}

/// Kills the process whose number is in the file.
fn kill_by_file(file: &Path) -> anyhow::Result<bool> {
    let place = || file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(place)?;
    let id = text.trim().parse().map_err(|_| {
        let help = "name the file that contains the process's id";
        Failure::usage(format!("{}: the file contains no process id", place()), help)
    })?;
    kill_process(id).with_context(place)
}
