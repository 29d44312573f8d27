//! The engine's journals while the store is open: each gets a second name, so that the store can
//! tell a journal that the engine has freed from one that was lost.
//!
//! The engine begins a journal when it writes a buffer out and the present journal has more than
//! 64,000,000 bytes, and deletes one when the runs hold all of it. It does both on a thread of its
//! own and tells nobody. So the committer looks, after each batch that may be in a new journal, and
//! before it acknowledges the batch. The look is one system call, and only while a buffer waits to
//! be written out and the present journal is long enough to be the last.
//!
//! Invariants:
//! * A batch is acknowledged after its journal is in the inventory and has its second name.
//! * A second name goes after the inventory has ceased to ask for the journal, and only if the
//!   engine removed the first one while the store was open.
//! * The store is marked (`opening/unsynced.rs`) before its first batch without a sync.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::directory::{link, remove, sync_directory};
use crate::opening::{self, Inventory, JOURNALS_DIR, Prepared, journal_file};
use crate::waits::may_wait;

/// The engine begins no new journal before the present one is longer than this, in bytes.
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
    /// The newest journal has at most so many bytes.
    bytes: u64,
    /// A number that the last batch is at or above, if the batch is in the newest journal.
    reaches: Option<u64>,
    /// Whether the store is marked as one with batches without a sync.
    marked: bool,
    /// The journals before the newest that were begun since the store was opened, oldest first.
    sealed: Vec<Sealed>,
    /// Whether a journal was begun since [`take_excess`](Journals::take_excess) was called.
    grown: bool,
}

/// A batch that was written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    /// It takes at most so many bytes of the journal.
    pub(crate) bytes: u64,
    /// Its number is at or above this one.
    pub(crate) number: u64,
    /// Its number is below this one.
    pub(crate) end: u64,
    /// The store was calm, so the engine has begun no journal since the last look (`calm.rs`).
    pub(crate) calm: bool,
}

/// A journal that the engine keeps until all of it is in runs.
#[derive(Debug, Clone, Copy)]
struct Sealed {
    number: u64,
    /// At most so many.
    bytes: u64,
    /// The sequence numbers of its batches are below.
    end: u64,
}

impl Journals {
    /// Of a store that was prepared for its engine, or of a new one.
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

    /// What must be in the store, and a number that the last batch of the newest journal is at or
    /// above, if it is known.
    pub(crate) fn known(&self) -> (Inventory, Option<u64>) {
        (self.inventory.clone(), self.reaches)
    }

    fn second(&self) -> PathBuf {
        self.dir.join(JOURNALS_DIR)
    }

    /// Adds keyspaces, before the first batch that writes to them.
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

    /// If another journal was begun, and those before it have so many bytes: a number that the
    /// batches of the oldest are below.
    pub(crate) fn take_excess(&mut self, bytes_max: u64) -> Option<u64> {
        let grown = std::mem::take(&mut self.grown);
        let bytes: u64 = self.sealed.iter().map(|sealed| sealed.bytes).sum();
        let oldest = self.sealed.first()?;
        (grown && bytes >= bytes_max).then_some(oldest.end)
    }

    /// At most so many bytes are in journals.
    pub(crate) fn bytes(&self) -> u64 {
        self.sealed.iter().map(|sealed| sealed.bytes).sum::<u64>() + self.bytes
    }

    #[cfg(test)]
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// Whether there was a batch without a sync.
    pub(crate) fn is_marked(&self) -> bool {
        self.marked
    }

    /// Whether the next batch without a sync needs nothing written beside the journal, as far as is
    /// known. To be called while the engine writes no buffer out. If it has begun a journal,
    /// [`after`](Journals::after) finds it.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_marked() && (self.bytes <= JOURNAL_BYTES_MIN || !self.has_next())
    }

    /// To be called before a batch is given to the engine.
    pub(crate) fn before(&mut self, sync: bool) -> io::Result<()> {
        if !sync && !self.marked {
            may_wait("marking the store");
            opening::mark(&self.dir)?;
            self.marked = true;
        }
        Ok(())
    }

    /// To be called after a batch was written, and before anybody is told.
    pub(crate) fn after(&mut self, batch: &Written) -> io::Result<()> {
        let Written { bytes, number, end, calm } = *batch;
        let batch = bytes + BATCH_BYTES;
        self.bytes += batch;
        self.reaches = if !calm && self.bytes > JOURNAL_BYTES_MIN && self.has_next() {
            self.sealed.push(Sealed { number: self.newest, bytes: self.bytes, end });
            self.grown = true;
            self.go_on()?;
            self.release()?;
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

    /// Takes the next journal for the newest.
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

    /// Lets go of the journals that the engine has freed.
    pub(crate) fn release(&mut self) -> io::Result<()> {
        may_wait("removing journals");
        let freed = |number: &u64| !journal_file(&self.engine, *number).exists();
        let sealed = self.inventory.journals.range(..self.newest);
        let freed: Vec<u64> = sealed.map(|(number, _)| *number).take_while(freed).collect();
        if freed.is_empty() {
            return Ok(());
        }
        self.inventory.journals.retain(|number, _| !freed.contains(number));
        self.sealed.retain(|sealed| !freed.contains(&sealed.number));
        self.inventory.write(&self.dir)?;
        let second = self.second();
        freed.iter().try_for_each(|number| remove(&journal_file(&second, *number)))
    }

    /// To be called when the store closes and its journal is synced as a whole.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        if self.has_next() {
            self.go_on()?;
        } else if let Some(reaches) = self.reaches {
            self.inventory.journals.insert(self.newest, reaches);
            self.inventory.write(&self.dir)?;
        }
        self.release()?;
        opening::unmark(&self.dir)
    }

    /// To be called instead of [`close`](Journals::close) when the store closes and no journal
    /// holds anything that is not in runs: leaves an empty journal alone.
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
        self.release()?;
        opening::unmark(&self.dir)
    }
}
