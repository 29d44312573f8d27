//! Makes data of all kinds for exports and imports, and kills imports in the middle.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::shell::{program, run};

/// Writes so many rows of two tables as lines of JSON. Keys are binary, some values are empty.
pub(crate) fn generate(file: &Path, rows: u32) {
    let mut out = std::io::BufWriter::new(fs::File::create(file).unwrap());
    for number in 0..rows {
        let table = if number % 2 == 0 { "default" } else { "docs" };
        let key = STANDARD.encode([&[0xfe, 0][..], &number.to_be_bytes()].concat());
        let value = match number % 3 {
            0 => "\"\"".to_owned(),
            1 => format!("\"number {number}\""),
            _ => format!("{{\"b64\":\"{}\"}}", STANDARD.encode([0xff, number as u8])),
        };
        let cell = format!("{{\"column\":\"c:n\",\"value\":{value}}}");
        writeln!(out, "{{\"table\":\"{table}\",\"row\":{{\"b64\":\"{key}\"}},\"cells\":[{cell}]}}")
            .unwrap();
    }
    out.flush().unwrap();
}

/// The lines of an export, without the first one, which has its timestamp.
pub(crate) fn rows(export: &str) -> impl Iterator<Item = &str> {
    export.lines().skip(1)
}

/// Starts an import of a store that these options name, and kills it with kill -9 when its
/// position has come further than `after`. Returns a position that it had then.
///
/// The position is an ordinary cell, so there is no other way than to look again and again.
pub(crate) fn kill_in_the_middle(file: &Path, store: [&str; 2], after: u64) -> u64 {
    // The process that has a directory open answers here. Before that, a command would open the
    // directory itself, and the import could not.
    let socket = (store[0] == "--data").then(|| Path::new(store[1]).join("owner.sock"));
    if let Some(socket) = &socket {
        drop(fs::remove_file(socket));
    }
    let mut command = program();
    command.arg("import").arg(file).args(store);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    loop {
        assert!(child.try_wait().unwrap().is_none(), "the import was faster than the test looked");
        if socket.as_ref().is_some_and(|socket| !socket.exists()) {
            std::thread::sleep(Duration::from_millis(1));
        } else if let Some(position) = position(store)
            && position > after
        {
            child.kill().unwrap();
            child.wait().unwrap();
            return position;
        }
    }
}

/// The position of the only import that a store has begun.
fn position(store: [&str; 2]) -> Option<u64> {
    let scan = ["scan", "--json", "--table", "percolator-imports"];
    let ran = run(&[&scan[..], &store].concat());
    if ran.status != 0 {
        return None;
    }
    ran.json()[0]["cells"][0]["value"]["utf8"].as_str()?.parse().ok()
}
