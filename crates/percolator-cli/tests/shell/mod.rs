//! Runs the command in a directory of its own, for tests of its output.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use percolator::{
    Change, Column, Durability, Observer, OpenOptions, Percolator, Registration, Transaction,
    WorkerOptions,
};
use serde_json::Value;
use tempfile::TempDir;

/// A store in a directory of its own, and the command at work on it.
pub(crate) struct Shell {
    pub(crate) dir: TempDir,
}

/// The output of a run, and its exit status.
pub(crate) struct Ran {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) status: i32,
}

impl Ran {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).expect(&self.stdout)
    }

    /// Asserts this exit status.
    #[track_caller]
    pub(crate) fn with(self, status: i32) -> Self {
        assert_eq!(self.status, status, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    /// Asserts that the run failed with this status, and printed an error and the next step. They
    /// are a line of JSON on stdout, or text on stderr with an empty stdout.
    #[track_caller]
    pub(crate) fn refused(self, status: i32, what: &str, help: &str) {
        let ran = self.with(status);
        if ran.stdout.starts_with("{\"error\":") {
            let error = ran.json()["error"].take();
            assert_eq!(error["exit"], status, "{error}");
            assert!(error["message"].as_str().unwrap().contains(what), "{error}");
            assert!(error["help"].as_str().unwrap_or_default().contains(help), "{error}");
            return;
        }
        assert_eq!(ran.stdout, "");
        let (error, next) = ran.stderr.split_once("\n  help: ").expect(&ran.stderr);
        assert!(error.starts_with("error: ") && error.contains(what), "{}", ran.stderr);
        assert!(next.contains(help), "{}", ran.stderr);
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Ran {
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            status: output.status.code().unwrap_or(-1),
        }
    }
}

pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    for variable in ["PERCOLATOR_DATA", "NO_COLOR", "CLICOLOR_FORCE"] {
        command.env_remove(variable);
    }
    command
}

pub(crate) fn run(words: &[&str]) -> Ran {
    program().args(words).stdin(Stdio::null()).output().unwrap().into()
}

impl Shell {
    pub(crate) fn new() -> Self {
        Shell { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn data(&self) -> std::path::PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = program();
        command.args(words).arg("--data").arg(self.data()).args(["--durability", "buffered"]);
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Ran {
        self.command(words).stdin(Stdio::null()).output().unwrap().into()
    }

    pub(crate) fn tx(&self, options: &[&str], script: &str) -> Ran {
        let file = self.dir.path().join("script");
        std::fs::write(&file, script).unwrap();
        self.command(&[&["tx"], options].concat()).arg(file).output().unwrap().into()
    }

    /// Returns the table of a cell, as `cell --history` prints it.
    pub(crate) fn cell(&self, row: &str) -> String {
        self.run(&["cell", row, "bal", "--history"]).with(0).stdout
    }

    /// Runs `work` on the store, in this process.
    pub(crate) fn open<T>(&self, work: impl AsyncFnOnce(&Percolator) -> T) -> T {
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let durability = Durability::Buffered;
            let options = OpenOptions { durability, ..OpenOptions::default() };
            let db = Percolator::open_with(self.data(), options).await.unwrap();
            work(&db).await
        })
    }
}

struct Fails;

impl Observer for Fails {
    async fn observe(&self, _tx: &mut Transaction, _change: &Change) -> percolator::Result<()> {
        Err(percolator::Error::application("cannot parse"))
    }
}

pub(crate) const TEXT: Column = Column::literal("doc:text");

/// Registers the observer `parse`, runs it if `run` says so, and writes one document.
pub(crate) fn observed(shell: &Shell, run: bool) {
    shell.open(async |db| {
        let options = WorkerOptions {
            failures_max: 2,
            failure_delay: Duration::from_millis(1),
            ..WorkerOptions::default()
        };
        let parse = Registration::strong("parse", "docs", &TEXT, Fails);
        let workers = db.observe(vec![parse], options).await.unwrap();
        if !run {
            workers.stop().await;
        }
        let docs = db.table("docs").await.unwrap();
        db.transact(async |mut tx| tx.set(&docs, "a", &TEXT, "to be")).await.unwrap();
        if run {
            let deadline = Instant::now() + Duration::from_secs(30);
            while db.set_aside().await.unwrap().is_empty() && Instant::now() < deadline {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    });
}
