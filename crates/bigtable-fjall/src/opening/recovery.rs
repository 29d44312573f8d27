//! Reports the bytes that opening a store cut off the end of its journal, and keeps the
//! reports in the store's directory.
//!
//! A crash may leave a part of the batch that was being written. No caller got an
//! acknowledgement for this batch, and opening cuts it off. After a power cut, a store with
//! unsynced batches may lack more. Damage can look like either. So every cut is reported, and
//! the directory keeps the latest reports.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::SystemTime;

use crate::directory::sync_directory;

pub(crate) const FILE: &str = "RECOVERIES";
/// The most reports in the file.
const REPORTS_MAX: usize = 100;

/// A report on the bytes that opening the store cut off the end of its journal.
///
/// The engine numbers its batches. A batch holds the mutations that were committed together.
///
/// ```
/// use bigtable_fjall::{FjallStore, Options};
/// # let dir = tempfile::tempdir().unwrap();
/// let store = FjallStore::open(dir.path().join("store"), Options::default())?;
/// if let Some(cut) = store.recovery() {
///     eprintln!("{cut}");
/// }
/// # assert!(store.recovery().is_none());
/// # Ok::<(), bigtable::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// The number of the journal, which is the name of its file.
    pub journal: u64,
    /// The position of the cut, in bytes.
    pub at: u64,
    /// The number of bytes cut off, without the zeroes that the engine had allocated.
    pub bytes: u64,
    /// The numbers of the batches that were cut off, if they can be read. The first batch may
    /// have been incomplete.
    pub batches: Vec<u64>,
    /// Whether the machine has restarted since the store wrote batches without a sync. If so,
    /// the cut may include the last acknowledged batches of a `Buffered` store. If not, the
    /// cut is one batch: either it was never acknowledged, or it was the last one and is
    /// damaged.
    pub restarted: bool,
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Recovery { journal, at, bytes, batches, restarted } = self;
        write!(f, "journal {journal} was cut at byte {at}: {bytes} bytes, ")?;
        match (&batches[..], batches.last()) {
            ([], _) | (_, None) => write!(f, "of no readable batch")?,
            ([one], _) => write!(f, "of batch {one}")?,
            ([first, ..], Some(last)) => {
                write!(f, "of {} batches from {first} to {last}", batches.len())?;
            }
        }
        match restarted {
            true => write!(f, ", after the machine restarted with unsynced batches"),
            false => write!(f, ", which was not written to its end"),
        }
    }
}

impl Recovery {
    /// Adds the report to those in the store's directory.
    pub(crate) fn keep(&self, dir: &Path) -> io::Result<()> {
        let path = dir.join(FILE);
        let old = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            // Unreadable reports are only a loss of information, so they do not prevent an
            // opening.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => String::new(),
            old => old?,
        };
        let lines: Vec<&str> = old.lines().collect();
        let kept = &lines[lines.len().saturating_sub(REPORTS_MAX - 1)..];
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let seconds = now.map_or(0, |since| since.as_secs());
        let mut text: String = kept.iter().map(|line| format!("{line}\n")).collect();
        text.push_str(&format!("unix time {seconds}: {self}\n"));
        let new = dir.join("RECOVERIES.new");
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        sync_directory(dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(journal: u64) -> Recovery {
        Recovery { journal, at: 5, bytes: 7, batches: vec![3, 4], restarted: true }
    }

    #[test]
    fn the_directory_keeps_the_last_reports() {
        let dir = tempfile::tempdir().unwrap();
        (0..REPORTS_MAX as u64 + 3).for_each(|journal| cut(journal).keep(dir.path()).unwrap());
        let text = fs::read_to_string(dir.path().join(FILE)).unwrap();
        assert_eq!(text.lines().count(), REPORTS_MAX);
        let last = text.lines().last().unwrap();
        assert!(last.ends_with(&cut(REPORTS_MAX as u64 + 2).to_string()), "{last}");
        fs::write(dir.path().join(FILE), [0xff, b'\n']).unwrap();
        cut(1).keep(dir.path()).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join(FILE)).unwrap().lines().count(), 1);
    }
}
