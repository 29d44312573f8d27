//! Manages the directory of a backup: contents named by checksum, and the list of those that
//! the backup needs.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bigtable::{Error, Result, StoreId};

use crate::backup::list::{self, BackedUp, Content, FILES_DIR, List, content_file};
use crate::directory::{LOCK_FILE, LOST_AND_FOUND, create, create_file, remove, sync_directory};
use crate::failure::fault;
use crate::opening::copy_summed;

/// The name of a content while it is being written.
const NEW_FILE: &str = "new";

/// The directory of a backup, locked by this process.
pub(super) struct Pool {
    dir: PathBuf,
    store: StoreId,
    /// The backup that the directory holds.
    earlier: Option<List>,
    /// Contents that were found whole, or were written, since the directory was opened.
    whole: BTreeSet<Content>,
    new_files: usize,
    new_bytes: u64,
    /// The lock is given back when the file is closed.
    _lock: File,
}

impl Pool {
    /// Takes the directory for a backup of this store: creates it if need be, and locks it.
    pub(super) fn open(dir: &Path, store: StoreId) -> Result<Pool> {
        create(dir).map_err(|e| writing(dir, &e))?;
        check_ours(dir)?;
        let path = dir.join(LOCK_FILE);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let lock = lock.map_err(|e| writing(&path, &e))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(fault::in_use(dir)),
            Err(TryLockError::Error(error)) => return Err(fault::io(&path, "locking", &error)),
        }
        let earlier = List::read(dir)?;
        if let Some(other) = earlier.as_ref().filter(|list| list.store != store) {
            let problem = format!("this is a backup of another store, {}", other.store);
            let remedy = format!("choose another directory for backups of store {store}");
            return Err(fault::files(dir, problem, &remedy));
        }
        create(&dir.join(FILES_DIR)).map_err(|e| writing(dir, &e))?;
        let (dir, whole) = (dir.to_owned(), BTreeSet::new());
        Ok(Pool { dir, store, earlier, whole, new_files: 0, new_bytes: 0, _lock: lock })
    }

    /// The list of a new backup.
    pub(super) fn begin(&self) -> List {
        List::new(self.store)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the directory has this content, and has it whole. The content is read only
    /// once.
    pub(super) fn has(
        &mut self,
        content: Content,
        between: impl FnMut(u64) -> io::Result<()>,
    ) -> io::Result<bool> {
        if self.whole.contains(&content) {
            return Ok(true);
        }
        let mut file = match File::open(content_file(&self.dir, content)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            file => file?,
        };
        let (sum, bytes) = copy_summed(&mut file, &mut io::sink(), between)?;
        if (Content { sum, bytes }) == content {
            self.whole.insert(content);
        }
        Ok(self.whole.contains(&content))
    }

    /// Stores the bytes of `from`, and returns their checksum and length.
    pub(super) fn put(
        &mut self,
        from: &mut impl Read,
        mut between: impl FnMut(u64) -> io::Result<()>,
    ) -> io::Result<Content> {
        let new = self.dir.join(FILES_DIR).join(NEW_FILE);
        let mut file = create_file(&new)?;
        let (sum, bytes) = copy_summed(from, &mut file, &mut between)?;
        let content = Content { sum, bytes };
        if !self.has(content, between)? {
            file.sync_all()?;
            fs::rename(&new, content_file(&self.dir, content))?;
            self.whole.insert(content);
            self.new_files += 1;
            self.new_bytes += bytes;
        }
        Ok(content)
    }

    /// Makes the list the backup of this directory, and removes contents that the list does
    /// not name.
    pub(super) fn publish(&mut self, list: List) -> Result<List> {
        let published = sync_directory(&self.dir.join(FILES_DIR)).and_then(|()| {
            sync_directory(&self.dir)?;
            list.write(&self.dir)
        });
        published.map_err(|e| writing(&self.dir, &e))?;
        self.earlier = Some(list.clone());
        self.sweep().map_err(|e| writing(&self.dir, &e))?;
        Ok(list)
    }

    pub(super) fn report(&self, list: &List) -> BackedUp {
        BackedUp { new_files: self.new_files, new_bytes: self.new_bytes, ..list.describe() }
    }

    /// Removes contents that the backup does not name.
    fn sweep(&self) -> io::Result<()> {
        let named = self.earlier.iter().flat_map(|list| &list.files);
        let named: BTreeSet<String> = named.map(|(_, content)| content.name()).collect();
        let files = self.dir.join(FILES_DIR);
        for entry in fs::read_dir(&files)? {
            let entry = entry?;
            if entry.file_name().to_str().is_none_or(|name| !named.contains(name)) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // A failed backup gives its space back. If that fails too, the next backup tries
        // again.
        let _ = self.sweep();
    }
}

/// The error of a directory that a backup cannot be written to.
pub(super) fn writing(path: &Path, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => fault::files(
            path,
            format!("the backup was not made, writing it failed: {error}"),
            "free some space on its file system, or choose a directory on another one; an earlier \
             backup in this directory is unchanged",
        ),
        _ => fault::io(path, "writing the backup", error),
    }
}

/// A directory for backups is empty, or holds one.
fn check_ours(dir: &Path) -> Result<()> {
    let reading = |e: io::Error| fault::io(dir, "reading the directory", &e);
    for entry in fs::read_dir(dir).map_err(reading)? {
        let name = entry.map_err(reading)?.file_name();
        let text = name.to_string_lossy();
        let own = [list::FILE, "BACKUP.new", LOCK_FILE, FILES_DIR, LOST_AND_FOUND];
        if !own.contains(&&*text) {
            return Err(fault::files(
                dir,
                format!("the directory is not empty and holds no backup: it holds {text}"),
                "choose an empty directory, one that does not exist yet, or one that holds a \
                 backup",
            ));
        }
    }
    Ok(())
}
