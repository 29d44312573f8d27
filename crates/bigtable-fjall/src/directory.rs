//! Manages the store's directory: its owner, its format, and the lock of the process that has
//! it open.
//!
//! ```text
//!   FORMAT      "bigtable-fjall" and the format's number; written last, so it says "complete"
//!   CREATING    exists while the store is being created for the first time
//!   ID          the store's id; a store of an earlier release gets one when it is opened
//!   LOCK        locked by the process that has the store open
//!   INVENTORY   the keyspaces and journals that must exist; for UNSYNCED, RESTARTED,
//!               RECOVERIES and journals/ see `opening/`
//!   engine/     fjall's files
//! ```
//!
//! Invariants:
//! * Nothing is created in a directory that is neither empty nor a store of this crate.
//! * A directory with `CREATING` but no `FORMAT` holds nothing acknowledged, so its engine is
//!   created again from nothing.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bigtable::{Error, Result, StoreId};
use xxhash_rust::xxh3::xxh3_64;

use crate::failure::fault;

/// The format that this release writes. It also reads format 4, in which older versions did not
/// name the version that superseded them, and format 3, which had no inventory. In format 1, each
/// older version had its own key.
pub(crate) const FORMAT: u32 = 5;
const WITHOUT_INVENTORY: u32 = 3;
const MAGIC: &str = "bigtable-fjall";
const FORMAT_FILE: &str = "FORMAT";
pub(crate) const ID_FILE: &str = "ID";
const CREATING_FILE: &str = "CREATING";
pub(crate) const LOCK_FILE: &str = "LOCK";
pub(crate) const ENGINE_DIR: &str = "engine";
/// A directory that file systems create at their root by themselves.
pub(crate) const LOST_AND_FOUND: &str = "lost+found";

/// A directory that this process has locked.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// The format of the existing store, if one was created completely.
    format: Option<u32>,
    pub(crate) id: StoreId,
    /// Whether the directory has a file with the id.
    has_id: bool,
    /// Closing the file releases the lock.
    _lock: File,
}

impl Directory {
    /// Takes the directory: creates it if necessary, locks it, and checks its format.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        create(path).map_err(|e| fault::io(path, "creating the directory", &e))?;
        // Inspect before the lock, so that a directory of another program is left untouched.
        // Inspect again after it, because another process may have created the store in
        // between.
        inspect(path)?;
        let lock = lock(path)?;
        let format = inspect(path)?;
        let creating = |e: io::Error| fault::io(path, "creating the store", &e);
        let stored =
            if format.is_some() { read_id(path).map_err(|e| no_id(path, &e))? } else { None };
        let id = stored.map_or_else(fresh_id, Ok).map_err(creating)?;
        let has_id = stored.is_some();
        let directory = Directory { path: path.to_owned(), format, id, has_id, _lock: lock };
        if format.is_none() {
            directory.begin().map_err(creating)?;
        }
        Ok(directory)
    }

    /// The directory of the engine's files.
    pub(crate) fn engine(&self) -> PathBuf {
        self.path.join(ENGINE_DIR)
    }

    /// Whether the directory held a completely created store.
    pub(crate) fn is_complete(&self) -> bool {
        self.format.is_some()
    }

    /// Whether the existing store has an inventory.
    pub(crate) fn has_inventory(&self) -> bool {
        self.format.is_some_and(has_inventory)
    }

    /// Marks the store as complete and as one of this release's format, if it is not marked
    /// yet.
    pub(crate) fn complete(&mut self) -> Result<()> {
        if !self.has_id {
            let written = write_id(&self.path, self.id);
            written.map_err(|e| fault::io(&self.path, "giving the store an id", &e))?;
            self.has_id = true;
        }
        if self.format != Some(FORMAT) {
            self.finish().map_err(|e| fault::io(&self.path, "creating the store", &e))?;
            self.format = Some(FORMAT);
        }
        Ok(())
    }

    /// Marks the directory as a store, and removes the rest of an interrupted creation.
    fn begin(&self) -> io::Result<()> {
        File::create(self.path.join(CREATING_FILE))?.sync_all()?;
        sync_directory(&self.path)?;
        match fs::remove_dir_all(self.engine()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn finish(&self) -> io::Result<()> {
        write_format(&self.path, FORMAT)?;
        remove(&self.path.join(CREATING_FILE))
    }
}

/// Creates a directory, and the directories above it that do not exist. Only their user may read
/// them. A directory that exists keeps its mode.
pub(crate) fn create(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Creates an empty file, or empties an existing one. Only its user may read a new file.
pub(crate) fn create_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Says that the directory holds a whole store of this format.
pub(crate) fn write_format(path: &Path, format: u32) -> io::Result<()> {
    replace(path, FORMAT_FILE, format!("{MAGIC}\nformat {format}\n").as_bytes())
}

/// Puts a small file in the place of another: a crash leaves the old one or the new one.
pub(crate) fn replace(dir: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let new = dir.join(format!("{name}.new"));
    let mut file = File::create(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, dir.join(name))?;
    sync_directory(dir)
}

/// An id that no other store has.
pub(crate) fn fresh_id() -> io::Result<StoreId> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).map_err(|e| io::Error::other(e.to_string()))?;
    Ok(StoreId::new(u128::from_le_bytes(bits)))
}

