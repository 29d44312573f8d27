//! Tests `percolator backup` and `restore`: with a closed directory, with one that a process
//! has open, with a table server's, and with interruptions.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

#[allow(dead_code, reason = "other tests use more of it")]
mod shell;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use percolator::{Column, Percolator};
use shell::{Ran, Shell, program, run};

const BAL: Column = Column::literal("bal");
const LONGEST: Duration = Duration::from_secs(60);

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

impl Shell {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn backup(&self) -> Ran {
        run(&["backup", "--data", text(&self.data()), "--to", text(&self.path("copy")), "--json"])
    }

    fn restore(&self, to: &str) -> Ran {
        run(&[
            "restore",
            "--from",
            text(&self.path("copy")),
            "--data",
            text(&self.path(to)),
            "--json",
        ])
    }

    /// All tables' cells, as the command prints them.
    fn scanned(&self, data: &str) -> String {
        run(&["scan", "--json", "--data", text(&self.path(data))]).with(0).stdout
    }
}

#[test]
fn a_closed_store_is_backed_up_and_restored() {
    let shell = Shell::new();
    for row in 0..20 {
        shell.run(&["set", &format!("row{row}"), "bal", &format!("{row}")]).with(0);
    }
    let made = shell.backup().with(0).json();
    assert!(made["new_files"].as_u64().unwrap() > 0, "{made}");
    let again = shell.backup().with(0).json();
    assert!(again["new_files"].as_u64() < made["new_files"].as_u64(), "{made} {again}");
    run(&["check", text(&shell.path("copy"))]).with(0);
    // A backup is no store.
    run(&["get", "row1", "--data", text(&shell.path("copy"))]).refused(
        2,
        "holds no store",
        "choose",
    );
    shell.run(&["set", "later", "bal", "1"]).with(0);
    let restored = shell.restore("new").with(0).json();
    assert_eq!(restored["backup_of"], made["store"]);
    assert_ne!(restored["id"], made["store"]);
    run(&["check", text(&shell.path("new"))]).with(0);
    let mut old = shell.scanned("data").lines().map(str::to_owned).collect::<Vec<_>>();
    old.retain(|line| !line.contains("later") && line.len() > 1);
    let new = shell.scanned("new");
    let trimmed = |line: &str| line.trim_end_matches(',').to_owned();
    let new: Vec<_> = new.lines().filter(|line| line.len() > 1).map(trimmed).collect();
    assert_eq!(new, old.iter().map(|line| trimmed(line)).collect::<Vec<_>>());
    // The new store's timestamps are above all that the old store can have issued.
    run(&["set", "row1", "bal", "2", "--data", text(&shell.path("new"))]).with(0);
    let cell =
        run(&["cell", "row1", "bal", "--history", "--data", text(&shell.path("new"))]).with(0);
    assert!(cell.stdout.contains(" 10995"), "2^40 and a little: {}", cell.stdout);
    // A restore never replaces a store.
    shell.restore("new").refused(2, "not empty", "choose");
    run(&["restore", "--from", text(&shell.data()), "--data", text(&shell.path("other"))]).refused(
        2,
        "no whole backup",
        "name the directory of a whole backup",
    );
    run(&["backup", "--data", text(&shell.path("nothing")), "--to", text(&shell.path("copy"))])
        .refused(2, "no store is there", "name an existing one");
}

#[test]
fn the_process_that_has_the_directory_open_makes_the_backup() {
    let shell = Shell::new();
    shell.open(async |db: &Percolator| {
        let listener = percolator_cli::owner::listen(db, shell.data()).unwrap();
        let table = db.table("default").await.unwrap();
        db.transact(async |mut tx| tx.set(&table, "Bob", &BAL, "$10")).await.unwrap();
        // The path is relative to the asker's directory, not to the owner's.
        let mut command = program();
        command.args(["backup", "--to", "copy", "--data"]).arg(shell.data());
        command.current_dir(shell.dir.path()).stdin(Stdio::null());
        let asked = tokio::task::spawn_blocking(move || Ran::from(command.output().unwrap()));
        let printed = asked.await.unwrap().with(0).stdout;
        assert!(printed.contains("in the backup"), "{printed}");
        listener.close().await;
    });
    shell.restore("new").with(0);
    assert!(shell.scanned("new").contains("$10"));
}

/// A process that is killed when this is dropped.
struct Process {
    child: Child,
    first_line: String,
}

