//! Tests `percolator serve table` with Google's `cbt` and Google's clients for Python and Node,
//! and kill -9 in between. A test prints SKIPPED where these programs are not installed.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// The server in a process of its own, which is killed with kill -9 when this value is dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(data: &Path) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_percolator"))
            .args(["serve", "table", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        assert!(address.starts_with("127.0.0.1:"), "it says where it listens: {address:?}");
        Server { child, address: address.trim_end().to_owned() }
    }

    /// Runs a client; `None` if it is not installed.
    fn client(&self, program: &str, args: &[&str]) -> Option<Output> {
        let mut command = Command::new(program);
        command.args(args).env("BIGTABLE_EMULATOR_HOST", &self.address);
        // Otherwise the client for Node looks for credentials of a machine of Google's.
        command.env("METADATA_SERVER_DETECTION", "none");
        match command.output() {
            Ok(output) => Some(output),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => panic!("{program}: {error}"),
        }
    }

    #[track_caller]
    fn cbt(&self, args: &str) -> String {
        let words: Vec<_> = "-project p -instance i".split(' ').chain(args.split(' ')).collect();
        let output = self.client("cbt", &words).expect("cbt was there a moment ago");
        assert!(output.status.success(), "cbt {args}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn skipped(what: &str) {
    // The test harness captures the output of print macros, so this line goes to stderr directly.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what} is not installed");
}

#[test]
fn cbt_finds_its_table_again_after_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Server::start(&data);
    if server.client("cbt", &["help"]).is_none() {
        return skipped("cbt (Google Cloud CLI, package google-cloud-cli-cbt)");
    }
    server.cbt("createtable t families=f");
    server.cbt("set t r1 f:q=one");
    server.cbt("set t r2 f:q=two");
    let (read, lookup) = (server.cbt("read t"), server.cbt("lookup t r1"));
    assert!(read.contains("\"one\"") && read.contains("\"two\""), "{read}");
    assert!(lookup.contains("\"one\"") && !lookup.contains("\"two\""), "{lookup}");
    assert_eq!(server.cbt("count t").trim(), "2");
    drop(server);

    let server = Server::start(&data);
    assert_eq!((server.cbt("read t"), server.cbt("lookup t r1")), (read, lookup));
    assert_eq!(server.cbt("count t").trim(), "2");
    server.cbt("deletetable t");
    assert_eq!(server.cbt("ls").trim(), "");
    drop(server);

    let server = Server::start(&data);
    assert_eq!(server.cbt("ls").trim(), "", "what was deleted stays deleted");
}

#[test]
fn googles_python_client_is_content() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"));
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let probe = server.client(&python, &["-c", "import google.cloud.bigtable"]);
    if !probe.is_some_and(|output| output.status.success()) {
        return skipped("google-cloud-bigtable for python3 (PYTHON names another interpreter)");
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../bigtable-grpc/tests/python_client.py");
    let output = server.client(&python, &[script]).expect("python was there a moment ago");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn googles_node_client_is_content() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bigtable-grpc/tests/node");
    let is_there = folder.join("node_modules/@google-cloud/bigtable").is_dir();
    if !is_there || server.client("node", &["--version"]).is_none() {
        return skipped(
            "Google's client for Node (npm ci --prefix crates/bigtable-grpc/tests/node)",
        );
    }
    let script = folder.join("client.mjs");
    let output = server.client("node", &[script.to_str().unwrap()]).expect("node was there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
