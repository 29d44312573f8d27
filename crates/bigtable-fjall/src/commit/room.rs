//! Keeps room on the disk: the committer refuses a request before the disk is so full that the
//! engine fails.
//!
//! The engine needs more space after a batch is acknowledged. It writes its buffers out as
//! sorted runs, and merges runs, which needs their size once more until the merge ends. If the
//! engine finds no space, it stops. So the committer keeps a reserve free:
//!
//! ```text
//!   growth  upkeep   what the reserve is for
//!     x       x      the contents of write buffers, written out
//!     x       x      journals, manifests and the like                      FILES_BYTES
//!     x              one merge: the largest keyspace, bounded in files    MERGE_FILES
//!     x              requests that are upkeep                               a write buffer
//! ```
//!
//! A request is **upkeep** if it is small, and either removes something or writes to a table
//! that [`Options::upkeep_tables`] names. Everything else is growth. Upkeep may use the last
//! part of the reserve. Without that, a full disk would have three consequences:
//! * Nothing could be removed from it.
//! * Readers would wait for locks that no client could remove.
//! * The oracle could not reserve timestamps, which readers need.
//!
//! A refused request was not written at all, so the store answers reads as before. The next
//! request looks at the disk again. Growth resumes when the free space exceeds the reserve by
//! one write buffer. That margin is needed because the space of a buffer comes and goes while
//! the engine writes it out.
//!
//! A look costs a system call and a visit to each keyspace. While there is room, the committer
//! looks at most once per [`RECENT`]. It looks earlier when requests have used up the free
//! space that the last look found.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use bigtable::Mutation;

use crate::layout::table_info::TableInfo;
use crate::layout::tuning::file_bytes;
use crate::options::Options;

/// The time for which the result of one look at the disk is used.
const RECENT: Duration = Duration::from_millis(10);
/// The number of times that a byte of a request is written: to the journal, and out of its
/// write buffer.
const COPIES: u64 = 2;
/// Most bytes of a request that counts as upkeep.
const UPKEEP_BYTES_MAX: u64 = 64 << 10;
/// Space for the journal's last batches and manifests, and for file systems that round up.
pub(crate) const FILES_BYTES: u64 = 1 << 20;
/// The most files of a sorted run that one merge writes at a time.
pub(crate) const MERGE_FILES: u64 = 8;

/// The purpose for which a request needs space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Growth,
    Upkeep,
}

impl Use {
    /// The use and the bytes of these mutations of a table.
    pub(super) fn of(table: &TableInfo, mutations: &[Mutation]) -> (Use, u64) {
        let removes = mutations.iter().any(|one| matches!(one, Mutation::Delete { .. }));
        let bytes = mutations.iter().map(bytes_of).sum();
        let upkeep = (removes || table.is_upkeep()) && bytes <= UPKEEP_BYTES_MAX;
        (if upkeep { Use::Upkeep } else { Use::Growth }, bytes)
    }
}

fn bytes_of(mutation: &Mutation) -> u64 {
    let bytes = match mutation {
        Mutation::Set { qualifier, value, .. } => qualifier.len() + value.len(),
        Mutation::Delete { qualifier, .. } => qualifier.len(),
    };
    bytes as u64
}

/// The space that must stay free.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Reserve {
    growth: u64,
    pub(super) upkeep: u64,
    /// Additional space that must be free before growth resumes.
    margin: u64,
}

impl Reserve {
    /// The reserve of a store with `buffered` bytes in write buffers, and `largest` bytes in
    /// its largest keyspace.
    pub(super) fn new(options: &Options, buffered: u64, largest: u64) -> Self {
        let upkeep = buffered.saturating_add(FILES_BYTES);
        let merge = largest.min(MERGE_FILES.saturating_mul(file_bytes(options)));
        let growth = upkeep.saturating_add(merge).saturating_add(options.write_buffer_bytes);
        Reserve { growth, upkeep, margin: options.write_buffer_bytes }
    }

    fn of(self, what: Use) -> u64 {
        match what {
            Use::Growth => self.growth,
            Use::Upkeep => self.upkeep,
        }
    }
}