impl Process {
    fn start(words: &[&str]) -> Process {
        let mut child = program().args(words).stdout(Stdio::piped()).spawn().unwrap();
        let mut first_line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut first_line).unwrap();
        Process { child, first_line: first_line.trim().to_owned() }
    }

    /// The exit status, once the process ends by itself.
    fn status(&mut self) -> Option<i32> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(begun.elapsed() < LONGEST, "the process goes on");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A table server's store is backed up while it serves. It is restored under a worker and an
/// oracle that still run. The restored store refuses both, and they end.
#[test]
fn processes_that_outlive_a_restore_are_refused() {
    let shell = Shell::new();
    let serve = |data: &Path, listen: &str| {
        let words = ["serve", "table", "--listen", listen, "--data", text(data)];
        Process::start(&words)
    };
    let table = serve(&shell.data(), "127.0.0.1:0");
    let address = table.first_line.clone();
    let store = format!("bigtable://{address}/p/i");
    let oracle =
        || Process::start(&["serve", "oracle", "--listen", "127.0.0.1:0", "--store", &store]);
    let mut old_oracle = oracle();
    let config = |oracle: &Process, name: &str| {
        let text = format!("store = \"{store}\"\noracles = [\"{}\"]\n", oracle.first_line);
        fs::write(shell.path(name), text).unwrap();
        shell.path(name)
    };
    let old = config(&old_oracle, "old.toml");
    run(&["set", "Bob", "bal", "10", "--config", text(&old)]).with(0);
    let mut worker = Process::start(&["worker", "--app", "webindex", "--config", text(&old)]);
    // Another command on the directory is refused, with an error that names the server. The
    // server itself makes the backup.
    run(&["get", "Bob", "--data", text(&shell.data())]).refused(2, "serves its tables", "--config");
    run(&["console", "-q", "--data", text(&shell.data())]).refused(2, "is open in", "--config");
    shell.backup().with(0);
    run(&["set", "Bob", "bal", "11", "--config", text(&old)]).with(0);
    drop(table);
    run(&["check", text(&shell.path("copy"))]).with(0);
    let restored = shell.restore("new").with(0).json();
    assert!(restored["timestamps_above"].as_u64().unwrap() > 1 << 40, "{restored}");
    let _table = serve(&shell.path("new"), &address);
    assert_eq!(worker.status(), Some(4));
    assert_eq!(old_oracle.status(), Some(4));
    // A client that begins now sees the state of the backup.
    let new_oracle = oracle();
    let new = config(&new_oracle, "new.toml");
    let begun = Instant::now();
    let seen = loop {
        let ran = run(&["get", "Bob", "bal", "--config", text(&new)]);
        if ran.status == 0 || begun.elapsed() > LONGEST {
            break ran.with(0).stdout;
        }
    };
    assert_eq!(seen.trim(), "10");
    run(&["set", "Bob", "bal", "12", "--config", text(&new)]).with(0);
}

/// The table server of the settings makes the backup, under its own directory of backups.
#[test]
fn an_administrator_asks_a_table_server_for_a_backup() {
    let shell = Shell::new();
    let backups = shell.path("backups");
    let table = Process::start(&[
        "serve",
        "table",
        "--listen",
        "127.0.0.1:0",
        "--data",
        text(&shell.data()),
        "--backups",
        text(&backups),
    ]);
    let config = shell.path("store.toml");
    // A backup needs no oracle.
    fs::write(&config, format!("store = \"bigtable://{}/p/i\"\n", table.first_line)).unwrap();
    let ask = |to| run(&["backup", "--config", text(&config), "--to", to, "--json"]);
    let made = ask("weekly").with(0).json();
    assert!(made["new_files"].as_u64().unwrap() > 0, "{made}");
    run(&["check", text(&backups.join("weekly"))]).with(0);
    ask("../data").refused(2, "cannot name a backup", "serve table");
    run(&["backup", "--to", "weekly"]).refused(2, "no store is named", "--config");
    drop(table);
    ask("weekly").refused(4, "store", "");
}

