//! Defines a process that is to be killed with SIGKILL.

use std::io;
use std::process::{Child, Command, ExitStatus};
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

/// A process that stands still, by SIGSTOP. It goes on when this is dropped.
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
pub struct Stopped(i32);

#[cfg(unix)]
impl Stopped {
    /// Has a process stand still. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// The errors of sending a signal.
    pub fn stop(id: i32) -> io::Result<Option<Stopped>> {
        Ok(signal(id, rustix::process::Signal::STOP)?.then_some(Stopped(id)))
    }
}

#[cfg(unix)]
impl Drop for Stopped {
    fn drop(&mut self) {
        // Only another SIGKILL ends a process that stands still, and then there is none to wake.
        let _ = signal(self.0, rustix::process::Signal::CONT);
    }
}

/// Sends a signal. Returns `false` if the process does not exist.
#[cfg(unix)]
fn signal(id: i32, signal: rustix::process::Signal) -> io::Result<bool> {
    use rustix::io::Errno;
    use rustix::process::{Pid, kill_process};
    let pid = Pid::from_raw(id).filter(|_| id > 0);
    let pid = pid.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no process"))?;
    match kill_process(pid, signal) {
        Err(Errno::SRCH) => Ok(false),
        sent => Ok(sent.map(|()| true)?),
    }
}
