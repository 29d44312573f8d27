//! Finds the process that has a directory open, and connects to it.

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::hello::{CONNECTIONS_MAX, Hello, State};
use super::place::{Elsewhere, may_ask};
use crate::exit::{Exit, Failure};
use crate::output::printable;

/// How long an owner may take to introduce itself. It does so from a thread of its own, so it is
/// quick.
const HELLO_MAX: Duration = Duration::from_secs(2);

/// The process that has a directory open, and a connection to it.
#[derive(Debug)]
pub(crate) struct Owner {
    hello: Hello,
    pub(super) stream: UnixStream,
}

/// Connects to the process that has a directory open; `None` if no such process listens.
pub(crate) async fn find(dir: &Path) -> Option<Owner> {
    let dir = dir.canonicalize().ok()?;
    for path in Elsewhere::of_this_process().paths(&dir) {
        if let Ok(owner) = connect(&path).await
            && (path.parent() == Some(&dir) || owner.hello.has(&dir))
        {
            return Some(owner);
        }
    }
    None
}

async fn connect(path: &Path) -> io::Result<Owner> {
    let stream = tokio::net::UnixStream::connect(path).await?;
    // Another user may have created this socket, to learn which commands are sent.
    if !may_ask(stream.peer_cred()?.uid(), rustix::process::geteuid().as_raw()) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(HELLO_MAX))?;
    let greeted = tokio::task::spawn_blocking(move || {
        let hello = Hello::read(&mut stream)?;
        stream.set_read_timeout(None)?;
        Ok(Owner { hello, stream })
    });
    greeted.await.map_err(io::Error::other)?
}

impl Owner {
    /// Returns the process in the words of error messages.
    pub(super) fn name(&self) -> String {
        format!("`{}` (pid {})", printable(&self.hello.command), self.hello.pid)
    }

    /// An error if the process does not run commands of this version, or not this one:
    /// `needs_database` says whether it needs more than the store.
    pub(super) fn check(&self, dir: &Path, needs_database: bool) -> anyhow::Result<()> {
        let open = format!("{} is open in {}", dir.display(), self.name());
        if let Some(differs) = self.hello.differs() {
            return Err(Failure::usage(
                format!("{open}: {differs}"),
                "use the same version, or wait until that process ends",
            ));
        }
        match self.hello.state {
            State::Open => Ok(()),
            State::Full => Err(Failure::error(
                Exit::Unreachable,
                format!(
                    "{open}, which runs {CONNECTIONS_MAX} commands for other processes already"
                ),
                "run the command again",
            )),
            State::Alone if !needs_database => Ok(()),
            State::Alone => Err(Failure::usage(
                format!("{open}, which serves its tables to the processes of a cluster"),
                NAME_THE_CLUSTER,
            )),
        }
    }
}

/// The next step of a command that found its directory open in a table server.
const NAME_THE_CLUSTER: &str = "name the cluster's settings with --config FILE instead of the \
                                directory; a command on its files needs that process to end first";

/// The error of a command that found its directory open in another process.
#[derive(Debug)]
pub(crate) struct OpenElsewhere {
    pub(crate) dir: PathBuf,
    pub(crate) owner: Owner,
}

impl OpenElsewhere {
    /// Returns the error of a command that no other process runs for it.
    pub(crate) fn refusal(&self) -> anyhow::Error {
        let help = match self.owner.hello.state {
            State::Alone => NAME_THE_CLUSTER,
            _ => "wait until that process ends, or stop it; then run this command again",
        };
        Failure::usage(self.to_string(), help)
    }
}

impl fmt::Display for OpenElsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is open in {}", self.dir.display(), self.owner.name())
    }
}

impl std::error::Error for OpenElsewhere {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit;

    fn checked(hello: &str) -> Result<(), (Exit, String)> {
        let owner = Owner {
            hello: serde_json::from_str(hello).unwrap(),
            stream: UnixStream::pair().unwrap().0,
        };
        owner.check(Path::new("D"), true).map_err(|error| {
            let report = exit::report(&error, |_| None).expect("not a broken pipe");
            (report.exit, report.what)
        })
    }

    fn hello(protocol: u32, version: &str, state: &str) -> String {
        format!(
            r#"{{"protocol":{protocol},"version":"{version}","state":"{state}","dir":"/D",
                 "pid":7,"command":"percolator demo\u001b[31m"}}"#
        )
    }

    #[test]
    fn an_owner_that_runs_no_command_is_named_with_the_reason() {
        let version = env!("CARGO_PKG_VERSION");
        checked(&hello(1, version, "open")).unwrap();
        for (sent, exit, reason) in [
            (hello(2, version, "open"), Exit::Usage, ": that process has version"),
            (hello(1, "0.0.0", "open"), Exit::Usage, ": that process has version 0.0.0, and"),
            (hello(1, version, "full"), Exit::Unreachable, ", which runs 16 commands for other"),
            (hello(1, version, "alone"), Exit::Usage, ", which serves its tables"),
        ] {
            let (code, what) = checked(&sent).unwrap_err();
            assert_eq!(code, exit, "{what}");
            // The terminal does not interpret the owner's command line.
            let name = "D is open in `percolator demo\u{fffd}[31m` (pid 7)";
            assert!(what.starts_with(name), "{what:?}");
            assert!(what.contains(reason), "{what:?}");
        }
    }
}
