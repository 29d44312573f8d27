//! Defines the data model of Bigtable, and the traits of a store on which Percolator runs.
//!
//! A **table** holds rows, sorted by key. A row holds **cells**. A cell is a version of a
//! `family:qualifier` column at a [`Timestamp`], with a value. Each operation of a [`Table`]
//! on one row is atomic. No operation is atomic across rows, unless a store offers
//! [`Store::commit_rows`]. Percolator builds its cross-row transactions on this contract alone
//! (paper section 2.1).
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
//! A conditional mutation has a **predicate**, a list of **probes** ([`Probe`]). Each probe
//! asks whether the row has a cell in some columns and times. A store may have a **floor**
//! ([`Store::floor`]): it refuses reads and conditional mutations at timestamps below the
//! floor.
//!
//! Families belong to **locality groups** ([`TableSchema`]). A scan of one group does not pay
//! for the cells of another, and a group may be served from memory.
//!
//! The crate has these parts besides the traits:
//! * [`MemoryStore`] keeps everything in ordered maps. The crate `bigtable-fjall` stores it on
//!   disk.
//! * [`conformance`] is a suite of tests for any implementation. It also states what a read
//!   may see during a mutation.
//! * [`layer`] is for stores that wrap another store and change a few of its methods.
//!
//! Three parts of Bigtable are missing: new column families in an existing table, timestamps
//! assigned by the server, and garbage collection rules. Percolator needs none of them, and
//! garbage collection rules would break it.

mod commit_rows;
mod error;
mod finding;
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
pub use finding::{Finding, Verdict};
pub use glance::{Glance, Glanced};
pub use limits::{Limits, RequestSize};
pub use memory::MemoryStore;
pub use mutation::{ConditionalMutation, Mutation, Probe, RowMutation, Syncing};
pub use row::{Cell, Family, Row, RowKey};
pub use schema::{FamilySchema, Layout, LocalityGroup, OnFull, TableSchema};
pub use select::{ColumnSelect, Page, PageLimit, Qualifiers, RowRange, Selection};
pub use store::{REQUEST_LIFE_MAX, SUPERSEDED_BYTES_MAX, Store, TABLE_NAME_BYTES_MAX};
pub use store::{Table, check_table_name};
pub use store_id::StoreId;
pub use timestamp::{TimeRange, Timestamp};

/// The longest row key, in bytes, as in Google's service.
pub const ROW_KEY_BYTES_MAX: usize = 4 * 1024;
/// The longest column qualifier, in bytes.
pub const QUALIFIER_BYTES_MAX: usize = 16 * 1024;
/// The largest value of one cell, in bytes.
pub const VALUE_BYTES_MAX: usize = 64 * 1024 * 1024;
