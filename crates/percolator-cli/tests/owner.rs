//! Tests commands on a directory that another process has open: that process runs them.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bigtable::layer::StoreLayer;
use bigtable::{MemoryStore, Store};
use bigtable_fjall::FjallStore;
use percolator::admin::LockFate;
use percolator::transaction::Prewritten;
use percolator::{Column, Durability, OpenOptions, Options, Percolator};
use percolator_cli::owner::{Listener, listen};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// How long a test waits for another process.
const PATIENCE: Duration = Duration::from_secs(60);

const BAL: Column = Column::literal("bal");

/// The output of a run, and its exit status.
#[derive(Debug, PartialEq)]
struct Ran {
    stdout: String,
    stderr: String,
    status: Option<i32>,
}

impl Ran {
    #[track_caller]
    fn with(self, status: i32) -> Self {
        assert_eq!(self.status, Some(status), "{self:?}");
        self
    }

    #[track_caller]
    fn says(self, what: &str) -> Self {
        assert!(self.stderr.contains(what), "{what:?} is missing: {}", self.stderr);
        self
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).expect(&self.stdout)
    }

    /// Removes what differs from run to run: numbers, and the widths of columns.
    fn masked(self) -> Self {
        let mask = |text: &str| {
            let mut out = String::new();
            for c in text.chars().map(|c| match c {
                '0'..='9' | '.' => '#',
                '─' => ' ',
                c => c,
            }) {
                if !(matches!(c, '#' | ' ') && out.ends_with(c)) {
                    out.push(c);
                }
            }
            out
        };
        Ran { stdout: mask(&self.stdout), stderr: mask(&self.stderr), status: self.status }
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Ran {
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            status: output.status.code(),
        }
    }
}

/// A directory, and the command at work on it.
struct Shell {
    root: TempDir,
}

impl Shell {
    fn new() -> Self {
        Shell { root: tempfile::tempdir().unwrap() }
    }

    fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    fn socket(&self) -> PathBuf {
        self.data().join("owner.sock")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
        for variable in ["PERCOLATOR_DATA", "NO_COLOR", "CLICOLOR_FORCE"] {
            command.env_remove(variable);
        }
        command.args(words).arg("--data").arg(self.data()).stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Ran {
        self.command(words).output().unwrap().into()
    }

    /// Writes a script to a file, in a directory that only the command uses.
    fn script(&self, text: &str) -> Command {
        let dir = self.root.path().join("scripts");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("script"), text).unwrap();
        let mut command = self.command(&["tx", "script"]);
        command.current_dir(dir);
        command
    }

    fn tx(&self, text: &str) -> Ran {
        self.script(text).output().unwrap().into()
    }

    /// Twenty thousand rows.
    fn fill(&self) {
        let rows: String = (0..20_000).map(|i| format!("set row{i:05} bal 1\n")).collect();
        let mut command = self.script(&format!("begin\n{rows}commit\n"));
        Ran::from(command.arg("-q").output().unwrap()).with(0);
    }

    /// Starts a command that has the directory open until it is killed, or its output is read.
    fn holder(&self) -> (Running, BufReader<ChildStdout>) {
        let (holder, mut rows) = start(self.command(&["scan"]));
        let mut first = String::new();
        rows.read_line(&mut first).unwrap();
        assert_eq!(first, "row00000\tbal\t1\n");
        (holder, rows)
    }
}

/// A process that ends with the test, also if that fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a process whose output is read line by line.
fn start(mut command: Command) -> (Running, BufReader<ChildStdout>) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    (Running(child), lines)
}

/// This process as the owner of a directory.
struct Owner {
    runtime: Runtime,
    db: Percolator,
    listener: Option<Listener>,
}

impl Owner {
    fn of(dir: &Path) -> Owner {
        let runtime = Runtime::new().unwrap();
        let options = OpenOptions { durability: Durability::Buffered, ..OpenOptions::default() };
        let (db, listener) = runtime.block_on(async {
            let db = Percolator::open_with(dir, options).await.unwrap();
            let listener = listen(&db, dir).unwrap();
            (db, Some(listener))
        });
        Owner { runtime, db, listener }
    }

    fn on<T>(&self, work: impl AsyncFnOnce(&Percolator) -> T) -> T {
        self.runtime.block_on(work(&self.db))
    }

    fn close(mut self) {
        self.runtime.block_on(async {
            self.listener.take().unwrap().close().await;
            self.db.close().await.unwrap();
        });
    }
}

