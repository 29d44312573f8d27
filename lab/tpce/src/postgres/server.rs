//! Runs a PostgreSQL server of its own, over a new directory, reached through a unix socket.

use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// Longest time for a server to start.
const START_MAX: Duration = Duration::from_secs(60);

/// The directory where Debian installs programs that are not in the path.
const DEBIAN: &str = "/usr/lib/postgresql";

/// Users to run the server as if this process is root: PostgreSQL refuses to run as root.
const USERS: [&str; 2] = ["postgres", "nobody"];

/// The error that PostgreSQL is not installed.
///
/// ```
/// let missing = tpce::postgres::Missing;
/// assert!(missing.to_string().contains("apt-get install postgresql"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "PostgreSQL is not installed: neither the path nor /usr/lib/postgresql has `initdb` and \
     `postgres`; install it with `apt-get install postgresql`, or put it into the path"
)]
pub struct Missing;

/// A server, which ends when this value is dropped.
///
/// ```no_run
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use tpce::{Exchange, Scale, postgres::Server};
/// let dir = tempfile::tempdir()?;
/// let server = Server::start(dir.path(), tpce::postgres::Server::find()?)?;
/// let exchange = Exchange::load_postgres(&server, Scale::new(100, 1)).await?;
/// assert!(exchange.check().await?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct Server {
    process: Child,
    programs: PathBuf,
    dir: PathBuf,
    user: Option<(u32, u32)>,
}

impl Server {
    /// Finds the directory with PostgreSQL's programs.
    ///
    /// # Errors
    /// [`Missing`] if there is none.
    pub fn find() -> Result<PathBuf, Missing> {
        let has_both =
            |dir: &PathBuf| dir.join("initdb").is_file() && dir.join("postgres").is_file();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut versions: Vec<PathBuf> = std::fs::read_dir(DEBIAN)
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
            .collect();
        versions.sort();
        std::env::split_paths(&path).chain(versions.into_iter().rev()).find(has_both).ok_or(Missing)
    }

    /// Starts a server over an empty directory `dir`, with the programs in `programs`. Commits
    /// survive the end of the server, but the last ones may be lost in a power cut
    /// (`synchronous_commit = off`).
    ///
    /// # Errors
    /// [`Error::Postgres`] with the programs' output.
    pub fn start(dir: &Path, programs: PathBuf) -> Result<Self> {
        let failed =
            |what: &str, error: std::io::Error| Error::Postgres(format!("{what}: {error}"));
        let user = other_user().map_err(|error| failed("looking for a user", error))?;
        if let Some((uid, gid)) = user {
            chown(dir, Some(uid), Some(gid)).map_err(|error| failed("chown", error))?;
        }
        let data = dir.join("data");
        let made = as_user(&programs, "initdb", user)
            .args(["--username=postgres", "--auth=trust", "--no-locale", "--encoding=UTF8"])
            .args(["--no-sync", "-D"])
            .arg(&data)
            .current_dir(dir)
            .output()
            .map_err(|error| failed("initdb", error))?;
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr).into_owned();
            return Err(Error::Postgres(format!("initdb: {said}")));
        }
        let log = std::fs::File::create(dir.join("log")).map_err(|error| failed("log", error))?;
        let process = as_user(&programs, "postgres", user)
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(dir)
            .args(SETTINGS.iter().flat_map(|setting| ["-c", setting]))
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| failed("postgres", error))?;
        let mut server = Server { process, programs, dir: dir.to_owned(), user };
        server.wait()?;
        Ok(server)
    }

    /// Connects to the server as its superuser. The connection ends when the client is dropped.
    ///
    /// # Errors
    /// [`Error::Postgres`] if the server refuses the connection.
    pub async fn connect(&self) -> Result<tokio_postgres::Client> {
        super::pool::connect(&self.dir).await
    }

    /// The directory with the server's socket.
    pub fn socket(&self) -> &Path {
        &self.dir
    }

    fn wait(&mut self) -> Result<()> {
        let started = Instant::now();
        let ready = self.dir.join("data/postmaster.pid");
        while started.elapsed() < START_MAX {
            // The last line of its pid file reports that.
            let text = std::fs::read_to_string(&ready).unwrap_or_default();
            if text.lines().last().is_some_and(|line| line.trim() == "ready") {
                return Ok(());
            }
            if !matches!(self.process.try_wait(), Ok(None)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let log = std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        Err(Error::Postgres(format!("the server did not start: {log}")))
    }
}

/// Commits are as durable as those of Percolator's buffered store. There is as much memory as
/// the data needs. All other settings are the defaults.
const SETTINGS: [&str; 6] = [
    "listen_addresses=",
    "synchronous_commit=off",
    "shared_buffers=512MB",
    "max_wal_size=4GB",
    "max_connections=200",
    "jit=off",
];

impl Drop for Server {
    fn drop(&mut self) {
        // The server's child processes must not outlive this value.
        let stopped = as_user(&self.programs, "pg_ctl", self.user)
            .args(["stop", "-m", "immediate", "-D"])
            .arg(self.dir.join("data"))
            .current_dir(&self.dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !stopped.is_ok_and(|status| status.success()) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

fn as_user(programs: &Path, program: &str, user: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(programs.join(program));
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    command
}

/// The user and group to run the server as, if this process is root.
fn other_user() -> std::io::Result<Option<(u32, u32)>> {
    if std::fs::metadata("/proc/self")?.uid() != 0 {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd")?;
    let find = |name: &&str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(*name))?;
        let mut numbers = line.split(':').skip(2).map(str::parse::<u32>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    Ok(USERS.iter().find_map(find))
}
