//! Write buffers: new cells of a keyspace stay in memory until they are so many that their buffer is
//! sealed, which has the engine write it out as a sorted run.
//!
//! The engine would seal a full buffer by itself: at every write to one it sends a message to its own
//! threads. While those are at a merge, the messages fill their queue. Whoever seals the buffer then waits
//! for room in the queue for a message of its own; where that is the thread that empties the queue, it
//! waits for ever, and from then on nothing is written out: memory and journal grow without bound, until
//! the store is opened again and has to write out all of it at once (fjall 3.1,
//! <https://github.com/fjall-rs/fjall/pull/323>). So every keyspace is created with a buffer that is never
//! full for the engine, and the committer seals.
//!
//! Invariant: the queue of the engine's threads never becomes full. Each buffer that is sealed makes two
//! messages, of which the second follows when the first is taken; what the engine seals besides, for the sake
//! of its journal, is one buffer of each keyspace at most.

use std::time::Duration;

use fjall::{AbstractTree, Keyspace, PersistMode};

use crate::engine::{Engine, Lead};
use crate::fault;
use crate::group::Group;

/// Full buffers are looked for when so large a part of one may have been filled: a look takes a lock of the
/// engine for each keyspace.
const LOOKED_FOR_PARTS: u64 = 16;
/// What the engine adds to each entry, in bytes.
const ENTRY_BYTES: usize = 64;
/// How many buffers of a keyspace may wait to be written out.
const SEALED_MAX: usize = 3;
/// How many messages about sealed buffers may wait for the engine's threads, which have room for 1,000.
const MESSAGES_MAX: usize = 64;
/// How often it is looked at whether there is room again.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What an entry takes in a write buffer.
pub(crate) fn bytes_of(key: &[u8], value: Option<&[u8]>) -> u64 {
    (key.len() + value.map_or(0, <[u8]>::len) + ENTRY_BYTES) as u64
}

impl Engine {
    /// Seals the buffers that are full, now that a batch put so many bytes into them. The batch is written
    /// whatever comes of it; if it fails, the next one is not.
    pub(crate) fn seal_full(&self, lead: &Lead, bytes: u64) {
        let full = self.options.write_buffer_bytes;
        let unlooked = lead.unlooked.get() + bytes;
        if unlooked < full / LOOKED_FOR_PARTS {
            return lead.unlooked.set(unlooked);
        }
        lead.unlooked.set(0);
        let groups = lead.groups.iter().flat_map(|group| keyspaces(group));
        for keyspace in groups.chain([&self.catalog.0]) {
            if let Err(error) = self.seal_if_full(keyspace, full) {
                self.fail(&fault::engine(&self.path, "sealing a write buffer", &error).to_string());
            }
        }
    }

    fn seal_if_full(&self, keyspace: &Keyspace, full: u64) -> fjall::Result<()> {
        if keyspace.tree.active_memtable().size() < full {
            return Ok(());
        }
        // At one sealed buffer more the engine has writers wait itself: in steps of 100 ms, and for ever
        // should it have failed.
        while keyspace.sealed_memtable_count() >= SEALED_MAX
            || self.db.outstanding_flushes() >= MESSAGES_MAX
        {
            // It tells of a failure; nothing is to be written here.
            self.db.persist(PersistMode::Buffer)?;
            std::thread::sleep(LOOK_EVERY);
        }
        keyspace.rotate_memtable().map(|_| ())
    }
}

/// A group's keyspace, and that of its history.
fn keyspaces(group: &Group) -> impl Iterator<Item = &Keyspace> {
    std::iter::once(&group.cells).chain(&group.history)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use bigtable::{Family, Layout, LocalityGroup, Mutation, RowMutation, Table};
    use bigtable::{TableSchema, Timestamp};
    use futures::executor::block_on;

    use crate::{Durability, FjallStore, FjallTable, Options};

    use super::*;

    const FAMILY: Family = Family::from_static("held");
    const FULL: u64 = 256 << 10;
    /// More messages than the engine's threads have room for.
    const MESSAGES: usize = 1_100;
    const LONGEST: Duration = Duration::from_secs(60);

    /// The engine is at a flush, and may go on.
    static HELD: AtomicBool = AtomicBool::new(false);
    static RELEASED: AtomicBool = AtomicBool::new(false);
    /// It was told to seal a buffer.
    static TOLD: AtomicBool = AtomicBool::new(false);

    /// Holds the engine's thread at a flush. What the engine logs says where it is.
    struct Holding;

    impl log::Log for Holding {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }

        fn log(&self, record: &log::Record<'_>) {
            let message = record.args().to_string();
            if message.starts_with("Flushing keyspace \"held\"") {
                HELD.store(true, Ordering::SeqCst);
                wait_until(&RELEASED);
            } else if message.contains("WorkerMessage:Rotate(\"held\"") {
                TOLD.store(true, Ordering::SeqCst);
            }
        }

        fn flush(&self) {}
    }

    /// Holds nothing any more, whatever was found.
    struct Over;

    impl Drop for Over {
        fn drop(&mut self) {
            RELEASED.store(true, Ordering::SeqCst);
        }
    }

    fn wait_until(flag: &AtomicBool) {
        let begun = Instant::now();
        while !flag.load(Ordering::SeqCst) {
            assert!(begun.elapsed() < LONGEST, "waited for too long");
            std::thread::yield_now();
        }
    }

    fn write(table: &FjallTable, number: usize) {
        let value = vec![number as u8; 100];
        let cell = Mutation::set(FAMILY, "q", Timestamp::new(1).unwrap(), value);
        let row = RowMutation::new(format!("row {number}")).mutation(cell);
        block_on(table.mutate_row(row)).unwrap();
    }

    #[test]
    fn buffers_are_sealed_and_written_out_however_much_is_written_meanwhile() {
        let _over = Over;
        log::set_boxed_logger(Box::new(Holding)).unwrap();
        log::set_max_level(log::LevelFilter::Trace);
        let dir = tempfile::tempdir().unwrap();
        let options = Options { write_buffer_bytes: FULL, ..Options::default() };
        let options = Options { durability: Durability::Buffered, ..options };
        let store = FjallStore::open(dir.path(), options).unwrap();
        let schema = TableSchema { groups: vec![LocalityGroup::on_disk("held", Layout::Versions)] };
        let table = block_on(store.open_fjall_table("t", &schema)).unwrap();
        let keyspace = &table.info.groups[0].cells;
        let mut written = 0;
        let mut write = |writes: usize| {
            (written..written + writes).for_each(|number| write(&table, number));
            written += writes;
            keyspace.tree.active_memtable().size()
        };
        while keyspace.sealed_memtable_count() == 0 && !HELD.load(Ordering::SeqCst) {
            let size = write(1);
            assert!(size < 2 * FULL, "a buffer of {size} bytes is not sealed");
        }
        // The engine is at work for so long that another buffer is full, and then some.
        wait_until(&HELD);
        write(2 * MESSAGES);
        RELEASED.store(true, Ordering::SeqCst);
        let most = (0..4 * MESSAGES).map(|_| write(1)).max();
        assert!(most < Some(2 * FULL), "a buffer of {most:?} bytes was not sealed");
        assert!(!TOLD.load(Ordering::SeqCst), "the engine takes a buffer for full");
        let begun = Instant::now();
        while keyspace.sealed_memtable_count() > 0 {
            assert!(begun.elapsed() < LONGEST, "a sealed buffer is not written out");
            std::thread::yield_now();
        }
    }
}
