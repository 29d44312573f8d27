//! Frees journals that are kept because of a few cells.
//!
//! The engine begins a new journal after 64 MB. It removes an old journal once every keyspace
//! that was written in it has written its buffer out. The buffer of a keyspace with few writes
//! never becomes full. So all old journals would stay, and the next opening would read them
//! all. The committer seals buffers to free journals:
//!
//! * When the journals before the newest reach [`Options::journal_bytes_max`](crate::Options)
//!   bytes, it seals the buffers of the keyspaces that keep the oldest journal. The engine
//!   would do the same, but without the commit lock (`calm.rs`).
//! * At intervals, if there are old journals and few writes, it seals the buffers of all
//!   keyspaces.
//!
//! A keyspace may have no run, because its last merge removed everything. Then nothing records
//! how far it was written out. So each keyspace gets the removal of a key that never exists,
//! which gives it a run.

use std::io;
use std::time::{Duration, Instant};

use bigtable::Result;
use fjall::{AbstractTree, Keyspace};

use crate::commit::puts::Puts;
use crate::commit::write::write_batch;
use crate::engine::{Engine, Lead};
use crate::failure::fault;
use crate::layout::key::NO_KEY;
use crate::upkeep::seal::{seal, writes_nothing_out};

/// The least limit, which is also the default. A journal ends soon after 64,000,000 bytes. So one
/// journal of short batches stays below the limit, and two reach it. With a lower limit, each
/// journal would be freed as soon as it ends.
const JOURNAL_BYTES_MIN: u64 = 64 << 20;
/// The time between two looks of the committer.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// With fewer batches than this between two looks, the store counts as idle. A busy store
/// fills its buffers by itself.
const BATCHES_MAX: u64 = 1000;

/// The schedule of the committer's looks for old journals.
#[derive(Debug)]
pub(crate) struct Looks {
    next: Instant,
    /// The number of batches that had ended at the last look.
    batches: u64,
}

impl Looks {
    pub(crate) fn new() -> Self {
        Looks { next: Instant::now() + LOOK_EVERY, batches: 0 }
    }

    /// The time until the next look.
    pub(crate) fn due_in(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }
}

/// Frees old journals that are kept because of a few cells, if a look is due.
pub(crate) fn look_for_journals(engine: &Engine, looks: &mut Looks) {
    if !looks.due_in().is_zero() {
        return;
    }
    looks.next = Instant::now() + LOOK_EVERY;
    let batches = engine.snapshots.batches();
    let written = batches - std::mem::replace(&mut looks.batches, batches);
    if written >= BATCHES_MAX {
        return;
    }
    let Ok(_lead) = engine.wait_to_lead() else { return };
    // Errors are ignored here, because the next request finds the same error.
    if engine.db.journal_count() > 1 {
        let _ = free_journals(engine, u64::MAX);
    }
    let _ = release_journals(engine);
}

/// Frees the space of journals that the engine has removed. The caller holds the commit lock. After
/// an error the journals stay until the next call.
pub(super) fn release_journals(engine: &Engine) -> io::Result<()> {
    let released = engine.journals().release()?;
    engine.freeing.remove(released);
    Ok(())
}

/// Releases the journals that the engine has removed, and frees the oldest one, if journals take
/// too many bytes. Frees nothing while the engine writes a buffer out: further buffers would wait
/// behind it, and the store would not be calm meanwhile.
pub(crate) fn limit_journals(engine: &Engine, lead: &Lead) {
    // The error is ignored here, because the next call finds the same error.
    let _ = release_journals(engine);
    if !writes_nothing_out(&engine.db, lead) {
        return;
    }
    let bytes_max = engine.options.journal_bytes_max.max(JOURNAL_BYTES_MIN);
    let excess = engine.journals().take_excess(bytes_max);
    if let Some(end) = excess {
        // The error is ignored here, because the next write fails with the same error.
        let _ = free_journals(engine, end);
    }
}

/// Seals the buffers of keyspaces that have not written out everything below `end`. Then the
/// engine can remove the journals that hold nothing else.
pub(crate) fn free_journals(engine: &Engine, end: u64) -> Result<()> {
    // Include the keyspaces of tables that are not open.
    let all = engine.db.supervisor.keyspaces.read().map_err(|_| fault::stopped())?;
    let keyspaces: Vec<_> = all.values().filter(|one| keeps_journals(one, end)).cloned().collect();
    drop(all);
    let mut puts = Puts::default();
    keyspaces.iter().for_each(|keyspace| puts.remove(keyspace, NO_KEY));
    write_batch(engine, puts.into(), engine.sync())?;
    for keyspace in &keyspaces {
        seal(engine, keyspace);
    }
    Ok(())
}

