//! Tests the server as a process of its own, which Google's `cbt` and Python client use, and
//! which is killed in between. Without these programs, the test reports that it was skipped.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::*;

/// Environment variable that gives the child its data directory.
const DATA: &str = "BIGTABLE_GRPC_TEST_DATA";

/// No test, but the child process, which serves until it is killed.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DATA) else { return };
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let server = Server::open(PathBuf::from(dir), Options::default()).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("\naddress {}", listener.local_addr().unwrap());
        server.serve(listener, std::future::pending()).await.unwrap();
    });
}

/// A server process. Dropping it kills it, as `kill -9` does.
struct Process {
    child: Child,
    address: String,
}

impl Process {
    fn start(dir: &Path) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["server::tests::processes::child", "--exact", "--nocapture"])
            .env(DATA, dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut addresses = lines
            .map_while(Result::ok)
            .filter_map(|line| line.strip_prefix("address ").map(ToOwned::to_owned));
        let address = addresses.next().expect("the child says where it listens");
        Process { child, address }
    }

    /// Runs a client; `None` if it is not installed.
    fn client(&self, program: &str, args: &[&str]) -> Option<std::process::Output> {
        let mut command = Command::new(program);
        command.args(args).env("BIGTABLE_EMULATOR_HOST", &self.address);
        match command.output() {
            Ok(output) => Some(output),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => panic!("{program}: {error}"),
        }
    }

    #[track_caller]
    fn cbt(&self, args: &str) -> String {
        let words: Vec<_> = "-project p -instance i".split(' ').chain(args.split(' ')).collect();
        let output = self.client("cbt", &words).expect("cbt was there a moment ago");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "cbt {args}: {output:?}");
        text
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Clients write, each its own rows, until the server is killed. Acknowledged rows must then
/// exist, and each row must be complete.
#[tokio::test]
async fn acknowledged_mutations_survive_kill_9() {
    const CLIENTS: usize = 4;
    const ACKNOWLEDGED: usize = 200;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let process = Process::start(&data);
    let mut world = World::connect(&process.address).await;
    world.create("t", &["a", "lock", "write"]).await.unwrap();
    let (acknowledge, mut acknowledged) = tokio::sync::mpsc::unbounded_channel();
    for client in 0..CLIENTS {
        let mut data = world.data.clone();
        let acknowledge = acknowledge.clone();
        tokio::spawn(async move {
            for row in 0.. {
                let row = format!("{client}-{row}");
                let columns = ["a:q", "lock:q", "write:q"];
                let request = MutateRowRequest {
                    table_name: TABLE.to_owned(),
                    row_key: row.clone().into(),
                    mutations: columns.map(|column| set(column, 1000, "v")).to_vec(),
                    ..MutateRowRequest::default()
                };
                if data.mutate_row(request).await.is_err() || acknowledge.send(row).is_err() {
                    return;
                }
            }
        });
    }
    drop(acknowledge);
    let mut rows = Vec::new();
    while rows.len() < ACKNOWLEDGED {
        rows.push(acknowledged.recv().await.expect("the clients go on"));
    }
    drop(process);
    while let Some(row) = acknowledged.recv().await {
        rows.push(row);
    }

    let process = Process::start(&data);
    let mut world = World::connect(&process.address).await;
    let cells = world.all().await;
    let mut whole = std::collections::BTreeMap::new();
    for cell in &cells {
        *whole.entry(cell.split('/').next().unwrap_or_default()).or_insert(0) += 1;
    }
    for row in &rows {
        assert_eq!(whole.get(row.as_str()), Some(&3), "row {row} was acknowledged");
    }
    assert!(whole.values().all(|count| *count == 3), "a row is there in part");
}

pub(super) fn skipped(what: &str) {
    // The macros' output is captured, so this writes to standard error directly.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what} is not installed");
}

#[test]
fn cbt_finds_everything_again_after_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let process = Process::start(&data);
    if process.client("cbt", &["help"]).is_none() {
        return skipped("cbt (Google Cloud CLI, package google-cloud-cli-cbt)");
    }
    process.cbt("createtable t families=a,lock:maxversions=3");
    process.cbt("createfamily t write");
    process.cbt("set t r1 a:x=one lock:y=two write:z=three");
    process.cbt("set t r2 a:x=four");
    let (read, schema) = (process.cbt("read t"), process.cbt("ls t"));
    assert!(read.contains("\"three\"") && schema.contains("versions() > 3"), "{read}{schema}");
    drop(process);

    let process = Process::start(&data);
    assert_eq!((process.cbt("read t"), process.cbt("ls t")), (read, schema));
    assert!(process.cbt("lookup t r2").contains("\"four\""));
    assert_eq!(process.cbt("count t").trim(), "2");
    process.cbt("setgcpolicy t lock never");
    assert!(!process.cbt("ls t").contains("versions()"), "the rule is gone");
    process.cbt("deleterow t r1");
    process.cbt("deletefamily t lock");
    assert_eq!(process.cbt("count t").trim(), "1");
    process.cbt("deletetable t");
    drop(process);

    let process = Process::start(&data);
    assert_eq!(process.cbt("ls").trim(), "");
}

#[test]
fn googles_python_client_is_content() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(&dir.path().join("data"));
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let probe = process.client(&python, &["-c", "import google.cloud.bigtable"]);
    if !probe.is_some_and(|output| output.status.success()) {
        return skipped("google-cloud-bigtable for python3 (PYTHON names another interpreter)");
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python_client.py");
    let output = process.client(&python, &[script]).expect("python was there a moment ago");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
