//! Tests a cluster of local processes: starting, looking at, breaking and ending it.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// How long a test waits for other processes before it gives up.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A cluster in a directory of its own, ended with the test.
struct Cluster {
    dir: TempDir,
}

struct Ran {
    stdout: String,
    stderr: String,
    status: i32,
}

fn run(args: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PERCOLATOR_") {
            command.env_remove(name);
        }
    }
    let output = command.args(args).output().unwrap();
    Ran {
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        status: output.status.code().unwrap_or(-1),
    }
}

impl Ran {
    #[track_caller]
    fn with(self, status: i32) -> Self {
        assert_eq!(self.status, status, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    fn refused(self, status: i32, what: &str) {
        let ran = self.with(status);
        assert!(ran.stderr.contains(what) && ran.stderr.contains("help: "), "{}", ran.stderr);
    }
}

impl Cluster {
    fn data(&self) -> PathBuf {
        self.dir.path().join("cluster")
    }

    fn cluster(&self, command: &str, more: &[&str]) -> Ran {
        let data = self.data();
        let mut args = vec!["cluster", command, "--data", data.to_str().unwrap()];
        args.extend(more);
        run(&args)
    }

    /// Runs a script of transactions, which must end with this status.
    #[track_caller]
    fn tx(&self, script: &str, status: i32) -> Ran {
        let file = self.dir.path().join("script");
        std::fs::write(&file, script).unwrap();
        self.on(&["tx", file.to_str().unwrap()]).with(status)
    }

    /// Runs a command on the cluster.
    fn on(&self, args: &[&str]) -> Ran {
        let config = self.data().join("percolator.toml");
        run(&[args, &["--config", config.to_str().unwrap()]].concat())
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.cluster("status", &["--json"]).stdout).unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.cluster("down", &[]);
    }
}

fn kill_nine(run_file: &Path) {
    let pid = std::fs::read_to_string(run_file).unwrap();
    let kill = Command::new("sh").args(["-c", &format!("kill -9 {pid}")]).status().unwrap();
    assert!(kill.success());
}

#[test]
fn a_cluster_is_started_loaded_broken_mended_and_ended() {
    let cluster = Cluster { dir: tempfile::tempdir().unwrap() };
    let site = cluster.dir.path().join("site");
    std::fs::create_dir(&site).unwrap();
    std::fs::write(
        site.join("a.html"),
        "<title>Cod</title><p>A fish of <a href=b.html>the sea</a>.",
    )
    .unwrap();
    cluster.cluster("up", &["--workers", "1", "--durability", "buffered"]).with(0);
    let status = cluster.status();
    assert_eq!((&status["well"], status["processes"].as_array().unwrap().len()), (&true.into(), 4));

    let (site, base) = (site.to_str().unwrap(), "https://fish.example/");
    cluster.on(&["webindex", "load", site, "--base", base]).with(0);
    cluster.on(&["set", "Bob", "bal", "10", "--table", "accounts"]).with(0);

    // `status` reports a process that was killed. The next `up` starts it again, with all its
    // data.
    kill_nine(&cluster.data().join("run/table"));
    assert_eq!(cluster.status()["well"], Value::from(false));
    cluster.cluster("status", &[]).with(1);
    cluster.cluster("up", &[]).with(0);
    assert_eq!(cluster.status()["well"], Value::from(true));
    let bob = cluster.on(&["get", "Bob", "bal", "--table", "accounts"]).with(0);
    assert!(bob.stdout.contains("10"), "{}", bob.stdout);
    cluster.on(&["wait"]).with(0);
    assert!(cluster.on(&["webindex", "search", "fish"]).with(0).stdout.contains("Cod"));
    cluster.on(&["webindex", "verify"]).with(0);

    // Changes that a running cluster cannot make are refused.
    cluster.cluster("up", &["--store", "bigtable://h:1/p/i"]).refused(2, "neither can be changed");
    cluster.cluster("up", &["--workers", "0"]).refused(2, "worker-1 runs");
    cluster.cluster("up", &["--durability", "sync"]).refused(2, "table runs already");

    cluster.cluster("down", &[]).with(0);
    let states: Vec<Value> = cluster.status()["processes"].as_array().unwrap().clone();
    assert!(states.iter().all(|process| process["pid"].is_null()), "{states:?}");
    // Ending the cluster again is no error.
    cluster.cluster("down", &[]).with(0);
}

/// A process that stands still until this is dropped.
#[cfg(target_os = "linux")]
struct Stopped(String);

#[cfg(target_os = "linux")]
impl Stopped {
    fn new(run_file: &Path) -> Self {
        let pid = std::fs::read_to_string(run_file).unwrap();
        assert!(Command::new("kill").args(["-STOP", &pid]).status().unwrap().success());
        Stopped(pid)
    }
}

#[cfg(target_os = "linux")]
impl Drop for Stopped {
    fn drop(&mut self) {
        // Otherwise `cluster down` would wait for it.
        let _ = Command::new("kill").args(["-CONT", &self.0]).status();
    }
}

/// The state of one process in the status of a cluster.
fn state(status: &Value, role: &str) -> String {
    let processes = status["processes"].as_array().unwrap();
    let process = processes.iter().find(|process| process["role"] == role).unwrap();
    process["state"].as_str().unwrap().to_owned()
}

#[cfg(target_os = "linux")]
#[test]
fn a_process_that_stands_still_differs_from_one_that_runs_and_the_writer_is_named() {
    let cluster = Cluster { dir: tempfile::tempdir().unwrap() };
    cluster.cluster("up", &["--workers", "2", "--durability", "buffered"]).with(0);
    let site = cluster.dir.path().join("site");
    std::fs::create_dir(&site).unwrap();
    std::fs::write(site.join("a.html"), "<title>Cod</title><p>A fish.").unwrap();
    let load = ["webindex", "load", site.to_str().unwrap(), "--base", "https://fish.example/"];
    cluster.on(&load).with(0);

    let status = cluster.status();
    let processes = status["processes"].as_array().unwrap();
    let writers: Vec<_> =
        processes.iter().filter(|process| process["writes_search"] == true).collect();
    assert_eq!(writers.len(), 1, "{status}");
    assert_eq!(writers[0]["pid"], status["writer"]["process"]);
    let writer = writers[0]["role"].as_str().unwrap().to_owned();
    let shown = cluster.cluster("status", &[]).with(0).stdout;
    assert!(shown.contains("writes the search index"), "{shown}");

    for role in [writer.as_str(), "oracle-1", "oracle-2", "table"] {
        let stopped = Stopped::new(&cluster.data().join("run").join(role));
        let begun = Instant::now();
        let ran = cluster.cluster("status", &["--json"]).with(1);
        // Two seconds for an answer, and three for what the store does not say.
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
        let status: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!((state(&status, role).as_str(), &status["well"]), ("hangs", &false.into()));
        drop(stopped);
    }
    let shown = cluster.cluster("status", &[]);
    assert!(!shown.stdout.contains("hangs"), "{}", shown.stdout);
}

/// The health of a worker follows its store.
#[test]
fn a_worker_answers_about_its_health() {
    let cluster = Cluster { dir: tempfile::tempdir().unwrap() };
    cluster.cluster("up", &["--workers", "0", "--durability", "buffered"]).with(0);
    let config = cluster.data().join("percolator.toml");
    let worker = ["worker", "--app", "webindex", "--health", "127.0.0.1:0", "--config"];
    let args = [&worker[..], &[config.to_str().unwrap()]].concat();
    let (mut worker, _) = start(&args, Stdio::piped());
    let listens = lines_with(worker.0.stderr.take().unwrap(), "health   127.0.0.1:");
    let line = listens.recv_timeout(WAIT_MAX).unwrap();
    let address = line.rsplit_once(' ').unwrap().1.parse().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let becomes = |wanted: bool| {
        let begun = Instant::now();
        while runtime.block_on(percolator_rpc::health::serves(address, "")) != Ok(wanted) {
            assert!(begun.elapsed() < WAIT_MAX, "it never becomes {wanted}");
        }
    };
    becomes(true);
    kill_nine(&cluster.data().join("run/table"));
    becomes(false);
    cluster.cluster("up", &[]).with(0);
    becomes(true);
}

/// `commit` returns before its secondaries are committed; the command ends only afterwards.
#[test]
fn a_script_leaves_no_lock_behind_however_it_ends() {
    let cluster = Cluster { dir: tempfile::tempdir().unwrap() };
    cluster.cluster("up", &["--workers", "0", "--durability", "buffered"]).with(0);
    let rows = |name: &str, value: &str| -> String {
        (0..200).map(|n| format!("{name}: set row-{n:03} bal {value}\n")).collect()
    };
    let commit =
        |name: &str, value: &str| format!("{name}: begin\n{}{name}: commit\n", rows(name, value));
    let late = format!("late: begin\n{}", rows("late", "0"));
    let scripts = [
        ("a commit", commit("a", "1"), 0, "1"),
        ("an abort", format!("a: begin\n{}a: abort\n", rows("a", "2")), 0, "1"),
        ("an aborted commit", format!("{late}{}late: commit\n", commit("a", "3")), 1, "3"),
        ("an error", format!("{}{late}late: set \u{1}", commit("a", "4")), 2, "3"),
        ("an error in its course", format!("{}b: get row-000 bal\n", commit("a", "5")), 2, "5"),
        ("the end of its input", format!("{}{late}", commit("a", "6")), 0, "6"),
    ];
    for (end, script, status, value) in scripts {
        cluster.tx(&script, status);
        let locks = cluster.on(&["locks", "ls", "--json"]).with(0);
        let locks: Value = serde_json::from_str(&locks.stdout).unwrap();
        assert_eq!(locks.as_array().map(Vec::len), Some(0), "after {end}");
        for row in ["row-000", "row-199"] {
            let found = cluster.on(&["get", row, "bal"]).with(0);
            assert_eq!(found.stdout, format!("{value}\n"), "{row} after {end}");
        }
    }
    // A check that locks would be found: the single steps of a commit leave some.
    cluster.tx("begin\nset row-000 bal 7\nprewrite\ncrash\n", 0);
    let locks = cluster.on(&["locks", "ls", "--json"]).with(0);
    assert!(locks.stdout.contains("row-000"), "{}", locks.stdout);
}

#[test]
fn what_cannot_be_reached_or_is_not_named_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    run(&["cluster", "status", "--data", data]).refused(2, "holds no cluster");
    let file = dir.path().join("percolator.toml");
    let config = file.to_str().unwrap();
    run(&["get", "Bob", "bal", "--config", config]).refused(2, "percolator.toml");
    std::fs::write(&file, "oracles = [\"127.0.0.1:1\"]").unwrap();
    run(&["get", "Bob", "bal", "--config", config]).refused(2, "no store");
    run(&["worker", "--app", "webindex", "--config", config]).refused(2, "no store");
    std::fs::write(&file, "store = \"bigtable://h:1/p/i\"").unwrap();
    run(&["get", "Bob", "bal", "--config", config]).refused(2, "no oracles");
    run(&["worker", "--app", "webindex", "--config", config, "--locks", "etcd"])
        .refused(2, "not the address of a lock service");
    run(&["get", "Bob", "bal", "--config", config, "--data", data]).refused(2, "two stores");
    run(&["serve", "oracle", "--listen", "127.0.0.1:0"]).refused(2, "no store is named");
    run(&["serve", "oracle", "--store", "127.0.0.1:1"]).refused(2, "--store");
    // A mistake leaves nothing behind that would hinder the next command.
    let new = dir.path().join("new");
    run(&["cluster", "up", "--data", new.to_str().unwrap(), "--locks", "x"])
        .refused(2, "not the address of a lock service");
    assert!(!new.exists());
    std::fs::write(dir.path().join("thesis.txt"), "x").unwrap();
    run(&["cluster", "up", "--data", data]).refused(2, "holds no cluster");
}

