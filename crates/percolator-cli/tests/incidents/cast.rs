//! Starts, signals and ends servers, and reads their logs.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long a test waits for a process before it gives up.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The output of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) stderr: String,
    pub(crate) status: i32,
    pub(crate) took: Duration,
}

pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PERCOLATOR_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

pub(crate) fn run(words: &[&str]) -> Ran {
    let begun = Instant::now();
    let output = program().args(words).output().unwrap();
    Ran {
        took: begun.elapsed(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        status: output.status.code().unwrap_or(-1),
    }
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < WAIT_MAX, "waited too long until: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A server in a process of its own, which is killed when this value is dropped.
pub(crate) struct Process {
    child: Child,
    /// The first line that it has printed.
    pub(crate) address: String,
    log: Arc<Mutex<String>>,
    reading: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts a table server over `dir/table`, at any free port.
    pub(crate) fn table(dir: &Path, more: &[&str]) -> Process {
        Process::table_at(dir, "127.0.0.1:0", more)
    }

    pub(crate) fn table_at(dir: &Path, listen: &str, more: &[&str]) -> Process {
        let data = dir.join("table");
        let words = ["serve", "table", "--listen", listen, "--data", data.to_str().unwrap()];
        Process::start(&[&words[..], more].concat())
    }

    pub(crate) fn oracle(store: &str, more: &[&str]) -> Process {
        let words = ["serve", "oracle", "--listen", "127.0.0.1:0", "--store", store];
        Process::start(&[&words[..], more].concat())
    }

    pub(crate) fn start(words: &[&str]) -> Process {
        let mut command = program();
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (to, mut stderr) = (log.clone(), BufReader::new(child.stderr.take().unwrap()));
        let reading = std::thread::spawn(move || {
            let mut line = String::new();
            while stderr.read_line(&mut line).is_ok_and(|read| read > 0) {
                to.lock().unwrap().push_str(&std::mem::take(&mut line));
            }
        });
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut address = String::new();
        stdout.read_line(&mut address).unwrap();
        // Later lines go nowhere, and do not block the process.
        std::thread::spawn(move || stdout.read_to_end(&mut Vec::new()));
        let address = address.trim_end().to_owned();
        let process = Process { child, address, log, reading: Some(reading) };
        assert!(!process.address.is_empty(), "{words:?} failed: {}", process.log());
        process
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// The lines of a log in JSON.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.log().lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    /// Waits until the log has an event.
    #[track_caller]
    pub(crate) fn wait_for(&self, event: &str) {
        self.wait_for_more(event, 0);
    }

    /// Waits until the log has an event more often than it had.
    #[track_caller]
    pub(crate) fn wait_for_more(&self, event: &str, than: usize) {
        wait_until(event, || self.count(event) > than);
    }

    /// How many lines of the log have an event, in either form.
    pub(crate) fn count(&self, event: &str) -> usize {
        let (text, json) = (format!("event=\"{event}\""), format!("\"event\":\"{event}\""));
        self.log().lines().filter(|line| line.contains(&text) || line.contains(&json)).count()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Ends the process by a signal, asserts its status, and returns its log.
    #[track_caller]
    pub(crate) fn end(mut self, signal: &str, status: i32) -> String {
        self.signal(signal);
        let ended = self.child.wait().unwrap();
        self.reading.take().unwrap().join().unwrap();
        assert_eq!(ended.code().unwrap_or(-1), status, "{}", self.log());
        self.log()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
