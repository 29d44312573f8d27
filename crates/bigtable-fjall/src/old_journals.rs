//! Journals that are kept for a few cells.
//!
//! The engine begins a new journal after 64 MB, and removes an old one once every keyspace that was written in it has
//! written its buffer out. A keyspace that hardly anybody writes to does not: its buffer never becomes full. So the
//! journals of everything else stay, up to [`Options::journal_bytes_max`](crate::Options), and the next opening reads
//! them all. The committer looks once in a while. If old journals are there and little is written, it seals the buffers
//! of all keyspaces.
//!
//! A keyspace whose last merge has left nothing, because everything in it was removed, has no run that says how far it
//! was written out. So each is given the removal of a key that is never there, and then has one.

use std::time::{Duration, Instant};

use bigtable::Result;

use crate::engine::{Engine, Lead};
use crate::puts::Puts;
use crate::reclaim::NO_KEY;

/// How often the committer looks.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Fewer batches than this from one look to the next are little. A store that is busy fills its buffers by itself.
const BATCHES_MAX: u64 = 1000;

/// When the committer looks for journals that nobody needs.
#[derive(Debug)]
pub(crate) struct Looks {
    next: Instant,
    /// How many batches had ended at the last one.
    batches: u64,
}

impl Looks {
    pub(crate) fn new() -> Self {
        Looks { next: Instant::now() + LOOK_EVERY, batches: 0 }
    }

    /// How long it is until the next one.
    pub(crate) fn due_in(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }
}

impl Engine {
    /// Looks whether old journals are kept for a few cells, if it is time.
    pub(crate) fn look_for_journals(&self, looks: &mut Looks) {
        if !looks.due_in().is_zero() {
            return;
        }
        looks.next = Instant::now() + LOOK_EVERY;
        let batches = self.batches.ended();
        let written = batches - std::mem::replace(&mut looks.batches, batches);
        if written >= BATCHES_MAX {
            return;
        }
        let Ok(lead) = self.wait_to_lead() else { return };
        // Whoever asks for something next meets the same error.
        if self.db.journal_count() > 1 {
            let _ = self.free_journals(&lead);
        }
        let _ = self.journals().release();
    }

    /// Writes all buffers out, so that the engine can remove the journals before the newest.
    fn free_journals(&self, lead: &Lead) -> Result<()> {
        let keyspaces = || {
            let groups = lead.groups.iter().flat_map(|group| group.keyspaces());
            groups.chain([&self.catalog.0])
        };
        let mut puts = Puts::default();
        keyspaces().for_each(|keyspace| puts.remove(keyspace, NO_KEY));
        self.write(puts.into(), self.sync())?;
        for keyspace in keyspaces() {
            self.seal(keyspace);
        }
        Ok(())
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

    /// Of bytes that do not repeat, so that the journal is as long as what is written.
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
        // The busy one may write out whatever it has: the quiet one keeps the first journal.
        let wait = |until: &dyn Fn() -> bool, what: &str| {
            let begun = Instant::now();
            while !until() {
                assert!(begun.elapsed() < LONGEST, "{what}");
                std::thread::yield_now();
            }
        };
        wait(&|| engine.db.outstanding_flushes() == 0, "a buffer is not written out");
        assert!(engine.db.journal_count() > 1, "nothing keeps it");
        let mut looks = Looks { next: Instant::now(), batches: engine.batches.ended() };
        engine.look_for_journals(&mut looks);
        wait(&|| engine.db.journal_count() == 1, "the old journal is still there");
        assert!(looks.due_in() > LOOK_EVERY / 2);
    }
}
