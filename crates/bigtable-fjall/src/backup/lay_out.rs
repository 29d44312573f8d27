//! Lays the files of a backup out as the files of a store.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use bigtable::{Error, Result};

use crate::backup::list::{Content, List, content_file, damaged};
use crate::directory::{self, ENGINE_DIR, create_file, sync_directory};
use crate::failure::fault;
use crate::opening::{JOURNALS_DIR, KEYSPACES_DIR, copy_summed};

/// Where the contents come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// Copied, compared with their checksums, and synced.
    Copied,
    /// Linked, after their checksums were compared: nobody writes to them.
    Linked,
}

/// Makes a store in `to` from the backup `list` in `dir`. The file `FORMAT` is written last,
/// so an unfinished store lacks it.
pub(super) fn lay_out(dir: &Path, list: &List, to: &Path, how: How) -> Result<()> {
    let making = |e: io::Error| fault::io(to, "making the store", &e);
    make_directories(list, to).map_err(making)?;
    for (path, content) in &list.files {
        let (from, to) = (content_file(dir, *content), to.join(path));
        match how {
            How::Copied => copy(&from, *content, &to)?,
            How::Linked => link(&from, &to).map_err(making)?,
        }
    }
    if how == How::Copied {
        sync_directories(to).map_err(making)?;
    }
    directory::write_format(to, list.format).map_err(making)
}

/// Compares a file of the backup with its checksum.
pub(super) fn verify(path: &Path, content: Content) -> Result<()> {
    let mut file = File::open(path).map_err(|e| unreadable(path, &e))?;
    let summed = copy_summed(&mut file, &mut io::sink(), |_| Ok(()));
    compare(path, summed.map_err(|e| unreadable(path, &e))?, content)
}

fn compare(path: &Path, (sum, bytes): (u128, u64), content: Content) -> Result<()> {
    if (Content { sum, bytes }) == content {
        Ok(())
    } else {
        Err(damaged(path, "its checksum is not the one in its name"))
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => damaged(path, "it is missing"),
        _ => damaged(path, &format!("it cannot be read: {error}")),
    }
}

fn copy(from: &Path, content: Content, to: &Path) -> Result<()> {
    let writing = |e: io::Error| fault::io(to, "writing the file", &e);
    let mut source = File::open(from).map_err(|e| unreadable(from, &e))?;
    let mut target = create_file(to).map_err(writing)?;
    let summed = copy_summed(&mut source, &mut target, |_| Ok(())).map_err(writing)?;
    compare(from, summed, content)?;
    target.sync_all().map_err(writing)
}

fn link(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::symlink(std::path::absolute(from)?, to);
    #[cfg(not(unix))]
    return fs::copy(from, to).map(drop);
}

fn make_directories(list: &List, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to.join(JOURNALS_DIR))?;
    for (path, _) in &list.files {
        let path = to.join(path);
        let Some(parent) = path.parent() else { continue };
        fs::create_dir_all(parent)?;
        // A keyspace has both of its folders, even while they are empty.
        if path.file_name().is_some_and(|name| name == "current") {
            fs::create_dir_all(parent.join("tables"))?;
            fs::create_dir_all(parent.join("blobs"))?;
        }
    }
    Ok(())
}

fn sync_directories(to: &Path) -> io::Result<()> {
    let engine = to.join(ENGINE_DIR);
    let keyspaces = engine.join(KEYSPACES_DIR);
    for entry in fs::read_dir(&keyspaces)? {
        let keyspace = entry?.path();
        sync_directory(&keyspace.join("tables"))?;
        sync_directory(&keyspace.join("blobs"))?;
        sync_directory(&keyspace)?;
    }
    for dir in [&keyspaces, &engine, &to.join(JOURNALS_DIR), &to.to_owned()] {
        sync_directory(dir)?;
    }
    Ok(())
}
