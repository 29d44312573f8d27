//! Defines a process that is to be killed with SIGKILL.

use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The time between two checks whether a process has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// The longest time for a process to disappear after it was killed.
const GONE_MAX: Duration = Duration::from_secs(10);

/// A child process. Dropping it kills the process with SIGKILL.
///
/// ```
/// # use std::{process::Command, time::Duration};
/// use percolator_torture::Victim;
/// let mut victim = Victim::start(Command::new("sleep").arg("60"))?;
/// assert_eq!(victim.ends_within(Duration::from_millis(10))?, None);
/// assert!(victim.kill()?);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Victim(Child);

impl Victim {
    /// Starts a process.
    ///
    /// # Errors
    /// The errors of starting a process.
    pub fn start(command: &mut Command) -> io::Result<Victim> {
        command.spawn().map(Victim)
    }

    /// Returns the process.
    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Returns the process's number.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Waits at most `limit` for the process to end by itself. Returns its status, or `None`
    /// if it still runs.
    ///
    /// # Errors
    /// The errors of querying the process.
    pub fn ends_within(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let started = Instant::now();
        loop {
            let status = self.0.try_wait()?;
            let left = limit.saturating_sub(started.elapsed());
            if status.is_some() || left.is_zero() {
                return Ok(status);
            }
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }

    /// Kills the process, and waits until it is gone. Returns `false` if it had already ended
    /// by itself.
    ///
    /// # Errors
    /// The errors of killing the process.
    pub fn kill(&mut self) -> io::Result<bool> {
        if self.0.try_wait()?.is_some() {
            return Ok(false);
        }
        self.0.kill()?;
        // The process may have ended by itself between the check and the kill. Then it has an
        // exit code.
        Ok(self.0.wait()?.code().is_none())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // An error here means that the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kills a process that is not a child of this one, and waits until it is gone. Returns
/// `false` if it did not exist.
///
/// # Errors
/// The errors of killing the process. [`TimedOut`](io::ErrorKind::TimedOut) if it still exists
/// ten seconds later.
#[cfg(unix)]
pub fn kill_process(id: i32) -> io::Result<bool> {
    use rustix::io::Errno;
    use rustix::process::{Pid, Signal, test_kill_process};
    if !signal(id, Signal::KILL)? {
        return Ok(false);
    }
    let Some(pid) = Pid::from_raw(id) else { return Ok(false) };
    let killed = Instant::now();
    while killed.elapsed() < GONE_MAX {
        if test_kill_process(pid) == Err(Errno::SRCH) {
            return Ok(true);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let what = format!("process {id} still runs {GONE_MAX:?} after it was killed");
    Err(io::Error::new(io::ErrorKind::TimedOut, what))
}

/// Asks a process that is not a child of this one to end, with SIGTERM. Returns `false` if it does
/// not exist.
///
/// # Errors
/// The errors of sending a signal.
#[cfg(unix)]
pub fn end_process(id: i32) -> io::Result<bool> {
    signal(id, rustix::process::Signal::TERM)
}

/// A process that stands still, by SIGSTOP. It goes on when this is dropped, or when this process
/// ends in whatever way.
///
/// ```
/// use std::process::Command;
/// use percolator_torture::{Stopped, Victim};
/// let victim = Victim::start(Command::new("sleep").arg("60"))?;
/// let stopped = Stopped::stop(victim.id() as i32)?;
/// assert!(stopped.is_some(), "the process exists");
/// drop(stopped);
/// # Ok::<(), std::io::Error>(())
/// ```
#[cfg(unix)]
#[derive(Debug)]
pub struct Stopped {
    id: i32,
    /// A shell that has the process go on when the pipe to its input closes.
    watchdog: Child,
}

/// The watchdog's script. Ctrl-C in a terminal is also for the watchdog, which must outlive it.
#[cfg(unix)]
const WATCHDOG: &str = "trap '' INT HUP TERM; read -r line; kill -CONT \"$1\"";

#[cfg(unix)]
impl Stopped {
    /// Has a process stand still. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// The errors of sending a signal.
    pub fn stop(id: i32) -> io::Result<Option<Stopped>> {
        // The watchdog of another number could wake a group of processes.
        pid(id)?;
        let mut shell = Command::new("sh");
        shell.args(["-c", WATCHDOG, "watchdog", &id.to_string()]).stdin(Stdio::piped());
        let watchdog = shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let stopped = Stopped { id, watchdog };
        Ok(signal(id, rustix::process::Signal::STOP)?.then_some(stopped))
    }

    /// Whether the process stands still now.
    pub fn stands_still(&self) -> bool {
        state(self.id) == Some('T')
    }
}

/// The state of a process: `T` if it stands still. `None` if it does not exist.
#[cfg(unix)]
fn state(id: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.chars().next()
}

#[cfg(unix)]
impl Drop for Stopped {
    fn drop(&mut self) {
        // Only another SIGKILL ends a process that stands still, and then there is none to wake.
        let _ = signal(self.id, rustix::process::Signal::CONT);
        // Its input closes, so it ends, too.
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}

/// Sends a signal. Returns `false` if the process does not exist.
#[cfg(unix)]
fn signal(id: i32, signal: rustix::process::Signal) -> io::Result<bool> {
    use rustix::io::Errno;
    match rustix::process::kill_process(pid(id)?, signal) {
        Err(Errno::SRCH) => Ok(false),
        sent => Ok(sent.map(|()| true)?),
    }
}

/// The number of one process.
#[cfg(unix)]
fn pid(id: i32) -> io::Result<rustix::process::Pid> {
    let one = (id > 0).then_some(id).and_then(rustix::process::Pid::from_raw);
    one.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no process"))
}

#[cfg(all(test, target_os = "linux"))]
pub(crate) mod tests {
    use super::*;

    /// Waits until a process stands still, or until it does not.
    pub(crate) fn await_state(id: u32, still: bool) {
        let begun = Instant::now();
        while (state(id as i32) == Some('T')) != still {
            assert!(begun.elapsed() < GONE_MAX, "process {id} stands still: {}", !still);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_process_goes_on_when_the_one_that_stopped_it_is_gone() {
        let victim = Victim::start(Command::new("sleep").arg("600")).expect("a process");
        let mut stopped = Stopped::stop(victim.id() as i32).expect("a stop").expect("a process");
        await_state(victim.id(), true);
        assert!(stopped.stands_still());
        // The end of a process closes its pipes, and runs no destructors.
        drop(stopped.watchdog.stdin.take());
        assert!(stopped.watchdog.wait().expect("a shell").success());
        std::mem::forget(stopped);
        await_state(victim.id(), false);
        assert_eq!(Stopped::stop(i32::MAX).expect("no error").map(|of| of.id), None);
        let refused = Stopped::stop(-1).expect_err("no process").kind();
        assert_eq!(refused, io::ErrorKind::InvalidInput);
    }
}
