//! Holds the files that the checks read, in memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

/// The folders that contain packages.
const FOLDERS: &[&str] = &["crates", "apps", "lab", "fuzz"];

/// The text of files by their paths, relative to the root of the repository.
#[derive(Debug, Default)]
pub struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads the sources and manifests of the repository, and the documents that the checks need.
    ///
    /// # Errors
    ///
    /// Fails if a folder or file cannot be read.
    pub fn read(root: &Path) -> io::Result<Tree> {
        let mut tree = Tree::default();
        tree.add("Cargo.toml", fs::read_to_string(root.join("Cargo.toml"))?);
        for folder in FOLDERS.iter().copied().chain(["docs"]) {
            tree.read_folder(root, folder)?;
        }
        Ok(tree)
    }

    /// Adds a file, or replaces it.
    pub fn add(&mut self, path: &str, text: impl Into<String>) {
        self.files.insert(path.to_owned(), text.into());
    }

    fn read_folder(&mut self, root: &Path, folder: &str) -> io::Result<()> {
        // The tree of an older commit may lack some of these folders.
        if !root.join(folder).exists() {
            return Ok(());
        }
        for entry in fs::read_dir(root.join(folder))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{folder}/{name}");
            if entry.file_type()?.is_dir() {
                if name != "target" {
                    self.read_folder(root, &path)?;
                }
            } else if path.ends_with(".rs") || path.ends_with(".md") || name == "Cargo.toml" {
                self.add(&path, fs::read_to_string(entry.path())?);
            }
        }
        Ok(())
    }

    pub(crate) fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Iterates over the files whose paths begin with `prefix`.
    pub(crate) fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let files = self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        files.filter(move |(path, _)| path.starts_with(prefix))
    }

    /// Iterates over the Rust files, without generated code.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.below("").filter(|(path, _)| path.ends_with(".rs") && !path.contains("/generated/"))
    }

    /// Lists the folders of packages, such as `crates/bigtable`.
    pub(crate) fn packages(&self) -> Vec<&str> {
        let manifests = self.below("").filter_map(|(path, _)| path.strip_suffix("/Cargo.toml"));
        manifests.collect()
    }
}
