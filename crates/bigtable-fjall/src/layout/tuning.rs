//! Tunes the engine: filters, blocks, file sizes, and merges.
//!
//! The data blocks of all groups' files are compressed (ADR-21). The catalog's files, index blocks
//! and filters are not.
//!
//! The indexes of files beyond the first level lie in blocks that the cache holds. Whole indexes
//! would stay in memory for as long as their files, and would grow with the store.

use std::sync::Arc;

use bigtable::Layout;
use fjall::compaction::Leveled;
use fjall::config::{
    BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry, HashRatioPolicy,
    PartitioningPolicy,
};
use fjall::{CompressionType, KeyspaceCreateOptions, KvSeparationOptions};

use crate::options::Options;

/// The size from which values are in separate files, in groups of [`Layout::Versions`]. A
/// merge of runs does not copy these values.
pub(crate) const LARGE_VALUE_BYTES_MIN: u32 = 4 * 1024;
/// Size of a file of large values.
const VALUE_FILE_BYTES: u64 = 32 << 20;
/// A filter with this many bits per key is wrong for one key in a hundred.
const FILTER_BITS_PER_KEY: f32 = 10.0;
/// Slots of a block's hash index per key. More slots need fewer binary searches.
const HASH_SLOTS_PER_KEY: f32 = 0.75;
/// Bytes that the engine adds to each entry.
const ENTRY_BYTES: usize = 64;
/// The size of a sorted run's file, in write buffers. The engine merges once for each buffer
/// that it writes out, and a merge takes about one file of a level. With files as small as a
/// buffer, merges fall behind.
pub(crate) const RUN_FILE_BUFFERS: u64 = 4;
/// The least size of files that writers merge into.
const FILE_BYTES: u64 = 64 << 20;
/// The number of new runs that starts a merge of a history. The engine's default is 4.
pub(crate) const HISTORY_RUNS: u8 = 8;
/// Files of a history are smaller than others by this factor.
pub(crate) const HISTORY_FILE_PART: u64 = 2;
/// A ratio between level sizes that no level exceeds, so that only the first level is merged.
const NO_LEVEL_TOO_LARGE: f32 = 1e6;
/// A write buffer beyond this size makes no larger files.
const WRITE_BUFFER_BYTES_MAX: u64 = 4 << 30;

/// The options for the keyspace of a group with this layout.
pub(crate) fn tuned(layout: Layout, options: &Options) -> KeyspaceCreateOptions {
    let filter = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(FILTER_BITS_PER_KEY));
    let tuned = KeyspaceCreateOptions::default()
        // Never full for the engine, because the committer seals full buffers (`seal.rs`).
        .max_memtable_size(u64::MAX)
        .compaction_strategy(Arc::new(all_levels(options)))
        // The engine's default leaves the first two levels uncompressed. A store of a few hundred
        // megabytes has no other levels, and files move from level to level as they are.
        .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
        // In large files the index is stored in blocks, and the cache holds the blocks that
        // are read. A whole index would stay in memory, so memory would grow with the store.
        .index_block_partitioning_policy(PartitioningPolicy::new([false, true]))
        .filter_policy(FilterPolicy::all(filter));
    match layout {
        // A reader of an exact version has read a pointer to it, so the version exists. The
        // last and largest level therefore needs no filter.
        Layout::Versions => tuned.expect_point_read_hits(true).with_kv_separation(Some(
            KvSeparationOptions::default()
                .separation_threshold(LARGE_VALUE_BYTES_MIN)
                .file_target_size(VALUE_FILE_BYTES),
        )),
        // The question whether a column has any version is often answered with no.
        Layout::NewestFirst => tuned
            .expect_point_read_hits(false)
            .data_block_hash_ratio_policy(HashRatioPolicy::all(HASH_SLOTS_PER_KEY)),
        Layout::InMemory(_) => tuned.expect_point_read_hits(true),
    }
}

/// The options for the keyspace of a group's history. It needs no filter, because no reader looks
/// for a single key.
pub(crate) fn tuned_history(options: &Options) -> KeyspaceCreateOptions {
    tuned(Layout::Versions, options)
        .compaction_strategy(Arc::new(history_levels(options)))
        .filter_policy(FilterPolicy::disabled())
}

/// Bytes that an entry takes in a write buffer.
pub(crate) fn bytes_of(key: &[u8], value: Option<&[u8]>) -> u64 {
    (key.len() + value.map_or(0, <[u8]>::len) + ENTRY_BYTES) as u64
}

