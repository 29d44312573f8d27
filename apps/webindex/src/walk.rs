//! Walks over a directory of HTML files, and yields each file with the URL under which it is
//! mounted.
//!
//! A symlink adds a URL. A link to a file makes the file a page under both names, as
//! documentation sites do for untranslated pages. A link to a directory is entered.
//!
//! Invariants:
//!
//! * The order is that of the relative paths' bytes, independent of the order in which the
//!   operating system lists names. So two walks of one tree yield the same sequence.
//! * The walk ends. A directory is not entered below itself, nor through a symlink to one of
//!   the root's own parents. No directory is listed more than [`VISITS_MAX`] times, nor deeper
//!   than [`DEPTH_MAX`].
//! * Only the consumer ends the walk early: an entry that cannot be read is yielded as a
//!   [`Problem`].
//! * Only regular files are yielded, because opening a FIFO would block forever.
//!
//! Memory: the entries of the directories on the path from the root, and a count for each
//! directory that was entered.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::address::{Base, URL_BYTES_MAX};

/// How often one directory is listed, under different names.
pub const VISITS_MAX: u32 = 16;

/// How many directories deep a walk goes.
pub const DEPTH_MAX: usize = 64;

/// A file to load, and the URL of its page.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # std::fs::write(dir.path().join("a.html"), "<p>hello")?;
/// use webindex::address::Base;
/// use webindex::walk::Walk;
///
/// let base = Base::parse("https://example.org/")?;
/// for found in Walk::new(dir.path(), &base, &[])? {
///     assert_eq!(found?.url, "https://example.org/a.html");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The file's path, ready to be opened.
    pub path: PathBuf,
    /// The file's path below the directory.
    pub name: PathBuf,
    /// The file's canonical URL.
    pub url: String,
}

/// An entry of the tree that is not loaded, and the reason. The walk goes on.
///
/// ```
/// use webindex::walk::Problem;
///
/// let problem = Problem::NotAFile { path: "docs/pipe.html".into() };
/// assert_eq!(problem.to_string(), "docs/pipe.html is not a regular file");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file or directory cannot be read, or a symlink leads nowhere.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// A FIFO, socket or device whose name is that of a page.
    #[error("{} is not a regular file", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// A symlink to a directory that contains it.
    #[error("{} leads back to {}", path.display(), target.display())]
    Cycle {
        /// The symlink.
        path: PathBuf,
        /// The directory to which the symlink leads.
        target: PathBuf,
    },
    /// A directory that was listed too often, or that is too deep.
    #[error("{} was not searched: {limit}", path.display())]
    Limit {
        /// The directory.
        path: PathBuf,
        /// The limit, in words.
        limit: &'static str,
    },
    /// The URL of the file would be too long to be stored.
    #[error(
        "{} would have a URL of {bytes} bytes, at most {URL_BYTES_MAX} are allowed",
        path.display()
    )]
    UrlTooLong {
        /// The file.
        path: PathBuf,
        /// The length of its URL.
        bytes: usize,
    },
}

impl Problem {
    /// Returns the file or directory that is not loaded.
    ///
    /// ```
    /// use webindex::walk::Problem;
    ///
    /// let problem = Problem::NotAFile { path: "docs/pipe.html".into() };
    /// assert_eq!(problem.path(), std::path::Path::new("docs/pipe.html"));
    /// ```
    pub fn path(&self) -> &Path {
        match self {
            Problem::Unreadable { path, .. }
            | Problem::NotAFile { path }
            | Problem::Cycle { path, .. }
            | Problem::Limit { path, .. }
            | Problem::UrlTooLong { path, .. } => path,
        }
    }
}

/// An iterator over a directory's pages, see the [module](self).
#[derive(Debug)]
pub struct Walk {
    root: PathBuf,
    root_real: PathBuf,
    base: Base,
    /// The directories from the root to the current one.
    stack: Vec<Level>,
    visits: HashMap<PathBuf, u32>,
    /// The excluded names that no entry directly below the root has.
    unmatched: Vec<String>,
}

/// A directory whose entries are being yielded.
#[derive(Debug)]
struct Level {
    real: PathBuf,
    relative: PathBuf,
    /// The entries that are not yielded yet, in reverse order.
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    name: OsString,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Page,
    Directory,
    Problem(Problem),
}

impl Walk {
    /// Starts a walk of `dir`. `exclude` names entries directly below `dir` that are left out.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if `dir` does not exist, is not a directory or cannot be listed. Below
    /// `dir`, such failures are yielded as [`Problem`]s.
    pub fn new(dir: &Path, base: &Base, exclude: &[&str]) -> Result<Self, Error> {
        let failed = |source| Error::io("walk the directory", dir, source);
        let root_real = dir.canonicalize().map_err(failed)?;
        let mut entries = list(dir).map_err(failed)?;
        let is_there = |name: &str| entries.iter().any(|entry| entry.name == *OsStr::new(name));
        let unmatched = exclude.iter().filter(|name| !is_there(name));
        let unmatched = unmatched.map(|name| (*name).to_owned()).collect();
        entries.retain(|entry| !exclude.iter().any(|name| entry.name == *OsStr::new(name)));
        let top = Level { real: root_real.clone(), relative: PathBuf::new(), entries };
        let visits = HashMap::from([(root_real.clone(), 1)]);
        let root = dir.to_path_buf();
        Ok(Walk { root, root_real, base: base.clone(), stack: vec![top], visits, unmatched })
    }

