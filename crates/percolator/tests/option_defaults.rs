//! The default that the documentation of each option states is the one that the option has.

use std::collections::BTreeMap;
use std::fmt::Debug;

use percolator::admin::GcOptions;
use percolator::cluster::OracleOptions;
use percolator::observe::Batch;
use percolator::{OpenOptions, Options, WorkerOptions};

/// The documentation of each field of a struct, each in one line.
fn documented(source: &str, name: &str) -> BTreeMap<String, String> {
    let start = source.find(&format!("pub struct {name} {{")).expect("the struct is in this file");
    let body = source[start..].split("\n}").next().expect("a struct ends");
    let (mut fields, mut doc) = (BTreeMap::new(), String::new());
    for line in body.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            doc.push_str(text);
        } else if let Some((field, _)) = line.strip_prefix("pub ").and_then(|l| l.split_once(':')) {
            fields.insert(field.to_owned(), std::mem::take(&mut doc));
        }
    }
    fields
}

/// The value of each field of a struct, as its `Debug` shows it.
fn actual(options: &impl Debug) -> BTreeMap<String, String> {
    let text = format!("{options:#?}");
    let field = |line: &str| {
        let line = line.strip_prefix("    ").filter(|line| !line.starts_with([' ', '}', ')']))?;
        let (name, value) = line.split_once(": ")?;
        Some((name.to_owned(), value.trim_end_matches(',').to_owned()))
    };
    text.lines().filter_map(field).collect()
}

/// The text that `Debug` shows for a default documented as `10 s`, `2,000 changes` or `no bound`.
fn shown(stated: &str) -> String {
    let words: Vec<&str> = stated.trim_matches('`').split(' ').collect();
    match words[..] {
        ["no", "bound"] => usize::MAX.to_string(),
        ["none"] => "\"\"".to_owned(),
        [number, unit @ ("s" | "ms")] => format!("{number}{unit}"),
        [value, ..] => value.replace(',', ""),
        [] => String::new(),
    }
}

fn check(source: &str, name: &str, options: &impl Debug) {
    let (documented, actual) = (documented(source, name), actual(options));
    assert!(!documented.is_empty());
    assert_eq!(documented.keys().collect::<Vec<_>>(), actual.keys().collect::<Vec<_>>());
    for (field, doc) in documented {
        let stated = doc.split("Default: ").nth(1);
        let stated = stated.unwrap_or_else(|| panic!("{name}::{field} states no default"));
        let stated = stated.trim_end_matches('.');
        if stated != "that of its type" {
            assert_eq!(shown(stated), actual[&field], "{name}::{field}: {stated}");
        }
    }
}

#[test]
fn each_option_states_the_default_that_it_has() {
    let core = |file: &str| {
        let file = format!("{}/../percolator-core/src/{file}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(file).unwrap()
    };
    check(&core("options.rs"), "Options", &Options::default());
    check(&core("observe/options.rs"), "WorkerOptions", &WorkerOptions::default());
    check(&core("observe/observer.rs"), "Batch", &Batch::default());
    check(&core("gc/background.rs"), "GcOptions", &GcOptions::default());
    check(&core("oracle/election.rs"), "OracleOptions", &OracleOptions::default());
    check(include_str!("../src/embedded.rs"), "OpenOptions", &OpenOptions::default());
}