/// The committer's knowledge of the disk. Only the holder of the commit lock uses it.
#[derive(Debug, Default)]
pub(crate) struct Room {
    looked: Cell<Option<Instant>>,
    /// Free bytes at the last look, minus the bytes admitted since.
    pub(super) free: Cell<u64>,
    pub(super) reserve: Cell<Reserve>,
    /// No writes before this time, because the engine was opened anew more than once recently.
    rest: Cell<Option<Instant>>,
    /// Whether growth was refused, and not admitted since.
    refused: Cell<bool>,
}

impl Room {
    pub(super) fn is_recent(&self) -> bool {
        self.looked.get().is_some_and(|looked| looked.elapsed() < RECENT)
    }

    pub(super) fn learn(&self, free: u64, reserve: Reserve) {
        self.looked.set(Some(Instant::now()));
        self.free.set(free);
        self.reserve.set(reserve);
    }

    /// Refuses everything until `then`.
    pub(crate) fn rest_until(&self, then: Option<Instant>) {
        self.rest.set(then);
    }

    /// The time for which everything is still refused.
    pub(super) fn rest(&self) -> Option<Duration> {
        let left = self.rest.get()?.checked_duration_since(Instant::now())?;
        (!left.is_zero()).then_some(left)
    }

    /// Takes the space of a request, or returns how many bytes would have to be free.
    pub(super) fn take(&self, what: Use, bytes: u64) -> std::result::Result<(), u64> {
        let mut wanted = self.reserve.get().of(what).saturating_add(bytes.saturating_mul(COPIES));
        if what == Use::Growth {
            if self.refused.get() {
                wanted = wanted.saturating_add(self.reserve.get().margin);
            }
            self.refused.set(self.free.get() < wanted);
        }
        if self.free.get() < wanted {
            return Err(wanted);
        }
        self.free.set(self.free.get().saturating_sub(bytes.saturating_mul(COPIES)));
        Ok(())
    }
}

/// The file system of a store's directory.
#[derive(Debug)]
pub(crate) struct Disk(File);

impl Disk {
    pub(crate) fn of(directory: &Path) -> io::Result<Self> {
        File::open(directory).map(Disk)
    }

    /// The bytes that this user may still write. A file system that does not report this
    /// counts as one with room.
    pub(super) fn free(&self) -> u64 {
        let known = rustix::fs::fstatvfs(&self.0);
        known.map_or(u64::MAX, |known| known.f_bavail.saturating_mul(known.f_frsize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_reserve_follows_what_the_engine_has_still_to_write() {
        let options = Options::default();
        let file = file_bytes(&options);
        let empty = Reserve::new(&options, 0, 0);
        assert_eq!(empty, Reserve { upkeep: MIB, growth: 17 * MIB, margin: 16 * MIB });
        let buffered = Reserve::new(&options, 40 * MIB, 10 * MIB);
        assert_eq!(buffered, Reserve { upkeep: 41 * MIB, growth: 67 * MIB, ..empty });
        let large = Reserve::new(&options, 0, 1 << 40);
        assert_eq!(large.growth - empty.growth, 8 * file, "one merge, however large the store is");
    }

    #[test]
    fn growth_is_refused_first_and_upkeep_uses_the_rest() {
        let room = Room::default();
        let reserve = Reserve { growth: 1000, upkeep: 400, margin: 50 };
        room.learn(1050, reserve);
        assert_eq!(
            room.take(Use::Growth, 25),
            Ok(()),
            "what it writes and the reserve fit exactly"
        );
        assert_eq!(room.take(Use::Growth, 1), Err(1002), "the space is taken");
        assert_eq!(room.take(Use::Upkeep, 300), Ok(()));
        assert_eq!(room.take(Use::Upkeep, 1), Err(402));
        room.learn(1051, reserve);
        assert_eq!(room.take(Use::Growth, 1), Err(1052), "a little space is not enough");
        room.learn(1052, reserve);
        assert_eq!(room.take(Use::Growth, 1), Ok(()), "there is space again");
        room.learn(1002, reserve);
        assert_eq!(room.take(Use::Growth, 1), Ok(()));
    }
}
