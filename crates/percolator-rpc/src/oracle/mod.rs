//! Implements the timestamp oracle over gRPC (paper section 2.3).
//!
//! ```text
//!   callers --- RemoteOracle: batch, one request in flight --- OracleServer --- OracleNode (core)
//!                     | refused: "the leader is at X"                 |
//!                     '---- the next address, with backoff            '--- the record in the store
//! ```

mod batch;
mod client;
mod drive;
mod link;
mod queue;
mod server;
mod service;

pub use client::{RemoteOracle, RemoteOracleOptions};
pub use server::{OracleServer, OracleServerOptions};
