//! The edge of a cluster's servers and clients: who may connect, and how much a connection can
//! hold.
//!
//! ```text
//!   tls.rs        mutual TLS: what a certificate names is what its holder may be
//!   listener.rs   connections: so many, and none that is silent for ever
//!   arrival.rs    requests: they arrive whole in bounded time, and hold a bounded number of bytes
//!                 till then
//!   moment.rs     the clock of what must not happen too late
//! ```
//!
//! A crate of its own because servers and clients of Bigtable's API and of the oracle share it, and
//! neither knows of the other.

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
