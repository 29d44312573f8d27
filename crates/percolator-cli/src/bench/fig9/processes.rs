//! Processes: those that drive the stores, those that serve them, their processor time and their cores.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::bench::system;

use super::Store;

/// How long a driver may take to end.
const END_MAX: Duration = Duration::from_secs(30);

/// A process that drives a store.
#[derive(Debug)]
pub(super) struct Driver {
    child: Child,
    /// `None` when it is to end.
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Driver {
    /// Starts it on some cores, with an empty directory.
    pub(super) fn start(
        store: Store,
        customers: u64,
        seed: u64,
        data: &Path,
        cores: &[usize],
    ) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("this program's own file")?;
        let mut command = match cores {
            [] => Command::new(program),
            cores => {
                let mut taskset = Command::new("taskset");
                taskset.arg("-c").arg(list(cores)).arg(program);
                taskset
            }
        };
        let mut child = command
            .args(["--quiet", "bench", "fig9-store", "--store", store.name()])
            .args(["--customers", &customers.to_string(), "--seed", &seed.to_string(), "--data"])
            .arg(data)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the process that drives a store")?;
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().context("the driver's output")?);
        Ok(Driver { child, stdin, stdout })
    }

    /// Moves all of its threads, and those that come, to some cores.
    pub(super) fn move_to(&self, cores: &[usize]) -> anyhow::Result<()> {
        let moved = Command::new("taskset")
            .args(["-a", "-p", "-c", &list(cores), &self.child.id().to_string()])
            .stdout(Stdio::null())
            .status()
            .context("taskset")?;
        anyhow::ensure!(moved.success(), "taskset could not move a process to cores {cores:?}");
        Ok(())
    }

    pub(super) fn ask(&mut self, request: &Value) -> anyhow::Result<Value> {
        let stdin = self.stdin.as_mut().context("the driver was told to end")?;
        writeln!(stdin, "{request}").context("the driver does not listen")?;
        self.answer()
    }

    /// The next line that it says.
    pub(super) fn answer(&mut self) -> anyhow::Result<Value> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        anyhow::ensure!(
            !line.is_empty(),
            "the process that drives a store ended: its error is above"
        );
        Ok(serde_json::from_str(&line)?)
    }

    /// Tells it to check its books and end.
    pub(super) fn end(mut self) -> anyhow::Result<Value> {
        self.ask(&json!({ "end": true }))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // It ends with its input, and takes its servers with it; killed, it would leave them.
        self.stdin = None;
        let started = Instant::now();
        while started.elapsed() < END_MAX {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                _ => return,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn list(cores: &[usize]) -> String {
    cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The cores that this process may run on; none where that cannot be had, or where nothing can be moved
/// to others.
pub(super) fn cores() -> Vec<usize> {
    let movable = Command::new("taskset")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    match allowed {
        Some(allowed) if movable => parse_cores(allowed.trim()),
        _ => Vec::new(),
    }
}

/// `0-3,8` as numbers.
fn parse_cores(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

/// One role of an installation, `percolator serve`; ends with this.
#[derive(Debug)]
pub(super) struct Role {
    child: Child,
    pub(super) address: String,
}

impl Role {
    pub(super) fn start(role: &str, data: &Path) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("this program's own file")?;
        let mut command = Command::new(program);
        command.args(["serve", role, "--listen", "127.0.0.1:0", "--json", "--data"]).arg(data);
        if role == "table" {
            command.args(["--durability", "buffered"]);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting `percolator serve {role}`"))?;
        let stdout = child.stdout.take();
        let mut role = Role { child, address: String::new() };
        // What it says is one value over several lines, and nothing after it.
        let told = serde_json::Deserializer::from_reader(stdout.context("a server's output")?);
        let told: Value = told.into_iter().next().context("a server did not start")??;
        role.address = told["address"].as_str().context("a server told no address")?.to_owned();
        Ok(role)
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processor time since a moment, of this process and of all that come from it.
#[derive(Debug)]
pub(super) struct Spent {
    own: Option<Duration>,
    others: Option<Duration>,
}

impl Spent {
    pub(super) fn new() -> Self {
        Spent { own: system::cpu_time(), others: system::descendants_cpu() }
    }

    pub(super) fn seconds(&self) -> Option<f64> {
        let since = |now: Option<Duration>, then: Option<Duration>| {
            Some(now?.saturating_sub(then?).as_secs_f64())
        };
        Some(since(system::cpu_time(), self.own)? + since(system::descendants_cpu(), self.others)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_cores("0-2,5"), [0, 1, 2, 5]);
        assert_eq!(parse_cores("7"), [7]);
        assert_eq!(parse_cores(""), Vec::<usize>::new());
    }
}
