//! Compares the reference of settings with the code.

#![allow(clippy::unwrap_used, reason = "tests and their helpers")]

#[allow(dead_code, reason = "some of it is for other tests")]
mod shell;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use percolator::cluster::Config;

/// Variables that libraries of others read, or the standard library.
const ELSEWHERE: [&str; 2] = ["GOOGLE_APPLICATION_CREDENTIALS", "TMPDIR"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn printed(words: &[&str]) -> String {
    shell::run(&[&["config", "reference"], words].concat()).with(0).stdout
}

/// The names in the first column of a table's rows in the page's section.
fn names(page: &str, section: &str) -> BTreeSet<String> {
    let section = page.split("\n## ").find(|part| part.starts_with(section)).unwrap();
    let cell = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    section.lines().filter_map(cell).collect()
}

#[test]
fn the_page_of_settings_is_that_of_the_code() {
    let page = fs::read_to_string(root().join("docs/settings.md")).unwrap();
    let wanted = printed(&[]);
    assert_eq!(page, wanted, "write it: percolator config reference > docs/settings.md");
    let mut settings: BTreeSet<String> =
        Config::known().iter().map(|setting| setting.key.to_owned()).collect();
    assert!(settings.contains("locks.lifetime_ms"));
    settings.insert("app.search".to_owned());
    assert_eq!(names(&page, "In files"), settings);
    let json: serde_json::Value = serde_json::from_str(&printed(&["--json"])).unwrap();
    assert_eq!(json["settings"].as_array().unwrap().len(), settings.len());
    let names = names(&page, "In the environment");
    let listed = json["variables"].as_array().unwrap().iter();
    let listed: BTreeSet<String> =
        listed.map(|variable| variable["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(listed, names);
}

/// The files of Rust below a directory, without tests and generated code.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() && !["tests", "generated", "target", "examples"].contains(&&*name) {
            sources(&path, found);
        } else if name.ends_with(".rs") && !["tests.rs", "mutants.rs"].contains(&&*name) {
            found.push(path);
        }
    }
}

/// The variables that a source reads: literals, and constants of the same file.
fn read_in(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, _) in text.match_indices("env::var") {
        let call = &text[at..];
        let Some(rest) =
            ["env::var(", "env::var_os("].iter().find_map(|name| call.strip_prefix(name))
        else {
            continue;
        };
        let argument = rest.split(')').next().unwrap().trim();
        let literal = match argument.strip_prefix('"') {
            Some(rest) => rest.trim_end_matches('"').to_owned(),
            // A field of an entry of `environment.rs`, which the page lists.
            None if argument == "self.name" => continue,
            None => {
                let constant = text.split(&format!("const {argument}: &str = \"")).nth(1);
                constant.expect(argument).split('"').next().unwrap().to_owned()
            }
        };
        names.push(literal);
    }
    names
}

#[test]
fn every_variable_that_the_code_reads_is_on_the_page() {
    let page = printed(&[]);
    let listed = names(&page, "In the environment");
    let mut files = Vec::new();
    for dir in ["crates", "apps"] {
        sources(&root().join(dir), &mut files);
    }
    let mut read = BTreeSet::new();
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        // Tests stand at the end of a file.
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        read.extend(read_in(text));
    }
    for name in ["BIGTABLE_EMULATOR_HOST", "XDG_CONFIG_HOME", "PERCOLATOR_CONSOLE_ASSETS"] {
        assert!(read.contains(name), "{name} is found: {read:?}");
    }
    let missing: Vec<&String> = read.difference(&listed).collect();
    assert!(missing.is_empty(), "add to src/environment.rs: {missing:?}");

    // No variable is listed that nothing reads.
    let own = fs::read_to_string(root().join("crates/percolator-cli/src/environment.rs")).unwrap();
    let settings: BTreeSet<String> = Config::known().iter().map(|known| known.variable()).collect();
    for name in &listed {
        let is_setting = settings.contains(name) || name == "PERCOLATOR_APP__SEARCH";
        let is_option = name == "PERCOLATOR_DATA";
        let is_entry = own.contains(&format!("pub(crate) const {name}: Variable"));
        let is_elsewhere = ELSEWHERE.contains(&&**name);
        assert!(
            is_setting || is_option || is_entry || is_elsewhere || read.contains(name),
            "{name}"
        );
    }
}
