//! `percolator export` and `import`: equal afterwards, whatever keys and values are; bad lines;
//! interruptions; observers; an imported web index.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod round_trip;
#[allow(dead_code, reason = "other tests use more of it")]
mod shell;

use std::fs;
use std::path::{Path, PathBuf};

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

    /// Imports, and leaves bad lines out.
    fn import_all(&self, file: &Path, to: &str) -> Ran {
        let (errors, to) = (self.path("errors.jsonl"), self.path(to));
        run(&["import", text(file), "--errors", text(&errors), "--data", text(&to), "--json"])
    }

    fn errors(&self) -> String {
        fs::read_to_string(self.path("errors.jsonl")).unwrap()
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
        "name one of the store's tables with --table: default, docs",
    );
}

#[test]
fn csv_holds_the_same_data() {
    let shell = Shell::new();
    fill(&shell);
    let csv = shell.export(&["--format", "csv"]);
    let file = shell.path("all.csv");
    fs::write(&file, &csv).unwrap();
    let imported = shell.import(&file, "new").with(0).json();
    assert_eq!(imported["rows"], 602);
    for table in ["default", "docs"] {
        assert_eq!(shell.scan("new", table), shell.scan("data", table));
    }
    // The name of the file is not needed, and neither are lines that end as in UNIX.
    let other = shell.path("other");
    fs::write(&other, ["\u{feff}", &csv.replace('\n', "\r\n")].concat()).unwrap();
    let ran =
        run(&[
            &[
                "import",
                text(&other),
                "--format",
                "csv",
                "--data",
                text(&shell.path("other-store")),
            ][..],
            &["--json"],
        ]
        .concat());
    assert_eq!(ran.with(0).json()["rows"], 602);
    // Where nothing was cut off, the last record says so.
    let cut = shell.path("cut.csv");
    let (most, _) = csv.trim_end().rsplit_once('\n').unwrap();
    fs::write(&cut, most).unwrap();
    assert!(shell.import(&cut, "third").with(3).stderr.contains("ends before"));
    fs::write(&cut, csv.replacen("docs,\"text", "a b,\"text", 1)).unwrap();
    let counts = shell.import_all(&cut, "third").with(1).json();
    assert_eq!((&counts["bad_lines"], &counts["rows"]), (&1.into(), &601.into()));
    assert!(shell.errors().contains("not a table name"), "{}", shell.errors());
}

#[test]
fn an_export_with_lines_removed_is_not_whole() {
    let shell = Shell::new();
    fill(&shell);
    let whole = shell.export(&["--prefix", "text"]);
    let lines: Vec<&str> = whole.lines().collect();
    let file = shell.path("less.jsonl");
    fs::write(&file, [lines[0], lines[1], lines[3]].join("\n")).unwrap();
    let ran = shell.import(&file, "new").with(3);
    assert!(ran.stderr.contains("has 1 rows, and its export had 2"), "{}", ran.stderr);
    // Of two exports in one file, each must be whole.
    fs::write(&file, [lines[0], &whole].join("\n")).unwrap();
    assert!(shell.import(&file, "new").with(3).stderr.contains("ends before"));
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
    assert_eq!(shell.import_all(&file, "new").with(1).json()["bad_lines"], 1);
    let bad: Value = serde_json::from_str(shell.errors().trim()).unwrap();
    assert_eq!((&bad["line"], &bad["text"]), (&3.into(), &"{\"row\":7}".into()));
    // An export that was cut off says so, and what it has is there.
    let cut = shell.path("cut.jsonl");
    fs::write(&cut, lines[..3].join("\n")).unwrap();
    let ran = shell.import(&cut, "other").with(3);
    assert!(ran.stderr.contains("ends before"), "{}", ran.stderr);
    shell.import(&shell.path("nothing"), "other").refused(2, "cannot be read", "name a file");
}

