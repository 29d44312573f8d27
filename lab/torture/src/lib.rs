//! The laboratory's killer of processes, and `percolator-torture`, which uses it.
//!
//! `percolator-torture` kills its own child again and again (`parent.rs`), and the processes that
//! the scripts name (`strike.rs`): `scripts/kill-nine.sh` and `scripts/cluster.sh`. The processes
//! of `percolator-bench fig10` are [`Victim`]s, too.

mod victim;

pub use victim::{Victim, kill_process};
