//! Write buffers: new cells of a keyspace stay in memory until they are so many that their buffer is
//! sealed, which has the engine write it out as a sorted run.
//!
//! The engine would seal a full buffer by itself: at every write to one it sends a message to its own
//! threads. While those are at a merge, the messages fill their queue. Whoever seals the buffer then waits
//! for room in the queue for a message of its own; where that is the thread that empties the queue, it
//! waits for ever, and from then on nothing is written out: memory and journal grow without bound, until
//! the store is opened again and has to write out all of it at once (fjall 3.1,
//! <https://github.com/fjall-rs/fjall/pull/323>). So the committer seals full buffers, one message for each,
//! and the engine takes none for full.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fjall::{AbstractTree, Keyspace, PersistMode};

use crate::engine::{Engine, Lead};
use crate::group::Group;

/// Full buffers are looked for whenever this part of one was written: looking takes a lock of the engine for
/// each keyspace.
const LOOKED_FOR_PARTS: u64 = 16;

/// How many buffers of a keyspace may wait to be written out.
const SEALED_MAX: usize = 3;
/// How often it is looked at whether they have been.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What was written since full buffers were last looked for.
#[derive(Debug, Default)]
pub(crate) struct Unlooked {
    /// Bytes of keys and values.
    bytes: AtomicU64,
}

impl Unlooked {
    /// Whether so many bytes more make it a part of a buffer that is worth a look; then it begins anew.
    fn is_worth_a_look(&self, bytes: u64, buffer: u64) -> bool {
        let written = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let worth = written >= buffer / LOOKED_FOR_PARTS;
        if worth {
            self.bytes.store(0, Ordering::Relaxed);
        }
        worth
    }
}

impl Engine {
    /// Seals the buffers that are full, now that so many bytes of keys and values were written.
    pub(crate) fn seal_full(&self, lead: &Lead, bytes: u64) -> fjall::Result<()> {
        let full = self.options.write_buffer_bytes;
        if !self.unlooked.is_worth_a_look(bytes, full) {
            return Ok(());
        }
        for keyspace in lead.groups.iter().flat_map(|group| keyspaces(group)) {
            if keyspace.tree.active_memtable().size() >= full {
                self.wait_for_room(keyspace)?;
                keyspace.rotate_memtable()?;
            }
        }
        Ok(())
    }

    /// Waits while the engine is behind with writing out. At one sealed buffer more it has writers wait
    /// itself: in steps of 100 ms, and for ever should it have failed.
    fn wait_for_room(&self, keyspace: &Keyspace) -> fjall::Result<()> {
        while keyspace.sealed_memtable_count() >= SEALED_MAX {
            // It tells of a failure; nothing is to be written here.
            self.db.persist(PersistMode::Buffer)?;
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

/// A group's keyspace, and that of its history.
fn keyspaces(group: &Group) -> impl Iterator<Item = &Keyspace> {
    std::iter::once(&group.cells).chain(&group.history)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use bigtable::{Family, Layout, LocalityGroup, Mutation, RowMutation, Table};
    use bigtable::{TableSchema, Timestamp};
    use futures::executor::block_on;

    use super::*;
    use crate::{FjallStore, FjallTable, Options};

    const FAMILY: Family = Family::from_static("held");
    const FULL: u64 = 256 << 10;
    /// More than the messages that the engine's threads have room for.
    const MESSAGES: usize = 1_100;
    /// What the name of the engine's threads begins with.
    const ENGINE: &str = "fjall";

    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    static HELD: AtomicBool = AtomicBool::new(false);
    static RELEASED: AtomicBool = AtomicBool::new(false);
    static SEALED: AtomicBool = AtomicBool::new(false);
    static OVER: AtomicBool = AtomicBool::new(false);

    /// Holds the engine's thread: at a flush until it is released, and where it seals a buffer itself for
    /// the first time, until somebody has written more.
    struct Holding;

    impl log::Log for Holding {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }

        fn log(&self, record: &log::Record<'_>) {
            let thread = std::thread::current();
            if !thread.name().is_some_and(|name| name.starts_with(ENGINE)) {
                return;
            }
            let message = record.args().to_string();
            if message.starts_with("Flushing keyspace \"held\"") {
                HELD.store(true, Ordering::SeqCst);
                wait_until(|| RELEASED.load(Ordering::SeqCst));
            } else if message == "acquiring journal lock" && !SEALED.swap(true, Ordering::SeqCst) {
                let before = WRITTEN.load(Ordering::SeqCst);
                let more = || WRITTEN.load(Ordering::SeqCst) > before + 1;
                wait_until(|| more() || OVER.load(Ordering::SeqCst));
            }
        }

        fn flush(&self) {}
    }

    /// Holds nothing any more, whatever was found.
    struct Over;

    impl Drop for Over {
        fn drop(&mut self) {
            RELEASED.store(true, Ordering::SeqCst);
            OVER.store(true, Ordering::SeqCst);
        }
    }

    fn wait_until(holds: impl Fn() -> bool) {
        while !holds() {
            std::thread::yield_now();
        }
    }

    fn write(table: &FjallTable, number: usize) {
        let value = vec![number as u8; 100];
        let cell = Mutation::set(FAMILY, "q", Timestamp::new(1).unwrap(), value);
        let row = RowMutation::new(format!("row {number}")).mutation(cell);
        block_on(table.mutate_row(row)).unwrap();
        WRITTEN.fetch_add(1, Ordering::SeqCst);
    }

    #[test]
    fn buffers_are_written_out_however_much_is_written_during_a_merge() {
        log::set_boxed_logger(Box::new(Holding)).unwrap();
        log::set_max_level(log::LevelFilter::Trace);
        let dir = tempfile::tempdir().unwrap();
        let options = Options { write_buffer_bytes: FULL, ..Options::default() };
        let options = Options { durability: crate::Durability::Buffered, ..options };
        let store = FjallStore::open(dir.path(), options).unwrap();
        let schema = TableSchema { groups: vec![LocalityGroup::on_disk("held", Layout::Versions)] };
        let table = block_on(store.open_fjall_table("t", &schema)).unwrap();
        let keyspace = &table.info.groups[0].cells;
        let _over = Over;
        let active = || keyspace.tree.active_memtable().size();

        let mut numbers = 0..;
        let mut write = || write(&table, numbers.next().unwrap());
        // The engine is at work for so long that another buffer is full, and then some.
        while !HELD.load(Ordering::SeqCst) {
            write();
        }
        while keyspace.sealed_memtable_count() < 2 && active() < 2 * FULL {
            write();
        }
        (0..MESSAGES).for_each(|_| write());
        RELEASED.store(true, Ordering::SeqCst);
        let (until, mut most) = (WRITTEN.load(Ordering::SeqCst) + 4 * MESSAGES as u64, 0);
        while WRITTEN.load(Ordering::SeqCst) < until {
            write();
            most = most.max(active());
        }
        assert!(most < 2 * FULL, "a buffer of {most} bytes was not sealed");
        wait_until(|| keyspace.sealed_memtable_count() == 0);
        assert!(keyspace.disk_space() > 0);
    }
}
