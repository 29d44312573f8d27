//! Tracks the engine's journals while the store is open. Each journal gets a second name, so
//! that the store can distinguish a journal that the engine removed from a lost one.
//!
//! The engine begins a journal when it writes a buffer out and the current journal has more
//! than 64,000,000 bytes. It deletes a journal when the runs hold all of its content. It does
//! both on its own thread, without a notice. So the committer looks after each batch that may
//! be in a new journal, before it acknowledges the batch. The look is one system call. It
//! happens only while the store is not calm (`commit/calm.rs`) and the current journal is long
//! enough to be followed by another. A store that syncs every batch is never calm.
//!
//! Invariants:
//! * A batch is acknowledged after its journal is in the inventory and has its second name. If
//!   that fails, the batch is acknowledged nevertheless, and the store takes no further batch
//!   before it has opened the engine anew (`commit/write.rs`).
//! * A second name is removed after the inventory no longer lists the journal. Before that, the
//!   first name was removed while the store was open. The engine removed it, or a closing that
//!   left an empty journal. With the second name the file's space is freed, which takes a tenth of
//!   a second on a busy disk. So the caller of [`release`](Journals::release) leaves the removal to
//!   a thread (`freeing.rs`). An opening removes the names that a crash left.
//! * The store is marked (`opening/unsynced.rs`) before its first batch without a sync.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::directory::{link, remove, sync_directory};
use crate::opening::{self, Inventory, JOURNALS_DIR, Prepared, journal_file};
use crate::waits::may_wait;

/// The engine begins a new journal only after the current one is longer than this, in bytes.
const JOURNAL_BYTES_MIN: u64 = 64_000_000;
/// Bytes that the engine writes around the items of a batch.
const BATCH_BYTES: u64 = 64;

/// The committer's view of the journals.
#[derive(Debug)]
pub(crate) struct Journals {
    dir: PathBuf,
    engine: PathBuf,
    inventory: Inventory,
    newest: u64,
    /// The most bytes that the newest journal can have.
    bytes: u64,
    /// A lower bound of the last batch's number, if that batch is in the newest journal.
    reaches: Option<u64>,
    /// Whether the store is marked as having unsynced batches.
    marked: bool,
    /// The journals that were begun since the store was opened, without the newest; oldest
    /// first.
    sealed: Vec<Sealed>,
    /// Whether a journal was begun since [`take_excess`](Journals::take_excess) was called.
    grown: bool,
}

/// A batch that was written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    /// The most bytes that the batch takes in the journal.
    pub(crate) bytes: u64,
    /// The batch's number is at or above this one.
    pub(crate) number: u64,
    /// The batch's number is below this one.
    pub(crate) end: u64,
    /// Whether the store was calm. Then the engine has begun no journal since the last look
    /// (`calm.rs`).
    pub(crate) calm: bool,
}

/// A journal that the engine keeps until all of its content is in runs.
#[derive(Debug, Clone, Copy)]
struct Sealed {
    number: u64,
    /// The most bytes that the journal can have.
    bytes: u64,
    /// The sequence numbers of the journal's batches are below this one.
    end: u64,
}

