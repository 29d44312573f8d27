//! Syncs the files that merges write, while they are written.
//!
//! The engine syncs the last file of a merge under the lock that each read of the keyspace takes.
//! That file has up to 64 MiB, so all reads would wait for a tenth of a second on a slow disk. The
//! engine lets its user see each entry of a merge (`merges.rs`). This user syncs the file after
//! every few megabytes. The engine then finds little left of a sorted run. Files of large
//! values are left to the engine. ADR-23 has the reasons and the price.
//!
//! If such a sync fails, the merge fails, as it does if the engine's own sync fails. The file then
//! never becomes part of the store.
//!
//! Invariant: only the thread that writes the newest file of a keyspace syncs it early. The
//! engine's one thread writes buffers out and merges. Other threads of the store also merge, and
//! announce that ([`EarlySyncs::pause`]). Meanwhile nothing is synced early.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

use bigtable::sync::locked;
use fjall::Keyspace;

use crate::waits::may_wait;

/// A merge's file is synced after this many bytes of keys and values, before they are compressed.
const BYTES: usize = 8 << 20;

/// The directories of files, by the names of keyspaces. The engine knows a keyspace's name before
/// the store knows its directory.
#[derive(Debug, Default)]
pub(crate) struct EarlySyncs {
    tables: Mutex<HashMap<String, PathBuf>>,
    /// Held by each merge of a thread that is not the engine's, and by each early sync alone.
    others: RwLock<()>,
}

impl EarlySyncs {
    /// Announces a merge of a thread that is not the engine's. Nothing is synced early until the
    /// result is dropped.
    pub(crate) fn pause(&self) -> RwLockReadGuard<'_, ()> {
        may_wait("an early sync of a merge");
        self.others.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Syncs the files of later merges of the keyspace early.
    pub(crate) fn add(&self, keyspace: &Keyspace) {
        let tables = keyspace.path().join("tables");
        locked(&self.tables).insert(keyspace.name().to_string(), tables);
    }
}

/// Syncs the file of one merge early.
pub(super) struct EarlySync {
    tables: Option<PathBuf>,
    unsynced: usize,
}

impl EarlySync {
    /// For a merge of the keyspace with this name.
    pub(super) fn of(all: &EarlySyncs, keyspace: &str) -> Self {
        EarlySync { tables: locked(&all.tables).get(keyspace).cloned(), unsynced: 0 }
    }

    /// Counts bytes that the merge writes, and syncs its file if they are many.
    pub(super) fn wrote(&mut self, all: &EarlySyncs, bytes: usize) -> std::io::Result<()> {
        self.unsynced += bytes;
        if self.unsynced >= BYTES
            && let Some(tables) = &self.tables
        {
            self.unsynced = 0;
            // While another thread merges, the newest file may be that thread's.
            if let Ok(_alone) = all.others.try_write() {
                sync_newest(tables)?;
            }
        }
        Ok(())
    }
}

/// Syncs the newest file of a directory: the file with the highest number. A file that is not
/// found is left to the engine.
fn sync_newest(tables: &Path) -> std::io::Result<()> {
    may_wait("syncing a file of a merge early");
    let Ok(files) = std::fs::read_dir(tables) else { return Ok(()) };
    let number = |file: std::fs::DirEntry| file.file_name().to_str()?.parse::<u64>().ok();
    let Some(newest) = files.flatten().filter_map(number).max() else { return Ok(()) };
    match OpenOptions::new().write(true).open(tables.join(newest.to_string())) {
        Ok(file) => file.sync_data(),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn the_newest_file_is_synced_and_a_failure_is_returned() {
        let dir = tempfile::tempdir().unwrap();
        // The system cannot sync such a file.
        let put = |name: &str| std::os::unix::fs::symlink("/dev/null", dir.path().join(name));
        sync_newest(&dir.path().join("removed")).unwrap();
        sync_newest(dir.path()).unwrap();
        put("9").unwrap();
        std::fs::write(dir.path().join("10"), "a run").unwrap();
        sync_newest(dir.path()).unwrap();
        put("11").unwrap();
        std::fs::write(dir.path().join(".tmp"), "another file").unwrap();
        assert!(sync_newest(dir.path()).is_err());
    }
}
