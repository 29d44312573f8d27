//! Percolator's services over the network: the timestamp oracle, for many processes over one store.
//!
//! ```text
//!   oracle::OracleServer   one of any number of oracle processes; the one that leads answers
//!   oracle::RemoteOracle   the oracle, seen from a client: batches what its callers ask for
//!   etcd::EtcdLocks        liveness tokens and advisory locks as leases of an etcd cluster
//!   Tls, Role              mutual TLS for all of them: what a certificate names is what its holder
//!                          may be
//! ```
//!
//! Transports only: who leads, and when it may answer, is decided in `percolator-core`
//! ([`OracleNode`](percolator_core::OracleNode)), where the tests of that run in virtual time.

mod address;
mod error;
pub mod etcd;
pub mod oracle;
mod proto;

pub use address::Address;
pub use cluster_net::{Role, Tls, check_peer, check_plaintext};
pub use error::Error;