#[test]
fn a_web_index_is_restored_with_its_search_index() {
    let shell = Shell::new();
    let site = shell.path("site");
    run(&["webindex", "generate", text(&site), "--pages", "60"]).with(0);
    let load = |data: &str| {
        let base = "https://example.org/";
        run(&["webindex", "load", text(&site), "--base", base, "--data", text(&shell.path(data))])
    };
    load("data").with(0);
    shell.backup().with(0);
    let restored = shell.restore("new").with(0).json();
    assert!(restored["search_index_pages"].as_u64().unwrap() > 0, "{restored}");
    run(&["webindex", "verify", "--data", text(&shell.path("new"))]).with(0);
    // The search index of the old store is of no use to the new one.
    fs::remove_dir_all(shell.path("new/webindex-search")).unwrap();
    copy_all(&shell.path("data/webindex-search"), &shell.path("new/webindex-search"));
    load("new").with(0);
    run(&["webindex", "verify", "--data", text(&shell.path("new"))]).with(0);
    let id = fs::read_to_string(shell.path("new/webindex-search/STORE")).unwrap();
    assert_eq!(id.trim(), restored["id"]);
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Kills the command at many moments. The directory then holds the earlier backup or the new
/// one. A restore leaves either nothing or the whole store at its place.
#[test]
fn a_killed_backup_or_restore_leaves_nothing_half() {
    let shell = Shell::new();
    for number in 0..3 {
        let value = "v".repeat(100_000);
        shell.run(&["set", &format!("row{number}"), "bal", &value]).with(0);
    }
    let kill_after = |ms: u64, words: &[&str]| {
        let mut child = program().args(words).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(ms));
        let _ = child.kill();
        child.wait().unwrap();
    };
    let (data, copy, new) = (shell.data(), shell.path("copy"), shell.path("new"));
    for ms in 0..12 {
        kill_after(ms * 8, &["backup", "--data", text(&data), "--to", text(&copy)]);
        if copy.join("BACKUP").exists() {
            run(&["check", text(&copy)]).with(0);
        } else {
            assert_eq!(shell.restore("never").status, 2);
        }
    }
    shell.backup().with(0);
    for ms in 0..12 {
        kill_after(ms * 12, &["restore", "--from", text(&copy), "--data", text(&new)]);
        if new.exists() {
            run(&["check", text(&new)]).with(0);
            fs::remove_dir_all(&new).unwrap();
        }
    }
    shell.restore("new").with(0);
    assert!(!shell.path("new.restoring").exists());
    run(&["check", text(&new)]).with(0);
    assert!(shell.scanned("new").contains("row2"));
}

/// The limit of a file's size stands for a full disk: a write fails in the middle of a file.
#[test]
fn a_backup_that_cannot_be_written_leaves_the_earlier_one() {
    let shell = Shell::new();
    shell.run(&["set", "small", "bal", "1"]).with(0);
    let limited = |to: &Path| {
        let line = "ulimit -f 40; exec \"$0\" backup --data \"$1\" --to \"$2\"";
        let program = env!("CARGO_BIN_EXE_percolator");
        let mut shell_command = Command::new("bash");
        let data = shell.data();
        let words = ["-c", line, program, text(&data), text(to)];
        Ran::from(shell_command.args(words).output().unwrap())
    };
    shell.backup().with(0);
    let listed = fs::read(shell.path("copy/BACKUP")).unwrap();
    // The letters hardly repeat, so that the file is as long as the value.
    let value: String =
        (0..60_000_u64).map(|n| format!("{:x}", n * 0x9E37_79B9 % 65_521)).collect();
    shell.tx(&[], &format!("begin\nset large bal {value}\ncommit\n")).with(0);
    limited(&shell.path("copy")).refused(2, "large", "");
    assert_eq!(fs::read(shell.path("copy/BACKUP")).unwrap(), listed);
    run(&["check", text(&shell.path("copy"))]).with(0);
    limited(&shell.path("other")).refused(2, "large", "");
    assert!(!shell.path("other/BACKUP").exists());
    let left = fs::read_dir(shell.path("other/files")).unwrap().count();
    assert_eq!(left, 0, "space is given back");
    shell.backup().with(0);
}

#[test]
fn a_damaged_store_is_reported_and_not_backed_up() {
    let shell = Shell::new();
    for row in 0..20 {
        shell.run(&["set", &format!("row{row}"), "bal", "1"]).with(0);
    }
    let mut journals: Vec<_> = fs::read_dir(shell.path("data/engine")).unwrap().collect();
    journals.retain(|entry| text(&entry.as_ref().unwrap().path()).ends_with(".jnl"));
    let journal = journals[0].as_ref().unwrap().path();
    let mut bytes = Vec::new();
    fs::File::open(&journal).unwrap().read_to_end(&mut bytes).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end / 2] ^= 0x40;
    fs::write(&journal, bytes).unwrap();
    shell.backup().refused(2, "damaged", "percolator check");
    assert!(!shell.path("copy").exists());
}
