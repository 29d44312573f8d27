//! Reads the modules of a package from its source: children, imports, definitions, paths.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::Source;
use crate::tree::Tree;

/// A path as the source has it, such as `crate::records::Lock`.
pub(crate) type Path = Vec<String>;

/// A name that a `use` brings into a module.
#[derive(Debug)]
pub(crate) struct Import {
    pub(crate) line: usize,
    pub(crate) path: Path,
    /// Whether other modules can import the name from here.
    pub(crate) passed_on: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Module {
    pub(crate) file: String,
    /// The parent module; the root of a crate is its own parent.
    pub(crate) parent: usize,
    pub(crate) root: usize,
    pub(crate) children: BTreeMap<String, usize>,
    pub(crate) imports: BTreeMap<String, Import>,
    /// Imports by `use path::*`, and imports of traits without a name.
    pub(crate) unnamed: Vec<Import>,
    pub(crate) defined: BTreeSet<String>,
    /// The words outside of imports.
    pub(crate) words: BTreeSet<String>,
    pub(crate) paths: Vec<(usize, Path)>,
    /// The types of `impl Type`, not of `impl Trait for Type`.
    pub(crate) extended: Vec<(usize, Path)>,
}

/// The modules of all crates of a package: its library and its programs.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    pub(crate) all: Vec<Module>,
}

impl Modules {
    /// Reads the package in a folder.
    pub(crate) fn of(tree: &Tree, package: &str) -> Modules {
        let mut modules = Modules::default();
        let programs = format!("{package}/src/bin/");
        let roots = ["lib.rs", "main.rs"].map(|name| format!("{package}/src/{name}"));
        let roots = roots.iter().map(String::as_str);
        for root in roots.chain(tree.below(&programs).map(|(path, _)| path)) {
            if tree.get(root).is_some() {
                let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
                modules.read(tree, root, folder, None);
            }
        }
        modules
    }

    fn add(&mut self, file: &str, parent: Option<usize>) -> usize {
        let id = self.all.len();
        let root = parent.map_or(id, |parent| self.all[parent].root);
        let parent = parent.unwrap_or(id);
        self.all.push(Module { file: file.to_owned(), parent, root, ..Module::default() });
        id
    }

    /// Reads a file whose child modules are in `folder`.
    fn read(&mut self, tree: &Tree, file: &str, folder: &str, parent: Option<usize>) -> usize {
        let id = self.add(file, parent);
        let code = Source::of(tree.get(file).unwrap_or_default()).without_tests();
        let tokens = tokens(&code);
        let mut reader = Reader { tree, modules: self, tokens: &tokens, at: 0, depth: 0 };
        reader.module(id, folder);
        id
    }
}

struct Token {
    text: String,
    line: usize,
}

fn is_word(text: &str) -> bool {
    text.starts_with(|char: char| char.is_alphabetic() || char == '_')
}

/// Splits code into words, `::`, and single characters.
fn tokens(code: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let is_part = |char: char| char.is_alphanumeric() || char == '_';
            let len = if is_part(first) {
                rest.find(|char| !is_part(char)).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            tokens.push(Token { text: rest[..len].to_owned(), line: index + 1 });
            rest = rest[len..].trim_start();
        }
    }
    tokens
}

struct Reader<'a> {
    tree: &'a Tree,
    modules: &'a mut Modules,
    tokens: &'a [Token],
    at: usize,
    /// The number of open brackets of any kind.
    depth: usize,
}

