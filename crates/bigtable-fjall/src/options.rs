//! Defines the options with which a store is opened.

/// When a mutation counts as durable.
///
/// ```
/// assert_eq!(bigtable_fjall::Durability::default(), bigtable_fjall::Durability::Sync);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// Acknowledged mutations survive a sudden end of the process, but a power cut may lose
    /// the last of them. Requests marked [`Syncing::Always`](bigtable::Syncing::Always) are
    /// synced nevertheless.
    Buffered,
    /// Acknowledged mutations survive a power cut.
    #[default]
    Sync,
}

/// Options of a [`FjallStore`](crate::FjallStore).
///
/// ```
/// use bigtable_fjall::{Durability, Options};
/// let options = Options { durability: Durability::Buffered, ..Options::default() };
/// assert_eq!(options.cache_bytes, 128 << 20);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// When a mutation counts as durable.
    pub durability: Durability,
    /// Bytes of memory for blocks read from disk.
    pub cache_bytes: u64,
    /// Bytes of memory for new cells of one locality group, before they are written out as a
    /// sorted run. A group may use a few times as much while a buffer is being written out.
    /// The value at the store's creation also sets the size of its files.
    pub write_buffer_bytes: u64,
    /// Bytes on disk that journals before the newest may reach. Then the oldest buffered cells
    /// are written out. This bounds the time to open the store after a crash, and the disk that
    /// journals take. A journal without buffered cells is removed with one of the next writes, in
    /// an idle store within a minute. At least 64 MiB.
    pub journal_bytes_max: u64,
    /// Bytes of memory for newest versions that were written or read recently, so that they
    /// are not looked up again. With zero, each write costs one more lookup, and readers look
    /// up even values that were just written.
    pub recent_bytes: usize,
    /// The most versions of a column in one entry, in groups of
    /// [`NewestFirst`](bigtable::Layout::NewestFirst). With more versions, a run of writes
    /// makes fewer entries, and each write copies more. With 1, each version has its own
    /// entry.
    pub pack_versions_max: usize,
    /// The most bytes in an entry of several versions, at most 1,022. A larger version has its
    /// own entry.
    pub pack_bytes_max: usize,
    /// The most rows that are committed as one batch, with one sync. With 1, each row is
    /// committed by itself.
    pub group_rows_max: usize,
    /// Names of tables that accept small writes even when the disk is almost full, until the
    /// reserve is used up. Choose tables with small records that other clients need in order
    /// to read or to clean up.
    pub upkeep_tables: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            durability: Durability::default(),
            cache_bytes: 128 << 20,
            write_buffer_bytes: 16 << 20,
            journal_bytes_max: 64 << 20,
            recent_bytes: 64 << 20,
            pack_versions_max: 8,
            pack_bytes_max: 512,
            group_rows_max: 1024,
            upkeep_tables: Vec::new(),
        }
    }
}
