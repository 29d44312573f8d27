//! Checks where types are extended by `impl Type`: in the type's **room**, and in at most three
//! files outside. The room is the folder of the file that defines the type, and that file's own
//! folder.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Finding;
use crate::modules::Modules;
use crate::tree::Tree;

const RULE: &str = "rooms";
/// The maximum number of files outside of a type's room that extend it, without an exception.
const FILES_MAX: usize = 3;

/// The files outside of a type's room that extend it, with the line of the first `impl`.
type Outside = BTreeMap<String, usize>;

/// Checks that at most three files outside of a type's room extend it by `impl Type`.
///
/// The room is the folder of the file that defines the type, and that file's own folder. An
/// exception names a package's folder, a type, and the number of files today. An exception
/// that is larger than this number is a finding, so that the number follows.
#[must_use]
pub fn rooms(tree: &Tree, exceptions: &[(&str, &str, usize)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut seen = BTreeSet::new();
    for package in tree.packages() {
        for ((defined_in, name), outside) in extended(&Modules::of(tree, package)) {
            let mut of_this = exceptions.iter().filter(|(at, of, _)| *at == package && *of == name);
            let allowed = of_this.next().map(|(.., files)| *files);
            let max = allowed.unwrap_or(FILES_MAX);
            if allowed.is_some() {
                seen.insert((package, name.clone()));
            }
            if outside.len() > max {
                let places: Vec<String> =
                    outside.iter().map(|(file, line)| format!("    {file}:{line}")).collect();
                let message = format!(
                    "{} files outside of its folder extend {name} by `impl {name}`, at most {max} \
                     may: use a type of the other folder, or a function\n{}",
                    outside.len(),
                    places.join("\n")
                );
                findings.push(Finding::new(&defined_in, 1, RULE, message));
            } else if allowed.is_some() && (outside.len() < max || max <= FILES_MAX) {
                let message = format!(
                    "{} files outside of its folder extend {name}, and the exception allows {max}: \
                     lower it, or delete it if that is at most {FILES_MAX}",
                    outside.len()
                );
                findings.push(Finding::new(&defined_in, 1, RULE, message));
            }
        }
    }
    for (package, name, _) in exceptions {
        if !seen.contains(&(*package, (*name).to_owned())) {
            let message = format!("no type {name} is extended there: delete its exception");
            findings.push(Finding::new(package, 1, RULE, message));
        }
    }
    findings
}

/// Lists the extended types, by the file that defines them and their names.
fn extended(modules: &Modules) -> BTreeMap<(String, String), Outside> {
    let mut types: BTreeMap<_, Outside> = BTreeMap::new();
    for (id, module) in modules.all.iter().enumerate() {
        for (line, path) in &module.extended {
            let Some((defined_in, name)) = modules.definition(id, path) else { continue };
            let outside = types.entry((defined_in.to_owned(), name)).or_default();
            if !is_in_room(defined_in, &module.file) {
                outside.entry(module.file.clone()).or_insert(*line);
            }
        }
    }
    types
}

fn is_in_room(defined_in: &str, file: &str) -> bool {
    let folder = |file: &str| file.rsplit_once('/').map(|(folder, _)| folder.to_owned());
    let own = format!("{}/", defined_in.trim_end_matches(".rs"));
    folder(defined_in) == folder(file) || file.starts_with(&own)
}
