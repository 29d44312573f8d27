//! Tables of Apache HBase behind [`bigtable::Store`] and [`bigtable::Table`]: a native client,
//! without a JVM.
//!
//! ```text
//! HbaseStore, HbaseTable     store.rs, table.rs, scan.rs
//!   plans of a change        guard.rs: plain, filtered, guarded
//!   names, net effects       encode.rs
//!   regions and servers      client.rs, regions.rs
//!   calls, failures          connection.rs, failure.rs, proto.rs
//! ```
//!
//! # What must stay true
//!
//! * **Every mutation of a row replaces its guard**, a cell with random bytes. A change that
//!   depends on what the row holds reads first, and is applied only if the guard is still the same
//!   (`guard.rs`).
//! * **Families have `NEW_VERSION_BEHAVIOR`**: without it, a deletion also hides cells that are
//!   written later at or below its timestamp, and Percolator writes such cells. [`HbaseStore`]
//!   refuses a table without it.
//! * **A connection is reset when a call has no answer in time**, so that what is queued is not
//!   applied later.
//! * HBase has no floor, so garbage collection waits for [`HbaseAddress::request_life_max`].
//!
//! # What is not here yet
//!
//! TLS, Kerberos, blocks of cells, several connections for a server. The command line and the crate
//! `percolator` do not know this store yet.

mod address;
mod client;
mod connection;
mod encode;
mod failure;
mod guard;
mod proto;
mod regions;
mod scan;
mod store;
mod table;
#[cfg(test)]
mod tests;

pub use address::HbaseAddress;
pub use store::HbaseStore;
