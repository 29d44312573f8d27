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

mod cluster;
mod config;
mod database;
mod room;
mod runtime;

pub use bigtable_fjall::{Durability, Recovery};
pub use bigtable_grpc::Address as StoreAddress;
pub use cluster::{Cluster, Locks};
pub use config::Config;
pub use database::{OpenOptions, Percolator};
pub use percolator_core::*;
pub use percolator_rpc::{self as rpc, Address, Tls};
pub use room::free_bytes;
pub use runtime::TokioRuntime;
