//! Implements [`bigtable::Store`] and [`bigtable::Table`] over tables of Apache HBase, with a
//! native client that needs no JVM.
//!
//! ```text
//! HbaseStore, HbaseTable     store.rs, table.rs, scan.rs
//!   plans of a change        guard.rs: plain, filtered, guarded
//!   names, net effects       encode.rs
//!   dead cells, empty rows   reclaim.rs
//!   regions and servers      client.rs, regions.rs
//!   calls, failures          connection.rs, calls.rs, attempts.rs, failure.rs,
//!                            proto.rs
//!   servers, their settings   admin.rs, info.rs, examine.rs
//! ```
//!
//! # What must stay true
//!
//! * **Every mutation of a row replaces its guard**, a cell with random bytes. A change that
//!   depends on the row's cells reads first, and applies only if the guard is unchanged
//!   (`guard.rs`).
//! * **Families have `NEW_VERSION_BEHAVIOR`.** Without it, a deletion also hides cells that are
//!   written later at or below its timestamp, and Percolator writes such cells. [`HbaseStore`]
//!   refuses a table without it.
//! * **A connection is reset when a call has no answer in time**, so that queued requests are
//!   not applied later.
//! * HBase has no floor, so garbage collection waits for [`HbaseAddress::request_life_max`].
//!
//! # What is missing
//!
//! Kerberos, blocks of cells, and several connections to one server.

mod address;
mod admin;
mod attempts;
mod calls;
mod client;
mod connection;
mod encode;
mod examine;
mod failure;
mod guard;
mod info;
mod proto;
mod reclaim;
mod regions;
mod scan;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod upkeep;
mod version;

pub use bigtable::{Error, Result};
pub use cluster_net::Tls;

pub use address::HbaseAddress;
pub use admin::{HbaseCluster, HbaseServer, Reshape};
pub use info::HbaseProcess;
pub use store::{HbaseOptions, HbaseStore};

/// Reads bytes as a server's answer. Fuzzing checks that no bytes make it panic.
///
/// ```
/// bigtable_hbase::check_answer(b"\x02\x08\x07");
/// ```
#[doc(hidden)]
pub fn check_answer(bytes: &[u8]) {
    connection::check_answer(bytes);
}
