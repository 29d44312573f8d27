//! Reads a store whose directory this process cannot write, such as one on a read-only file system.
//!
//! The command works on a stand-in: a temporary directory with copies of the journals, and links to
//! the files that never change. All that a reader writes goes there and is lost, such as the
//! resolution of a dead owner's lock. Timestamps begin at the stored limit, so a read sees every
//! commit. A command that changes the store is refused.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use bigtable::sync::locked;
use bigtable_fjall::StandIn;
use webindex::SEARCH_DIR;

use crate::exit::Failure;

/// Whether the command of this process only reads.
static READS: AtomicBool = AtomicBool::new(false);

/// The stand-ins of this process, and the directories for which they stand.
static STAND_INS: Mutex<Vec<(PathBuf, StandIn)>> = Mutex::new(Vec::new());

/// Says whether the command of this process only reads.
pub(crate) fn set_reads(reads: bool) {
    READS.store(reads, Ordering::Relaxed);
}

/// Returns the directory to open for a store: its own, or a stand-in if this process cannot write
/// there. This blocks for as long as it takes to copy the journals.
///
/// # Errors
/// If this process cannot write there, and the command needs to.
pub(crate) fn directory(dir: &Path) -> anyhow::Result<PathBuf> {
    // Any other directory gets its error when it is opened.
    let is_store = dir.join("FORMAT").exists();
    let Some(why) = is_store.then(|| unwritable(dir)).flatten() else {
        return Ok(dir.to_owned());
    };
    if !READS.load(Ordering::Relaxed) {
        return Err(Failure::usage(
            format!(
                "{}: this process cannot write there ({why}), and the command changes the store, \
                 or runs its observers",
                dir.display()
            ),
            "give this user the right to write; commands that only read, such as `get` and \
             `scan`, work without it",
        ));
    }
    let mut stand_ins = locked(&STAND_INS);
    if let Some((_, stand_in)) = stand_ins.iter().find(|(of, _)| of == dir) {
        return Ok(stand_in.path().to_owned());
    }
    let stand_in = StandIn::of(dir)?;
    let (from, to) = (dir.join(SEARCH_DIR), stand_in.path().join(SEARCH_DIR));
    if from.is_dir() {
        link_all(&from, &to).with_context(|| format!("reading {}", from.display()))?;
    }
    let path = stand_in.path().to_owned();
    stand_ins.push((dir.to_owned(), stand_in));
    Ok(path)
}

/// Whether the directory is a stand-in of this process.
pub(crate) fn is_stand_in(dir: &Path) -> bool {
    locked(&STAND_INS).iter().any(|(_, stand_in)| stand_in.path() == dir)
}

/// Removes the stand-ins of this process, whose stores are closed.
pub(crate) fn remove_all() {
    locked(&STAND_INS).clear();
}

/// Returns why this process cannot write in a directory, if it cannot.
#[cfg(unix)]
fn unwritable(dir: &Path) -> Option<io::Error> {
    use rustix::fs::{Access, access};
    let lock = dir.join("LOCK");
    let lock = lock.exists().then_some(lock);
    let mut needed = [Some(dir.to_owned()), lock].into_iter().flatten();
    let denied = |path: PathBuf| access(&path, Access::WRITE_OK).err();
    needed.find_map(denied).map(io::Error::from)
}

#[cfg(not(unix))]
fn unwritable(dir: &Path) -> Option<io::Error> {
    let read_only = fs::metadata(dir).is_ok_and(|about| about.permissions().readonly());
    read_only.then(|| io::ErrorKind::PermissionDenied.into())
}

/// Makes the files of a search index available in another directory. Its reader creates lock files,
/// so those are left out.
fn link_all(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, name) = (entry.path(), to.join(entry.file_name()));
        let is_lock = path.extension().is_some_and(|extension| extension == "lock");
        if entry.file_type()?.is_dir() {
            link_all(&path, &name)?;
        } else if !is_lock && entry.file_name() != "MAKING" {
            link(&path, &name)?;
        }
    }
    Ok(())
}

#[cfg(unix)]
fn link(file: &Path, name: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(std::path::absolute(file)?, name)
}

#[cfg(not(unix))]
fn link(file: &Path, name: &Path) -> io::Result<()> {
    fs::copy(file, name).map(drop)
}
