//! Checks that the documentation of each option states the option's real default.

use std::collections::BTreeMap;
use std::fmt::Debug;

use percolator::admin::GcOptions;
use percolator::cluster::OracleOptions;
use percolator::observe::Batch;
use percolator::{OpenOptions, Options, WorkerOptions};

/// Returns the documentation of each field of a struct, as one line.
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

/// Returns the value of each field of a struct, as `Debug` formats it.
fn actual(options: &impl Debug) -> BTreeMap<String, String> {
    let text = format!("{options:#?}");
    let field = |line: &str| {
        let line = line.strip_prefix("    ").filter(|line| !line.starts_with([' ', '}', ')']))?;
        let (name, value) = line.split_once(": ")?;
        Some((name.to_owned(), value.trim_end_matches(',').to_owned()))
    };
    text.lines().filter_map(field).collect()
}

/// Returns how `Debug` formats a default that is documented as `10 s`, `2,000 changes` or
/// `no bound`.
fn shown(stated: &str) -> String {
    let words: Vec<&str> = stated.trim_matches('`').split(' ').collect();
    match words[..] {
        ["no", "bound"] => usize::MAX.to_string(),
        ["none"] => "\"\"".to_owned(),
        ["0", "s"] => "0ns".to_owned(),
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

/// Reads a source file of another crate.
fn source(of: &str, file: &str) -> String {
    let path = format!("{}/../{of}/src/{file}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("the source is beside this crate")
}

#[test]
fn each_option_states_the_default_that_it_has() {
    let core = |file: &str| source("percolator-core", file);
    check(&core("options.rs"), "Options", &Options::default());
    check(&core("observe/options.rs"), "WorkerOptions", &WorkerOptions::default());
    check(&core("observe/observer.rs"), "Batch", &Batch::default());
    check(&core("gc/background.rs"), "GcOptions", &GcOptions::default());
    check(&core("oracle/election.rs"), "OracleOptions", &OracleOptions::default());
    check(include_str!("../src/embedded.rs"), "OpenOptions", &OpenOptions::default());
}

#[cfg(feature = "cluster")]
#[test]
fn each_option_of_servers_and_clients_states_the_default_that_it_has() {
    use bigtable_grpc::{ClientOptions, ServeOptions};
    use percolator_rpc::oracle::{OracleServerOptions, RemoteOracleOptions};
    let grpc = |file: &str| source("bigtable-grpc", file);
    check(&grpc("server/mod.rs"), "ServeOptions", &ServeOptions::default());
    check(&grpc("client/options.rs"), "ClientOptions", &ClientOptions::default());
    let rpc = |file: &str| source("percolator-rpc", file);
    check(&rpc("oracle/client.rs"), "RemoteOracleOptions", &RemoteOracleOptions::default());
    check(&rpc("oracle/server.rs"), "OracleServerOptions", &OracleServerOptions::default());
}

#[cfg(feature = "etcd")]
#[test]
fn each_option_of_etcd_states_the_default_that_it_has() {
    use percolator_rpc::etcd::EtcdOptions;
    check(&source("percolator-rpc", "etcd/locks.rs"), "EtcdOptions", &EtcdOptions::default());
}
