//! Runs processes of this program that drive a store, and binds them to cores.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use percolator_torture::Victim;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Longest time for a driver to end.
const END_MAX: Duration = Duration::from_secs(30);
/// Most attempts to move a driver: taskset fails if a thread ends meanwhile.
const MOVE_TRIES: usize = 5;

/// A process that drives a store, mostly `percolator-bench ROLE`. Requests and answers are lines
/// of JSON.
#[derive(Debug)]
pub(crate) struct Driver {
    process: Victim,
    /// The process's input; `None` once it should end.
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Driver {
    /// Starts the process on some cores, or on all of them.
    pub(crate) fn start<S: AsRef<OsStr>>(
        role: &str,
        arguments: impl IntoIterator<Item = S>,
        cores: &[usize],
    ) -> anyhow::Result<Self> {
        let mut command = own_program()?;
        if !cores.is_empty() {
            let mut taskset = Command::new("taskset");
            taskset.arg("-c").arg(list(cores)).arg(command.get_program());
            command = taskset;
        }
        command.args(["--quiet", role]).args(arguments);
        Driver::over(command).context("starting the process that drives a store")
    }

    /// Starts another program that speaks JSON.
    pub(crate) fn over(mut command: Command) -> anyhow::Result<Self> {
        let mut process = Victim::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let child = process.child();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().context("reading the driver's output")?);
        Ok(Driver { process, stdin, stdout })
    }

    pub(crate) fn move_to(&self, cores: &[usize]) -> anyhow::Result<()> {
        let mut taskset = Command::new("taskset");
        taskset.args(["-a", "-p", "-c", &list(cores), &self.process.id().to_string()]);
        taskset.stdout(Stdio::null());
        for _ in 0..MOVE_TRIES {
            if taskset.status().context("taskset")?.success() {
                return Ok(());
            }
        }
        anyhow::bail!("taskset could not move a process to cores {cores:?}")
    }

    /// Sends a request that has no answer.
    pub(crate) fn tell(&mut self, request: &Value) -> anyhow::Result<()> {
        let stdin = self.stdin.as_mut().context("the driver was asked to end already")?;
        writeln!(stdin, "{request}").context("the driver does not listen")
    }

    pub(crate) fn ask(&mut self, request: &Value) -> anyhow::Result<Value> {
        self.tell(request)?;
        self.answer()
    }

    /// Reads the next line of the process's output.
    pub(crate) fn answer(&mut self) -> anyhow::Result<Value> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        anyhow::ensure!(!line.is_empty(), "the process ended: its error is above");
        serde_json::from_str(&line).with_context(|| format!("the answer {line:?}"))
    }

    /// Ends the process's input, and waits until the process has ended. It must succeed.
    pub(crate) fn end(mut self) -> anyhow::Result<()> {
        self.stdin = None;
        let ended = self.process.ends_within(END_MAX).context("waiting for a process to end")?;
        let status = ended.context("the process does not end")?;
        anyhow::ensure!(status.success(), "the process ended with {status}: its error is above");
        Ok(())
    }

    /// Kills the process, as `kill -9` does.
    pub(crate) fn kill(mut self) -> anyhow::Result<()> {
        self.process.kill().context("killing a process that drives a store")?;
        Ok(())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The process ends with its input, and ends its servers. If it were killed, they would
        // remain.
        self.stdin = None;
        let _ = self.process.ends_within(END_MAX);
    }
}

pub(crate) fn own_program() -> anyhow::Result<Command> {
    Ok(Command::new(std::env::current_exe().context("finding this program's own file")?))
}

/// The requests to a driver: the lines of its stdin, until it ends.
pub(crate) fn requests() -> UnboundedReceiver<String> {
    let (asks, requests) = unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if asks.send(line).is_err() {
                return;
            }
        }
    });
    requests
}

pub(crate) fn say(answer: &Value) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{answer}")?;
    stdout.flush()
}

fn list(cores: &[usize]) -> String {
    cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The cores on which this process may run. None if they cannot be read, or if `taskset` is
/// missing.
pub(crate) fn cores() -> Vec<usize> {
    let movable = Command::new("taskset")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if movable { allowed() } else { Vec::new() }
}

/// The cores on which the calling thread may run.
#[cfg(target_os = "linux")]
fn allowed() -> Vec<usize> {
    let allowed = rustix::thread::sched_getaffinity(None).ok();
    let is_set = |core: &usize| allowed.is_some_and(|set| set.is_set(*core));
    (0..rustix::thread::CpuSet::MAX_CPU).filter(is_set).collect()
}

/// Reads nothing on other systems.
#[cfg(not(target_os = "linux"))]
fn allowed() -> Vec<usize> {
    Vec::new()
}

/// Binds the calling thread to one core. If that fails, it runs anywhere.
#[cfg(target_os = "linux")]
pub(crate) fn stay_on(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Does nothing on other systems: the thread runs anywhere.
#[cfg(not(target_os = "linux"))]
pub(crate) fn stay_on(_core: usize) {}
