//! Reports the free space of a disk, for an application that keeps files beside the database.

use std::path::Path;

/// Returns how many bytes this user may still write to the file system of a directory. `None`
/// if the system does not report it.
///
/// ```
/// assert!(percolator::admin::free_bytes(std::env::temp_dir()).is_some());
/// ```
pub fn free_bytes(dir: impl AsRef<Path>) -> Option<u64> {
    let known = rustix::fs::statvfs(dir.as_ref()).ok()?;
    Some(known.f_bavail.saturating_mul(known.f_frsize))
}
