//! Protects the servers and clients of a cluster: it decides who may connect, and bounds the
//! memory that a connection can hold.
//!
//! ```text
//!   tls.rs        mutual TLS: a certificate names the roles of its holder
//!   listener.rs   connections: a bounded number, and none that is silent for ever
//!   arrival.rs    requests: a bounded time to arrive, and a bounded number of bytes until then
//!   moment.rs     a clock that runs while the machine sleeps
//! ```
//!
//! This is a crate of its own because two crates share it: one for Bigtable's API, one for the
//! oracle. They do not depend on each other.

mod arrival;
mod error;
mod listener;
mod moment;
mod tls;

pub use arrival::{Arrival, ArrivalLayer, Arriving, Came};
pub use error::Error;
pub use listener::{Connection, Incoming};
pub use moment::Moment;
pub use tls::{Role, Tls, check_peer, check_plaintext};
