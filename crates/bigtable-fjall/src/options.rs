//! How a store is opened.

/// When a mutation counts as durable.
///
/// ```
/// assert_eq!(bigtable_fjall::Durability::default(), bigtable_fjall::Durability::Sync);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// Acknowledged mutations survive the end of the process, however sudden, but the last of them
    /// may be lost with the power. Requests marked `sync` are synced nevertheless.
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
    /// Memory for blocks read from disk.
    pub cache_bytes: u64,
    /// Memory for new cells of one locality group, before they are written out as a sorted run. A
    /// group may hold a few times this much while it is being written out. A store's files are
    /// sized by what it is created with.
    pub write_buffer_bytes: u64,
    /// Size on disk that journals before the newest may reach before the oldest new cells are
    /// written out. It bounds the time to open the store after a crash. At least 64 MiB.
    pub journal_bytes_max: u64,
    /// Memory for newest versions that were written or read lately, so that nobody need look for
    /// them again. Zero remembers none: what is written costs a lookup more, and what was just
    /// written is looked for by its readers.
    pub recent_bytes: usize,
    /// Most versions of a column that lie in one entry, in groups of
    /// [`NewestFirst`](bigtable::Layout::NewestFirst). The more, the fewer entries a run of writes
    /// makes, and the more each of them copies. One has each version in an entry of its own.
    pub pack_versions_max: usize,
    /// Most bytes of an entry of several versions, at most 1,022. Larger versions have their own.
    pub pack_bytes_max: usize,
    /// Most rows that are committed as one batch, with one sync. One commits each by itself.
    pub group_rows_max: usize,
    /// Names of tables that are written on when the disk is almost full, for as long as the last of
    /// the reserve lasts: small records that others depend on in order to read or to clean up.
    pub upkeep_tables: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            durability: Durability::default(),
            cache_bytes: 128 << 20,
            write_buffer_bytes: 16 << 20,
            journal_bytes_max: 256 << 20,
            recent_bytes: 64 << 20,
            pack_versions_max: 8,
            pack_bytes_max: 512,
            group_rows_max: 1024,
            upkeep_tables: Vec::new(),
        }
    }
}
