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
/// How many sorted runs may be unmerged. The engine slows writers down from 20 on.
const RUNS_MAX: usize = 16;
/// A merge that keeps what snapshots of any age may see.
const KEEP_ALL: u64 = 0;
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
        self.wait_for_engine(keyspace)?;
        self.merge_with_engine(keyspace)?;
        keyspace.rotate_memtable().map(|_| ())
    }

    /// Waits while the engine is behind with writing out. At one sealed buffer more it has writers wait
    /// itself: in steps of 100 ms, and for ever should it have failed.
    fn wait_for_engine(&self, keyspace: &Keyspace) -> fjall::Result<()> {
        while keyspace.sealed_memtable_count() >= SEALED_MAX
            || self.db.outstanding_flushes() >= MESSAGES_MAX
        {
            self.check_engine()?;
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Merges while the engine is behind with that. It merges once for each buffer written out, which may be
    /// too little; and at 30 runs it has writers wait for a merge that comes after none of their writes.
    fn merge_with_engine(&self, keyspace: &Keyspace) -> fjall::Result<()> {
        while keyspace.tree.l0_run_count() >= RUNS_MAX {
            self.check_engine()?;
            let how = keyspace.config.compaction_strategy.clone();
            keyspace.tree.compact(how, KEEP_ALL)?;
            // What is to be merged may be in the engine's hands.
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// An error once the engine has failed; nothing is to be written here.
    fn check_engine(&self) -> fjall::Result<()> {
        self.db.persist(PersistMode::Buffer)
    }
}

/// A group's keyspace, and that of its history.
fn keyspaces(group: &Group) -> impl Iterator<Item = &Keyspace> {
    std::iter::once(&group.cells).chain(&group.history)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use bigtable::{Layout, LocalityGroup, Mutation, RowMutation, Table, TableSchema, Timestamp};
    use futures::executor::block_on;
    use xxhash_rust::xxh3::xxh3_64_with_seed;

    use crate::{Durability, FjallStore, FjallTable, Options};

    use super::*;

    const FULL: u64 = 256 << 10;
    /// More messages than the engine's threads have room for.
    const MESSAGES: u64 = 1_100;
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

    /// A table whose store has write buffers of so many bytes.
    fn open(dir: &Path, group: &'static str, write_buffer_bytes: u64) -> FjallTable {
        let options = Options { write_buffer_bytes, ..Options::default() };
        let options = Options { durability: Durability::Buffered, ..options };
        let store = FjallStore::open(dir, options).unwrap();
        let schema = TableSchema { groups: vec![LocalityGroup::on_disk(group, Layout::Versions)] };
        block_on(store.open_fjall_table("t", &schema)).unwrap()
    }

    fn write(table: &FjallTable, number: u64) {
        // Of bytes that do not repeat, so that files are as large as what is in them.
        let value: Vec<u8> =
            (0..12).flat_map(|part| xxh3_64_with_seed(&[part], number).to_le_bytes()).collect();
        let family = table.info.families[0].family.clone();
        let cell = Mutation::set(family, "q", Timestamp::new(1).unwrap(), value);
        let row = RowMutation::new(format!("row {number}")).mutation(cell);
        block_on(table.mutate_row(row)).unwrap();
    }

    #[test]
    fn buffers_are_sealed_and_written_out_however_much_is_written_meanwhile() {
        let _over = Over;
        log::set_boxed_logger(Box::new(Holding)).unwrap();
        log::set_max_level(log::LevelFilter::Trace);
        let dir = tempfile::tempdir().unwrap();
        let table = open(dir.path(), "held", FULL);
        let keyspace = &table.info.groups[0].cells;
        let mut written = 0;
        let mut write = |writes: u64| {
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

    #[test]
    fn merges_keep_up_where_a_buffer_is_many_files() {
        let (done, is_done) = channel();
        std::thread::spawn(move || {
            let dir = tempfile::tempdir().unwrap();
            // The size of files is settled when a store is created.
            drop(open(dir.path(), "many", 1 << 10));
            let table = open(dir.path(), "many", 64 << 10);
            // In no order: every merge meets files of all levels.
            (0..20_000).for_each(|n: u64| write(&table, n.wrapping_mul(0x9E37_79B9) % 1_000_000));
            done.send(table.info.groups[0].cells.tree.l0_run_count()).unwrap();
        });
        let runs = is_done.recv_timeout(LONGEST).expect("writers wait for ever");
        assert!(runs < 20, "{runs} runs");
    }
}