/// Waits until a condition holds.
#[track_caller]
fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is() {
        assert!(since.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
}

// ---- Another command has the directory ----------------------------------------------------------

#[test]
fn commands_are_answered_while_another_command_has_the_directory() {
    let shell = Shell::new();
    shell.fill();
    let (mut holder, mut rows) = shell.holder();
    assert!(fs::metadata(shell.socket()).unwrap().file_type().is_socket());
    shell.run(&["set", "Bob", "bal", "$10"]).with(0).says("1 cell written by transaction");
    assert_eq!(shell.run(&["get", "Bob", "bal"]).with(0).stdout, "$10\n");
    let ran = shell.tx("begin\nget Bob bal\nset Bob bal $3\ncommit\n").with(0);
    assert!(ran.stdout.starts_with("begin -> begun @ ") && ran.stdout.contains("-> $10\n"));
    assert_eq!(shell.run(&["scan", "--prefix", "B"]).with(0).stdout, "Bob\tbal\t$3\n");
    assert_eq!(shell.run(&["scan"]).with(0).stdout.lines().count(), 20_001);
    shell.run(&["delete", "Bob"]).with(0).says("1 cell deleted");
    shell.run(&["get", "Bob"]).with(1).says("error: no row Bob");
    // The command that has the directory open does not know these tables and observers.
    let mut rest = String::new();
    rows.read_to_string(&mut rest).unwrap();
    assert_eq!(rest.lines().count(), 19_999);
    assert_eq!(holder.0.wait().unwrap().code(), Some(0));
    assert!(!shell.socket().exists(), "the socket goes with its owner");
    assert_eq!(shell.run(&["cell", "Bob", "bal"]).with(0).stdout.matches("data @").count(), 2);
}

#[test]
fn commands_that_need_the_directory_for_themselves_name_the_process_that_has_it() {
    let shell = Shell::new();
    shell.fill();
    let (mut holder, rows) = shell.holder();
    let name = format!("is open in `percolator scan --data {}`", shell.data().display());
    let pid = format!("(pid {})", holder.0.id());
    let site = shell.root.path().to_str().unwrap();
    for words in [
        &["webindex", "load", site, "--base", "https://a.example/"][..],
        &["webindex", "verify"],
        &["webindex", "rank"],
        &["serve", "table", "--listen", "127.0.0.1:0"],
        &["serve", "oracle", "--listen", "127.0.0.1:0"],
        &["demo", site],
    ] {
        let ran =
            shell.run(words).with(2).says(&name).says(&pid).says("wait until that process ends");
        assert_eq!(ran.stdout, "");
    }
    let mut check = Command::new(env!("CARGO_BIN_EXE_percolator"));
    let ran = Ran::from(check.arg("check").arg(shell.data()).output().unwrap());
    ran.with(2).says(&name).says(&pid);
    holder.0.kill().unwrap();
    holder.0.wait().unwrap();
    drop(rows);
}

#[test]
fn a_table_server_says_that_it_runs_no_commands() {
    let shell = Shell::new();
    let (_server, mut lines) = start(shell.command(&["serve", "table", "--listen", "127.0.0.1:0"]));
    lines.read_line(&mut String::new()).unwrap();
    let ran = shell.run(&["get", "Bob"]).with(2);
    ran.says("is open in `percolator serve table").says("--config FILE");
}

#[test]
fn what_a_killed_owner_leaves_is_in_nobodys_way() {
    let shell = Shell::new();
    shell.fill();
    let (mut holder, rows) = shell.holder();
    holder.0.kill().unwrap();
    holder.0.wait().unwrap();
    drop(rows);
    assert!(shell.socket().exists());
    let mut check = Command::new(env!("CARGO_BIN_EXE_percolator"));
    Ran::from(check.arg("check").arg(shell.data()).output().unwrap()).with(0);
    // The next owner listens at the socket.
    let (mut holder, mut rows) = shell.holder();
    assert_eq!(shell.run(&["get", "row00007", "bal"]).with(0).stdout, "1\n");
    rows.read_to_string(&mut String::new()).unwrap();
    assert_eq!(holder.0.wait().unwrap().code(), Some(0));
    assert!(!shell.socket().exists());
}

#[test]
fn without_a_place_for_a_socket_a_command_warns_and_works() {
    let shell = Shell::new();
    shell.run(&["set", "Bob", "bal", "$10"]).with(0);
    fs::create_dir_all(shell.socket().join("in the way")).unwrap();
    let file = shell.root.path().join("file");
    fs::write(&file, "").unwrap();
    let get = |runtime: &Path| -> Ran {
        let mut get = shell.command(&["get", "Bob", "bal"]);
        get.env("XDG_RUNTIME_DIR", runtime).env("TMPDIR", &file).output().unwrap().into()
    };
    let ran = get(&file).with(0);
    assert_eq!(ran.stdout, "$10\n");
    assert_eq!(ran.stderr.matches("WARN").count(), 1, "{}", ran.stderr);
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("owner.sock"), "{}", ran.stderr);
    // The runtime directory stands in for the directory.
    let runtime = shell.root.path().join("run");
    fs::create_dir(&runtime).unwrap();
    fs::set_permissions(&runtime, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    assert_eq!(get(&runtime).with(0).stderr, "");
}

// ---- Alike with and without an owner ------------------------------------------------------------

/// Commands that change nothing, and whether each prints the same every time.
const READS: &[(&[&str], bool)] = &[
    (&["get", "Bob"], true),
    (&["get", "Bob", "bal"], true),
    (&["get", "Bob", "--at", "3", "--json"], true),
    (&["get", "Nobody", "--at", "3"], true),
    (&["get", "Bob", "--table", "none"], true),
    (&["get", "Bob", "--at", "9999999999"], false),
    (&["get", "Bob", "b d"], true),
    (&["scan"], true),
    (&["scan", "--json"], true),
    (&["scan", "--start", "C", "-c", "bal", "--json"], true),
    (&["cell", "Bob", "bal", "--history"], true),
    (&["cell", "Bob", "bal", "--json"], true),
    (&["cell", "Joe", "bal"], true),
    (&["why", "Bob", "bal"], true),
    (&["why", "Bob", "bal", "--json"], false),
    (&["cell", "Nobody", "bal", "--color", "always"], true),
    (&["locks", "ls"], false),
    (&["locks", "ls", "--json"], false),
    (&["backlog"], true),
    (&["backlog", "--json"], true),
    (&["observers", "ls"], true),
    (&["observers", "ls", "--json"], true),
    (&["observers", "retire", "none", "--yes"], true),
    (&["observers", "retire", "parse"], true),
    (&["gc", "status"], false),
    (&["gc", "status", "--json"], false),
    (&["wait"], true),
    (&["wait", "--json", "--quiet"], true),
    (&["webindex", "search", "cod"], true),
    (&["webindex", "search", "cod", "--json"], true),
    (&["webindex", "page", "https://fish.example/b.html"], true),
    (&["webindex", "page", "https://fish.example/b.html", "--json"], true),
    (&["webindex", "page", "https://fish.example/none.html"], true),
    (&["webindex", "cluster", "https://fish.example/b.html"], true),
    (&["webindex", "cluster", "https://fish.example/b.html", "--json"], true),
    (&["webindex", "stats"], true),
    (&["webindex", "stats", "--json"], true),
];

/// A store with rows, a lock that a crash left, and a web index.
fn with_everything() -> Shell {
    let shell = Shell::new();
    let site = shell.root.path().join("site");
    fs::create_dir(&site).unwrap();
    fs::write(site.join("a.html"), "<title>Cod</title><p>A cod, see <a href=b.html>ling</a>.")
        .unwrap();
    for name in ["b", "c"] {
        fs::write(site.join(format!("{name}.html")), "<title>Ling</title><p>A long fish.").unwrap();
    }
    shell.tx("begin\nset Bob bal $10\nset Ann bal b64:AP8=\ncommit\n").with(0);
    shell.run(&["set", "Bob", "bal", "$3"]).with(0);
    shell.tx("begin\nset Joe bal $2\nprewrite\ncrash\n").with(0);
    let site = site.to_str().unwrap();
    shell.run(&["webindex", "load", site, "--base", "https://fish.example/"]).with(0);
    shell
}

#[test]
fn a_command_prints_the_same_in_the_owner() {
    let shell = with_everything();
    let runs = |shell: &Shell| -> Vec<Ran> {
        let one = |(words, exact): &(&[&str], bool)| {
            let ran = shell.run(words);
            if *exact { ran } else { ran.masked() }
        };
        READS.iter().map(one).collect()
    };
    let alone = runs(&shell);
    let owner = Owner::of(&shell.data());
    let asked = runs(&shell);
    owner.close();
    for ((words, _), (alone, asked)) in READS.iter().zip(alone.iter().zip(&asked)) {
        assert_eq!(asked, alone, "{words:?}");
    }
    let commands: std::collections::BTreeSet<&str> = READS
        .iter()
        .zip(&alone)
        .filter(|(_, ran)| ran.status == Some(0))
        .map(|((words, _), _)| words[0])
        .collect();
    assert_eq!(commands.len(), 10, "each of them must succeed once: {commands:?}");
}

#[test]
fn a_command_writes_the_same_in_the_owner() {
    let write = |shell: &Shell, row: &str| -> Vec<Ran> {
        let script = format!(
            "begin\nset {row} doc:text two words\nget {row} doc:text\nscan {row}\ncommit\n\
             a: begin\nb: begin\na: set {row} bal 1\nb: set {row} bal 2\na: commit\nb: commit\n\
             c: begin\nc: set {row} bal 3\nc: prewrite\nc: commit-primary\nc: commit-secondaries\n"
        );
        let mut json = shell.script(&script);
        vec![
            shell.run(&["set", row, "bal", "$10"]),
            shell.run(&["set", row, "bal", "$10", "--json"]),
            shell.run(&["set", row, "b d", "$10"]),
            shell.tx(&script),
            json.arg("--json").output().unwrap().into(),
            shell.tx(&format!("begin\nset {row} age 3\n")),
            shell.tx("commit\n"),
            shell.tx("hop\n"),
            shell.run(&["tx", "/no/such/script"]),
            shell.run(&["get", row]),
            shell.run(&["delete", row, "bal", "--json"]),
            shell.run(&["delete", row, "none"]),
            shell.run(&["delete", row]),
            shell.run(&["get", row]),
            shell.run(&["set", row, "bal", "$7", "--commit", "two-phases"]),
            shell.run(&["cell", row, "bal"]),
            shell.run(&["observers", "replay", "--json"]),
            shell.run(&["gc", "run", "--json"]),
        ]
    };
    let shell = Shell::new();
    let alone = write(&shell, "row1");
    let owner = Owner::of(&shell.data());
    let asked = write(&shell, "row2");
    owner.close();
    for (alone, asked) in alone.into_iter().zip(asked) {
        assert_eq!(asked.masked(), alone.masked());
    }
}

#[test]
fn events_and_remarks_reach_the_one_who_asks() {
    let shell = with_everything();
    let owner = Owner::of(&shell.data());
    let events = shell.root.path().join("events");
    // The reader of the row that a crash left locked rolls it back.
    let ran =
        shell.run(&["get", "Joe", "bal", "-vv", "--events", events.to_str().unwrap()]).with(1);
    assert!(ran.stderr.contains("percolator::resolve"), "{}", ran.stderr);
    let lines = fs::read_to_string(&events).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let resolved =
        |line: &Value| line["target"].as_str().unwrap().starts_with("percolator::resolve");
    assert!(lines.iter().any(resolved), "{lines:?}");
    let ran = shell.run(&["cell", "Bob", "bal", "-q"]).with(0);
    assert_eq!(ran.stderr, "");
    owner.close();
}

#[test]
fn a_reader_that_goes_away_ends_the_command() {
    let shell = Shell::new();
    shell.fill();
    let owner = Owner::of(&shell.data());
    let mut scan = shell.command(&["scan"]);
    let mut scan = scan.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(scan.stdout.take());
    let ran = Ran::from(scan.wait_with_output().unwrap()).with(0);
    assert_eq!(ran.stderr, "");
    owner.close();
}

/// A store that counts how often it is asked to sync.
#[derive(Debug)]
struct Counting(MemoryStore, Arc<AtomicUsize>);

impl StoreLayer for Counting {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    async fn sync(&self) -> bigtable::Result<()> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn what_a_command_promises_to_be_durable_is_synced_before_it_ends() {
    let shell = Shell::new();
    let _in_use = FjallStore::open(shell.data(), bigtable_fjall::Options::default()).unwrap();
    let (runtime, syncs) = (Runtime::new().unwrap(), Arc::new(AtomicUsize::new(0)));
    let listener = runtime.block_on(async {
        let store = Arc::new(Counting(MemoryStore::new(), syncs.clone()));
        let db = Percolator::over(store, Options::default()).await.unwrap();
        listen(&db, shell.data()).unwrap()
    });
    for (words, expected) in [
        (&["set", "Bob", "bal", "$10"][..], 1),
        (&["set", "Bob", "bal", "$3", "--durability", "sync"], 1),
        (&["set", "Bob", "bal", "$4", "--durability", "buffered"], 0),
        (&["get", "Bob"], 0),
        (&["delete", "Bob"], 1),
    ] {
        let before = syncs.load(Ordering::SeqCst);
        shell.run(words).with(0);
        assert_eq!(syncs.load(Ordering::SeqCst) - before, expected, "{words:?}");
    }
    runtime.block_on(listener.close());
}

// ---- What a command leaves behind ---------------------------------------------------------------

#[test]
fn a_crash_ends_the_client_of_the_script_and_not_the_owner() {
    let shell = Shell::new();
    let owner = Owner::of(&shell.data());
    shell.run(&["set", "Bob", "bal", "$10"]).with(0);
    let ran = shell.tx("begin\nset Bob bal $3\nset Joe bal $9\nprewrite\ncrash\n").with(0);
    ran.says("crash: the client ends here").says("left prewritten");
    // Another command lists the locks and their dead owner, and a reader resolves them.
    let locks = shell.run(&["locks", "ls", "--json"]).with(0).json();
    assert_eq!(locks.as_array().unwrap().len(), 2);
    assert_eq!(locks[0]["verdict"]["kind"], "owner_dead");
    assert!(shell.run(&["cell", "Bob", "bal"]).with(0).stdout.contains("primary"));
    assert_eq!(shell.run(&["get", "Bob", "bal"]).with(0).stdout, "$10\n");
    shell.run(&["get", "Joe", "bal"]).with(1);
    assert_eq!(shell.run(&["locks", "ls", "--json"]).with(0).json(), serde_json::json!([]));
    owner.close();
}

/// A script that has locked a row and waits for the lock of another one, and that lock.
fn waiting(shell: &Shell, owner: &Owner) -> (Running, BufReader<ChildStdout>, Prewritten) {
    let lock = owner.on(async |db| {
        let table = db.table("default").await.unwrap();
        let mut tx = db.begin().await.unwrap();
        tx.set(&table, "Bob", &BAL, "$10").unwrap();
        tx.prewrite().await.unwrap()
    });
    let text = "a: begin\na: set Joe bal 1\na: prewrite\nb: begin\nb: get Bob bal\n";
    let (script, mut lines) = start(shell.script(text));
    for ends in ["begun @", "ok", "locked", "begun @"] {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert!(line.contains(&format!("-> {ends}")), "{line}");
    }
    (script, lines, lock)
}

fn fate_of_joe(owner: &Owner) -> LockFate {
    owner.on(async |db| {
        let locks = db.held_locks(10).await.unwrap();
        let lock = locks.iter().find(|lock| lock.cell.row == "Joe".into()).unwrap();
        db.lock_fate(lock).await.unwrap()
    })
}

#[test]
fn the_transactions_of_a_process_end_with_its_connection() {
    for name in ["-KILL", "-INT"] {
        let shell = Shell::new();
        let owner = Owner::of(&shell.data());
        let (mut child, lines, lock) = waiting(&shell, &owner);
        assert_eq!(fate_of_joe(&owner), LockFate::OwnerAlive);
        signal(&child.0, name);
        let status = child.0.wait().unwrap();
        assert_eq!(status.code(), (name == "-INT").then_some(130), "{status:?}");
        eventually("the client of the script ends", || fate_of_joe(&owner) == LockFate::OwnerDead);
        drop((lines, lock));
        owner.close();
    }
}

#[test]
fn a_write_that_its_owner_cuts_off_is_an_error_and_a_read_goes_on_alone() {
    let shell = Shell::new();
    let owner = Owner::of(&shell.data());
    let (mut script, lines, lock) = waiting(&shell, &owner);
    let mut get = shell.command(&["get", "Bob", "bal"]);
    let get = get.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    owner.close();
    let mut stderr = String::new();
    script.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(script.0.wait().unwrap().code(), Some(4), "{stderr}");
    assert!(stderr.contains("did not finish the command"), "{stderr}");
    assert!(stderr.contains("read the cells that the command writes"), "{stderr}");
    // Either the owner has cut the command off, or it was gone already. In both cases the command
    // opens the directory itself.
    Ran::from(get.wait_with_output().unwrap()).with(1).says("row Bob has no bal");
    drop((lines, lock));
}
