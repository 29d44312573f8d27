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
const LARGE_VALUE_BYTES_MIN: u32 = 4 * 1024;
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
const RUN_FILE_BUFFERS: u64 = 4;
/// The least size of files that writers merge into.
const FILE_BYTES: u64 = 64 << 20;
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

/// Bytes that an entry takes in a write buffer.
pub(crate) fn bytes_of(key: &[u8], value: Option<&[u8]>) -> u64 {
    (key.len() + value.map_or(0, <[u8]>::len) + ENTRY_BYTES) as u64
}

/// The merge strategy of a store that is created with these options.
pub(crate) fn all_levels(options: &Options) -> Leveled {
    Leveled::default().with_table_target_size(file_bytes(options))
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
    use futures::executor::block_on;

    use super::*;
    use crate::FjallStore;
    use crate::held::wait_until;
    use crate::upkeep::seal::seal;

    #[test]
    fn a_new_run_is_compressed() {
        const BYTES: usize = 1 << 20;
        for layout in [Layout::Versions, Layout::NewestFirst] {
            let dir = tempfile::tempdir().unwrap();
            let store = FjallStore::open(dir.path(), Options::default()).unwrap();
            let groups = vec![LocalityGroup::on_disk("cells", layout)];
            let table = block_on(store.open_fjall_table("t", &TableSchema { groups })).unwrap();
            let (engine, info) = table.opened();
            let keyspace = &info.groups[0].cells;
            for row in 0..BYTES / 1024 {
                let family = Family::from_static("cells");
                let cell = Mutation::set(family, "q", Timestamp::ZERO, vec![7; 1024]);
                let row = RowMutation::new(row.to_string()).mutation(cell);
                block_on(table.mutate_row(row)).unwrap();
            }
            assert!(seal(&engine, keyspace));
            wait_until("the run is written", || keyspace.sealed_memtable_count() == 0);
            let bytes = keyspace.disk_space() as usize;
            assert!(bytes > 0, "{layout:?}: nothing was written");
            assert!(bytes < BYTES / 4, "{layout:?}: {bytes} bytes");
        }
    }
}