/// The merge strategy of a store that is created with these options.
fn all_levels(options: &Options) -> Leveled {
    Leveled::default().with_table_target_size(file_bytes(options))
}

/// The merge strategy of a history. A merge copies the files of the next level that its runs
/// overlap, so with twice the runs it copies half for each new byte. Files are half as large, so
/// the next level, and with it a merge, grows no further (ADR-26).
///
/// The engine keeps the strategy of a keyspace with its files, so older stores keep theirs.
fn history_levels(options: &Options) -> Leveled {
    Leveled::default()
        .with_table_target_size(file_bytes(options) / HISTORY_FILE_PART)
        .with_l0_threshold(HISTORY_RUNS)
}

/// Merges new runs with the files that they overlap in the first level, and no other levels.
/// The engine may run a merge at the same time. Only at this level is it certain that neither
/// merge puts a file between the other's files.
pub(crate) fn first_level(options: &Options) -> Leveled {
    Leveled::default()
        .with_table_target_size(file_bytes(options).max(FILE_BYTES))
        .with_l0_threshold(1)
        .with_level_ratio_policy(vec![NO_LEVEL_TOO_LARGE])
}

/// The size of a sorted run's file in a store that is created with these options.
pub(crate) fn file_bytes(options: &Options) -> u64 {
    RUN_FILE_BUFFERS * options.write_buffer_bytes.clamp(1, WRITE_BUFFER_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use bigtable::{Family, LocalityGroup, Mutation, RowMutation, Table, TableSchema, Timestamp};
    use fjall::{AbstractTree, Keyspace};
    use futures::executor::block_on;

    use super::*;
    use crate::held::wait_until;
    use crate::upkeep::seal::seal;
    use crate::{FjallStore, FjallTable};

    /// A table with one group.
    fn table(layout: Layout) -> (tempfile::TempDir, FjallTable) {
        let dir = tempfile::tempdir().unwrap();
        let store = FjallStore::open(dir.path(), Options::default()).unwrap();
        let groups = vec![LocalityGroup::on_disk("cells", layout)];
        let table = block_on(store.open_fjall_table("t", &TableSchema { groups })).unwrap();
        (dir, table)
    }

    fn write(table: &FjallTable, row: usize, time: u64) {
        let family = Family::from_static("cells");
        let cell = Mutation::set(family, "q", Timestamp::new(time).unwrap(), vec![7; 1024]);
        let row = RowMutation::new(row.to_string()).mutation(cell);
        block_on(table.mutate_row(row)).unwrap();
    }

    fn write_out(table: &FjallTable, keyspace: &Keyspace) {
        assert!(seal(&table.opened().0, keyspace));
        wait_until("the run is written", || keyspace.sealed_memtable_count() == 0);
    }

    #[test]
    fn a_new_run_is_compressed() {
        const BYTES: usize = 1 << 20;
        for layout in [Layout::Versions, Layout::NewestFirst] {
            let (_dir, table) = table(layout);
            let keyspace = &table.opened().1.groups[0].cells;
            (0..BYTES / 1024).for_each(|row| write(&table, row, 0));
            write_out(&table, keyspace);
            let bytes = keyspace.disk_space() as usize;
            assert!(bytes > 0, "{layout:?}: nothing was written");
            assert!(bytes < BYTES / 4, "{layout:?}: {bytes} bytes");
        }
    }

    #[test]
    fn a_merge_of_a_history_takes_many_runs() {
        let (_dir, table) = table(Layout::NewestFirst);
        let history = table.opened().1.groups[0].keyspace(true).clone();
        let runs = || history.tree.l0_run_count();
        let mut times = 1..;
        let mut write_run = || {
            let time = times.next().expect("times do not end");
            (0..2).for_each(|row| write(&table, row, time));
            write_out(&table, &history);
        };
        // A version moves to the history when the next one is written.
        (0..2).for_each(|row| write(&table, row, 0));
        write_run();
        wait_until("the engine has moved the run to an empty level", || runs() == 0);
        (1..HISTORY_RUNS).for_each(|_| write_run());
        assert_eq!(runs(), usize::from(HISTORY_RUNS) - 1, "no merge has begun");
        write_run();
        wait_until("the engine has merged the runs", || runs() == 0);
    }
}
