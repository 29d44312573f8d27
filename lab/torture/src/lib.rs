//! Provides [`Victim`], a process that tests kill with SIGKILL. The program
//! `percolator-torture` is built on it.
//!
//! `percolator-torture` kills its own child many times (`parent.rs`). It also kills processes
//! for two scripts (`strike.rs`): `scripts/kill-nine.sh` and `scripts/cluster.sh`. For
//! `scripts/disk-full.sh` it writes and reads rows (`disk_full.rs`). The processes of
//! `percolator-bench fig10` are [`Victim`]s, too. [`Servers`] are those of an HBase cluster.

mod servers;
mod victim;

pub use servers::{DataNode, Program, ServerProcess, Servers, process_ids};
pub use victim::{Stopped, Victim, end_process, kill_process};
