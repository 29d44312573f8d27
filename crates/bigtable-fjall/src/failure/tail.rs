//! Repairs the end of the journal after a failed write: acknowledged batches stay, and
//! everything else is cut off.
//!
//! A failed write may leave any part of its batch in the journal. The engine may add more of
//! the batch when it is closed. No caller got an acknowledgement for the batch. So the batch
//! must be removed before a reader can see it after the next opening.
//!
//! Every batch has a sequence number, and a failed batch never reached the engine's memory. So
//! the highest number in memory is that of the last acknowledged batch. The journal is sound
//! up to that batch, and the rest is cut off in one of these ways:
//!
//! * **In place**, if no sync was tried, and the write failed for lack of space or at the
//!   largest size of a file. The kept part was written without an error. The cut is synced
//!   through a handle that was opened earlier. That sync reports every error since then,
//!   including one that occurred while the engine was closing. If the file may not grow any
//!   further, an empty journal is begun after the cut.
//! * **Into a new file** otherwise, and where the cut in place fails. After a failed sync the
//!   system may have dropped the data, and it reports that only once. So another sync of the
//!   same file proves nothing. The acknowledged part is read, checked to be whole, written to
//!   a new file, synced, and renamed.
//! * **Not at all**, if the engine stopped by itself in a store that syncs every batch: all of
//!   its journal is acknowledged and synced.
//!
//! Invariant: the journal is not changed before the engine has closed it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::directory::{create_file, sync_directory};
use crate::opening::{Journal, journal_file, list_journals};

/// The new journal, until it is renamed. The engine ignores this name, because it is not a
/// journal's name.
const NEW_FILE: &str = "journal.new";
/// How long the engine may keep a file open after the engine itself was closed.
const CLOSING_MAX: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The acknowledged batches, according to the engine's memory.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Acknowledged {
    /// The highest sequence number.
    pub(crate) highest: u64,
    /// The highest sequence number that is in no sorted run. It must be in a journal.
    pub(crate) in_journal: Option<u64>,
}

/// How the journal is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Leave the journal: all of it is acknowledged and durable.
    Leave,
    InPlace,
    /// Cut in place, and continue in a new journal, because this file may not grow any
    /// further.
    Seal,
    Copy,
}

/// The journal that was being written.
#[derive(Debug)]
pub(crate) struct Tail {
    engine: PathBuf,
    number: u64,
    path: PathBuf,
    file: File,
    way: Way,
    /// The bytes that stay.
    kept: Vec<u8>,
}

/// The result of reading a journal.
#[derive(Debug, PartialEq, Eq)]
struct Walked {
    /// The end of the acknowledged batches, in bytes.
    end: u64,
    /// The number of the last acknowledged batch.
    last: Option<u64>,
    /// Whether a whole batch follows that is not acknowledged.
    whole: bool,
}

impl Tail {
    /// Inspects the journal while the engine is still open and no thread writes.
    ///
    /// # Errors
    /// If the journal cannot be read, or lacks an acknowledged batch.
    pub(crate) fn find(
        engine: &Path,
        acknowledged: Acknowledged,
        failure: Option<io::ErrorKind>,
        durable: bool,
    ) -> io::Result<Self> {
        let newest = list_journals(engine)?.pop();
        let (number, path) = newest.ok_or_else(|| missing("there is no journal"))?;
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let walked = walk(&(number, path.clone()), acknowledged.highest)?;
        if let Some(wanted) = acknowledged.in_journal
            && walked.last != Some(wanted)
            && !(walked.last.is_none() && ends_with(engine, number, wanted)?)
        {
            return Err(missing("the last acknowledged batch is not in the journal"));
        }
        let mut kept = Vec::new();
        (&file).take(walked.end).read_to_end(&mut kept)?;
        let way = way(failure, walked.whole, durable);
        Ok(Tail { engine: engine.to_owned(), number, path, file, way, kept })
    }

    pub(crate) fn way(&self) -> Way {
        self.way
    }

    /// Writes the new file, if one is needed. The engine is still open, so a failure here
    /// loses nothing.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        if self.way == Way::Copy { self.write_new() } else { Ok(()) }
    }

    /// Cuts the journal. The engine must be closed.
    pub(crate) fn cut(mut self) -> io::Result<()> {
        match self.way {
            Way::Leave => return Ok(()),
            Way::Copy => return self.rename(),
            Way::InPlace | Way::Seal => {}
        }
        if closed_by_others(&self.path).and_then(|()| self.cut_in_place()).is_err() {
            self.write_new()?;
            self.rename()?;
        }
        if self.way == Way::Seal { self.begin_another() } else { Ok(()) }
    }

    fn cut_in_place(&mut self) -> io::Result<()> {
        self.file.set_len(self.kept.len() as u64)?;
        self.file.sync_all()
    }

    fn write_new(&self) -> io::Result<()> {
        let new = self.engine.join(NEW_FILE);
        let written = create_file(&new).and_then(|mut file| {
            file.write_all(&self.kept)?;
            file.sync_all()
        });
        if written.is_err() {
            // Try to free the space; the file itself does no harm.
            let _ = fs::remove_file(&new);
        }
        written
    }

    fn rename(&self) -> io::Result<()> {
        fs::rename(self.engine.join(NEW_FILE), &self.path)?;
        sync_directory(&self.engine)
    }

    /// Creates the next journal, empty. The engine appends to the newest journal, and writes
    /// out the contents of the others.
    fn begin_another(&self) -> io::Result<()> {
        File::create_new(journal_file(&self.engine, self.number + 1))?.sync_all()?;
        sync_directory(&self.engine)
    }
}

