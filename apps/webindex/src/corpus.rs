//! Finds pages for `demo` when no directory is given: documentation that is installed already.
//!
//! It looks at the Rust toolchain first, and then at the distribution's packages. If both have
//! none, [`crate::generate`] makes a site. Nothing is downloaded.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;
use crate::address::Base;
use crate::walk::Walk;

/// The address at which the Rust documentation is published, and thus the URLs of its pages.
pub const RUST_DOCS_BASE: &str = "https://doc.rust-lang.org/";

/// The part of the Rust documentation that is left out: most of it repeats `std`, and it has
/// two fifths of the bytes.
pub const RUST_DOCS_EXCLUDED: &str = "core";

/// The directory in which distributions install documentation.
pub const INSTALLED_DOCS: &str = "/usr/share/doc";

/// The fewest pages for which an installed package's documentation is worth a demonstration.
pub const INSTALLED_PAGES_MIN: usize = 50;

/// The largest number of a package's pages that is counted.
const COUNTED_PAGES_MAX: usize = 10_000;

/// The origin of a corpus.
///
/// ```
/// assert_ne!(webindex::corpus::Origin::RustToolchain, webindex::corpus::Origin::Installed);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// `share/doc/rust/html` of the Rust toolchain.
    RustToolchain,
    /// A package's directory below [`INSTALLED_DOCS`].
    Installed,
}

/// A directory of pages, and the URL to mount it at.
///
/// ```
/// if let Some(corpus) = webindex::corpus::find()?.first() {
///     assert!(corpus.pages > 0 && corpus.dir.is_dir());
/// }
/// # Ok::<(), webindex::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corpus {
    /// The origin of the pages.
    pub origin: Origin,
    /// The directory.
    pub dir: PathBuf,
    /// The URL of the directory.
    pub base: Base,
    /// Names directly below the directory that are left out.
    pub exclude: Vec<&'static str>,
    /// How many pages it has, counted up to 10,000.
    pub pages: usize,
}

/// Finds a corpus: only the Rust documentation, or else all installed packages with at least
/// [`INSTALLED_PAGES_MIN`] pages, the largest first. Empty if there is neither.
///
/// # Errors
///
/// [`Error::Io`] if a directory that was found cannot be walked.
pub fn find() -> Result<Vec<Corpus>, Error> {
    if let Some(corpus) = rust_sysroot().map_or(Ok(None), |sysroot| rust_docs(&sysroot))? {
        return Ok(vec![corpus]);
    }
    installed(Path::new(INSTALLED_DOCS), INSTALLED_PAGES_MIN)
}

/// Asks the Rust compiler on the search path for its toolchain's directory.
pub fn rust_sysroot() -> Option<PathBuf> {
    let output = Command::new("rustc")
        .args(["--print", "sysroot"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let path = String::from_utf8(output.stdout).ok()?;
    let path = path.trim_end();
    (output.status.success() && !path.is_empty()).then(|| PathBuf::from(path))
}

/// Returns the documentation in a Rust toolchain. `None` if it is not installed.
///
/// # Errors
///
/// [`Error::Io`] if the directory exists and cannot be walked.
pub fn rust_docs(sysroot: &Path) -> Result<Option<Corpus>, Error> {
    let dir = sysroot.join("share/doc/rust/html");
    if !dir.is_dir() {
        return Ok(None);
    }
    let base = Base::parse(RUST_DOCS_BASE)?;
    let exclude = vec![RUST_DOCS_EXCLUDED];
    let pages = count_pages(&dir, &base, &exclude)?;
    let corpus = Corpus { origin: Origin::RustToolchain, dir, base, exclude, pages };
    Ok((pages > 0).then_some(corpus))
}

/// Returns the packages below `root` that have at least `pages_min` pages, the largest first.
///
/// Packages that cannot be read are left out, as if they were not installed.
///
/// # Errors
///
/// [`Error::BadBase`], which cannot occur with the names of packages.
pub fn installed(root: &Path, pages_min: usize) -> Result<Vec<Corpus>, Error> {
    let Ok(entries) = fs::read_dir(root) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    // A link to another package's directory would add the same pages a second time.
    let is_own = |path: &PathBuf| path.is_dir() && !path.is_symlink();
    for dir in entries.flatten().map(|entry| entry.path()).filter(is_own) {
        let Some(package) = dir.file_name().and_then(OsStr::to_str) else { continue };
        let package: String = package.chars().map(|c| if is_plain(c) { c } else { '-' }).collect();
        let base = Base::parse(&format!("https://doc.example.org/{package}/"))?;
        let Ok(pages) = count_pages(&dir, &base, &[]) else { continue };
        if pages >= pages_min {
            found.push(Corpus { origin: Origin::Installed, dir, base, exclude: Vec::new(), pages });
        }
    }
    found.sort_by(|a, b| b.pages.cmp(&a.pages).then_with(|| a.dir.cmp(&b.dir)));
    Ok(found)
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+')
}

fn count_pages(dir: &Path, base: &Base, exclude: &[&str]) -> Result<usize, Error> {
    let found = Walk::new(dir, base, exclude)?.filter(Result::is_ok);
    Ok(found.take(COUNTED_PAGES_MAX).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(root: &Path, files: &[&str]) {
        for file in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "<p>").unwrap();
        }
    }

    #[test]
    fn the_rust_docs_are_found_without_core() {
        let sysroot = tempfile::tempdir().unwrap();
        assert_eq!(rust_docs(sysroot.path()).unwrap(), None);
        make(sysroot.path(), &["share/doc/rust/html/core/a.html"]);
        assert_eq!(rust_docs(sysroot.path()).unwrap(), None, "no pages without core");
        make(sysroot.path(), &["share/doc/rust/html/std/a.html", "share/doc/rust/html/i.html"]);
        let corpus = rust_docs(sysroot.path()).unwrap().unwrap();
        assert_eq!((corpus.pages, corpus.origin), (2, Origin::RustToolchain));
        assert_eq!(corpus.base.as_str(), RUST_DOCS_BASE);
        assert_eq!(corpus.exclude, ["core"]);
    }

    #[test]
    fn installed_packages_are_found_by_size() {
        let root = tempfile::tempdir().unwrap();
        make(root.path(), &["small/html/a.html", "small/html/b.html", "tiny/a.html", "none/x.txt"]);
        make(root.path(), &["lib c++/html/a.html", "lib c++/html/b/c.html", "lib c++/d.htm"]);
        #[cfg(unix)]
        std::os::unix::fs::symlink("small", root.path().join("alias")).unwrap();
        let found = installed(root.path(), 2).unwrap();
        let found: Vec<_> = found.iter().map(|c| (c.base.as_str(), c.pages)).collect();
        assert_eq!(
            found,
            [("https://doc.example.org/lib-c++/", 3), ("https://doc.example.org/small/", 2)]
        );
        assert!(installed(&root.path().join("nowhere"), 0).unwrap().is_empty());
    }
}
