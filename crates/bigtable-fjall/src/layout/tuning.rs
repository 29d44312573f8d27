//! How the engine is tuned: filters, blocks, sizes of files, and merges.
//!
//! The indexes of files beyond the first level lie in blocks that the cache holds. Whole indexes
//! would stay in memory for as long as their files, and would grow with the store.

use std::sync::Arc;

use bigtable::Layout;
use fjall::compaction::Leveled;
use fjall::config::{
    BloomConstructionPolicy, FilterPolicy, FilterPolicyEntry, HashRatioPolicy, PartitioningPolicy,
};
use fjall::{KeyspaceCreateOptions, KvSeparationOptions};

use crate::options::Options;

/// From this size on, values lie in files of their own in groups of [`Layout::Versions`]: a merge
/// of runs does not copy them.
const LARGE_VALUE_BYTES_MIN: u32 = 4 * 1024;
/// Size of a file of large values.
const VALUE_FILE_BYTES: u64 = 32 << 20;
/// A filter of this size errs for one key in a hundred.
const FILTER_BITS_PER_KEY: f32 = 10.0;
/// Slots of a block's hash index for each of its keys: the larger, the fewer binary searches.
const HASH_SLOTS_PER_KEY: f32 = 0.75;
/// What the engine adds to each entry, in bytes.
const ENTRY_BYTES: usize = 64;
/// Size of a file of a sorted run, in write buffers. The engine merges once for each buffer that it
/// has written out, and a merge takes about one file of a level: with files as small as buffers it
/// falls behind.
const RUN_FILE_BUFFERS: u64 = 4;
/// The least size of files that writers merge into.
const FILE_BYTES: u64 = 64 << 20;
/// By how much each level may be larger than the one before where only the first is to be merged.
const NO_LEVEL_TOO_LARGE: f32 = 1e6;
/// Beyond this a larger write buffer makes no larger files.
const WRITE_BUFFER_BYTES_MAX: u64 = 4 << 30;

/// How a keyspace of a group with this layout is created.
pub(crate) fn tuned(layout: Layout, options: &Options) -> KeyspaceCreateOptions {
    let filter = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(FILTER_BITS_PER_KEY));
    let tuned = KeyspaceCreateOptions::default()
        // The committer seals full buffers: `seal.rs`.
        .max_memtable_size(u64::MAX)
        .compaction_strategy(Arc::new(all_levels(options)))
        // The index of a large file lies in blocks, and the cache holds those that are read.
        // A whole index stays in memory: memory would grow with the store.
        .index_block_partitioning_policy(PartitioningPolicy::new([false, true]))
        .filter_policy(FilterPolicy::all(filter));
    match layout {
        // Whoever asks for an exact version has read a pointer to it, so it is there: the last and
        // largest level needs no filter.
        Layout::Versions => tuned.expect_point_read_hits(true).with_kv_separation(Some(
            KvSeparationOptions::default()
                .separation_threshold(LARGE_VALUE_BYTES_MIN)
                .file_target_size(VALUE_FILE_BYTES),
        )),
        // "Is there any version" is often answered by no.
        Layout::NewestFirst => tuned
            .expect_point_read_hits(false)
            .data_block_hash_ratio_policy(HashRatioPolicy::all(HASH_SLOTS_PER_KEY)),
        Layout::InMemory(_) => tuned.expect_point_read_hits(true),
    }
}

/// What an entry takes in a write buffer, in bytes.
pub(crate) fn bytes_of(key: &[u8], value: Option<&[u8]>) -> u64 {
    (key.len() + value.map_or(0, <[u8]>::len) + ENTRY_BYTES) as u64
}

/// How the engine merges in a store that is created with these options.
pub(crate) fn all_levels(options: &Options) -> Leveled {
    Leveled::default().with_table_target_size(file_bytes(options))
}

/// A merge of new runs with what they meet in the first level, and of no other levels: the engine
/// may be at a merge meanwhile, and of two it is sure only here that neither puts a file between
/// the other's.
pub(crate) fn first_level(options: &Options) -> Leveled {
    Leveled::default()
        .with_table_target_size(file_bytes(options).max(FILE_BYTES))
        .with_l0_threshold(1)
        .with_level_ratio_policy(vec![NO_LEVEL_TOO_LARGE])
}

/// Size of a file of a sorted run in a store that is created with these options.
pub(crate) fn file_bytes(options: &Options) -> u64 {
    RUN_FILE_BUFFERS * options.write_buffer_bytes.clamp(1, WRITE_BUFFER_BYTES_MAX)
}
