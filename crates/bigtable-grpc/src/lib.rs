//! google.bigtable.v2, Google's public API of Bigtable: a durable [`Server`] of it on one machine,
//! and [`GrpcStore`], a [`Store`](bigtable::Store) behind that API.
//!
//! The only crate that meets Google's protobufs (`proto.rs`), and `time.rs` is the only file that
//! knows how their microseconds and our timestamps relate.

mod client;
#[cfg(test)]
#[path = "../tests/suite/emulator.rs"]
mod emulator;
mod filter;
mod identity;
mod proto;
mod server;
mod syncing;
mod time;

pub use client::{Address, BareConditional, BareRead, BareTable, ClientOptions, GrpcStore};
pub use cluster_net::{Role, Tls};
pub use server::{ServeError, ServeOptions, Server};
