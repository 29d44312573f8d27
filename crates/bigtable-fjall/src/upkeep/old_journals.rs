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

use std::time::{Duration, Instant};

use bigtable::Result;
use fjall::{AbstractTree, Keyspace};

use crate::commit::puts::Puts;
use crate::commit::write::write_batch;
use crate::engine::{Engine, Lead};
use crate::failure::fault;
use crate::layout::key::NO_KEY;
use crate::upkeep::seal::{seal, writes_nothing_out};

/// The least limit. With a lower one, the first journal would be freed as soon as it ends.
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
    if let Ok(released) = engine.journals().release() {
        engine.freeing.remove(released);
    }
}

/// Frees the oldest journal, if journals take too many bytes. Does nothing while the engine
/// writes a buffer out: further buffers would wait behind it, and the store would not be calm
/// meanwhile.
pub(crate) fn limit_journals(engine: &Engine, lead: &Lead) {
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
    use bigtable::{
        Family, Layout, LocalityGroup, Mutation, RowMutation, Table, TableSchema, Timestamp,
    };
    use futures::executor::block_on;
    use xxhash_rust::xxh3::xxh3_64_with_seed;

    use super::*;
    use crate::{Durability, FjallStore, Options};

    const LONGEST: Duration = Duration::from_secs(120);
    const VALUE_BYTES: u64 = 1 << 20;

    /// A value of bytes that do not repeat, so that compression does not shorten the journal.
    fn value(number: u64) -> Vec<u8> {
        let part = |part: u64| xxh3_64_with_seed(&part.to_le_bytes(), number).to_le_bytes();
        (0..VALUE_BYTES / 8).flat_map(part).collect()
    }

    #[test]
    fn a_journal_that_is_kept_for_one_cell_is_freed_while_the_store_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { durability: Durability::Buffered, ..Options::default() };
        let options = Options { write_buffer_bytes: 4 << 20, ..options };
        let store = FjallStore::open(dir.path(), options).unwrap();
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
        // The busy keyspace may write everything out; the quiet one still keeps the first
        // journal.
        let wait = |until: &dyn Fn() -> bool, what: &str| {
            let begun = Instant::now();
            while !until() {
                assert!(begun.elapsed() < LONGEST, "{what}");
                std::thread::yield_now();
            }
        };
        wait(&|| engine.db.outstanding_flushes() == 0, "a buffer is not written out");
        assert!(engine.db.journal_count() > 1, "nothing keeps it");
        let mut looks = Looks { next: Instant::now(), batches: engine.snapshots.batches() };
        look_for_journals(engine, &mut looks);
        wait(&|| engine.db.journal_count() == 1, "the old journal is still there");
        assert!(looks.due_in() > LOOK_EVERY / 2);
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
        let write = |table: &crate::FjallTable, family, value: Vec<u8>| {
            let cell = Mutation::set(family, "q", Timestamp::ZERO, value);
            block_on(table.mutate_row(RowMutation::new("row").mutation(cell))).unwrap();
        };
        write(&open("closed"), Family::from_static("closed"), b"nobody opens this table".to_vec());
        let table = open("busy");
        let engine = &table.opened().0;
        // The engine removes the first journal when the closed table's buffer is written out.
        let first = engine.journals().newest();
        let most = (0..400)
            .map(|number| {
                write(&table, Family::from_static("busy"), value(number));
                engine.db.journal_count()
            })
            .max();
        assert!(engine.journals().newest() > first + 3, "too little was written");
        assert!(most <= Some(4), "{most:?} journals");
    }
}
