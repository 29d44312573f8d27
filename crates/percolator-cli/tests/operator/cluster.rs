//! A cluster of local processes in a directory of its own, ended with the test.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::shell::{Ran, run};

pub(crate) struct Cluster {
    pub(crate) dir: tempfile::TempDir,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        Cluster { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("cluster")
    }

    /// Runs `cluster COMMAND` in this directory.
    pub(crate) fn cluster(&self, words: &[&str]) -> Ran {
        let data = self.data();
        run(&[&["cluster"], words, &["--data", data.to_str().unwrap()]].concat())
    }

    pub(crate) fn up(&self, words: &[&str]) {
        self.cluster(&[&["up", "--durability", "buffered"], words].concat()).with(0);
    }

    /// Builds a command on the cluster.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = crate::shell::program();
        command.args(words).arg("--config").arg(self.data().join("percolator.toml"));
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn on(&self, words: &[&str]) -> Ran {
        self.command(words).output().unwrap().into()
    }

    /// Kills a process of the cluster.
    pub(crate) fn kill_nine(&self, role: &str) {
        let pid = std::fs::read_to_string(self.data().join("run").join(role)).unwrap();
        let killed = Command::new("kill").args(["-9", pid.trim()]).status().unwrap();
        assert!(killed.success());
    }

    /// Writes a web site, and returns its directory.
    pub(crate) fn site(&self, pages: &str) -> String {
        let site = self.dir.path().join("site");
        let site = site.to_str().unwrap();
        run(&["webindex", "generate", site, "--pages", pages]).with(0);
        site.to_owned()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.data().exists() {
            self.cluster(&["down"]);
        }
    }
}

/// A command that runs in the background.
pub(crate) struct Running {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
    read: String,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Running { child, stderr, read: String::new() }
    }

    /// Waits for a line on stderr that contains this text.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) {
        let from = self.read.len();
        while !self.read[from..].contains(text) {
            let more = self.stderr.read_line(&mut self.read).unwrap();
            assert_ne!(more, 0, "the command has ended: {}", self.read);
        }
    }

    /// Waits for the end of the command.
    pub(crate) fn end(mut self) -> Ran {
        self.stderr.read_to_string(&mut self.read).unwrap();
        let output = self.child.wait_with_output().unwrap();
        Ran { stderr: self.read, ..Ran::from(output) }
    }
}