/// Whether the engine may keep a journal of batches below `end` for this keyspace.
fn keeps_journals(keyspace: &Keyspace, end: u64) -> bool {
    let is_buffered = keyspace.tree.get_highest_memtable_seqno().is_some();
    match keyspace.tree.get_highest_persisted_seqno() {
        Some(number) => is_buffered && number < end,
        // The keyspace has no run. If it ever had one, a merge has removed everything.
        None => is_buffered || keyspace.tree.next_table_id() > 0,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::atomic::Ordering;

    use bigtable::{
        Family, Layout, LocalityGroup, Mutation, RowMutation, Store, Table, TableSchema, Timestamp,
    };
    use futures::executor::block_on;
    use xxhash_rust::xxh3::xxh3_64_with_seed;

    use super::*;
    use crate::held::wait_until;
    use crate::opening::JOURNALS_DIR;
    use crate::{Durability, FjallStore, FjallTable, Options};

    const VALUE_BYTES: u64 = 1 << 20;

    /// A value of bytes that do not repeat, so that compression does not shorten the journal.
    fn value(number: u64) -> Vec<u8> {
        let part = |part: u64| xxh3_64_with_seed(&part.to_le_bytes(), number).to_le_bytes();
        (0..VALUE_BYTES / 8).flat_map(part).collect()
    }

    /// A store with two journals. Only the buffer of the first group keeps the first journal.
    fn open_with_two_journals(dir: &Path) -> (FjallStore, FjallTable) {
        let options = Options { durability: Durability::Buffered, ..Options::default() };
        let options = Options { write_buffer_bytes: 4 << 20, ..options };
        let store = FjallStore::open(dir, options).unwrap();
        let groups = ["quiet", "busy"].map(|name| LocalityGroup::on_disk(name, Layout::Versions));
        let schema = TableSchema { groups: groups.to_vec() };
        let table = block_on(store.open_fjall_table("t", &schema)).unwrap();
        let write = |family, number: u64, value: Vec<u8>| {
            let cell = Mutation::set(family, "q", Timestamp::ZERO, value);
            let row = RowMutation::new(format!("row {number}")).mutation(cell);
            block_on(table.mutate_row(row)).unwrap();
        };
        write(Family::from_static("quiet"), 0, b"a few bytes".to_vec());
        let engine = &table.opened().0;
        for number in 0.. {
            assert!(number < 400, "no new journal was begun");
            if engine.db.journal_count() > 1 {
                break;
            }
            write(Family::from_static("busy"), number, value(number));
        }
        wait_until("all buffers are written out", || engine.db.outstanding_flushes() == 0);
        assert!(engine.db.journal_count() > 1, "nothing keeps it");
        (store, table)
    }

    #[test]
    fn giving_space_back_frees_a_journal() {
        let dir = tempfile::tempdir().unwrap();
        let (store, table) = open_with_two_journals(dir.path());
        let (engine, info) = table.opened();
        // Leave only the quiet group's buffer.
        for keyspace in [&engine.catalog.0, &info.groups[1].cells] {
            seal(&engine, keyspace);
            wait_until("it is written out", || keyspace.sealed_memtable_count() == 0);
        }
        assert!(engine.db.journal_count() > 1, "nothing keeps the first journal");
        // As if so many cells of the quiet group had been removed.
        info.groups[0].removed[0].fetch_add(1_000_000, Ordering::Relaxed);
        block_on(store.reclaim()).unwrap();
        let (inventory, _) = engine.journals().known();
        assert_eq!(inventory.journals.len(), 1, "the old journal is not released");
        wait_until("the old journal has no name", || second_names(dir.path()) == 1);
    }

    #[test]
    fn a_journal_that_is_kept_for_one_cell_is_freed_while_the_store_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let (_store, table) = open_with_two_journals(dir.path());
        let engine = &table.opened().0;
        let mut looks = Looks { next: Instant::now(), batches: engine.snapshots.batches() };
        look_for_journals(engine, &mut looks);
        wait_until("the old journal is gone", || engine.db.journal_count() == 1);
        assert!(looks.due_in() > LOOK_EVERY / 2);
        looks = Looks { next: Instant::now(), batches: engine.snapshots.batches() };
        look_for_journals(engine, &mut looks);
        wait_until("the old journal has no name", || second_names(dir.path()) == 1);
    }

    #[test]
    fn journals_stay_below_their_limit_whatever_keeps_them() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { durability: Durability::Buffered, ..Options::default() };
        let options =
            Options { write_buffer_bytes: 4 << 20, journal_bytes_max: 100 << 20, ..options };
        let open = |name: &'static str| {
            let store = FjallStore::open(dir.path(), options.clone()).unwrap();
            let groups = vec![LocalityGroup::on_disk(name, Layout::Versions)];
            block_on(store.open_fjall_table(name, &TableSchema { groups })).unwrap()
        };
        let write = |table: &FjallTable, family, value: Vec<u8>| {
            let cell = Mutation::set(family, "q", Timestamp::ZERO, value);
            block_on(table.mutate_row(RowMutation::new("row").mutation(cell))).unwrap();
        };
        write(&open("closed"), Family::from_static("closed"), b"nobody opens this table".to_vec());
        let table = open("busy");
        let engine = &table.opened().0;
        // The engine removes the first journal when the closed table's buffer is written out.
        let first = engine.journals().newest();
        let write_one = |number| write(&table, Family::from_static("busy"), value(number));
        let most = (0..400)
            .map(|number| {
                write_one(number);
                engine.db.journal_count()
            })
            .max();
        assert!(engine.journals().newest() > first + 3, "too little was written");
        assert!(most <= Some(4), "{most:?} journals");
        // The space of a journal is free only when its second name is gone, too.
        wait_until("the removed journals have no second names", || {
            write_one(0);
            second_names(dir.path()) <= engine.db.journal_count()
        });
    }

    /// The number of journals that take space.
    fn second_names(dir: &Path) -> usize {
        fs::read_dir(dir.join(JOURNALS_DIR)).unwrap().count()
    }
}