impl Journals {
    /// The journals of a store that was prepared for its engine, or of a new store.
    pub(crate) fn new(dir: &Path, engine: &Path, prepared: Option<Prepared>) -> io::Result<Self> {
        let mut journals = Journals {
            dir: dir.to_owned(),
            engine: engine.to_owned(),
            inventory: Inventory::default(),
            newest: 0,
            bytes: 0,
            reaches: None,
            marked: false,
            sealed: Vec::new(),
            grown: false,
        };
        match prepared {
            Some(Prepared { inventory, newest, end, .. }) => {
                (journals.inventory, journals.newest, journals.bytes) = (inventory, newest, end);
            }
            None => {
                let second = journals.second();
                match std::fs::remove_dir_all(&second) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => std::fs::create_dir(&second)?,
                }
                journals.name(0)?;
            }
        }
        Ok(journals)
    }

    /// Returns the files that must be in the store. Also returns a lower bound for the number
    /// of the newest journal's last batch, if one is known.
    pub(crate) fn known(&self) -> (Inventory, Option<u64>) {
        (self.inventory.clone(), self.reaches)
    }

    fn second(&self) -> PathBuf {
        self.dir.join(JOURNALS_DIR)
    }

    /// Adds keyspaces to the inventory, before the first batch that writes to them.
    pub(crate) fn add_keyspaces<'a>(
        &mut self,
        keyspaces: impl Iterator<Item = &'a fjall::Keyspace>,
    ) -> io::Result<()> {
        let known = self.inventory.keyspaces.len();
        for keyspace in keyspaces {
            let number = keyspace.path().file_name().and_then(|name| name.to_str()?.parse().ok());
            let number = number.expect("the engine names a keyspace's directory by its number");
            self.inventory.keyspaces.insert(number, keyspace.name().to_string());
        }
        if self.inventory.keyspaces.len() > known {
            may_wait("writing the inventory");
            self.inventory.write(&self.dir)
        } else {
            Ok(())
        }
    }

    /// Returns a number above all batches of the oldest journal. Returns `None` unless another
    /// journal was begun and the earlier ones have at least `bytes_max` bytes.
    pub(crate) fn take_excess(&mut self, bytes_max: u64) -> Option<u64> {
        let grown = std::mem::take(&mut self.grown);
        let bytes: u64 = self.sealed.iter().map(|sealed| sealed.bytes).sum();
        let oldest = self.sealed.first()?;
        (grown && bytes >= bytes_max).then_some(oldest.end)
    }

    /// The most bytes that all journals together can have.
    pub(crate) fn bytes(&self) -> u64 {
        self.sealed.iter().map(|sealed| sealed.bytes).sum::<u64>() + self.bytes
    }

    #[cfg(test)]
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// Whether an unsynced batch was written.
    pub(crate) fn is_marked(&self) -> bool {
        self.marked
    }

    /// Whether the next unsynced batch needs nothing written beside the journal, as far as is
    /// known. The engine must not be writing a buffer out. If it has begun a journal,
    /// [`after`](Journals::after) finds that.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_marked() && (self.bytes <= JOURNAL_BYTES_MIN || !self.has_next())
    }

    /// Prepares for a batch. Called before the batch is given to the engine.
    pub(crate) fn before(&mut self, sync: bool) -> io::Result<()> {
        if !sync && !self.marked {
            may_wait("marking the store");
            opening::mark(&self.dir)?;
            self.marked = true;
        }
        Ok(())
    }

    /// Follows a batch that was written. Called before any caller is answered.
    pub(crate) fn after(&mut self, batch: &Written) -> io::Result<()> {
        let Written { bytes, number, end, calm } = *batch;
        let batch = bytes + BATCH_BYTES;
        self.bytes += batch;
        self.reaches = if !calm && self.bytes > JOURNAL_BYTES_MIN && self.has_next() {
            self.sealed.push(Sealed { number: self.newest, bytes: self.bytes, end });
            self.grown = true;
            self.go_on()?;
            // The batch may be in either journal.
            self.bytes = batch;
            None
        } else {
            Some(number)
        };
        Ok(())
    }

    /// Whether the engine has begun another journal.
    fn has_next(&self) -> bool {
        journal_file(&self.engine, self.newest + 1).exists()
    }

    /// Makes the next journal the newest.
    fn go_on(&mut self) -> io::Result<()> {
        may_wait("naming a journal");
        if let Some(reaches) = self.reaches {
            self.inventory.journals.insert(self.newest, reaches);
        }
        self.name(self.newest + 1)?;
        self.newest += 1;
        Ok(())
    }

    /// Gives a journal its second name, and adds it to the inventory.
    fn name(&mut self, number: u64) -> io::Result<()> {
        let second = journal_file(&self.second(), number);
        remove(&second)?;
        link(&journal_file(&self.engine, number), &second)?;
        sync_directory(&self.second())?;
        self.inventory.journals.insert(number, 0);
        self.inventory.write(&self.dir)
    }

    /// Releases the journals that the engine has removed. Returns their second names, which are to
    /// be removed now.
    pub(crate) fn release(&mut self) -> io::Result<Vec<PathBuf>> {
        let freed = |number: &u64| !journal_file(&self.engine, *number).exists();
        let sealed = self.inventory.journals.range(..self.newest);
        let freed: Vec<u64> = sealed.map(|(number, _)| *number).take_while(freed).collect();
        if freed.is_empty() {
            return Ok(Vec::new());
        }
        may_wait("releasing journals");
        let mut inventory = self.inventory.clone();
        inventory.journals.retain(|number, _| !freed.contains(number));
        inventory.write(&self.dir)?;
        self.inventory = inventory;
        self.sealed.retain(|sealed| !freed.contains(&sealed.number));
        let second = self.second();
        Ok(freed.iter().map(|number| journal_file(&second, *number)).collect())
    }

    fn remove_released(&mut self) -> io::Result<()> {
        self.release()?.iter().try_for_each(|path| remove(path))
    }

    /// Closes the journals. Called when the store closes, after its journal is synced as a
    /// whole.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        if self.has_next() {
            self.go_on()?;
        } else if let Some(reaches) = self.reaches {
            self.inventory.journals.insert(self.newest, reaches);
            self.inventory.write(&self.dir)?;
        }
        self.remove_released()?;
        opening::unmark(&self.dir)
    }

    /// Closes the journals and leaves one empty journal. Called instead of
    /// [`close`](Journals::close) if all content of the journals is in runs.
    pub(crate) fn close_empty(&mut self) -> io::Result<()> {
        while self.has_next() {
            self.go_on()?;
            self.reaches = None;
        }
        let next = self.newest + 1;
        File::create_new(journal_file(&self.engine, next))?.sync_all()?;
        sync_directory(&self.engine)?;
        self.go_on()?;
        remove(&journal_file(&self.engine, next - 1))?;
        sync_directory(&self.engine)?;
        self.remove_released()?;
        opening::unmark(&self.dir)
    }
}
