//! Serves and uses google.bigtable.v2, Google's public API of Bigtable: [`Server`] is a durable
//! server of it on one machine, and [`GrpcStore`] a [`Store`](bigtable::Store) behind it.
//!
//! No other crate uses Google's protobufs (`proto.rs`). Only `time.rs` converts between their
//! microseconds and our timestamps.

mod client;
#[cfg(test)]
#[path = "../tests/suite/emulator.rs"]
mod emulator;
mod families;
mod filter;
mod identity;
mod proto;
mod server;
mod syncing;
mod time;

pub use bigtable_fjall::BackedUp;
pub use client::{Address, BareConditional, BareRead, BareTable, ClientOptions, GrpcStore};
pub use cluster_net::{Role, Tls};
pub use server::{CATALOG_TABLE, ServeError, ServeOptions, Server};