impl Reader<'_> {
    fn text(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| &token.text)
    }

    fn before(&self, by: usize) -> &str {
        self.at.checked_sub(by).map_or("", |at| self.text(at))
    }

    fn line(&self) -> usize {
        self.tokens.get(self.at).map_or(1, |token| token.line)
    }

    /// Reads a module to its end, which is the end of the file or a closing brace.
    fn module(&mut self, id: usize, folder: &str) {
        let depth = self.depth;
        while self.at < self.tokens.len() {
            let text = self.text(self.at).to_owned();
            let at_top = self.depth == depth;
            match text.as_str() {
                "(" | "[" | "{" => self.depth += 1,
                ")" | "]" | "}" if at_top => return,
                ")" | "]" | "}" => self.depth -= 1,
                "mod" if at_top && is_word(self.text(self.at + 1)) => {
                    self.child(id, folder);
                    continue;
                }
                "use" if self.text(self.at + 1) != "<" => {
                    self.import(id);
                    continue;
                }
                "impl" if at_top && matches!(self.before(1), "" | ";" | "}" | "]" | "{") => {
                    self.extension(id);
                }
                _ if at_top => self.definition(id, &text),
                _ => {}
            }
            if is_word(&text) {
                self.word(id, text);
            } else {
                self.at += 1;
            }
        }
    }

    fn definition(&mut self, id: usize, keyword: &str) {
        let name = match keyword {
            "struct" | "enum" | "union" | "trait" | "type" | "fn" | "const" | "static" => {
                self.text(self.at + 1)
            }
            "macro_rules" => self.text(self.at + 2),
            _ => return,
        };
        let name = name.to_owned();
        self.modules.all[id].defined.insert(name);
    }

    /// Reads `mod name;` or `mod name { .. }`.
    fn child(&mut self, id: usize, folder: &str) {
        let name = self.text(self.at + 1).to_owned();
        let below = format!("{folder}/{name}");
        self.at += 3;
        let child = if self.text(self.at - 1) == "{" {
            let file = self.modules.all[id].file.clone();
            let child = self.modules.add(&file, Some(id));
            self.depth += 1;
            self.module(child, &below);
            self.depth -= 1;
            self.at += 1;
            Some(child)
        } else {
            let files = [format!("{below}.rs"), format!("{below}/mod.rs")];
            let file = files.iter().find(|file| self.tree.get(file).is_some());
            file.map(|file| self.modules.read(self.tree, file, &below, Some(id)))
        };
        if let Some(child) = child {
            self.modules.all[id].children.insert(name, child);
        }
    }

    fn import(&mut self, id: usize) {
        let passed_on = matches!(self.before(1), "pub" | ")");
        self.at += 1;
        self.import_tree(id, &mut Vec::new(), passed_on);
        while self.at < self.tokens.len() && self.text(self.at) != ";" {
            self.at += 1;
        }
    }

    /// Reads one tree of a `use` after a prefix, and stops at the token that ends it.
    fn import_tree(&mut self, id: usize, prefix: &mut Path, passed_on: bool) {
        let (len, line) = (prefix.len(), self.line());
        loop {
            match self.text(self.at) {
                "::" => self.at += 1,
                "{" => {
                    self.at += 1;
                    while !matches!(self.text(self.at), "}" | "") {
                        self.import_tree(id, prefix, passed_on);
                        if self.text(self.at) == "," {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    break;
                }
                "*" => {
                    let import = Import { line, path: prefix.clone(), passed_on };
                    self.modules.all[id].unnamed.push(import);
                    self.at += 1;
                    break;
                }
                text if is_word(text) && text != "as" => {
                    prefix.push(text.to_owned());
                    self.at += 1;
                }
                _ => {
                    self.import_name(id, prefix, passed_on, line);
                    break;
                }
            }
        }
        prefix.truncate(len);
    }

    fn import_name(&mut self, id: usize, path: &Path, passed_on: bool, line: usize) {
        let mut path = path.clone();
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let mut name = path.last().cloned().unwrap_or_default();
        if self.text(self.at) == "as" {
            self.text(self.at + 1).clone_into(&mut name);
            self.at += 2;
        } else if name.is_empty() {
            // The token belongs to no `use` of Rust, so it is skipped.
            self.at += 1;
            return;
        }
        let import = Import { line, path, passed_on };
        let module = &mut self.modules.all[id];
        if name == "_" {
            module.unnamed.push(import);
        } else {
            module.imports.insert(name, import);
        }
    }

    /// Looks ahead at an `impl`, and records its type if it names no trait.
    fn extension(&mut self, id: usize) {
        let mut at = self.at + 1;
        let (mut angles, mut path) = (0_usize, Path::new());
        loop {
            match self.text(at) {
                "<" => angles += 1,
                // The `>` of an arrow closes no bracket.
                ">" if self.text(at - 1) != "-" => angles = angles.saturating_sub(1),
                "{" | "where" if angles == 0 => break,
                "for" if angles == 0 => return,
                "" => return,
                text if angles == 0 && is_word(text) => path.push(text.to_owned()),
                _ => {}
            }
            at += 1;
        }
        let line = self.line();
        if !path.is_empty() {
            self.modules.all[id].extended.push((line, path));
        }
    }

    /// Reads a word, and the path that begins with it.
    fn word(&mut self, id: usize, word: String) {
        let line = self.line();
        // A visibility such as `pub(in crate::records)` is no import.
        let visibility = self.before(1) == "in" && self.before(2) == "(";
        let begins = !matches!(self.before(1), "::" | ".");
        let mut path = vec![word];
        self.at += 1;
        while self.text(self.at) == "::" && is_word(self.text(self.at + 1)) {
            path.push(self.text(self.at + 1).to_owned());
            self.at += 2;
        }
        let module = &mut self.modules.all[id];
        module.words.insert(path[0].clone());
        if begins && !visibility && path.len() > 1 {
            module.paths.push((line, path));
        }
    }
}
