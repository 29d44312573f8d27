//! Percolator's services over the network: the timestamp oracle, for many processes over one store.
//!
//! ```text
//!   oracle::OracleServer   one of any number of oracle processes; the one that leads answers
//!   oracle::RemoteOracle   the oracle, seen from a client: batches what its callers ask for
//! ```
//!
//! Transports only: who leads, and when it may answer, is decided in `percolator-core`
//! ([`OracleNode`](percolator_core::OracleNode)), where the tests of that run in virtual time.

mod address;
mod error;
pub mod oracle;
mod proto;

pub use address::Address;
pub use error::Error;
