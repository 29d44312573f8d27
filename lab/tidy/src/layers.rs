//! Checks the layers of the workspace: nothing in `crates/` or `apps/` depends on `lab/`.

use std::collections::BTreeSet;

use toml::{Table, Value};

use crate::finding::Finding;
use crate::tree::Tree;

const KINDS: &[&str] = &["dependencies", "dev-dependencies", "build-dependencies"];

/// Checks that no package in `crates/` or `apps/` depends on one in `lab/`, by any kind of
/// dependency.
///
/// # Panics
///
/// Panics if a manifest is not valid TOML.
#[must_use]
pub fn layers(tree: &Tree) -> Vec<Finding> {
    let manifests: Vec<(&str, &str, Table)> = tree
        .below("")
        .filter(|(path, _)| path.ends_with("Cargo.toml"))
        .map(|(path, text)| (path, text, parse(path, text)))
        .collect();
    let lab: BTreeSet<&str> = manifests
        .iter()
        .filter(|(path, ..)| path.starts_with("lab/"))
        .filter_map(|(_, _, manifest)| manifest.get("package")?.get("name")?.as_str())
        .collect();
    let root = manifests.iter().find(|(path, ..)| *path == "Cargo.toml");
    let shared = root.and_then(|(_, _, manifest)| manifest.get("workspace")?.get("dependencies"));
    let mut findings = Vec::new();
    for (path, text, manifest) in &manifests {
        if !path.starts_with("crates/") && !path.starts_with("apps/") {
            continue;
        }
        for (key, dependency) in dependencies(manifest) {
            let package = package(key, dependency, shared);
            if lab.contains(package) {
                let named = |line: &str| line.trim_start().starts_with(key);
                let line = text.lines().position(named).map_or(1, |index| index + 1);
                let message = format!(
                    "depends on {package}, which lies in lab/: move what is needed out of lab/, or \
                     what needs it into lab/"
                );
                findings.push(Finding::new(path, line, "layers", message));
            }
        }
    }
    findings
}

fn parse(path: &str, text: &str) -> Table {
    text.parse().unwrap_or_else(|error| panic!("{path} is not valid TOML: {error}"))
}

/// Lists the dependencies of a manifest, including those for single targets.
fn dependencies(manifest: &Table) -> Vec<(&str, &Value)> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    let tables = std::iter::once(manifest).chain(targets);
    let kinds = tables.flat_map(|table| KINDS.iter().filter_map(|kind| table.get(*kind)));
    let entries = kinds.filter_map(Value::as_table).flatten();
    entries.map(|(key, dependency)| (key.as_str(), dependency)).collect()
}

/// Returns the package that a dependency names, also if it is renamed here.
fn package<'a>(key: &'a str, dependency: &'a Value, shared: Option<&'a Value>) -> &'a str {
    let renamed = |dependency: &'a Value| dependency.get("package").and_then(Value::as_str);
    let workspace = dependency.get("workspace").is_some();
    let inherited = shared.filter(|_| workspace).and_then(|shared| shared.get(key));
    renamed(dependency).or(inherited.and_then(renamed)).unwrap_or(key)
}
