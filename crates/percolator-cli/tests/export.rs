//! `percolator export` and `import`: equal afterwards, whatever keys and values are; bad lines;
//! interruptions; an imported web index.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

#[allow(dead_code, reason = "other tests use more of it")]
mod shell;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use percolator::{Bytes, Column, Percolator, RowKey};
use serde_json::Value;
use shell::{Ran, Shell, program, run};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

impl Shell {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn export(&self, more: &[&str]) -> String {
        run(&[&["export", "--data", text(&self.data())], more].concat()).with(0).stdout
    }

    fn import(&self, file: &Path, to: &str) -> Ran {
        run(&["import", text(file), "--data", text(&self.path(to)), "--json"])
    }

    fn scan(&self, data: &str, table: &str) -> Value {
        run(&["scan", "--json", "--table", table, "--data", text(&self.path(data))]).with(0).json()
    }
}

/// Two tables with keys and values of all kinds, and deletions.
fn fill(shell: &Shell) {
    shell.open(async |db: &Percolator| {
        let odd = Column::new(Bytes::from_static(b"odd:\xff\x00")).unwrap();
        let plain = Column::literal("doc:title");
        for name in ["default", "docs"] {
            let table = db.table(name).await.unwrap();
            db.transact(async |mut tx| {
                for number in 0..300_u32 {
                    let key = RowKey::from([&b"row\xfe"[..], &number.to_be_bytes()].concat());
                    tx.set(&table, key.clone(), &odd, number.to_le_bytes().to_vec())?;
                    tx.set(
                        &table,
                        key,
                        &plain,
                        if number % 3 == 0 { "" } else { "a cod \u{1f41f}" },
                    )?;
                }
                tx.set(&table, "text \"quoted\"\n", &plain, "line\nline")
            })
            .await
            .unwrap();
            db.transact(async |mut tx| {
                for number in (0..300_u32).step_by(7) {
                    let key = RowKey::from([&b"row\xfe"[..], &number.to_be_bytes()].concat());
                    tx.delete(&table, key, &odd)?;
                }
                Ok(())
            })
            .await
            .unwrap();
        }
    });
}

#[test]
fn what_is_imported_equals_what_was_exported() {
    let shell = Shell::new();
    fill(&shell);
    let file = shell.path("all.jsonl");
    fs::write(&file, shell.export(&[])).unwrap();
    let imported = shell.import(&file, "new").with(0).json();
    assert_eq!(imported["rows"], 602);
    for table in ["default", "docs"] {
        assert_eq!(shell.scan("new", table), shell.scan("data", table));
    }
    // Again, and from standard input: nothing changes.
    shell.import(&file, "new").with(0);
    let mut command = program();
    command.args(["import", "-", "--data", text(&shell.path("new"))]);
    Ran::from(command.stdin(fs::File::open(&file).unwrap()).output().unwrap()).with(0);
    assert_eq!(shell.scan("new", "docs"), shell.scan("data", "docs"));
    // A part, and the past.
    let part = shell.export(&["--table", "docs", "--prefix", "text"]);
    assert_eq!(part.lines().count(), 3, "{part}");
    let before: Value = serde_json::from_str(part.lines().next().unwrap()).unwrap();
    shell.run(&["set", "text \"quoted\"\\n", "doc:title", "later", "--table", "docs"]).with(0);
    let at = before["timestamp"].to_string();
    assert_eq!(shell.export(&["--table", "docs", "--prefix", "text", "--at", &at]), part);
    run(&["export", "--table", "none", "--data", text(&shell.data())]).refused(
        1,
        "no table",
        "there are: default, docs",
    );
}

#[test]
fn bad_lines_are_named_or_left_out() {
    let shell = Shell::new();
    fill(&shell);
    let whole = shell.export(&["--prefix", "text"]);
    let lines: Vec<&str> = whole.lines().collect();
    let file = shell.path("bad.jsonl");
    fs::write(&file, [lines[0], lines[1], "{\"row\":7}", lines[2], lines[3]].join("\n")).unwrap();
    shell.import(&file, "new").refused(2, "line 3", "--errors FILE");
    let errors = shell.path("errors.jsonl");
    let (file, new) = (text(&file), shell.path("new"));
    let ran = run(&["import", file, "--errors", text(&errors), "--data", text(&new), "--json"]);
    assert_eq!(ran.with(1).json()["bad_lines"], 1);
    let bad: Value = serde_json::from_str(fs::read_to_string(&errors).unwrap().trim()).unwrap();
    assert_eq!((&bad["line"], &bad["text"]), (&3.into(), &"{\"row\":7}".into()));
    // An export that was cut off says so, and what it has is there.
    let cut = shell.path("cut.jsonl");
    fs::write(&cut, lines[..3].join("\n")).unwrap();
    let ran = shell.import(&cut, "other").with(3);
    assert!(ran.stderr.contains("ends before"), "{}", ran.stderr);
    shell.import(&shell.path("nothing"), "other").refused(2, "cannot be read", "name a file");
}

/// A hundred thousand rows, with the import killed at several moments and begun again.
#[test]
fn a_killed_import_goes_on_where_it_was() {
    const ROWS: u32 = 100_000;
    let shell = Shell::new();
    let file = shell.path("many.jsonl");
    let mut out = std::io::BufWriter::new(fs::File::create(&file).unwrap());
    for number in 0..ROWS {
        writeln!(out, r#"{{"table":"default","row":"{number:06}","cells":[{{"column":"c:n","value":"{number}"}}]}}"#).unwrap();
    }
    drop(out);
    let mut resumed = 0;
    for _ in 0..6 {
        let mut command = program();
        command.args(["import", text(&file), "--data", text(&shell.data())]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(700));
        let _ = child.kill();
        if child.wait().unwrap().success() {
            break;
        }
    }
    let ran = shell.import(&file, "data").with(0).json();
    resumed += ran["resumed_after"].as_u64().unwrap();
    assert_eq!(ran["rows"].as_u64().unwrap() + resumed, u64::from(ROWS), "{ran}");
    let scanned = shell.scan("data", "default");
    let rows = scanned.as_array().unwrap();
    assert_eq!(rows.len(), ROWS as usize);
    for (number, row) in rows.iter().enumerate() {
        assert_eq!(row["cells"][0]["value"]["utf8"], number.to_string());
    }
    // Its position is gone with its end, and no export has it.
    assert_eq!(shell.scan("data", "percolator-imports"), Value::Array(Vec::new()));
    assert!(!shell.export(&["--prefix", "00000"]).contains("percolator-imports"));
}

#[test]
fn an_imported_web_index_is_complete() {
    let shell = Shell::new();
    let site = shell.path("site");
    run(&["webindex", "generate", text(&site), "--pages", "40"]).with(0);
    let (data, base) = (shell.data(), "https://example.org/");
    run(&["webindex", "load", text(&site), "--base", base, "--data", text(&data)]).with(0);
    let file = shell.path("all.jsonl");
    fs::write(&file, shell.export(&[])).unwrap();
    shell.import(&file, "new").with(0);
    let load = ["webindex", "load", text(&site), "--base", base, "--data"];
    run(&[&load[..], &[text(&shell.path("new"))]].concat()).with(0);
    run(&["webindex", "verify", "--data", text(&shell.path("new"))]).with(0);
}
