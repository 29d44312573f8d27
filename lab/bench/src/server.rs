//! Runs a measured server: a role of this program, in a process of its own.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use percolator_torture::Victim;

use crate::processes::own_program;

/// Any free port of this machine.
pub(crate) const ANY_PORT: &str = "127.0.0.1:0";

/// A process `percolator-bench serve ROLE`. Dropping it kills it, as `kill -9` does.
#[derive(Debug)]
pub(crate) struct Server {
    process: Victim,
    /// Host and port.
    address: String,
    /// Its directory, if that should end with it.
    _data: Option<tempfile::TempDir>,
}

impl Server {
    /// Starts `percolator-bench serve` with these arguments over a temporary directory, on a free
    /// port of this machine.
    pub(crate) fn start(role: &str, arguments: &[&str]) -> anyhow::Result<Self> {
        let data = tempfile::Builder::new().prefix("percolator-bench-").tempdir()?;
        let mut server = Server::over(&data.path().join("store"), role, ANY_PORT, arguments)?;
        server._data = Some(data);
        Ok(server)
    }

    /// Starts the server over a directory that stays, at a given address.
    pub(crate) fn over(
        data: &Path,
        role: &str,
        listen: &str,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        let mut command = own_program()?;
        command.args(["serve", role, "--listen", listen, "--json", "--quiet", "--data"]);
        command.arg(data).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        let process = Victim::start(&mut command)
            .with_context(|| format!("starting `percolator-bench serve {role}`"))?;
        // From here on, dropping `server` ends the process.
        let mut server = Server { process, address: String::new(), _data: None };
        let address = server.read_address();
        server.address =
            address.with_context(|| format!("`percolator-bench serve {role}` failed"))?;
        Ok(server)
    }

    /// Starts Google's Bigtable emulator on a free port of this machine. It keeps everything in
    /// memory.
    pub(crate) fn emulator(program: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        command.args(["-host", "127.0.0.1", "-port", "0"]);
        let process = Victim::start(command.stdin(Stdio::null()).stdout(Stdio::piped()))
            .with_context(|| format!("starting the emulator {}", program.display()))?;
        let mut server = Server { process, address: String::new(), _data: None };
        let stdout =
            server.process.child().stdout.take().context("reading the emulator's output")?;
        for line in BufReader::new(stdout).lines() {
            let line = line?;
            if let Some((_, told)) = line.split_once("running on ") {
                let address = told.trim_end_matches(|c: char| !c.is_ascii_digit());
                server.address = address.to_owned();
                return Ok(server);
            }
        }
        anyhow::bail!("the emulator {} ended before it listened", program.display())
    }

    /// Reads the address that the server prints when it listens, on one line or several.
    fn read_address(&mut self) -> anyhow::Result<String> {
        let stdout = self.process.child().stdout.take().context("reading the server's output")?;
        let mut text = String::new();
        for line in BufReader::new(stdout).lines() {
            text.push_str(&line?);
            if let Ok(told) = serde_json::from_str::<serde_json::Value>(&text) {
                return Ok(told["address"].as_str().context("it printed no address")?.to_owned());
            }
        }
        anyhow::bail!("it ended before it listened: {text:?}")
    }

    /// Host and port.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Processor time of the server so far; `None` if it cannot be measured.
    pub(crate) fn cpu_time(&self) -> Option<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).ok()?;
        // The name in parentheses may contain anything. User and system time are fields 14 and
        // 15.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
        let mut ticks = || fields.next()?.parse::<u64>().ok();
        // Every Linux has a hundred ticks a second.
        Some(Duration::from_millis(10 * (ticks()? + ticks()?)))
    }
}
