//! Builds the graph of imports between files: each name is followed to the file that defines it.

use std::collections::BTreeMap;

use crate::modules::{Module, Modules};

/// The target of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Module(usize),
    /// An item, by the module that defines it and its name there.
    Item(usize, String),
}

/// The names that were looked up on the way, by module, with their targets. A name whose lookup
/// is not complete has none. So each is looked up once, and a circle of imports ends.
type Known = BTreeMap<(usize, String), Option<Target>>;

/// The imports of each file: the files that it imports from, with the line of the first import.
pub(crate) type Graph = BTreeMap<String, BTreeMap<String, usize>>;

impl Modules {
    /// Follows a path that is used in a module. Returns `None` if it leads out of the package.
    pub(crate) fn resolve(&self, from: usize, path: &[String]) -> Option<Target> {
        self.follow(from, path, &mut Known::new())
    }

    fn follow(&self, from: usize, path: &[String], known: &mut Known) -> Option<Target> {
        let mut at = from;
        for (index, name) in path.iter().enumerate() {
            at = match name.as_str() {
                "crate" if index == 0 => self.all[from].root,
                "self" => at,
                "super" => self.all[at].parent,
                _ => match self.lookup(at, name, known) {
                    Some(Target::Module(module)) => module,
                    None if index > 0 && !self.is_foreign(at, name) => {
                        // A macro defines the item.
                        return Some(Target::Item(at, name.clone()));
                    }
                    other => return other,
                },
            };
        }
        Some(Target::Module(at))
    }

    /// Returns whether a module imports a name from another package.
    fn is_foreign(&self, module: usize, name: &str) -> bool {
        self.all[module].imports.contains_key(name)
    }

    fn lookup(&self, at: usize, name: &str, known: &mut Known) -> Option<Target> {
        let key = (at, name.to_owned());
        if let Some(target) = known.get(&key) {
            return target.clone();
        }
        known.insert(key.clone(), None);
        let target = self.look_up(at, name, known);
        known.insert(key, target.clone());
        target
    }

    fn look_up(&self, at: usize, name: &str, known: &mut Known) -> Option<Target> {
        let module = &self.all[at];
        if module.defined.contains(name) {
            return Some(Target::Item(at, name.to_owned()));
        }
        if let Some(&child) = module.children.get(name) {
            return Some(Target::Module(child));
        }
        if let Some(import) = module.imports.get(name) {
            // If the import of `name` begins with `name` itself, it names another package.
            let own = import.path.first().is_some_and(|first| first == name);
            return if own { None } else { self.follow(at, &import.path, known) };
        }
        module.unnamed.iter().find_map(|import| match self.follow(at, &import.path, known) {
            Some(Target::Module(all)) if all != at => self.lookup(all, name, known),
            _ => None,
        })
    }

    /// Returns the file that defines an item, with its name there.
    pub(crate) fn definition(&self, from: usize, path: &[String]) -> Option<(&str, String)> {
        match self.resolve(from, path)? {
            Target::Module(_) => None,
            Target::Item(module, name) => Some((&self.all[module].file, name)),
        }
    }

    pub(crate) fn graph(&self) -> Graph {
        let mut graph = Graph::new();
        for (id, module) in self.all.iter().enumerate() {
            let mut add = |line: usize, file: &str| {
                let of = graph.entry(module.file.clone()).or_default();
                if file != module.file {
                    let first = of.entry(file.to_owned()).or_insert(line);
                    *first = line.min(*first);
                }
            };
            for (line, path) in used(module) {
                match self.resolve(id, path) {
                    Some(Target::Item(of, _)) => add(line, &self.all[of].file),
                    // A glob imports all names that the module defines.
                    Some(Target::Module(of)) if is_glob(module, line, path) => {
                        add(line, &self.all[of].file);
                    }
                    _ => {}
                }
            }
        }
        graph
    }
}

/// Lists the paths that a module uses. An import that is only passed on is not used.
fn used(module: &Module) -> impl Iterator<Item = (usize, &[String])> {
    let named = module
        .imports
        .iter()
        .filter(|(name, import)| !import.passed_on || module.words.contains(name.as_str()));
    let named = named.map(|(_, import)| (import.line, &import.path[..]));
    let unnamed = module.unnamed.iter().filter(|import| !import.passed_on);
    let unnamed = unnamed.map(|import| (import.line, &import.path[..]));
    let paths = module.paths.iter().map(|(line, path)| (*line, &path[..]));
    named.chain(unnamed).chain(paths)
}

fn is_glob(module: &Module, line: usize, path: &[String]) -> bool {
    module.unnamed.iter().any(|import| import.line == line && import.path == path)
}
