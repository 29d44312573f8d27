//! The data model of Bigtable, and what Percolator asks of a store that has it.
//!
//! A **table** holds rows, sorted by key. A row holds **cells**: each is a
//! `family:qualifier` column at a [`Timestamp`], with a value. Everything a [`Table`] does to one
//! row is atomic; nothing spans two rows, unless a store offers [`Store::commit_rows`]. That is the
//! whole contract that Percolator builds cross-row transactions upon (paper section 2.1).
//!
//! ```text
//!   Store  --open_table(name, schema)-->  Table
//!                                          |  read_row, scan
//!                                          |  mutate_row
//!                                          |  check_and_mutate_row(s)
//!                                          '- tablets
//!          --commit_rows-->  several rows in one step, where the store can
//! ```
//!
//! Families belong to **locality groups** ([`TableSchema`]): a scan of one group does not pay for
//! the cells of another, and a group may be served from memory. [`MemoryStore`] keeps everything in
//! ordered maps; the crate `bigtable-fjall` keeps it on disk. [`conformance`] is the suite that
//! any implementation can run; it also states what a reader may see during a mutation. [`layer`]
//! is for stores that stand before another one and change a few of its methods.
//!
//! Not here: column families created while the table lives, server-assigned timestamps, garbage
//! collection rules. Percolator needs none of them, and the last would break it.

mod commit_rows;
mod error;
mod glance;
mod limits;
mod mutation;
mod row;
mod schema;
mod select;
mod store;
mod store_id;
mod timestamp;

pub mod conformance;
pub mod layer;
mod memory;
#[doc(hidden)]
pub mod mutants;
#[doc(hidden)]
pub mod sync;

pub use bytes::Bytes;
pub use commit_rows::{AtCommit, COMMIT_ROWS_MAX, CommitRow, CommitRows, RowsOutcome};
pub use error::{Error, Result};
pub use glance::{Glance, Glanced};
pub use limits::{Limits, RequestSize};
pub use memory::MemoryStore;
pub use mutation::{ConditionalMutation, Mutation, Probe, RowMutation, Syncing};
pub use row::{Cell, Family, Row, RowKey};
pub use schema::{FamilySchema, Layout, LocalityGroup, OnFull, TableSchema};
pub use select::{ColumnSelect, Page, PageLimit, Qualifiers, RowRange, Selection};
pub use store::{Store, TABLE_NAME_BYTES_MAX, Table, check_table_name};
pub use store_id::StoreId;
pub use timestamp::{TimeRange, Timestamp};

/// Longest row key, in bytes (as Google's service has it).
pub const ROW_KEY_BYTES_MAX: usize = 4 * 1024;
/// Longest column qualifier, in bytes.
pub const QUALIFIER_BYTES_MAX: usize = 16 * 1024;
/// Largest value of one cell, in bytes.
pub const VALUE_BYTES_MAX: usize = 64 * 1024 * 1024;
