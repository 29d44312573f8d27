//! Computes the table of anomalies from the findings of the scripts.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::run_folder;

/// The anomalies of Hermitage, with a description, and whether snapshot isolation allows them.
const ANOMALIES: [(&str, &str, bool); 14] = [
    ("G0", "dirty write: two transactions' writes interleave", false),
    ("G1a", "aborted read: a write of an aborted transaction is seen", false),
    ("G1b", "intermediate read: a value that was overwritten before commit is seen", false),
    ("G1c", "circular information flow: each of two transactions sees the other's write", false),
    ("OTV", "observed transaction vanishes: one seen in part is later seen no more", false),
    ("PMP", "predicate-many-preceders: a predicate read again sees more", false),
    ("PMP-write", "the same, of a write that the predicate chose", false),
    ("P4", "lost update: both read, both write, one write is lost", false),
    ("G-single", "read skew: one cell before, another after a transaction", false),
    ("G-single-predicate", "read skew of a predicate", false),
    ("G-single-write", "read skew of a write that the predicate chose", false),
    ("G2-item", "write skew: both read both cells, each writes another one", true),
    ("G2", "write skew of a predicate: each inserts what the other looked for", true),
    ("G2-two-edges", "the same with a reader between (Fekete)", true),
];

fn word(occurred: bool) -> &'static str {
    if occurred { "possible" } else { "prevented" }
}

#[test]
#[allow(clippy::print_stdout, reason = "the table is for whoever runs the tests")]
fn hermitage() {
    let findings = run_folder("hermitage");
    let mut table = String::from(
        "# Hermitage\n\nWhat the scripts in `crates/percolator-core/tests/scripts/hermitage` did, \
         and what snapshot isolation demands.\nWritten by the test `hermitage`; not by hand.\n\n\
         | anomaly | what it is | here | snapshot isolation | script |\n|---|---|---|---|---|\n",
    );
    let mut wrong = Vec::new();
    for (anomaly, what, expected) in ANOMALIES {
        let found: Vec<_> = findings.iter().filter(|found| found.anomaly == anomaly).collect();
        let [found] = found[..] else { panic!("{} scripts judge {anomaly}", found.len()) };
        let (here, demanded, script) = (word(found.occurred), word(expected), &found.script);
        writeln!(table, "| {anomaly} | {what} | {here} | {demanded} | `{script}` |").unwrap();
        if found.occurred != expected {
            wrong.push(anomaly);
        }
    }
    println!("{table}");
    assert_eq!(findings.len(), ANOMALIES.len(), "a script judges an unknown anomaly");
    assert!(wrong.is_empty(), "not as snapshot isolation has it: {wrong:?}");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/hermitage.md");
    if std::env::var("UPDATE_GOLDENFILES").is_ok_and(|update| update == "1") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &table).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), table, "docs/hermitage.md is out of date");
}
