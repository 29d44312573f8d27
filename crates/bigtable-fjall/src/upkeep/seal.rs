//! Seals write buffers. New cells of a keyspace stay in a buffer in memory; sealing the buffer
//! makes the engine write it out as a sorted run.
//!
//! The engine must not seal full buffers by itself, because that can stop it forever (fjall
//! 3.1, <https://github.com/fjall-rs/fjall/pull/323>):
//! 1. Every write to a full buffer sends a message to the engine's threads. During a merge
//!    these messages fill the queue.
//! 2. The thread that seals the buffer then waits for room in the queue for its own message.
//! 3. If that thread is the one that empties the queue, it waits forever. Nothing is written
//!    out any more. Memory and journal grow without bound, until the store is opened again and
//!    has to write everything out.
//!
//! So every keyspace is created with a buffer that is never full for the engine. The committer
//! seals buffers (`full.rs`), and so does the thread that gives space back (`reclaim.rs`).
//!
//! A sealed buffer becomes a sorted run, and runs are merged. The engine starts one merge
//! after each buffer that it has written out. If one merge per buffer does not keep up, the
//! number of runs grows. At 30 runs the engine makes every writer wait for a merge. But the
//! next merge starts only after another buffer, which needs another write: writers could wait
//! forever.
//!
//! Files are sized so that one merge per buffer keeps up. Stores created with smaller buffers
//! do not keep up; for them the committer merges before it seals.
//!
//! Invariant: the queue of the engine's threads, of 1,000 messages, never becomes full. Each
//! sealed buffer makes two messages, and the second follows only when the first is taken. This
//! file bounds the number of sealed buffers that wait.
//!
//! ADR-13 says what this design costs, and what would change it.

use std::sync::Arc;
use std::time::Duration;

use fjall::{AbstractTree, Database, Keyspace, PersistMode};

use crate::commit::room::MERGE_FILES;
use crate::engine::{Engine, Lead};
use crate::layout::tuning::{HISTORY_FILE_PART, HISTORY_RUNS, RUN_FILE_BUFFERS, first_level};
use crate::waits::may_wait;

/// The most sealed buffers of a keyspace that wait to be written out.
const SEALED_MAX: usize = 3;
/// The most messages about sealed buffers that wait for the engine's threads. Their queue has
/// room for 1,000.
const MESSAGES_MAX: usize = 64;
/// The most unmerged sorted runs of a keyspace. The engine slows writers down from 20 on.
pub(crate) const RUNS_MAX: usize = 16;
/// The files of the largest merge of a history: all new runs, each of one write buffer, and the
/// whole next level.
const HISTORY_MERGE_FILES: u64 =
    RUNS_MAX as u64 / RUN_FILE_BUFFERS + HISTORY_RUNS as u64 / HISTORY_FILE_PART;
const _: () = assert!(HISTORY_MERGE_FILES <= MERGE_FILES, "the reserve of the disk is too small");
/// The time between two checks for room.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Whether no sealed buffer of an open table waits.
pub(crate) fn writes_nothing_out(db: &Database, lead: &Lead) -> bool {
    db.outstanding_flushes() == 0
        && lead.keyspaces().all(|keyspace| keyspace.sealed_memtable_count() == 0)
}

/// Seals the buffer, once there is room for it. Returns whether it was sealed.
pub(crate) fn seal(engine: &Engine, keyspace: &Keyspace) -> bool {
    sealed(engine, make_room(engine, keyspace).and_then(|()| rotate(engine, keyspace)))
}

/// Seals the buffer, unless it is empty. Returns whether it was sealed. The caller holds the
/// commit lock.
///
/// A failed engine seals nothing: it would sync the journal again before it writes the buffer out,
/// and that sync would prove nothing.
pub(crate) fn rotate(engine: &Engine, keyspace: &Keyspace) -> fjall::Result<bool> {
    may_wait("sealing a buffer");
    check_engine(&engine.db)?;
    engine.calm.ends(keyspace);
    let buffer = keyspace.tree.active_memtable();
    let sealed = keyspace.rotate_memtable()?;
    if sealed {
        engine.freeing.free(buffer);
        engine.freeing.follow(keyspace);
    }
    Ok(sealed)
}

/// Returns whether a buffer was sealed. If sealing failed, the next batch is refused.
pub(super) fn sealed(engine: &Engine, sealing: fjall::Result<bool>) -> bool {
    sealing.unwrap_or_else(|error| {
        engine.stop(&error);
        false
    })
}

/// Waits until a keyspace has room for another sealed buffer. The engine itself makes writers
/// wait at one more sealed buffer than here, and at 30 unmerged runs. It waits in steps of 100
/// ms, and forever if it has failed.
pub(crate) fn make_room(engine: &Engine, keyspace: &Keyspace) -> fjall::Result<()> {
    while keyspace.sealed_memtable_count() >= SEALED_MAX
        || engine.db.outstanding_flushes() >= MESSAGES_MAX
    {
        check_engine(&engine.db)?;
        may_wait("room for a buffer");
        std::thread::sleep(LOOK_EVERY);
    }
    merge_runs(engine, keyspace)
}