fn row(key: &str, cells: usize) -> String {
    let cells: Vec<_> = (0..cells).map(|n| format!(r#"{{"column":"c:{n}","value":""}}"#)).collect();
    format!(r#"{{"table":"default","row":"{key}","cells":[{}]}}"#, cells.join(","))
}

#[test]
fn an_export_of_an_unknown_version_changes_nothing() {
    let shell = Shell::new();
    let file = shell.path("later.jsonl");
    let import = || shell.import_all(&file, "new");
    let later = "{\"percolator_export\":2}";
    fs::write(&file, [later, &row("a", 1)].join("\n")).unwrap();
    import().refused(2, "line 1: the export has version 2", "the release that wrote it");
    assert!(!shell.path("new").exists(), "no store is made");
    fs::write(&file, [&row("a", 1), later].join("\n")).unwrap();
    import().refused(2, "line 2: the export has version 2", "the release that wrote it");
    let tables = run(&["tables", "--json", "--data", text(&shell.path("new"))]).with(0).stdout;
    assert!(!tables.contains("default"), "no row is imported: {tables}");
}

#[test]
fn lines_that_are_no_text_or_name_no_table_are_bad_lines() {
    let shell = Shell::new();
    let bad: [&[u8]; 2] = [b"{\"\xff\":1}\r", br#"{"table":"a b","row":"a","cells":[]}"#];
    let file = shell.path("odd.jsonl");
    for (line, why) in bad.iter().zip(["it is not UTF-8", "\"a b\" is not a table name"]) {
        let good = row("a", 1);
        fs::write(&file, [good.as_bytes(), line, good.as_bytes()].join(&b'\n')).unwrap();
        shell.import(&file, "new").refused(2, &format!("line 2 cannot be imported: {why}"), "");
    }
    let lines = [row("a", 1).as_bytes(), bad[0], bad[1], row("b", 1).as_bytes()].join(&b'\n');
    fs::write(&file, lines).unwrap();
    let counts = shell.import_all(&file, "new").with(1).json();
    assert_eq!((&counts["bad_lines"], &counts["rows"]), (&2.into(), &2.into()));
    let errors = shell.errors();
    let errors: Vec<Value> = errors.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!((&errors[0]["line"], &errors[1]["line"]), (&2.into(), &3.into()));
    assert_eq!(errors[0]["text"], "{\"\u{fffd}\":1}");
}

#[test]
fn a_row_that_is_too_wide_is_a_bad_line_and_a_wide_one_is_imported() {
    let shell = Shell::new();
    let file = shell.path("wide.jsonl");
    let max = percolator::transaction::TRANSACTION_CELLS_MAX;
    fs::write(&file, [row("a", 900), row("b", max - 1), row("c", max)].join("\n")).unwrap();
    shell.import(&file, "new").refused(2, "line 3 cannot be imported: it has more", "--errors");
    let counts = shell.import_all(&file, "other").with(1).json();
    let cells = (900 + max - 1) as u64;
    assert_eq!((&counts["bad_lines"], &counts["cells"]), (&1.into(), &cells.into()));
    assert!(shell.errors().contains("\"line\":3"));
}

#[test]
fn bad_lines_before_the_position_are_counted_but_not_written_again() {
    let shell = Shell::new();
    let file = shell.path("rows.jsonl");
    let lines = [&row("a", 1), "{}", &row("b", 1)].join("\n");
    fs::write(&file, &lines).unwrap();
    // An import was interrupted after the second line.
    shell.open(async |db: &Percolator| {
        let positions = db.table("percolator-imports").await.unwrap();
        let key = blake3::hash(lines.as_bytes()).to_hex().to_string();
        let lines = Column::literal("import:lines");
        db.transact(async |mut tx| tx.set(&positions, key.clone(), &lines, "2")).await.unwrap();
    });
    let counts = shell.import_all(&file, "data").with(1).json();
    assert_eq!((&counts["resumed_after"], &counts["bad_lines"]), (&2.into(), &1.into()));
    assert_eq!(shell.errors(), "");
}

/// A hundred thousand rows with binary keys, with the import killed at several moments and begun
/// again.
#[test]
fn a_killed_import_goes_on_where_it_was() {
    const ROWS: u32 = 100_000;
    let shell = Shell::new();
    let generated = shell.path("generated.jsonl");
    round_trip::generate(&generated, ROWS);
    assert_eq!(shell.import(&generated, "data").with(0).json()["rows"], ROWS);
    let exported = shell.export(&[]);
    let file = shell.path("many.jsonl");
    fs::write(&file, &exported).unwrap();
    let new = shell.path("new");
    let mut killed = 0;
    for _ in 0..3 {
        killed = round_trip::kill_in_the_middle(&file, ["--data", text(&new)], killed);
    }
    let ran = shell.import(&file, "new").with(0).json();
    let resumed = ran["resumed_after"].as_u64().unwrap();
    assert!(resumed >= killed, "{ran}");
    // The first line is not a row.
    assert_eq!(ran["rows"].as_u64().unwrap() + resumed - 1, u64::from(ROWS), "{ran}");
    for table in ["default", "docs"] {
        assert!(shell.scan("new", table) == shell.scan("data", table), "{table} is the same");
    }
    // Its position is gone with its end, and no export has it.
    assert_eq!(shell.scan("new", "percolator-imports"), Value::Array(Vec::new()));
    let again = run(&["export", "--data", text(&new)]).with(0).stdout;
    assert!(round_trip::rows(&again).eq(round_trip::rows(&exported)));
}

/// The position belongs to the content of the file. A changed file begins anew.
#[test]
fn a_changed_file_is_not_gone_on_with() {
    let shell = Shell::new();
    let generated = shell.path("generated.jsonl");
    round_trip::generate(&generated, 30_000);
    let new = shell.path("new");
    round_trip::kill_in_the_middle(&generated, ["--data", text(&new)], 0);
    let content = fs::read_to_string(&generated).unwrap();
    fs::write(&generated, content.replacen("\"value\":\"\"", "\"value\":\"new\"", 1)).unwrap();
    let ran = shell.import(&generated, "new").with(0).json();
    assert_eq!((&ran["resumed_after"], &ran["rows"]), (&0.into(), &30_000.into()));
    assert!(run(&["export", "--data", text(&new)]).with(0).stdout.contains("\"new\""));
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
    // An export of all tables has what the observers derived, so they need not run again.
    let copy = shell.path("copy");
    let skip = ["import", text(&file), "--observers", "skip", "--data", text(&copy)];
    run(&skip).with(0);
    run(&["webindex", "verify", "--data", text(&copy)]).with(0);
}

/// Reads how often the observer of `doc:text` waits to run.
fn backlog(data: &Path) -> Value {
    run(&["backlog", "--json", "--data", text(data)]).with(0).json()
}

#[test]
fn observers_skip_what_is_imported_and_run_for_later_changes() {
    let shell = Shell::new();
    shell::observed(&shell, false);
    let file = shell.path("all.jsonl");
    fs::write(&file, shell.export(&[])).unwrap();
    shell.import(&file, "runs").with(0);
    assert!(backlog(&shell.path("runs")).to_string().contains("doc:text"));
    let skips = shell.path("skips");
    let import = ["import", text(&file), "--observers", "skip", "--data", text(&skips)];
    run(&import).with(0);
    assert!(!backlog(&skips).to_string().contains("doc:text"));
    assert_eq!(shell.scan("skips", "docs"), shell.scan("data", "docs"));
    let cell = ["cell", "a", "doc:text", "--table", "docs", "--json", "--data", text(&skips)];
    let acks = run(&cell).with(0).stdout;
    assert!(acks.contains("\"parse\""), "it is acknowledged: {acks}");
    // A later change is there to be handled, and an import of the same again skips it.
    let set = ["set", "a", "doc:text", "new", "--table", "docs", "--data", text(&skips)];
    run(&set).with(0);
    assert!(backlog(&skips).to_string().contains("doc:text"));
}
