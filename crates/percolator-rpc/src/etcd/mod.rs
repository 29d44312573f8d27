//! Implements the lock service in an etcd cluster, in the place of the paper's Chubby. Liveness
//! tokens and advisory row locks are leases (paper sections 2.2 and 2.4). Needs the feature
//! `etcd`.
//!
//! ```text
//!   <prefix>token/<incarnation>   under a lease that its process keeps alive
//!   <prefix>lock/<name>           under a lease of the lock's lifetime
//! ```
//!
//! etcd's servers judge the leases by their own clocks. Safety does not depend on these clocks.
//! An expired token only makes its owner suspect; the row transaction on the primary lock
//! decides.
//!
//! The client does not support etcd's users and passwords. Restrict access by the network or by
//! certificates.

mod keep;
mod locks;

pub use locks::{EtcdLocks, EtcdOptions};
