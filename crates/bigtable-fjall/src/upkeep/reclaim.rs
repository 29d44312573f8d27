//! Gives back the space of removed cells.
//!
//! The engine keeps a removed cell, and its removal mark, until a merge of sorted runs brings
//! both to the last level. It merges when new runs arrive, and after a garbage collection
//! there may be none for a long time. So a caller that has removed many cells requests this
//! work. The work writes the buffers out, and merges each keyspace with many removed cells
//! into one level.
//!
//! Large values are in separate files. A first merge finds out which of them are dead. A second
//! merge removes files without a living value. It also rewrites the oldest quarter of the files
//! with many dead ones, and so none of three files. If more than half of the bytes are still dead,
//! the work puts the living values again, and then merges once more.
//!
//! The work runs on its own thread, because the engine blocks, and never twice at the same
//! time. Closing the store waits for the current merge. For that reason, large keyspaces are left
//! to the engine's usual merges.

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use bigtable::sync::locked;
use bigtable::{Error, Result};
use fjall::{AbstractTree, Keyspace, Slice};
use futures::channel::oneshot;

use crate::commit::admission;
use crate::commit::puts::Puts;
use crate::commit::room::Use;
use crate::commit::write::write_batch;
use crate::engine::Engine;
use crate::failure::fault::{self, Fault};
use crate::layout::group::Group;
use crate::layout::key::NO_KEY;
use crate::layout::tuning::LARGE_VALUE_BYTES_MIN;
use crate::upkeep::full::seal_full;
use crate::upkeep::old_journals::release_journals;
use crate::upkeep::seal::rotate;

/// The least number of removed entries that makes a merge of a keyspace worthwhile.
const REMOVED_MIN: u64 = 1000;
/// The part of a keyspace's entries that must be removed: one in this many.
const REMOVED_PART: u64 = 4;
/// Keyspaces with more bytes than this in sorted runs are left to the engine: a merge copies all of
/// them. The large values of a test below exceed the limit of a test, and do not count.
const RUN_BYTES_MAX: u64 = if cfg!(test) { 1 << 20 } else { 256 << 20 };
/// Keyspaces with more bytes of large values than this are left to the engine, too. A merge copies
/// up to a quarter of the files, and up to half of the bytes are put again through the journal.
const VALUE_BYTES_MAX: u64 = 1 << 30;
/// The least size of a part of the large values that are put again. Batches wait for a part.
const PART_BYTES: u64 = 256 << 10;
/// The most entries that are read for a part.
const PART_ENTRIES: u32 = 1000;
/// The longest wait for buffers to be written out, and the time between two checks.
const WRITING_OUT_MAX: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The thread that gives space back, if one runs.
#[derive(Debug, Default)]
pub(crate) struct Reclaiming {
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Reclaiming {
    fn thread(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        locked(&self.thread)
    }

    /// Starts the work, unless it is running already.
    pub(crate) fn start(&self, engine: &Arc<Engine>) -> Result<oneshot::Receiver<Result<()>>> {
        let (done, reply) = oneshot::channel();
        let mut thread = self.thread();
        if thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            let _ = done.send(Ok(()));
            return Ok(reply);
        }
        let work = Work { engine: engine.clone(), stop: self.stop.clone() };
        let started = std::thread::Builder::new().name("bigtable-reclaim".to_owned()).spawn({
            move || {
                // An error here means that the caller no longer waits.
                let _ = done.send(work.run());
            }
        });
        *thread = Some(started.map_err(|e| fault::io(&engine.path, "starting a thread", &e))?);
        Ok(reply)
    }

    /// Ends the work after the current merge.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread().take() {
            // A panic of the thread was already reported to its caller.
            let _ = thread.join();
        }
        self.stop.store(false, Ordering::SeqCst);
    }
}

struct Work {
    engine: Arc<Engine>,
    stop: Arc<AtomicBool>,
}

