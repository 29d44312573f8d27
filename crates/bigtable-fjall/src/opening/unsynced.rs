//! The mark of a store that has written batches without a sync.
//!
//! A power cut may take any part of what was written since the last sync: later batches may be
//! whole where an earlier one has a hole. Without a power cut such a hole is damage. So the store
//! writes the machine's boot id into a file before its first batch without a sync, and opening
//! compares it.
//!
//! Opening removes that mark once the journal is synced. That the machine has restarted is kept in
//! another file until the caller acknowledges it: a table server must stay silent for a while, also
//! if it ends within that while and starts again (H71).
//!
//! ADR-16 says what this design costs, and what would change it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::directory::sync_directory;

pub(crate) const FILE: &str = "UNSYNCED";
/// Says that the machine has restarted since there were batches without a sync, and that nobody has
/// acknowledged it.
const RESTARTED_FILE: &str = "RESTARTED";

/// What is known of batches without a sync.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsynced {
    /// There was none since the journal was synced as a whole.
    #[default]
    No,
    /// There were some, and the machine has not restarted since.
    SameBoot,
    /// There were some, and the machine has restarted since, or does not say whether it has.
    Restarted,
}

/// The id of the machine's present boot, if it has one.
fn boot_id() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let id = id.trim();
    (!id.is_empty()).then(|| id.to_owned())
}

/// Reads the mark of the store in `dir`.
pub(crate) fn read(dir: &Path) -> io::Result<Unsynced> {
    match fs::read(dir.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Unsynced::No),
        Err(error) => Err(error),
        Ok(marked) => match boot_id() {
            Some(id) if marked == id.as_bytes() => Ok(Unsynced::SameBoot),
            _ => Ok(Unsynced::Restarted),
        },
    }
}

/// Marks the store, before its first batch without a sync.
pub(crate) fn mark(dir: &Path) -> io::Result<()> {
    let mut file = File::create(dir.join(FILE))?;
    file.write_all(boot_id().unwrap_or_default().as_bytes())?;
    file.sync_all()?;
    sync_directory(dir)
}

/// Removes the mark, once the whole journal is synced.
pub(crate) fn unmark(dir: &Path) -> io::Result<()> {
    remove(dir, FILE)
}

/// Keeps the fact that the machine has restarted, before the mark is removed.
pub(super) fn keep_restart(dir: &Path) -> io::Result<()> {
    File::create(dir.join(RESTARTED_FILE))?.sync_all()?;
    sync_directory(dir)
}

/// Whether the machine has restarted, and nobody has acknowledged it.
pub(super) fn has_restarted(dir: &Path) -> io::Result<bool> {
    dir.join(RESTARTED_FILE).try_exists()
}

/// Forgets that the machine has restarted.
pub(crate) fn acknowledge_restart(dir: &Path) -> io::Result<()> {
    remove(dir, RESTARTED_FILE)
}

fn remove(dir: &Path, file: &str) -> io::Result<()> {
    match fs::remove_file(dir.join(file)) {
        Ok(()) => sync_directory(dir),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
