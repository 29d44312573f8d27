//! Offers Percolator's services over the network, so that many processes can use one store.
//!
//! ```text
//!   oracle::OracleServer   one of any number of oracle processes, of which one leads and answers
//!   oracle::RemoteOracle   a client of the oracle, which batches the requests of its callers
//!   etcd::EtcdLocks        liveness tokens and advisory locks as leases of an etcd cluster;
//!                          needs the feature `etcd`
//!   health                 gRPC's health protocol
//!   Tls, Role              mutual TLS for all of them: a certificate names the roles of its holder
//! ```
//!
//! This crate only transports. `percolator-core` decides which process leads and when it may
//! answer ([`OracleNode`](percolator_core::OracleNode)); its tests run in virtual time.

mod address;
mod error;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod health;
pub mod oracle;
mod proto;

pub use address::Address;
pub use cluster_net::{Role, Tls, check_peer, check_plaintext};
pub use error::Error;
