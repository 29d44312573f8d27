//! Closes the store for [`FjallStore::close`](crate::FjallStore::close): the engine writes all
//! its buffers out, so that the next opening has no journal to read.
//!
//! An opening reads each journal twice: the store checks it, and the engine puts its batches
//! into buffers again. A program that closes the store after each command would pay for this
//! with each command.
//!
//! In these cases the journals stay, and the next opening reads them. They are synced, except
//! after a failed write:
//!
//! * They are short.
//! * The disk has no room for the buffers, the engine fails, or it takes too long.
//! * The last handle is dropped without `close`: a thread that polls futures may drop it.
//! * The engine is closed to be opened anew (`reopen.rs`).
//!
//! Invariant: before a journal is removed, the engine has written and synced all runs with its
//! content, and an empty journal has taken its place.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fjall::{AbstractTree, PersistMode};

use crate::commit::admission;
use crate::engine::Engine;
use crate::upkeep::old_journals::free_journals;
use crate::upkeep::seal::check_engine;
use crate::waits::may_wait;

/// Shorter journals, in bytes, are left to the next opening. Reading them takes less time than
/// syncing the runs of several tables.
const SHORT_BYTES: u64 = 4 << 20;
/// The longest time for the engine to write its buffers out.
const WRITING_OUT_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(1);

impl Drop for Engine {
    fn drop(&mut self) {
        close_journals(self, self.write_out_at_end.load(Ordering::Relaxed));
        // Even if this panics, `freeing` is dropped next, and `db` after it.
    }
}

/// Closes the journals, so that the next opening can trust them. No other thread uses the
/// engine any more.
///
/// After a failed write the content of the journal is unknown, so the journal is left alone.
/// Errors are ignored: an inventory that was not updated demands less than it could, and is
/// still correct.
fn close_journals(engine: &Engine, write_out: bool) {
    if engine.check_usable().is_err() {
        return;
    }
    let is_empty = write_out && write_all_out(engine);
    if engine.db.persist(PersistMode::SyncAll).is_ok() {
        let mut journals = engine.journals();
        let _ = if is_empty { journals.close_empty() } else { journals.close() };
    }
}