    /// Returns the excluded names that no page and no directory directly below the root has.
    pub fn unmatched(&self) -> &[String] {
        &self.unmatched
    }

    fn page(&self, name: PathBuf) -> Result<Found, Problem> {
        let path = self.root.join(&name);
        let url = self.base.url_of(&name).expect("names from a listing are plain segments");
        if url.len() > URL_BYTES_MAX {
            return Err(Problem::UrlTooLong { path, bytes: url.len() });
        }
        Ok(Found { path, name, url })
    }

    fn enter(&mut self, relative: PathBuf) -> Result<(), Problem> {
        let path = self.root.join(&relative);
        if self.stack.len() >= DEPTH_MAX {
            return Err(Problem::Limit { path, limit: "directories are nested too deeply" });
        }
        let real = match path.canonicalize() {
            Ok(real) => real,
            Err(source) => return Err(Problem::Unreadable { path, source }),
        };
        // A parent of the root contains the root, so entering it would find all files again.
        if self.root_real.starts_with(&real) || self.stack.iter().any(|level| level.real == real) {
            return Err(Problem::Cycle { path, target: real });
        }
        // Directories that link to each other have as many paths as there are permutations of
        // them.
        let visits = self.visits.entry(real.clone()).or_insert(0);
        if *visits >= VISITS_MAX {
            return Err(Problem::Limit {
                path,
                limit: "it was searched under another name already",
            });
        }
        *visits += 1;
        match list(&path) {
            Ok(entries) => self.stack.push(Level { real, relative, entries }),
            Err(source) => return Err(Problem::Unreadable { path, source }),
        }
        Ok(())
    }
}

impl Iterator for Walk {
    type Item = Result<Found, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let level = self.stack.last_mut()?;
            let Some(entry) = level.entries.pop() else {
                self.stack.pop();
                continue;
            };
            let relative = level.relative.join(&entry.name);
            match entry.kind {
                Kind::Page => return Some(self.page(relative)),
                Kind::Problem(problem) => return Some(Err(problem)),
                Kind::Directory => {
                    if let Err(problem) = self.enter(relative) {
                        return Some(Err(problem));
                    }
                }
            }
        }
    }
}

/// Lists a directory's pages, directories and problems, the last name first.
fn list(dir: &Path) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(dir)? {
        // An entry that cannot even be named means that the listing was broken off.
        let entry = entry?;
        let name = entry.file_name();
        if let Some(kind) = kind_of(&entry.path(), entry.file_type(), &name) {
            entries.push(Entry { name, kind });
        }
    }
    entries.sort_unstable_by(|a, b| b.sort_key().cmp(a.sort_key()));
    Ok(entries)
}

impl Entry {
    /// The bytes by which whole relative paths are sorted: `a.html` comes before `a/b.html`.
    fn sort_key(&self) -> impl Iterator<Item = u8> + '_ {
        let slash = matches!(self.kind, Kind::Directory).then_some(b'/');
        self.name.as_encoded_bytes().iter().copied().chain(slash)
    }
}

/// Decides what an entry is. `None` for a file that is not a page.
fn kind_of(path: &Path, listed: io::Result<fs::FileType>, name: &OsStr) -> Option<Kind> {
    // Only a symlink needs a second look. For other entries the listing gives the type.
    let file_type = match listed {
        Ok(file_type) if !file_type.is_symlink() => Ok(file_type),
        _ => fs::metadata(path).map(|metadata| metadata.file_type()),
    };
    match file_type {
        Ok(file_type) if file_type.is_dir() => Some(Kind::Directory),
        Ok(_) if !has_page_name(name) => None,
        Ok(file_type) if file_type.is_file() => Some(Kind::Page),
        Ok(_) => Some(Kind::Problem(Problem::NotAFile { path: path.to_path_buf() })),
        // A symlink that leads nowhere is a problem only if it has the name of a page.
        Err(_) if !has_page_name(name) => None,
        Err(source) => {
            Some(Kind::Problem(Problem::Unreadable { path: path.to_path_buf(), source }))
        }
    }
}

/// Returns whether a file with this name is a page: `.html`, `.htm` or `.xhtml`.
pub fn has_page_name(name: &OsStr) -> bool {
    let extension = Path::new(name).extension().and_then(OsStr::to_str).unwrap_or_default();
    ["html", "htm", "xhtml"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests;
