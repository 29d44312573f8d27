//! Tests the contract that every [`Store`] must fulfil: the conformance suite.
//!
//! A store that passes [`run`] fulfils the contract on which Percolator relies, except for
//! crashes (see below). Where possible, the suite sends the same requests to a family of each
//! [`Layout`](crate::Layout), and to a family that spills from its first cells on. All must
//! answer in the same way.
//!
//! # What a read may see during a mutation
//!
//! A read of a row sees each mutation of the row wholly or not at all. Every read after the
//! acknowledgement of a mutation sees the mutation. There is one exception, for in-memory
//! locality groups ([`Layout::InMemory`](crate::Layout::InMemory)). A read copies their cells
//! first, and reads the rest of the row afterwards. A mutation works in the opposite order: it
//! appears in the rest first, then in the in-memory groups, and then it is acknowledged. So
//! while a mutation is in flight:
//!
//! * Cells on disk are as of **one** moment, for a row, and for all rows of a page.
//! * In-memory cells may be as of an **earlier** moment than the cells on disk, **never a
//!   later** one.
//!
//! For Percolator this order is harmless. A commit deletes the lock (in memory) and writes the
//! write record (on disk) in one mutation. A reader that still sees the lock reads again. A
//! reader that missed the lock *and* the write record would break snapshot isolation, but the
//! order excludes that. Predicates of conditional mutations have no exception: they see one
//! moment, that of the mutation.
//!
//! # Use
//!
//! ```
//! let store = bigtable::MemoryStore::new();
//! futures::executor::block_on(bigtable::conformance::run(&store));
//! ```
//!
//! Or use one test for each case, each with a new store:
//!
//! ```
//! for case in bigtable::conformance::CASES {
//!     let store = bigtable::MemoryStore::new();
//!     futures::executor::block_on(case.run(&store));
//! }
//! ```
//!
//! A case panics if the store breaks the contract. The message has the request, the answer,
//! and the expected answer. The suite does not cover crashes, because the traits offer no way
//! to cause one.

mod bounds;
mod conditional;
mod fixture;
mod floor;
mod model;
mod read;
mod rows;
mod scan;
mod tables;
mod threads;
mod write;

use futures::future::BoxFuture;

use crate::Store;

/// Compares random operations with a simple model, as the case `model::random_operations` does.
/// Each seed has a table of its own and so many operations. The store must be new.
///
/// ```
/// let store = bigtable::MemoryStore::new();
/// futures::executor::block_on(bigtable::conformance::random_operations(&store, 2, 100));
/// ```
///
/// # Panics
/// If an answer is not that of the model.
pub async fn random_operations(store: &dyn Store, seeds: u64, operations: usize) {
    model::some(store, seeds, operations).await;
}

/// One case of the suite.
///
/// ```
/// let case = &bigtable::conformance::CASES[0];
/// futures::executor::block_on(case.run(&bigtable::MemoryStore::new()));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Case {
    name: &'static str,
    body: for<'a> fn(&'a dyn Store) -> BoxFuture<'a, ()>,
    threads: bool,
}

impl Case {
    /// The case's name: unique, of the form `topic::what`.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the case starts threads that block on the store's futures. A store whose
    /// futures need the runtime of the calling thread cannot run such a case.
    pub const fn starts_threads(&self) -> bool {
        self.threads
    }

    /// Runs the case. It opens tables of its own, which must not exist yet, and may raise the
    /// floor.
    ///
    /// # Panics
    /// If the store breaks the contract.
    pub async fn run(&self, store: &dyn Store) {
        (self.body)(store).await;
    }
}

/// Runs every case, one after the other, on the same store. The store must be new.
///
/// # Panics
/// If the store breaks the contract.
pub async fn run(store: &dyn Store) {
    for case in CASES {
        case.run(store).await;
    }
}

macro_rules! cases {
    ($($topic:ident { $($case:ident),+ $(,)? } threads: $threads:literal),+ $(,)?) => {
        /// Every case of the suite.
        pub const CASES: &[Case] = &[$($(Case {
            name: concat!(stringify!($topic), "::", stringify!($case)),
            body: |store| Box::pin($topic::$case(store)),
            threads: $threads,
        }),+),+];
    };
}

cases! {
    read {
        one_version, time_ranges, glances, versions_max, whole_family, order_of_cells, any_bytes,
        several_selections, several_rows, overlaps_are_refused, nothing_there, large_values,
    } threads: false,
    scan {
        bounds, pages, bytes_of_a_page, chosen_families, rows_without_cells, empty_ranges,
        any_bytes, older_versions,
    } threads: false,
    write {
        order_within_a_request, replacing, older_after_newer, deleting_time_ranges,
        deleting_the_newest, deleting_the_oldest, many_families_at_once, reclaiming, limits, unknown_family, refused_as_a_whole,
    } threads: false,
    conditional {
        any_probe, nothing_probed, probed_times, probed_families, value_prefixes, both_branches, repeated, batches,
    } threads: false,
    floor { refuses_what_is_older, refuses_glances, never_goes_back, not_asked_for } threads: false,
    tables { apart_from_each_other, opened_twice, other_schemas, names, tablets } threads: false,
    bounds {
        refusing, refusing_a_whole_request, refusing_over_all_tables, spilling, spilled_drains,
        pressure,
    } threads: false,
    model { random_operations } threads: false,
    rows { all_or_nothing, refused } threads: false,
    rows { seen_whole } threads: true,
    threads {
        one_winner, counter, rows_are_whole, in_memory_is_never_later, reads_follow_writes,
        floor_holds, glances_miss_nothing,
    } threads: true,
}
