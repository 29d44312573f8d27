//! Tests the reports of servers and workers to a service manager, whose socket the test holds.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests and their helpers")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// How long a test waits for a report before it fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process of this program, and the socket that it reports to.
struct Service {
    child: Child,
    manager: UnixDatagram,
    /// The first line that it prints.
    line: String,
}

/// The kinds of sockets.
enum Manager<'a> {
    At(&'a Path),
    Abstract(String),
}

impl Service {
    /// Starts a process, and waits until it reports that it is ready.
    fn start(dir: &TempDir, manager: Manager<'_>, args: &[&str]) -> Service {
        let (socket, name) = match manager {
            Manager::At(path) => {
                (UnixDatagram::bind(path).unwrap(), path.to_str().unwrap().to_owned())
            }
            Manager::Abstract(name) => {
                let address = SocketAddr::from_abstract_name(&name).unwrap();
                (UnixDatagram::bind_addr(&address).unwrap(), format!("@{name}"))
            }
        };
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PERCOLATOR_") {
                command.env_remove(name);
            }
        }
        command.args(args).env("NOTIFY_SOCKET", name).env("XDG_CONFIG_HOME", dir.path());
        command.current_dir(dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let mut service = Service { child, manager: socket, line: String::new() };
        assert_eq!(service.report(), "READY=1\n", "{args:?}");
        let stdout = service.child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut service.line).unwrap();
        service
    }

    /// Waits for the next report.
    fn report(&self) -> String {
        let mut bytes = [0; 64];
        let length = self.manager.recv(&mut bytes).expect("a report");
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    fn address(&self) -> &str {
        self.line.trim_end()
    }

    /// Asks the process to end. It must report that, and end well.
    fn stop(mut self) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        assert_eq!(self.report(), "STOPPING=1\n");
        assert!(self.child.wait().unwrap().success());
        self.manager.set_nonblocking(true).unwrap();
        assert!(self.manager.recv(&mut [0; 64]).is_err(), "there is one report of each kind");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Asserts that a server of gRPC answers: it begins with its settings of HTTP/2.
fn assert_answers(address: &str) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).unwrap();
    assert_eq!(frame[3], 4, "a frame of settings: {frame:?}");
}

/// The answer to a request of HTTP.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The address of the metrics, which a process prints before it is ready.
fn metrics(stderr: ChildStderr) -> String {
    let lines = BufReader::new(stderr).lines().map(Result::unwrap);
    let mut found =
        lines.filter_map(|line| Some(line.split_once("metrics  http://")?.1.to_owned()));
    found.next().unwrap().strip_suffix("/metrics").unwrap().to_owned()
}

#[test]
fn servers_and_a_worker_report_that_they_serve_and_that_they_end() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let data = at("table");
    let table = ["serve", "table", "--listen", "127.0.0.1:0", "--durability", "buffered", "--data"];
    let table = [&table[..], &[data.to_str().unwrap()]].concat();
    let table = Service::start(&dir, Manager::At(&at("table.sock")), &table);
    assert_answers(table.address());

    let store = format!("bigtable://{}/p/i", table.address());
    let oracle = ["serve", "oracle", "--listen", "127.0.0.1:0", "--store", &store];
    let oracle = Service::start(&dir, Manager::At(&at("oracle.sock")), &oracle);
    assert_answers(oracle.address());

    let cluster = ["--store", &store, "--oracle", oracle.address()];
    let worker = ["worker", "--app", "webindex", "--metrics", "127.0.0.1:0"];
    let name = format!("percolator-test-{}", std::process::id());
    let worker = [&worker[..], &cluster].concat();
    let mut worker = Service::start(&dir, Manager::Abstract(name), &worker);
    assert!(worker.line.starts_with("worker "), "{}", worker.line);
    let metrics = metrics(worker.child.stderr.take().unwrap());
    for path in ["/healthz", "/readyz"] {
        let answer = get(&metrics, path);
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
    worker.stop();
    oracle.stop();
    table.stop();
}

#[test]
fn a_manager_that_is_gone_hinders_no_server() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gone.sock");
    let data = dir.path().join("table");
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    command.args(["serve", "table", "--listen", "127.0.0.1:0", "--data"]).arg(&data);
    command.env("NOTIFY_SOCKET", &path).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_answers(line.trim_end());
    let pid = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let stderr = String::from_utf8(output.stderr).unwrap();
    // A stop during the silence after the start reports no READY.
    assert!((1..=2).contains(&stderr.matches("not_reported").count()), "{stderr}");
}
