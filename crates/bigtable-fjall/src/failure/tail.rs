//! The end of the journal after a write has failed: what was acknowledged stays, everything else is
//! cut off.
//!
//! A failed write leaves any part of its batch in the journal, and the engine may add more of the
//! batch when it is closed. Nobody was told that the batch is there. So the batch must go, before
//! somebody reads it after the next opening.
//!
//! Every batch has a sequence number, and a batch that failed never reached the engine's memory. So
//! the highest number in memory is that of the last acknowledged batch. The journal is sound up to
//! there and is cut behind it, in one of two ways:
//!
//! * **In place**, if the write failed for want of space and no sync was tried. The file as far as
//!   it is kept is in order. The cut is synced through a handle that was opened before: it reports
//!   every error since then, also one that the engine met when it was closed.
//! * **Into a new file** otherwise, and where the cut in place fails. After a failed sync the
//!   system may have dropped what it could not write, and says so once; another sync of that file
//!   proves nothing. What was acknowledged is read, checked to be whole, written to a new file,
//!   synced, and renamed.
//!
//! Invariant: nothing of the journal is changed before the engine has closed it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::directory::sync_directory;
use crate::opening::{Journal, journal_file, list_journals};

/// The journal as it is to be, until it is renamed. No journal's name: the engine does not look at
/// it.
const NEW_FILE: &str = "journal.new";
/// How long the engine may take to close a file after it was closed itself.
const CLOSING_MAX: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What the memory of the engine says about the batches that were acknowledged.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Acknowledged {
    /// The highest sequence number of all.
    pub(crate) highest: u64,
    /// The highest one that is in no sorted run: it must be in a journal.
    pub(crate) in_journal: Option<u64>,
}

/// How the journal is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// All of it is acknowledged and durable.
    Leave,
    InPlace,
    /// In place, and what follows goes to a new journal, because this one may not grow.
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
    /// What stays.
    kept: Vec<u8>,
}

/// What a journal holds.
#[derive(Debug, PartialEq, Eq)]
struct Walked {
    /// Where the acknowledged batches end.
    end: u64,
    /// The number of the last of them.
    last: Option<u64>,
    /// Whether a batch follows that is whole, and not acknowledged.
    whole: bool,
}

impl Tail {
    /// Looks at the journal while the engine is still open, and nobody writes.
    ///
    /// # Errors
    /// If the journal cannot be read, or an acknowledged batch is not there.
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

    /// Writes the new file, if there is to be one: while the engine is open nothing is lost if it
    /// fails.
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
        let written = File::create(&new).and_then(|mut file| {
            file.write_all(&self.kept)?;
            file.sync_all()
        });
        if written.is_err() {
            // Only its space matters.
            let _ = fs::remove_file(&new);
        }
        written
    }

    fn rename(&self) -> io::Result<()> {
        fs::rename(self.engine.join(NEW_FILE), &self.path)?;
        sync_directory(&self.engine)
    }

    /// Creates the next journal, empty: the engine takes the newest one for its own, and writes out
    /// what the others hold.
    fn begin_another(&self) -> io::Result<()> {
        File::create_new(journal_file(&self.engine, self.number + 1))?.sync_all()?;
        sync_directory(&self.engine)
    }
}

/// Removes what a process that was killed has left.
pub(crate) fn remove_leftovers(engine: &Path) -> io::Result<()> {
    match fs::remove_file(engine.join(NEW_FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What is to be done. A sync comes after all of a batch was written; so if the batch is not whole,
/// none was tried.
fn way(failure: Option<io::ErrorKind>, whole: bool, durable: bool) -> Way {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    match failure {
        // The engine has stopped by itself, between two batches. It may have failed to sync the
        // journal.
        None if durable => Way::Leave,
        None => Way::Copy,
        Some(FileTooLarge) if !whole => Way::Seal,
        Some(StorageFull | QuotaExceeded) if !whole => Way::InPlace,
        Some(_) => Way::Copy,
    }
}

/// Walks over the acknowledged batches, whose numbers are at most `highest`.
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

/// Whether the journal before this one ends with this batch: nothing was written since the engine
/// began the newest one.
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

/// Waits until the engine has closed the file: a thread of its own may be the last to hold it, and
/// writes to it then.
///
/// # Errors
/// If the system does not say who has it open, or the engine keeps it.
fn closed_by_others(path: &Path) -> io::Result<()> {
    let (path, began) = (path.canonicalize()?, Instant::now());
    loop {
        let mut holders = 0;
        for entry in fs::read_dir("/proc/self/fd")? {
            // One may be closed before it is looked at.
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
            // Any part of the failed batch may be there, and the space that was allocated ahead.
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
        // It is in the journal before, and nothing was written since.
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