/// No process listens at the address. The command must fail within the client's patience instead
/// of waiting for ever.
#[test]
fn a_store_that_is_not_there_is_reported_soon() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("percolator.toml");
    let settings = "store = \"bigtable://127.0.0.1:1/p/i\"\noracles = [\"127.0.0.1:1\"]";
    std::fs::write(&file, settings).unwrap();
    let begun = std::time::Instant::now();
    run(&["get", "Bob", "bal", "--config", file.to_str().unwrap()]).refused(4, "unavailable");
    assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
}

/// A command that runs until this is dropped, and the first line that it prints.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts a command whose standard output is a pipe, and reads its first line.
fn start(args: &[&str], stderr: Stdio) -> (Running, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    let mut child = command.args(args).stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (Running(child), line.trim().to_owned())
}

/// A console of the cluster, and its URL with its token. A pipe gets the token's file alone.
fn console(config: &Path) -> (Running, String) {
    let config = config.to_str().unwrap();
    let args = ["console", "--listen", "127.0.0.1:0", "--quiet", "--config", config];
    let (console, line) = start(&args, Stdio::inherit());
    let (page, file) = line.split_once("  (its token is in ").unwrap();
    let token = std::fs::read_to_string(file.strip_suffix(')').unwrap()).unwrap();
    assert!(!line.contains(&token), "{line}");
    (console, format!("{page}#t={token}"))
}

