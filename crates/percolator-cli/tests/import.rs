//! `percolator import` of files of other programs: fields become rows and columns; bad lines; the
//! options.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

#[allow(dead_code, reason = "other tests use more of it")]
mod shell;

use std::fs;

use serde_json::Value;
use shell::{Ran, Shell, run};

const MAP: [&str; 8] =
    ["--table", "docs", "--key", "id", "--map", "title=doc:title", "--map", "by.name=doc:by"];

/// Imports a file of this content.
fn import(shell: &Shell, name: &str, content: &[u8], options: &[&str]) -> Ran {
    let file = shell.dir.path().join(name);
    fs::write(&file, content).unwrap();
    shell.run(&[&["import", file.to_str().unwrap(), "--json"], options].concat())
}

fn docs(shell: &Shell) -> String {
    shell.run(&["scan", "--table", "docs"]).with(0).stdout
}

fn errors(shell: &Shell) -> Vec<Value> {
    let text = fs::read_to_string(shell.dir.path().join("bad.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn fields_of_json_become_rows() {
    let shell = Shell::new();
    let lines = b"\xef\xbb\xbf{\"id\":1,\"title\":\"A cod\",\"by\":{\"name\":\"Ann\"}}\r\n\
        \n{\"id\":\"b\",\"title\":12.50,\"by\":null,\"more\":1}";
    let counts = import(&shell, "docs.jsonl", lines, &MAP).with(0).json();
    assert_eq!(
        (&counts["lines"], &counts["rows"], &counts["cells"]),
        (&3.into(), &2.into(), &3.into())
    );
    assert_eq!(docs(&shell), "1\tdoc:by\tAnn\n1\tdoc:title\tA cod\nb\tdoc:title\t12.50\n");
}

#[test]
fn fields_of_csv_become_rows() {
    let shell = Shell::new();
    let lines = b"id,by.name,title\r\n1,Ann,\"A \"\"cod\"\"\"\r\nb,,12.50";
    import(&shell, "docs.csv", lines, &MAP).with(0);
    let expected = "1\tdoc:by\tAnn\n1\tdoc:title\tA \"cod\"\nb\tdoc:by\t\nb\tdoc:title\t12.50\n";
    assert_eq!(docs(&shell), expected);
    // The row that comes last stands, and other cells stay.
    let options = ["--table", "docs", "--key", "id", "--map", "title=doc:title"];
    import(&shell, "docs.csv", b"title,id\nold,b\nnew,b\n", &options).with(0);
    assert_eq!(docs(&shell), expected.replace("12.50", "new"));
}

#[test]
fn bad_lines_are_left_out_with_their_number_and_text() {
    let shell = Shell::new();
    let bad = shell.dir.path().join("bad.jsonl");
    let options = [&MAP[..], &["--errors", bad.to_str().unwrap()]].concat();
    let lines = b"{\"id\":1,\"title\":\"a\"}\n{\"id\":1,\"id\":2,\"title\":\"a\"}\n{\"id\":3}\n\
        {\"id\":4,\"title\":\"a\"}\n";
    import(&shell, "docs.jsonl", lines, &MAP).refused(2, "line 2", "--errors FILE");
    let counts = import(&shell, "docs.jsonl", lines, &options).with(1).json();
    assert_eq!((&counts["rows"], &counts["bad_lines"]), (&2.into(), &2.into()));
    let found = errors(&shell);
    assert_eq!((&found[0]["line"], &found[1]["line"]), (&2.into(), &3.into()));
    assert!(found[0]["why"].as_str().unwrap().contains("\"id\" occurs twice"), "{found:?}");
    assert_eq!(found[1]["text"], "{\"id\":3}");

    let lines = b"id,by.name,title\n1,Ann,\"a\nb\"\n2,Ann\n3,x,y\n";
    let counts = import(&shell, "docs.csv", lines, &options).with(1).json();
    assert_eq!((&counts["rows"], &counts["bad_lines"]), (&2.into(), &1.into()));
    let found = errors(&shell);
    assert_eq!((&found[2]["line"], &found[2]["text"]), (&4.into(), &"2,Ann".into()));
}

#[test]
fn options_that_do_not_fit_are_refused_before_a_store_is_made() {
    let shell = Shell::new();
    let refused = |content: &str, options: &[&str], what: &str, help: &str| {
        import(&shell, "docs.csv", content.as_bytes(), options).refused(2, what, help);
        assert!(!shell.data().exists());
    };
    refused("id,title\n", &[], "not that of an export", "--table");
    refused("id,title\n", &MAP, "no field \"by.name\"", "id, title");
    refused("", &MAP, "no header", "CSV");
    let twice = ["--table", "t", "--key", "k", "--map", "a=c:a", "--map", "b=c:a"];
    refused("k,a,b\n", &twice, "twice", "one field");
    for options in [&["--table", "docs"][..], &["--key", "id"], &["--map", "a=c:a"]] {
        let ran = run(&[&["import", "none"], options].concat()).with(2);
        assert!(ran.stderr.contains("required"), "{}", ran.stderr);
    }
}
