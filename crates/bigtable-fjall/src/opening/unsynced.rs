//! Marks a store that has written batches without a sync.
//!
//! A power cut may destroy any part of the data written since the last sync. Later batches may
//! be whole although an earlier one has a hole. Without a power cut, such a hole is damage. So
//! the store writes the machine's boot id into a file before its first unsynced batch, and the
//! next opening compares the id.
//!
//! Opening removes this mark once the journal is synced. A second file records the restart of
//! the machine until the caller acknowledges it. A table server needs that record. The power
//! cut may have destroyed the renewal of a lease, so the server answers nothing until every
//! such lease has expired. If the server ends before that, the record makes it silent again at
//! its next start (H71).
//!
//! ADR-16 says what this design costs, and what would change it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::directory::sync_directory;

pub(crate) const FILE: &str = "UNSYNCED";
/// The file that records a restart after unsynced batches, until a caller acknowledges it.
const RESTARTED_FILE: &str = "RESTARTED";

/// The state of batches without a sync.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsynced {
    /// There were none since the whole journal was synced.
    #[default]
    No,
    /// There were some, and the machine has not restarted since.
    SameBoot,
    /// There were some. The machine has restarted since, or does not report whether it has.
    Restarted,
}

/// The id of the machine's current boot, if it has one.
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

/// Records the restart of the machine, before the mark is removed.
pub(super) fn keep_restart(dir: &Path) -> io::Result<()> {
    File::create(dir.join(RESTARTED_FILE))?.sync_all()?;
    sync_directory(dir)
}

/// Whether the machine has restarted, and no caller has acknowledged it.
pub(super) fn has_restarted(dir: &Path) -> io::Result<bool> {
    dir.join(RESTARTED_FILE).try_exists()
}

/// Removes the record of a restart.
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