/// Merges new runs into the first level if the engine is behind. The engine merges only once
/// for each buffer that it has written out, at the level with the most need.
fn merge_runs(engine: &Engine, keyspace: &Keyspace) -> fjall::Result<()> {
    let runs = || keyspace.tree.l0_run_count();
    if runs() < RUNS_MAX {
        return Ok(());
    }
    let _paused = engine.merges.early_syncs.pause();
    let mut before = usize::MAX;
    while runs() >= RUNS_MAX && (runs() < before || engine.db.active_compactions() > 0) {
        check_engine(&engine.db)?;
        before = runs();
        let kept_from = engine.db.supervisor.snapshot_tracker.get_seqno_safe_to_gc();
        keyspace.tree.compact(Arc::new(first_level(&engine.options)), kept_from)?;
        // The engine may hold the runs for a merge of its own.
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Returns an error once the engine has failed. The call itself writes nothing.
pub(crate) fn check_engine(db: &Database) -> fjall::Result<()> {
    db.persist(PersistMode::Buffer)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::Ordering;
    use std::sync::mpsc::{RecvTimeoutError, channel};

    use bigtable::{Family, Layout, LocalityGroup, Mutation, RowMutation, Selection, Table};
    use bigtable::{TableSchema, TimeRange, Timestamp};
    use futures::executor::block_on;
    use xxhash_rust::xxh3::xxh3_64_with_seed;

    use crate::held::{SEALED, hold, wait_until};
    use crate::{Durability, FjallStore, FjallTable, Options};

    use super::*;

    const FULL: u64 = 256 << 10;
    /// More messages than the queue of the engine's threads can hold.
    const MESSAGES: u64 = 1_100;
    const LONGEST: Duration = Duration::from_secs(120);

    /// A table whose store has write buffers of `write_buffer_bytes` bytes.
    fn open(dir: &Path, group: &'static str, write_buffer_bytes: u64) -> FjallTable {
        let options = Options { write_buffer_bytes, ..Options::default() };
        let options = Options { durability: Durability::Buffered, ..options };
        let store = FjallStore::open(dir, options).unwrap();
        let schema = TableSchema { groups: vec![LocalityGroup::on_disk(group, Layout::Versions)] };
        block_on(store.open_fjall_table("t", &schema)).unwrap()
    }

    impl FjallTable {
        fn family(&self) -> Family {
            self.opened().1.families[0].family.clone()
        }
    }

    /// A value of bytes that do not repeat, so that compression does not shrink the files.
    fn value(number: u64) -> Vec<u8> {
        (0..12).flat_map(|part| xxh3_64_with_seed(&[part], number).to_le_bytes()).collect()
    }

    fn write(table: &FjallTable, row: u64, number: u64) {
        let value = value(number);
        let cell = Mutation::set(table.family(), "q", Timestamp::new(1).unwrap(), value);
        let row = RowMutation::new(format!("row {row}")).mutation(cell);
        block_on(table.mutate_row(row)).unwrap();
    }

    #[test]
    fn buffers_are_sealed_and_written_out_however_much_is_written_meanwhile() {
        let _over = hold(&SEALED);
        SEALED.written.release();
        let dir = tempfile::tempdir().unwrap();
        let table = open(dir.path(), "held", FULL);
        let info = table.opened().1;
        let keyspace = &info.groups[0].cells;
        let mut written = 0;
        let mut write = |writes: u64| {
            (written..written + writes).for_each(|number| write(&table, number, number));
            written += writes;
            keyspace.tree.active_memtable().size()
        };
        while keyspace.sealed_memtable_count() == 0 && !SEALED.synced.is_reached() {
            let size = write(1);
            assert!(size < 2 * FULL, "a buffer of {size} bytes is not sealed");
        }
        // The engine is held for so long that more than another whole buffer is written.
        wait_until("a buffer is written out", || SEALED.synced.is_reached());
        write(2 * MESSAGES);
        SEALED.synced.release();
        let most = (0..4 * MESSAGES).map(|_| write(1)).max();
        assert!(most < Some(2 * FULL), "a buffer of {most:?} bytes was not sealed");
        assert!(!SEALED.rotated.load(Ordering::SeqCst), "the engine takes a buffer for full");
        wait_until("all buffers are written out", || keyspace.sealed_memtable_count() == 0);
    }

    #[test]
    fn merges_keep_up_where_a_buffer_is_many_files() {
        const WRITES: u64 = 25_000;
        const ROWS: u64 = 20_000;
        let (done, is_done) = channel();
        let writer = std::thread::spawn(move || {
            let dir = tempfile::tempdir().unwrap();
            // The size of files is fixed when a store is created.
            drop(open(dir.path(), "many", 1 << 10));
            let table = open(dir.path(), "many", 64 << 10);
            // The order is mixed, so that every merge overlaps files of all levels. Some rows
            // are written twice.
            let row = |n: u64| (n % ROWS).wrapping_mul(0x9E37_79B9) % 1_000_003;
            (0..WRITES).for_each(|n| write(&table, row(n), n));
            let runs = table.opened().1.groups[0].cells.tree.l0_run_count();
            let column = Selection::default().column(table.family(), "q", TimeRange::ALL, 1);
            // Check the last write to each row.
            for n in WRITES - ROWS..WRITES {
                let key = format!("row {}", row(n)).into();
                let read = block_on(table.read_row(&key, &column)).unwrap();
                assert!(read.cells.iter().map(|cell| &*cell.value).eq([value(n)]), "{key}");
            }
            done.send(runs).unwrap();
        });
        let runs = is_done.recv_timeout(LONGEST);
        assert!(runs != Err(RecvTimeoutError::Timeout), "writers wait for ever");
        writer.join().unwrap();
        assert!(runs.unwrap() < 20, "{runs:?}");
    }
}
