//! One process of a cluster.
//!
//! Its file in `run/` is its standard input, locked before it starts: the lock is shared by whoever
//! has the file open by inheritance, so it stands as long as the process lives and goes with it,
//! however it ends. The file holds the process number, and is empty until that is known: no number
//! of an earlier process is taken for that of a living one.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::plan::{Place, Role};
use crate::exit::{Exit, Failure};

/// How long a process may take to say that it is ready.
const READY_MAX: Duration = Duration::from_secs(30);
/// How often that is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a process's number may take to be written, or a look at its file to end.
const NUMBER_MAX: Duration = Duration::from_secs(1);
/// How much of a log is shown when a process has died.
const TAIL_BYTES: u64 = 2_000;

/// A process that was started, and what its log held before.
#[derive(Debug)]
pub(super) struct Started {
    role: Role,
    log_from: u64,
}

/// The number of a process, if it lives.
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
        // Its starter is about to write the number.
        if begun.elapsed() > NUMBER_MAX {
            return Err(Failure::error(
                Exit::Unreachable,
                format!(
                    "{role} runs, and {} does not say as which process",
                    place.run(role).display()
                ),
                "whoever started it was killed meanwhile: find the process by its arguments, and end it",
            ));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Locks the file of a process that does not run. Whoever looks at it meanwhile holds it for a
/// moment.
fn lock(run: &File, role: Role) -> anyhow::Result<()> {
    let begun = Instant::now();
    while let Err(error) = run.try_lock() {
        if let TryLockError::Error(error) = error {
            return Err(error.into());
        }
        if begun.elapsed() > NUMBER_MAX {
            return Err(Failure::no(format!("{role} runs already"), "stop it first"));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Starts a process of this very program, which goes on when this one ends.
pub(super) fn start(place: &Place, role: Role, args: &[String]) -> anyhow::Result<Started> {
    let mut run = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(place.run(role))?;
    lock(&run, role)?;
    run.set_len(0)?;
    let mut log = OpenOptions::new().append(true).create(true).open(place.log(role))?;
    let log_from = log.seek(SeekFrom::End(0))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(args).stdin(Stdio::from(run.try_clone()?)).stderr(Stdio::from(log.try_clone()?));
    command.stdout(Stdio::from(log));
    // The cluster's own settings alone say where everything is: a worker on another store with
    // these oracles' timestamps would do damage there.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PERCOLATOR_") {
            command.env_remove(name);
        }
    }
    #[cfg(unix)]
    {
        // Not in the terminal's group: Ctrl-C there is for other commands.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
    }
    let child = command.spawn()?;
    write!(run, "{}", child.id())?;
    Ok(Started { role, log_from })
}

impl Started {
    /// Waits for the line that the process prints when it serves.
    pub(super) async fn ready(&self, place: &Place) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            // In this order: what it says before it dies is seen.
            let alive = pid(place, self.role)?.is_some();
            // Whoever fails says so, too, and may take a moment to end.
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
                let said = self.said(place)?;
                let log = place.log(self.role).display().to_string();
                return Err(Failure::error(
                    Exit::Unreachable,
                    format!("{what}; it said:\n{}", said.trim_end()),
                    format!("{log} is its log; `cluster up` starts it again"),
                ));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The last of what it has said since it was started.
    fn said(&self, place: &Place) -> anyhow::Result<String> {
        let mut log = File::open(place.log(self.role))?;
        let from = self.log_from.max(log.metadata()?.len().saturating_sub(TAIL_BYTES));
        log.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        log.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Asks a process to end, or ends it; nothing if it has ended.
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

/// Asks a process to end, or ends it; nothing if it has ended.
#[cfg(not(unix))]
pub(super) fn signal(place: &Place, role: Role, _force: bool) -> anyhow::Result<()> {
    match pid(place, role)? {
        None => Ok(()),
        Some(pid) => {
            Err(Failure::usage(format!("process {pid} cannot be told to end"), "end it by hand"))
        }
    }
}