/// The id of the store in the directory. A store of an earlier release has none.
pub(crate) fn read_id(path: &Path) -> io::Result<Option<StoreId>> {
    let text = match fs::read(path.join(ID_FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let id = str::from_utf8(&text).ok().and_then(|text| {
        let (id, sum) = text.strip_suffix('\n')?.split_once('\n')?;
        (sum == format!("sum {:016x}", xxh3_64(id.as_bytes()))).then(|| id.parse().ok())?
    });
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "its checksum or form is not right");
    id.map(Some).ok_or_else(wrong)
}

pub(crate) fn write_id(path: &Path, id: StoreId) -> io::Result<()> {
    let id = id.to_string();
    let sum = xxh3_64(id.as_bytes());
    replace(path, ID_FILE, format!("{id}\nsum {sum:016x}\n").as_bytes())
}

fn no_id(path: &Path, error: &io::Error) -> Error {
    let remedy = "remove this file and restart the store's clients: the store then gets another id";
    fault::files(&path.join(ID_FILE), format!("the id cannot be read: {error}"), remedy)
}

/// Whether this release reads stores of this format.
pub(crate) fn is_known(format: u32) -> bool {
    (WITHOUT_INVENTORY..=FORMAT).contains(&format)
}

/// Whether stores of this format have an inventory.
pub(crate) fn has_inventory(format: u32) -> bool {
    format != WITHOUT_INVENTORY
}

/// Returns the format of the store in the directory, or an error if there is no store.
pub(crate) fn format(path: &Path) -> Result<u32> {
    let none =
        || fault::files(path, "the directory holds no store", "name the directory of a store");
    match fs::metadata(path) {
        Ok(_) => inspect(path)?.ok_or_else(none),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(none()),
        Err(error) => Err(fault::io(path, "reading the directory", &error)),
    }
}

/// Returns the format of the store in the directory, if there is one. Returns an error if the
/// directory holds something else.
fn inspect(path: &Path) -> Result<Option<u32>> {
    let format = path.join(FORMAT_FILE);
    match fs::read(&format) {
        Ok(text) => check_format(&format, &text).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => check_ours(path).map(|()| None),
        Err(error) => Err(fault::io(&format, "reading the format", &error)),
    }
}

fn check_format(path: &Path, text: &[u8]) -> Result<u32> {
    let text = str::from_utf8(text).unwrap_or_default();
    let mut lines = text.lines();
    let number = match (lines.next(), lines.next()) {
        (Some(MAGIC), Some(line)) => line.strip_prefix("format ").and_then(|n| n.parse().ok()),
        _ => None,
    };
    match number {
        Some(number @ WITHOUT_INVENTORY..=FORMAT) => Ok(number),
        Some(number) if number > FORMAT => Err(fault::files(
            path,
            format!("the store is in format {number}, and this release reads format {FORMAT}"),
            "open it with the release of this program that wrote it, or a newer one",
        )),
        Some(number) if number > 0 => Err(fault::files(
            path,
            format!(
                "the store is in the older format {number}, and this release reads format {FORMAT}"
            ),
            "open it with the release of this program that wrote it, or choose another directory",
        )),
        _ => Err(fault::files(
            path,
            "this is not the format file of a store, or it is damaged",
            "choose another directory, or restore this one from a backup",
        )),
    }
}

/// Checks that a directory without a format is empty, or that its creation was interrupted.
fn check_ours(path: &Path) -> Result<()> {
    let read = |e: &io::Error| fault::io(path, "reading the directory", e);
    let mut stranger = None;
    for entry in fs::read_dir(path).map_err(|e| read(&e))? {
        let name = entry.map_err(|e| read(&e))?.file_name();
        if name == CREATING_FILE {
            return Ok(());
        }
        if name != LOCK_FILE && name != LOST_AND_FOUND {
            stranger = Some(name);
        }
    }
    match stranger {
        None => Ok(()),
        Some(name) => Err(fault::files(
            path,
            format!("the directory is not empty and holds no store: it holds {}", name.display()),
            "choose an empty directory, or one that does not exist yet",
        )),
    }
}

fn lock(directory: &Path) -> Result<File> {
    let path = directory.join(LOCK_FILE);
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|e| fault::io(&path, "opening the lock file", &e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(fault::in_use(directory)),
        Err(TryLockError::Error(error)) => Err(fault::io(&path, "locking the file", &error)),
    }
}

/// Keeps processes from writing to a directory until the file is closed. Other processes may
/// read there.
pub(crate) fn lock_shared(directory: &Path) -> Result<Option<File>> {
    let file = match File::open(directory.join(LOCK_FILE)) {
        // The lock file was removed, or this user may not create it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(|e| fault::io(directory, "opening the lock file", &e))?,
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(fault::in_use(directory)),
        Err(TryLockError::Error(error)) => Err(fault::io(directory, "locking the file", &error)),
    }
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}

/// Gives a file a second name.
pub(crate) fn link(file: &Path, name: &Path) -> io::Result<()> {
    fs::hard_link(file, name).map_err(|error| match error.kind() {
        io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied => {
            let what = "the file system has no hard links";
            io::Error::new(
                io::ErrorKind::Unsupported,
                format!("{what}, which a store needs: {error}"),
            )
        }
        _ => error,
    })
}

/// Removes a file, which may be gone already.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Opens the engine. Returns an error even if the engine panics over damaged files.
pub(crate) fn guarded<T>(path: &Path, open: impl FnOnce() -> fjall::Result<T>) -> Result<T> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(open)) {
        Ok(result) => result.map_err(|e| fault::engine(path, "opening the engine", &e)),
        Err(_) => Err(damaged(path)),
    }
}

fn damaged(path: &Path) -> Error {
    fault::files(
        path,
        "the engine cannot read its files: they are damaged or incomplete",
        fault::BACKUP,
    )
}
