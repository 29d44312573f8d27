//! Starts, checks and ends one process of a cluster.
//!
//! The process has a file in `run/`, which is its standard input. Its starter locks this file
//! before it starts the process. The process inherits the open file, and the lock with it. So the
//! file stays locked exactly as long as the process lives, however it ends.
//!
//! The file holds the process number. The starter empties the file first, so the number of an
//! earlier process is never taken for that of a living one.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::plan::{Place, Role};
use crate::environment::NOTIFY_SOCKET;
use crate::exit::{Exit, Failure};
use crate::private;

/// How long a process may take to report that it is ready.
const READY_MAX: Duration = Duration::from_secs(30);
/// How often a wait looks at the file or the output again.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a starter may take to write a process's number, or another command to look at the
/// file.
const NUMBER_MAX: Duration = Duration::from_secs(1);
/// How much of its output an error shows when a process has died.
const TAIL_BYTES: u64 = 2_000;
/// The size from which the output of earlier processes is deleted when a process starts.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;

/// A process that was started, and the length of its output before.
#[derive(Debug)]
pub(super) struct Started {
    role: Role,
    output_from: u64,
}

/// Returns the number of a process, if it lives.
pub(super) fn pid(place: &Place, role: Role) -> anyhow::Result<Option<u32>> {
    let mut file = match File::open(place.run(role)) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let begun = Instant::now();
    loop {
        match file.try_lock_shared() {
            Ok(()) => return Ok(None),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        let mut text = String::new();
        file.seek(SeekFrom::Start(0))?;
        file.read_to_string(&mut text)?;
        if let Ok(pid) = text.trim().parse() {
            return Ok(Some(pid));
        }
        // The starter of this process is about to write the number.
        if begun.elapsed() > NUMBER_MAX {
            return Err(Failure::error(
                Exit::Unreachable,
                format!(
                    "{role} runs, but {} does not contain its process id",
                    place.run(role).display()
                ),
                "the `cluster up` that started it was killed too early: find the process by its \
                 arguments, and end it",
            ));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Whether a process stands still, because of SIGSTOP or a debugger.
#[cfg(target_os = "linux")]
pub(super) fn is_stopped(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // The state follows the name of the program, which is in parentheses and may contain some.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('T' | 't'))
}

/// Whether a process stands still cannot be seen on this system.
#[cfg(not(target_os = "linux"))]
pub(super) fn is_stopped(_: u32) -> bool {
    false
}

/// Locks the file of a process that does not run. Another command that looks at the file at this
/// moment holds a lock briefly, so this function tries again.
fn lock(run: &File, role: Role) -> anyhow::Result<()> {
    let begun = Instant::now();
    while let Err(error) = run.try_lock() {
        if let TryLockError::Error(error) = error {
            return Err(error.into());
        }
        if begun.elapsed() > NUMBER_MAX {
            return Err(Failure::no(
                format!("{role} runs already"),
                "wait for the other `cluster up`, or end the process, then run the command again",
            ));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Starts a process of this program, which goes on after this one has ended.
pub(super) fn start(place: &Place, role: Role, args: &[String]) -> anyhow::Result<Started> {
    let mut run = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(place.run(role))?;
    lock(&run, role)?;
    run.set_len(0)?;
    let mut output = private::writing().append(true).open(place.output(role))?;
    if output.metadata()?.len() > OUTPUT_BYTES_MAX {
        output.set_len(0)?;
    }
    let output_from = output.seek(SeekFrom::End(0))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(args).arg("--log-file").arg(place.log(role));
    command.stdin(Stdio::from(run.try_clone()?)).stderr(Stdio::from(output.try_clone()?));
    command.stdout(Stdio::from(output));
    // The process takes all addresses from the cluster's own settings. A worker on another store
    // with timestamps of these oracles would damage that store.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PERCOLATOR_") {
            command.env_remove(name);
        }
    }
    // The service manager of this command knows nothing of the processes that outlive it.
    command.env_remove(NOTIFY_SOCKET.name);
    #[cfg(unix)]
    {
        // A process group of its own: Ctrl-C in the terminal does not end it.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
    }
    let child = command.spawn()?;
    write!(run, "{}", child.id())?;
    Ok(Started { role, output_from })
}

impl Started {
    /// Waits for the line that the process prints when it is ready to serve.
    pub(super) async fn ready(&self, place: &Place) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            // First whether it lives, then the output: this way the last words of a process that
            // dies are read.
            let alive = pid(place, self.role)?.is_some();
            // A process that fails prints a line with `error: `, too, and may live a moment
            // longer.
            let said = self.said(place)?;
            if alive
                && said.lines().any(|line| !line.starts_with("error: "))
                && said.ends_with('\n')
            {
                return Ok(());
            }
            if !alive || begun.elapsed() > READY_MAX {
                let what = if alive {
                    format!("{} was not ready within {} s", self.role, READY_MAX.as_secs())
                } else {
                    format!("{} ended before it was ready", self.role)
                };
                let said = without_help(&self.said(place)?);
                let log = place.log(self.role).display().to_string();
                return Err(Failure::error(
                    Exit::Unreachable,
                    format!("{what}; its output:\n{said}"),
                    format!("read its log {log}; `percolator cluster up` starts it again"),
                ));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Returns the end of what the process has printed since it was started.
    fn said(&self, place: &Place) -> anyhow::Result<String> {
        let mut output = File::open(place.output(self.role))?;
        let from = self.output_from.max(output.metadata()?.len().saturating_sub(TAIL_BYTES));
        output.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        output.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Returns the output of a process without the next steps that it names, which are those of its own
/// command line.
fn without_help(said: &str) -> String {
    let lines = said.lines().filter(|line| !line.starts_with("  help: "));
    lines.collect::<Vec<_>>().join("\n")
}

/// Asks a process to end, or kills it with `force`. Does nothing if it has ended.
#[cfg(unix)]
pub(super) fn signal(place: &Place, role: Role, force: bool) -> anyhow::Result<()> {
    use rustix::process::{Pid, Signal, kill_process};
    let Some(pid) = pid(place, role)? else { return Ok(()) };
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
    let signal = if force { Signal::KILL } else { Signal::TERM };
    match kill_process(pid, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Refuses: there are no signals on this system. Does nothing if the process has ended.
#[cfg(not(unix))]
pub(super) fn signal(place: &Place, role: Role, _force: bool) -> anyhow::Result<()> {
    match pid(place, role)? {
        None => Ok(()),
        Some(pid) => Err(Failure::usage(
            format!("this system has no signals, so process {pid} cannot be asked to end"),
            "end the process by hand",
        )),
    }
}