/// Writes all buffers out. Returns whether all content of the journals is in runs now.
fn write_all_out(engine: &Engine) -> bool {
    if engine.stopped().is_some() || engine.journals().bytes() < SHORT_BYTES {
        return false;
    }
    if !admission::has_room_for_buffers(engine) {
        return false;
    }
    may_wait("writing all buffers out");
    let began = Instant::now();
    if free_journals(engine, u64::MAX).is_err() {
        return false;
    }
    while !is_all_in_runs(engine) {
        if check_engine(&engine.db).is_err() || began.elapsed() > WRITING_OUT_MAX {
            return false;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    engine.stopped().is_none()
}

/// Whether the buffers are empty, and the engine has removed all journals but the newest.
fn is_all_in_runs(engine: &Engine) -> bool {
    let Ok(keyspaces) = engine.db.supervisor.keyspaces.read() else { return false };
    keyspaces.values().all(|one| one.tree.get_highest_memtable_seqno().is_none())
        && engine.db.journal_count() == 1
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::sync::OnceLock;

    use bigtable::{Family, Layout, LocalityGroup, Mutation, OnFull, RowMutation, Selection};
    use bigtable::{Table, TableSchema, TimeRange, Timestamp};
    use futures::executor::block_on;
    use xxhash_rust::xxh3::xxh3_64;

    use crate::opening::{Inventory, JOURNALS_DIR, journal_file, list_journals};
    use crate::{Durability, FjallStore, FjallTable, Options};

    const CELLS: Family = Family::from_static("cells");
    const LOCK: Family = Family::from_static("lock");
    /// The number of rows that makes the journal longer than a short one.
    const ROWS: u64 = 3;

    fn open(dir: &Path, durability: Durability) -> (FjallStore, FjallTable) {
        let options = Options { durability, ..Options::default() };
        let store = FjallStore::open(dir, options).unwrap();
        let lock = LocalityGroup::in_memory("lock", OnFull::Refuse { cells_max: 1000 });
        let groups = vec![LocalityGroup::on_disk("cells", Layout::NewestFirst), lock];
        let table = block_on(store.open_fjall_table("t", &TableSchema { groups })).unwrap();
        (store, table)
    }

    /// The row's number, followed by bytes that do not repeat, so that compression does not
    /// shorten the journal.
    fn value(number: u64) -> Vec<u8> {
        static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
        let part = |part: u64| xxh3_64(&part.to_le_bytes()).to_le_bytes();
        let bytes = BYTES.get_or_init(|| (0..(1 << 20) / 8).flat_map(part).collect());
        [&number.to_le_bytes(), &bytes[..]].concat()
    }

    fn write(table: &FjallTable, number: u64) {
        let at = Timestamp::new(1).unwrap();
        let cells = [CELLS, LOCK].map(|family| Mutation::set(family, "q", at, value(number)));
        let row = RowMutation::new(format!("row {number}"));
        block_on(table.mutate_row(cells.into_iter().fold(row, RowMutation::mutation))).unwrap();
    }

    fn check(table: &FjallTable, rows: u64) {
        let select = [CELLS, LOCK].into_iter().fold(Selection::default(), |select, family| {
            select.column(family, "q", TimeRange::ALL, 1)
        });
        for number in 0..rows {
            let row = format!("row {number}").as_str().into();
            let cells = block_on(table.read_row(&row, &select)).unwrap().cells;
            let read: Vec<_> = cells.iter().map(|cell| &*cell.value).collect();
            assert!(read == [value(number), value(number)], "row {number}: {} cells", read.len());
        }
    }

    fn engine(dir: &Path) -> PathBuf {
        dir.join(crate::directory::ENGINE_DIR)
    }

    /// Lists the journals: the number of each, and whether its first 4 KiB hold anything.
    fn journals(dir: &Path) -> Vec<(u64, bool)> {
        let list = list_journals(&engine(dir)).unwrap();
        let is_written = |path: PathBuf| fs::read(path).unwrap().iter().take(4096).any(|b| *b != 0);
        list.into_iter().map(|(number, path)| (number, is_written(path))).collect()
    }

    #[test]
    fn a_store_that_was_closed_has_one_empty_journal() {
        for durability in [Durability::Sync, Durability::Buffered] {
            let dir = tempfile::tempdir().unwrap();
            let mut rows = 0;
            for closed in 1..4 {
                // The store is once dropped without a close, and once closed.
                for closes in [false, true] {
                    let (store, table) = open(dir.path(), durability);
                    check(&table, rows);
                    (rows..rows + ROWS).for_each(|number| write(&table, number));
                    rows += ROWS;
                    if closes {
                        store.close().unwrap();
                    }
                    drop((store, table));
                    let expected = if closes { (closed, false) } else { (closed - 1, true) };
                    assert_eq!(journals(dir.path()), [expected], "{durability:?}");
                }
            }
            let (_store, table) = open(dir.path(), durability);
            check(&table, rows);
        }
    }

    #[test]
    fn a_short_journal_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let (store, table) = open(dir.path(), Durability::Buffered);
        write(&table, 0);
        store.close().unwrap();
        assert_eq!(journals(dir.path()), [(0, true)]);
        check(&open(dir.path(), Durability::Buffered).1, 1);
    }

    /// Creates a store whose process was killed while it closed, after `steps` steps.
    fn killed_after(steps: usize, dir: &Path) {
        let (store, table) = open(dir, Durability::Buffered);
        (0..ROWS).for_each(|number| write(&table, number));
        let (old, kept) = (journal_file(&engine(dir), 0), dir.join("kept"));
        crate::directory::link(&old, &kept).unwrap();
        let before = Inventory::read(dir).unwrap().unwrap();
        store.close().unwrap();
        assert_eq!(journals(dir), [(1, false)]);
        let after = Inventory::read(dir).unwrap().unwrap();
        let second = |number| journal_file(&dir.join(JOURNALS_DIR), number);
        // Restore the state before the last steps.
        crate::directory::link(&kept, &second(0)).unwrap();
        if steps < 4 {
            let mut both = after.clone();
            both.journals.extend(before.journals.clone());
            both.write(dir).unwrap();
        }
        if steps < 3 {
            crate::directory::link(&kept, &old).unwrap();
        }
        if steps < 2 {
            before.write(dir).unwrap();
            fs::remove_file(second(1)).unwrap();
        }
        if steps < 1 {
            fs::remove_file(journal_file(&engine(dir), 1)).unwrap();
        }
        fs::remove_file(kept).unwrap();
        crate::opening::mark(dir).unwrap();
    }

    #[test]
    fn a_kill_while_the_store_closes_loses_nothing() {
        for steps in 0..5 {
            let dir = tempfile::tempdir().unwrap();
            killed_after(steps, dir.path());
            let (store, table) = open(dir.path(), Durability::Buffered);
            check(&table, ROWS);
            (ROWS..2 * ROWS).for_each(|number| write(&table, number));
            store.close().unwrap();
            assert_eq!(journals(dir.path()).len(), 1, "{steps} steps");
            check(&open(dir.path(), Durability::Buffered).1, 2 * ROWS);
            let checked = crate::check(dir.path(), |_| Vec::new()).unwrap();
            assert!(checked.problems.is_empty(), "{steps} steps: {checked:?}");
        }
    }
}
