//! Percolator: cross-row transactions with snapshot isolation, and durable observers, over a sorted
//! store. A faithful implementation of Google's Percolator (OSDI 2010), for keeping a large
//! repository up to date by many small changes instead of by recomputing it.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use percolator::{Column, Error, Percolator};
//!
//! let db = Percolator::in_memory().await?;
//! let (accounts, bal) = (db.table("accounts").await?, Column::literal("bal"));
//! db.transact(async |mut tx| {
//!     tx.set(&accounts, "Bob", &bal, "10")?;
//!     tx.set(&accounts, "Joe", &bal, "2")
//! }).await?;
//!
//! // Move 7 from Bob to Joe, atomically; a conflicting transfer makes the closure run again.
//! db.transact(async |mut tx| {
//!     for (who, change) in [("Bob", -7), ("Joe", 7)] {
//!         let old = tx.get(&accounts, who, &bal).await?.unwrap_or_default();
//!         let old: i64 = String::from_utf8_lossy(&old).parse().map_err(Error::application)?;
//!         tx.set(&accounts, who, &bal, (old + change).to_string())?;
//!     }
//!     Ok(())
//! }).await?;
//!
//! let now = db.snapshot().await?;
//! assert_eq!(now.get(&accounts, "Joe", &bal).await?.as_deref(), Some(&b"9"[..]));
//! # Ok::<(), Error>(()) }).unwrap();
//! ```
//!
//! See [`Client`] for what a database can do, [`Transaction`] for reading and writing, and
//! [`Observer`] for code that runs when data changes.
//!
//! # Features
//!
//! A feature adds items and changes none. Without any, a database lies in memory
//! ([`Percolator::in_memory`]) or in a store of your own ([`Percolator::over`]).
//!
//! * `embedded`, the default, adds a database on disk: `Percolator::open`, `open_with`,
//!   `recovery`, `backup` and `restore`; `OpenOptions`, `Durability`, `admin::Recovery`,
//!   `admin::BackedUp` and `admin::Restored`.
//! * `cluster` adds a database that several processes share: `Percolator::connect` and
//!   `from_config`; `Cluster`, `Locks`, `Config`, `Address`, `StoreAddress`, `Tls` and `rpc` in the
//!   module [`cluster`].
//! * `etcd` adds the lock service of a cluster in etcd: `Locks::etcd`, `Locks::etcd_with_tls`,
//!   `rpc::etcd`. It turns `cluster` on.
//!
//! # The allocator
//!
//! A program that writes much should choose its allocator. A database allocates many small buffers
//! on one thread and frees them on another, in many ages, and glibc's allocator slows down as they
//! become more. The commands of `percolator` use mimalloc:
//!
//! ```standalone_crate
//! #[global_allocator]
//! static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "embedded")]
mod backup;
#[cfg(feature = "cluster")]
mod config;
#[cfg(feature = "cluster")]
mod connect;
mod database;
#[cfg(feature = "embedded")]
mod embedded;
mod room;
mod tokio_runtime;

#[cfg(feature = "embedded")]
pub use bigtable_fjall::Durability;
pub use database::Percolator;
#[cfg(feature = "embedded")]
pub use embedded::OpenOptions;
// The names of the root; the modules below that have more in them take the place of its own.
pub use percolator_core::face::*;

/// Looking after a database: garbage collection, locks, counters, the history of a cell.
pub mod admin {
    #[cfg(feature = "embedded")]
    pub use bigtable_fjall::{BackedUp, Recovery, Restored};
    pub use percolator_core::face::admin::*;

    pub use crate::room::free_bytes;
}

/// A database that several processes share: where its store, its oracles and its locks are.
///
/// The traits and their implementations in this process are there without a feature; all that
/// connects to another process needs the feature `cluster`.
pub mod cluster {
    #[cfg(feature = "cluster")]
    pub use bigtable_grpc::Address as StoreAddress;
    pub use percolator_core::face::cluster::*;
    #[cfg(feature = "cluster")]
    pub use percolator_rpc::{self as rpc, Address, Tls};

    #[cfg(feature = "cluster")]
    pub use crate::config::Config;
    #[cfg(feature = "cluster")]
    pub use crate::connect::{Cluster, Locks};
}

/// Time, tasks and randomness, as a database is given them.
pub mod runtime {
    pub use percolator_core::face::runtime::*;

    pub use crate::tokio_runtime::TokioRuntime;
}
