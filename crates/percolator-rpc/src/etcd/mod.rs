//! The lock service in an etcd cluster: liveness tokens and advisory row locks as leases (paper
//! sections 2.2 and 2.4; etcd in the place of Chubby).
//!
//! ```text
//!   <prefix>token/<incarnation>   under a lease that its process keeps alive
//!   <prefix>lock/<name>           under a lease of the lock's lifetime
//! ```
//!
//! etcd's servers judge the leases by their own clocks. Safety does not depend on that: a token
//! that is gone makes its owner suspect, and the row transaction on the primary lock decides.
//!
//! Not here: etcd's users and passwords; connections are judged by the network they come from.

mod keep;
mod locks;

pub use locks::{EtcdLocks, EtcdOptions};