/// Asks a console for JSON.
fn ask(url: &str, path: &str) -> Value {
    let (page, token) = url.split_once("/#t=").unwrap();
    let host = page.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let head = format!("Host: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close");
    stream.write_all(format!("GET {path} HTTP/1.1\r\n{head}\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    serde_json::from_str(body).unwrap()
}

/// The roles of the processes that a console lists, sorted.
fn roles(url: &str) -> Vec<String> {
    let listed = ask(url, "/api/v1/processes");
    let role = |process: &Value| process["role"].as_str().unwrap().to_owned();
    let mut roles: Vec<String> = listed.as_array().unwrap().iter().map(role).collect();
    roles.sort();
    roles
}

/// Waits until a console lists these. Whether a process lives is decided by the time that its token
/// has been unchanged, so there is no other way than to look again.
fn wait_for_roles(url: &str, wanted: &[&str]) {
    let begun = Instant::now();
    while roles(url) != wanted {
        assert!(begun.elapsed() < WAIT_MAX, "{:?}", roles(url));
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn one_console_lists_all_processes_and_a_killed_one_is_gone_soon() {
    let cluster = Cluster { dir: tempfile::tempdir().unwrap() };
    cluster.cluster("up", &["--workers", "3", "--durability", "buffered"]).with(0);
    let (_console, url) = console(&cluster.data().join("percolator.toml"));
    let all = ["console", "oracle", "oracle", "table", "worker", "worker", "worker"];
    wait_for_roles(&url, &all);
    let table = ask(&url, "/api/v1/processes");
    let pids: BTreeSet<u64> =
        table.as_array().unwrap().iter().map(|p| p["pid"].as_u64().unwrap()).collect();
    assert_eq!(pids.len(), all.len(), "{table}");

    kill_nine(&cluster.data().join("run/worker-2"));
    let begun = Instant::now();
    wait_for_roles(&url, &["console", "oracle", "oracle", "table", "worker", "worker"]);
    // A token lives for six seconds, and the console looks at it since it began.
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
}

#[test]
fn servers_show_their_metrics_only_where_they_know_the_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let data = data.to_str().unwrap();
    let table = ["serve", "table", "--data", data, "--listen", "127.0.0.1:0"];
    run(&[&table[..], &["--metrics", "127.0.0.1:0"]].concat()).refused(2, "belongs to none");
    let config = dir.path().join("percolator.toml");
    std::fs::write(
        &config,
        "store = \"bigtable://127.0.0.1:1/p/i\"\noracles = [\"127.0.0.1:2\"]\n",
    )
    .unwrap();
    let oracle = ["serve", "oracle", "--data", data, "--config", config.to_str().unwrap()];
    run(&oracle).refused(2, "two stores");
}

/// The lines of a text that contain a part. Another thread reads on, so that the writer never
/// waits.
fn lines_with(lines: impl Read + Send + 'static, part: &'static str) -> Receiver<String> {
    let (found, finding) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(lines).lines().map_while(Result::ok) {
            if line.contains(part) {
                drop(found.send(line));
            }
        }
    });
    finding
}

/// No cluster is at the addresses of the settings.
#[test]
fn a_server_does_not_start_without_its_metrics_and_serves_without_its_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let (data, config) = (dir.path().join("data"), dir.path().join("percolator.toml"));
    let settings = "store = \"bigtable://127.0.0.1:1/p/i\"\noracles = [\"127.0.0.1:2\"]\n";
    std::fs::write(&config, settings).unwrap();
    let (data, config) = (data.to_str().unwrap(), config.to_str().unwrap());
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().to_string();
    let table = ["serve", "table", "--data", data, "--listen", "127.0.0.1:0", "--config", config];
    let args = [&table[..], &["--metrics", &taken]].concat();
    let (mut server, address) = start(&args, Stdio::piped());
    assert_eq!(address, "", "it serves");
    let refused = lines_with(server.0.stderr.take().unwrap(), "cannot listen at");
    refused.recv_timeout(WAIT_MAX).unwrap();
    assert_eq!(server.0.wait().unwrap().code(), Some(2));

    let (mut server, address) = start(&table, Stdio::piped());
    let tries = lines_with(server.0.stderr.take().unwrap(), "not_joined");
    for _ in 0..2 {
        tries.recv_timeout(WAIT_MAX).unwrap();
    }
    TcpStream::connect(address).unwrap();
    assert_eq!(server.0.try_wait().unwrap(), None);
}
