//! Runs a mixed workload in a child process that is killed many times, then judges the store.
//!
//! ```text
//!   parent     starts the child, kills it, starts it again; judges at the end
//!   work       the child: opens the store, transfers, writes, deletes, notifies, loads web pages
//!   world      tables, columns, observers; opening, for both
//!   ledger     transactions and their outcomes, in a file that survives kill -9
//!   place      the directory of a run, and the names of its files
//!   strike     kills one process, for a script
//!   disk_full  writes and reads while a disk fails, for a script
//!   judge      checks everything that must hold after the kills
//! ```
//!
//! Invariant: each line of the ledger is one write. A `begin` line is written before its
//! transaction begins, and a `commit` line after the commit has returned. So the file never
//! contains more acknowledgements than the child received, nor fewer transactions than it
//! tried.

mod cli;
mod disk_full;
mod hbase;
mod judge;
mod ledger;
mod parent;
mod place;
mod strike;
mod work;
mod world;

/// Many small buffers are allocated on one thread and freed on another. With the system's
/// allocator, this takes a quarter of the time of `percolator demo`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    percolator_cli::program::run::<cli::Cli>()
}