impl Work {
    fn run(&self) -> Result<()> {
        let groups = self.engine.wait_to_lead()?.groups.clone();
        let worth: Vec<_> = groups.iter().flat_map(keyspaces).filter(is_worth).collect();
        for (group, history) in &worth {
            let (keyspace, removed) =
                (group.keyspace(*history), &group.removed[usize::from(*history)]);
            let counted = removed.swap(0, Ordering::Relaxed);
            let merged = self.merge(keyspace, *history);
            if !matches!(merged, Ok(true)) {
                removed.fetch_add(counted, Ordering::Relaxed);
            }
            merged?;
        }
        let merged: Vec<_> =
            worth.iter().map(|(group, history)| group.keyspace(*history)).collect();
        self.settle(&merged)
    }

    /// Merges a whole keyspace into its last level. Returns `false` if the disk has no room
    /// for the merge.
    fn merge(&self, keyspace: &Keyspace, history: bool) -> Result<bool> {
        {
            // The commit lock excludes a batch whose readers need the shared snapshot that is
            // dropped below.
            let lead = self.engine.wait_to_lead()?;
            // The merge may use the space that is reserved for upkeep, because it gives space back.
            if !admission::admits_merge(&self.engine, &lead, keyspace) {
                return Ok(false);
            }
            // An old snapshot would keep everything that was removed since.
            self.engine.snapshots.forget();
            self.begin_to_write_out(keyspace)?;
        }
        self.merge_written(keyspace)?;
        // The entries of a history are short, and merges drop some of them (H79).
        if self.is_stopping() || history || !is_mostly_dead(keyspace) {
            return Ok(true);
        }
        self.put_large_values_again(keyspace)?;
        self.merge_written(keyspace)?;
        Ok(true)
    }

    /// Merges a keyspace whose buffer was just sealed.
    fn merge_written(&self, keyspace: &Keyspace) -> Result<()> {
        self.wait_until_written(keyspace);
        if self.is_stopping() {
            return Ok(());
        }
        // The buffer may have been written out long ago.
        self.engine.freeing.follow(keyspace);
        let _paused = self.engine.merges.early_syncs.pause();
        keyspace.major_compact().map_err(|e| self.fault(e))?;
        // A merge finds out which large values are dead, and the next one acts on it.
        if keyspace.fragmented_blob_bytes() > 0 && !self.is_stopping() {
            keyspace.major_compact().map_err(|e| self.fault(e))?;
        }
        Ok(())
    }

    /// Puts each large value under its key again, and seals the buffer. Readers see no difference.
    /// Other batches are written between two parts. Without room on the disk, or if a value cannot
    /// be read, the other values stay where they are.
    fn put_large_values_again(&self, keyspace: &Keyspace) -> Result<()> {
        let mut from = Bound::Unbounded;
        while !self.is_stopping()
            && let Some(last) = self.put_some_again(keyspace, from)?
        {
            from = Bound::Excluded(last);
            self.engine.let_others_lead();
        }
        // The engine drops only what was superseded before the last batch.
        self.seal_behind_a_batch(&[keyspace])
    }

    /// Puts large values from this bound on again. Returns the last key that was read, if more are
    /// to be read.
    fn put_some_again(&self, keyspace: &Keyspace, from: Bound<Slice>) -> Result<Option<Slice>> {
        let lead = self.engine.wait_to_lead()?;
        if !admission::admits_merge(&self.engine, &lead, keyspace) {
            return Ok(None);
        }
        let (puts, last) = match large_values(keyspace, from) {
            Ok(part) => part,
            Err(error) => {
                tell_unread(&self.engine, &error);
                return Ok(None);
            }
        };
        let bytes = puts.bytes();
        admission::admit(&self.engine, &lead, Use::Upkeep, bytes)?;
        write_batch(&self.engine, puts.into(), self.engine.sync())?;
        seal_full(&self.engine, &lead, bytes);
        Ok(last)
    }

    /// Makes the engine remove the merged files, and the journal of their content. The engine
    /// does so only after something newer than the merge has been written and written out. The
    /// removal of a key that never exists is enough.
    fn settle(&self, merged: &[&Keyspace]) -> Result<()> {
        if merged.is_empty() || self.is_stopping() {
            return Ok(());
        }
        self.seal_behind_a_batch(merged)?;
        merged.iter().for_each(|keyspace| self.wait_until_written(keyspace));
        {
            let _lead = self.engine.wait_to_lead()?;
            release_journals(&self.engine)
                .map_err(|e| fault::io(&self.engine.path, "giving space back", &e))?;
        }
        self.engine.freeing.catch_up();
        Ok(())
    }

