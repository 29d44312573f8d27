//! Percolator: cross-row transactions with snapshot isolation, and durable observers, over a
//! sorted store. A complete implementation of Google's Percolator (OSDI 2010). It keeps a
//! large repository up to date by many small changes, instead of computing it anew.
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
//! See [`Client`] for the operations of a database, [`Transaction`] for reading and writing,
//! and [`Observer`] for code that runs when data changes.
//!
//! [The book](https://github.com/percolator-rs/percolator/blob/main/docs/book/README.md) explains
//! how all this works, says what a program may rely on, and has recipes with complete programs.
//!
//! # Features
//!
//! A feature adds items and changes none. Without features, a database lives in memory
//! ([`Percolator::in_memory`]) or in a store that you provide ([`Percolator::over`]).
//!
//! * `embedded`, the default, adds a database on disk: `Percolator::open`, `open_with`,
//!   `recovery`, `backup` and `restore`; `OpenOptions`, `Durability`, `admin::Recovery`,
//!   `admin::BackedUp` and `admin::Restored`.
//! * `cluster` adds a database that several processes share: `Percolator::connect` and
//!   `from_config`; `Cluster`, `Locks`, `Config`, `Setting`, `Address`, `StoreAddress`,
//!   `ClientOptions`, `BackedUp`, `Tls` and `rpc` in the module [`cluster`].
//! * `hbase` adds stores in Apache HBase, with addresses such as `hbase://HOST:PORT/NAMESPACE`. It
//!   enables `cluster`.
//! * `etcd` adds a cluster's lock service in etcd: `Locks::etcd`, `Locks::etcd_with_tls`,
//!   `rpc::etcd`. It enables `cluster`.
//!
//! # The allocator
//!
//! A program that writes much should choose its allocator. A database allocates many small
//! buffers on one thread and frees them on another, some soon and some late. The allocator of
//! glibc becomes slower as their number grows. The commands of `percolator` use mimalloc:
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
#[cfg(feature = "cluster")]
mod process;
#[cfg(doctest)]
mod readme;
mod room;
#[cfg(feature = "cluster")]
mod settings;
#[cfg(feature = "cluster")]
mod store_address;
mod tokio_runtime;

#[cfg(feature = "embedded")]
pub use bigtable_fjall::Durability;
pub use database::Percolator;
#[cfg(feature = "embedded")]
pub use embedded::OpenOptions;
// The names of the root. Where a module below has more items, it replaces the module of that
// name.
pub use percolator_core::face::*;

/// Administration of a database: garbage collection, locks, counters, the history of a cell.
pub mod admin {
    #[cfg(feature = "embedded")]
    pub use bigtable_fjall::{BackedUp, Recovery, Restored};
    pub use percolator_core::face::admin::*;

    pub use crate::room::free_bytes;
}

/// A database that several processes share: its store, its oracles and its lock service.
///
/// The traits, and their implementations within one process, need no feature. Everything that
/// connects to another process needs the feature `cluster`.
pub mod cluster {
    #[cfg(feature = "cluster")]
    pub use bigtable_grpc::{BackedUp, ClientOptions};
    pub use percolator_core::face::cluster::*;
    #[cfg(feature = "cluster")]
    pub use percolator_rpc::{self as rpc, Address, Tls};

    #[cfg(feature = "cluster")]
    pub use crate::config::Config;
    #[cfg(feature = "cluster")]
    pub use crate::connect::{Cluster, Locks};
    #[cfg(feature = "cluster")]
    pub use crate::process::this_process;
    #[cfg(feature = "cluster")]
    pub use crate::settings::{Form, Setting};
    #[cfg(feature = "cluster")]
    pub use crate::store_address::StoreAddress;
}

/// The time, tasks and randomness that a database uses.
pub mod runtime {
    pub use percolator_core::face::runtime::*;

    pub use crate::tokio_runtime::TokioRuntime;
}