/// Removes the file that a killed process has left.
pub(crate) fn remove_leftovers(engine: &Path) -> io::Result<()> {
    match fs::remove_file(engine.join(NEW_FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Chooses how to cut. A sync follows only after the whole batch was written. So if the batch
/// is not whole, no sync was tried.
fn way(failure: Option<io::ErrorKind>, whole: bool, durable: bool) -> Way {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    match failure {
        // The engine stopped by itself between two batches. It may have failed to sync the
        // journal.
        None if durable => Way::Leave,
        None => Way::Copy,
        Some(FileTooLarge) if !whole => Way::Seal,
        Some(StorageFull | QuotaExceeded) if !whole => Way::InPlace,
        Some(_) => Way::Copy,
    }
}

/// Reads the journal, and finds the end of the batches with numbers up to `highest`.
fn walk(journal: &(u64, PathBuf), highest: u64) -> io::Result<Walked> {
    let mut walked = Walked { end: 0, last: None, whole: false };
    Journal::read(journal, None, |batch| {
        if batch.number <= highest {
            (walked.end, walked.last) = (batch.end, Some(batch.number));
        } else {
            walked.whole = true;
        }
    })?;
    Ok(walked)
}

/// Whether the previous journal ends with this batch. Then nothing was written since the
/// engine began the newest journal.
fn ends_with(engine: &Path, newest: u64, wanted: u64) -> io::Result<bool> {
    let Some(number) = newest.checked_sub(1) else { return Ok(false) };
    match walk(&(number, journal_file(engine, number)), wanted) {
        Ok(walked) => Ok(walked.last == Some(wanted)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn missing(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Waits until the engine has closed the file. A thread of the engine may hold the file last,
/// and may write to it then.
///
/// # Errors
/// If the system does not report which files are open, or the engine keeps the file open.
fn closed_by_others(path: &Path) -> io::Result<()> {
    let (path, began) = (path.canonicalize()?, Instant::now());
    loop {
        let mut holders = 0;
        for entry in fs::read_dir("/proc/self/fd")? {
            // A file may be closed before its link is read.
            holders += usize::from(fs::read_link(entry?.path()).is_ok_and(|open| open == path));
        }
        if holders == 1 {
            return Ok(());
        }
        if began.elapsed() > CLOSING_MAX {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opening::sample;

    const HIGHEST: Acknowledged = Acknowledged { highest: 8, in_journal: Some(8) };

    fn journal() -> (tempfile::TempDir, PathBuf, Vec<u8>) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("3.jnl");
        let sound = [sample(7, b"one"), sample(8, &[b'v'; 5000])].concat();
        (dir, path, sound)
    }

    #[test]
    fn the_journal_is_cut_behind_the_last_acknowledged_batch() {
        let failed = sample(9, b"nobody was told");
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::FileTooLarge, io::ErrorKind::Other]
        {
            // Any part of the failed batch may be in the file, followed by space that was
            // allocated ahead.
            for part in [0, 1, failed.len() / 2, failed.len()] {
                let (dir, path, sound) = journal();
                let data = [&sound, &failed[..part], &[0; 4096]].concat();
                fs::write(&path, data).unwrap();
                let tail = Tail::find(dir.path(), HIGHEST, Some(kind), true).unwrap();
                let whole = part == failed.len();
                let copied = whole || kind == io::ErrorKind::Other;
                assert_eq!(tail.way() == Way::Copy, copied, "{kind} {part}");
                tail.prepare().unwrap();
                tail.cut().unwrap();
                assert_eq!(fs::read(&path).unwrap(), sound, "{kind} {part}");
                let next = dir.path().join("4.jnl");
                assert_eq!(next.exists(), kind == io::ErrorKind::FileTooLarge && !whole);
                assert!(!dir.path().join(NEW_FILE).exists());
            }
        }
    }

    #[test]
    fn a_journal_without_the_last_acknowledged_batch_is_refused() {
        let (dir, path, sound) = journal();
        let find = || Tail::find(dir.path(), HIGHEST, None, false).map(|tail| tail.way());
        fs::write(&path, &sound[..sound.len() - 1]).unwrap();
        assert_eq!(find().unwrap_err().kind(), io::ErrorKind::InvalidData);
        fs::write(&path, &sound).unwrap();
        assert_eq!(find().unwrap(), Way::Copy);
        // The batch is in the previous journal, and nothing was written since.
        fs::write(dir.path().join("4.jnl"), [0; 99]).unwrap();
        assert_eq!(find().unwrap(), Way::Copy);
        fs::remove_file(&path).unwrap();
        assert_eq!(find().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_file_that_somebody_else_has_open_is_not_cut_in_place() {
        let (_dir, path, sound) = journal();
        fs::write(&path, sound).unwrap();
        let own = File::open(&path).unwrap();
        closed_by_others(&path).unwrap();
        let other = File::open(&path).unwrap();
        let closing = std::thread::spawn(move || drop(other));
        closed_by_others(&path).unwrap();
        closing.join().unwrap();
        drop(own);
    }
}