    /// Removes a key that never exists from these keyspaces, and seals their buffers.
    fn seal_behind_a_batch(&self, keyspaces: &[&Keyspace]) -> Result<()> {
        let lead = self.engine.wait_to_lead()?;
        admission::admit(&self.engine, &lead, Use::Upkeep, 0)?;
        let mut puts = Puts::default();
        keyspaces.iter().for_each(|keyspace| puts.remove(keyspace, NO_KEY));
        write_batch(&self.engine, puts.into(), self.engine.sync())?;
        keyspaces.iter().try_for_each(|keyspace| self.begin_to_write_out(keyspace))
    }

    /// Seals the buffer, so that the engine writes it out. The caller holds the commit lock.
    fn begin_to_write_out(&self, keyspace: &Keyspace) -> Result<()> {
        rotate(&self.engine, keyspace).map_err(|e| self.fault(e))?;
        Ok(())
    }

    /// The engine's error for the caller.
    fn fault(&self, error: fjall::Error) -> Error {
        Fault::from(error).at(&self.engine.path, "giving space back")
    }

    /// Waits until the sealed buffers are written out, at most for [`WRITING_OUT_MAX`].
    fn wait_until_written(&self, keyspace: &Keyspace) {
        for _ in 0..WRITING_OUT_MAX.as_millis() / LOOK_EVERY.as_millis() {
            if keyspace.sealed_memtable_count() == 0 || self.is_stopping() {
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

/// Whether more than half of the bytes in files of large values are dead.
fn is_mostly_dead(keyspace: &Keyspace) -> bool {
    keyspace.fragmented_blob_bytes() > value_bytes(keyspace) / 2
}

fn tell_unread(engine: &Engine, error: &fjall::Error) {
    tracing::warn!(
        target: "percolator::store", event = "value_not_read", dir = %engine.path.display(), %error,
        "the space of removed large values was not given back, because a value that lives cannot be \
         read; check the store with `percolator check`"
    );
}

/// Some large values from this bound on, to be put again, and the last key that was read. There is
/// none at the end of the keyspace.
fn large_values(keyspace: &Keyspace, from: Bound<Slice>) -> fjall::Result<(Puts, Option<Slice>)> {
    let mut puts = Puts::default();
    for (read, entry) in (1..).zip(keyspace.range((from, Bound::Unbounded))) {
        let (key, value) = entry.into_inner()?;
        if value.len() >= LARGE_VALUE_BYTES_MIN as usize {
            puts.insert(keyspace, key.clone(), value);
        }
        if puts.bytes() >= PART_BYTES || read >= PART_ENTRIES {
            return Ok((puts, Some(key)));
        }
    }
    Ok((puts, None))
}

/// The keyspaces of a group. The flag marks that of the history.
fn keyspaces(group: &Arc<Group>) -> impl Iterator<Item = (Arc<Group>, bool)> {
    let history = group.history.is_some().then(|| (group.clone(), true));
    std::iter::once((group.clone(), false)).chain(history)
}

fn is_worth((group, history): &(Arc<Group>, bool)) -> bool {
    let keyspace = group.keyspace(*history);
    let removed = group.removed[usize::from(*history)].load(Ordering::Relaxed);
    let values = value_bytes(keyspace);
    removed >= REMOVED_MIN
        && removed >= keyspace.approximate_len() as u64 / REMOVED_PART
        && takes_short(keyspace.disk_space().saturating_sub(values), values)
}

/// Whether the work on a keyspace of this size ends soon. Sizes are bytes of sorted runs, and of
/// the files of large values.
fn takes_short(runs: u64, values: u64) -> bool {
    runs <= RUN_BYTES_MAX && values <= VALUE_BYTES_MAX
}

/// The bytes of the files of large values.
fn value_bytes(keyspace: &Keyspace) -> u64 {
    keyspace.tree.current_version().blob_files.on_disk_size()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bigtable::{Family, Layout, LocalityGroup, Mutation, RowKey, RowMutation};
    use bigtable::{Selection, Store, Table, TableSchema, TimeRange, Timestamp};
    use futures::executor::block_on;

    use super::*;
    use crate::held::wait_until;
    use crate::{Durability, FjallStore, FjallTable, Options};

    const CELLS: Family = Family::from_static("cells");
    /// The first rows stay, and the others are removed.
    const KEPT: u64 = 100;
    const ROWS: u64 = KEPT + REMOVED_MIN;
    const VALUE_BYTES: usize = 8 << 10;

    fn open(dir: &Path) -> (FjallStore, FjallTable) {
        let options = Options { durability: Durability::Buffered, ..Options::default() };
        let store = FjallStore::open(dir, options).unwrap();
        let groups = vec![LocalityGroup::on_disk("cells", Layout::Versions)];
        let table = block_on(store.open_fjall_table("t", &TableSchema { groups })).unwrap();
        (store, table)
    }

    fn key(row: u64) -> RowKey {
        RowKey::from(format!("{row:04}"))
    }

    /// A value that does not compress.
    fn value(row: u64) -> Vec<u8> {
        let mut x = row + 1;
        let bytes = (0..VALUE_BYTES).map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8
        });
        bytes.collect()
    }

    fn change(table: &FjallTable, row: u64, what: Mutation) {
        block_on(table.mutate_row(RowMutation::new(key(row)).mutation(what))).unwrap();
    }

    fn read(table: &FjallTable, row: u64) -> Vec<Vec<u8>> {
        let newest = Selection::default().column(CELLS, "q", TimeRange::ALL, 1);
        let cells = block_on(table.read_row(&key(row), &newest)).unwrap().cells;
        cells.iter().map(|cell| cell.value.to_vec()).collect()
    }

    fn check_values(table: &FjallTable) {
        for row in 0..ROWS {
            let expected = if row < KEPT { vec![value(row)] } else { vec![] };
            assert_eq!(read(table, row), expected, "row {row}");
        }
    }

    /// Sets all values, and removes most of them when they are in one file.
    fn set_and_remove(table: &FjallTable) {
        for row in 0..ROWS {
            change(table, row, Mutation::set(CELLS, "q", Timestamp::ZERO, value(row)));
        }
        let (engine, info) = table.opened();
        let cells = &info.groups[0].cells;
        assert!(rotate(&engine, cells).unwrap());
        wait_until("it is written out", || cells.sealed_memtable_count() == 0);
        assert_eq!(cells.blob_file_count(), 1);
        for row in KEPT..ROWS {
            change(table, row, Mutation::delete(CELLS, "q", TimeRange::ALL));
        }
    }

    #[test]
    fn one_file_of_mostly_removed_large_values_gives_its_space_back() {
        let dir = tempfile::tempdir().unwrap();
        let (store, table) = open(dir.path());
        set_and_remove(&table);
        block_on(store.reclaim()).unwrap();
        let bytes = table.opened().1.groups[0].cells.disk_space();
        let living = KEPT * VALUE_BYTES as u64;
        assert!((living..living * 2).contains(&bytes), "{bytes} bytes, {living} living");
        check_values(&table);
        drop((table, store));
        let (_store, table) = open(dir.path());
        check_values(&table);
    }

    #[test]
    fn keyspaces_with_too_many_bytes_of_either_kind_are_left_to_the_engine() {
        assert!(takes_short(RUN_BYTES_MAX, VALUE_BYTES_MAX));
        assert!(!takes_short(RUN_BYTES_MAX + 1, 0));
        assert!(!takes_short(0, VALUE_BYTES_MAX + 1));
    }

    #[test]
    fn a_large_value_that_cannot_be_read_stays_with_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let (store, table) = open(dir.path());
        set_and_remove(&table);
        let values = table.opened().1.groups[0].cells.path().join("blobs").join("0");
        let mut bytes = std::fs::read(&values).unwrap();
        // The file is sorted, so this is a part of the first row's value.
        bytes[VALUE_BYTES / 2] ^= 1;
        std::fs::write(&values, bytes).unwrap();
        block_on(store.reclaim()).unwrap();
        assert!(values.exists());
        assert_eq!(read(&table, KEPT - 1), [value(KEPT - 1)]);
    }
}
