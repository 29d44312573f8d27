//! Protects the servers and clients of a cluster: it decides who may connect, and bounds the
//! memory that a connection can hold.
//!
//! ```text
//!   tls.rs        the certificates of this process, and their renewal      role.rs
//!                 (loaded.rs parses them, certificate.rs names them, verify.rs keeps the peer's)
//!   listener.rs   a server's connections: a bounded number, none silent for ever (wire.rs)
//!   accept.rs     their TLS handshakes        peer.rs   the role of the sender of a request
//!   refusals.rs   a log of the refused, in few lines
//!   dial.rs       a client's connections
//!   fault.rs      the reason why an end refuses, for a person
//!   arrival.rs    requests: a bounded time to arrive, and a bounded number of bytes until then
//!   moment.rs     a clock that runs while the machine sleeps
//! ```
//!
//! This is a crate of its own because three crates share it: one for Bigtable's API, one for the
//! oracle, and one for HBase. They do not depend on each other.

#[cfg(test)]
extern crate self as cluster_net;

mod accept;
mod arrival;
#[cfg(test)]
#[path = "../tests/support/authority.rs"]
mod authority;
mod certificate;
mod dial;
mod error;
mod fault;
mod listener;
mod loaded;
mod moment;
mod peer;
#[cfg(test)]
mod recorded;
mod refusals;
mod role;
mod tls;
mod verify;
mod wire;

pub use accept::Connection;
pub use arrival::{Arrival, ArrivalLayer, Arriving, Came};
pub use dial::{Dialed, Dialer};
pub use error::Error;
pub use fault::Fault;
pub use listener::Incoming;
pub use moment::Moment;
pub use peer::{Peer, check_peer};
pub use refusals::{Reason, Refusals};
pub use role::Role;
pub use tls::{Tls, check_plaintext};
